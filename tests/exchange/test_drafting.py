"""Catalogs that are made before they are in force: the same as those made at once, and used only while they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muxway.catalog.globs import Globs
from muxway.catalog.selection import Selection
from muxway.exchange.views import View

from .faking import FakeLink, World, answers, member, shows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.catalog.build import Source

MANY = tuple(f"u:{number}" for number in range(600))
METHODS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


def a_world() -> World:
    """Two servers, and a view of some of it."""
    world = World({name: member(FakeLink(answers(b"{}"))) for name in "ab"}, shows("a", resources=("u:0",)))
    selection = Selection(view="v", servers=frozenset("a"), prompts=Globs(["a__p"]))
    world.switchboard.views["v"] = View(world.switchboard, selection)
    return world


def after(number: int) -> list[Source]:
    """What the servers show then."""
    first = shows("a", prompts=("p", "q"), resources=MANY[number:], templates=("t:{x}",))
    return [first, shows("b", prompts=("p",), resources=MANY[:1])]


def lists(world: World) -> list[object]:
    """All that clients see, and what is odd about it."""
    board = world.switchboard
    boards = (board, *board.views.values())
    shown = [[one.catalog.page(0, None), one.prompts.page(0, None)] for one in boards]
    return [*shown, *([[*one.resources.resources], [*one.resources.templates]] for one in boards), board.findings]


def draft(world: World, sources: Sequence[Source]) -> None:
    """Have it ready."""
    work = world.switchboard.drafting(sources)
    assert work is not None
    world.switchboard.drafted = work()


def test_a_draft_is_what_publishing_would_have_made() -> None:
    """Ours: docs/behaviour.md#size-limits; how it is made is nobody's business."""
    world, other = a_world(), a_world()
    for number in range(3):
        sources = after(number)
        draft(world, sources)
        assert world.switchboard.drafting(sources) is None, "it is ready"
        edition = world.switchboard.drafted.edition if world.switchboard.drafted else None
        world.switchboard.publish(after(number))
        assert edition is not None
        assert world.switchboard.resources is edition.resources, "it was used"
        other.switchboard.publish(after(number))
        assert lists(world) == lists(other)


@pytest.mark.parametrize("change", ["catalogs", "sources", "servers", "view"])
def test_a_draft_that_fits_no_more_is_not_used(change: str) -> None:
    """Ours: whatever happens while it is made, what is listed is what there is."""
    world, other = a_world(), a_world()
    draft(world, after(0))
    last = after(0)
    for board in (world.switchboard, other.switchboard):
        if change == "catalogs":
            drafted, board.drafted = board.drafted, None
            board.publish(after(5))
            board.drafted = drafted
        elif change == "sources":
            last = [*after(0)[:1], shows("b", prompts=("r",))]
        elif change == "servers":
            board.shared.members["c"] = member(None)  # pyright: ignore[reportIndexIssue] - the fleet may
        else:
            view = board.views["v"]
            assert isinstance(view, View)
            view.select(Selection(view="v", servers=frozenset("b")))
        board.publish(last)
    assert lists(world) == lists(other)
    assert world.switchboard.drafted is None


def test_a_small_change_is_not_drafted() -> None:
    """Ours: a few definitions take less than another thread does."""
    assert a_world().switchboard.drafting([shows("a", resources=MANY[:10])]) is None
