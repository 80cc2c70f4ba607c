"""Snapshots that are made before they are in force: the same as those made at once, and used only while they fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from muxway.catalog.globs import Globs
from muxway.catalog.selection import Selection

from .faking import FakeLink, World, answers, member, shows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.catalog.build import Source
    from muxway.exchange.runtime import Runtime

MANY = tuple(f"u:{number}" for number in range(600))
METHODS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


VIEW = Selection(view="v", servers=frozenset("a"), prompts=Globs(["a__p"]))


def a_world() -> World:
    """Two servers, and a view of some of it."""
    world = World({name: member(FakeLink(answers(b"{}"))) for name in "ab"}, shows("a", resources=("u:0",)))
    select(world.runtime, VIEW)
    return world


def select(runtime: Runtime, selection: Selection) -> None:
    """Have the view show this."""
    settings = replace(runtime.snapshot.settings, selections={"v": selection})
    runtime.publish(runtime.snapshot.given, settings)


def after(number: int) -> list[Source]:
    """What the servers show then."""
    first = shows("a", prompts=("p", "q"), resources=MANY[number:], templates=("t:{x}",))
    return [first, shows("b", prompts=("p",), resources=MANY[:1])]


def lists(world: World) -> list[object]:
    """All that clients see, and what is odd about it."""
    snapshot = world.runtime.snapshot
    seen = (snapshot.whole, *snapshot.views.values())
    shown = [[one.tools.page(0, None), one.prompts.page(0, None)] for one in seen]
    entries = ([[*one.resources.resources], [*one.resources.templates]] for one in seen)
    return [*shown, *entries, snapshot.whole.findings]


def prepare(world: World, sources: Sequence[Source]) -> None:
    """Have it ready."""
    work = world.runtime.preparing(sources)
    assert work is not None
    world.runtime.prepared = work()


def test_what_is_prepared_is_what_publishing_would_have_made() -> None:
    """Ours: docs/behaviour.md#size-limits; how it is made is nobody's business."""
    world, other = a_world(), a_world()
    for number in range(3):
        sources = after(number)
        prepare(world, sources)
        assert world.runtime.preparing(sources) is None, "it is ready"
        prepared = world.runtime.prepared
        world.runtime.publish(after(number))
        assert prepared is not None
        assert world.runtime.snapshot is prepared.snapshot, "it was used"
        other.runtime.publish(after(number))
        assert lists(world) == lists(other)


@pytest.mark.parametrize("change", ["catalogs", "sources", "servers", "view"])
def test_what_was_prepared_and_fits_no_more_is_not_used(change: str) -> None:
    """Ours: whatever happens while it is made, what is listed is what there is."""
    world, other = a_world(), a_world()
    prepare(world, after(0))
    last = after(0)
    for one in (world, other):
        runtime = one.runtime
        if change == "catalogs":
            prepared, runtime.prepared = runtime.prepared, None
            runtime.publish(after(5))
            runtime.prepared = prepared
        elif change == "sources":
            last = [*after(0)[:1], shows("b", prompts=("r",))]
        elif change == "servers":
            one.members["c"] = member(None)
        else:
            prepared, runtime.prepared = runtime.prepared, None
            select(runtime, Selection(view="v", servers=frozenset("b")))
            runtime.prepared = prepared
        runtime.publish(last)
    assert lists(world) == lists(other)
    assert world.runtime.prepared is None


def test_a_small_change_is_not_prepared() -> None:
    """Ours: a few definitions take less than another thread does."""
    assert a_world().runtime.preparing([shows("a", resources=MANY[:10])]) is None
