"""When those who listen are told that a list has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from muxway.catalog.globs import Globs
from muxway.catalog.selection import Selection
from muxway.exchange import change_notices
from muxway.exchange.change_notices import ChangeNotices

from .faking import FakeClock, World, offer

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _as_users_have_it(quiet: Callable[[float], None]) -> None:  # pyright: ignore[reportUnusedFunction]
    quiet(2.0)


class Scene:
    """A gateway whose clock passes when a test says so, and what listeners heard."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.world = World({}, offer("up", "a"))
        self.runtime = runtime = self.world.runtime
        runtime.notices = ChangeNotices(self.clock, runtime._compare)
        self.heard: list[frozenset[str]] = []
        self.stop = runtime.dispatcher().listen(self.heard.append)

    def has(self, *tools: str) -> None:
        self.runtime.publish([offer("up", *tools)])


def test_many_changes_are_one_notice_after_two_quiet_seconds() -> None:
    """docs/behaviour.md#lists: 100 changes within 2 s are told once, 2 s after the last."""
    scene = Scene()
    for number in range(100):
        scene.has("a", f"b{number}")
        scene.clock.pass_(0.02)
    assert scene.heard == []
    scene.clock.pass_(1.9)
    assert scene.heard == []
    scene.clock.pass_(0.2)
    assert scene.heard == [{"tools"}]
    scene.clock.pass_(60)
    assert len(scene.heard) == 1


def test_who_never_stops_changing_is_told_of_every_ten_seconds() -> None:
    """docs/behaviour.md#lists: not later than 10 s after the first change."""
    scene = Scene()
    for number in range(25):
        scene.has("a", f"b{number}")
        scene.clock.pass_(1)
    assert len(scene.heard) == 2


def test_streams_are_told_sooner_than_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#lists: after half a second, whatever waits beside them."""
    monkeypatch.setattr(change_notices, "QUIET_STREAM", 0.5)
    scene = Scene()
    streamed: list[frozenset[str]] = []
    scene.runtime.dispatcher().listen(streamed.append, stateless=True)
    for number in range(10):
        scene.has("a", f"b{number}")
        scene.clock.pass_(0.1)
    assert streamed == []
    scene.clock.pass_(0.5)
    assert (streamed, scene.heard) == ([{"tools"}], [])
    scene.clock.pass_(1.5)
    assert (streamed, scene.heard) == ([{"tools"}], [{"tools"}])
    assert scene.clock.waiting == 0


def test_what_is_again_as_it_was_is_no_news() -> None:
    """docs/behaviour.md#lists: equal lists are no news, whatever was between them."""
    scene = Scene()
    scene.has("a", "b")
    scene.clock.pass_(1)
    scene.has("a")
    scene.clock.pass_(20)
    assert scene.heard == []
    assert scene.clock.waiting == 0


def test_what_somebody_asked_for_is_told_at_once_and_not_again() -> None:
    """docs/behaviour.md#lists: a reload does not wait."""
    scene = Scene()
    scene.has("a", "b")
    scene.runtime.notices.tell()
    assert scene.heard == [{"tools"}]
    scene.clock.pass_(20)
    assert len(scene.heard) == 1


def test_who_has_gone_is_told_nothing_and_nothing_is_kept_for_it() -> None:
    """Ours: a client may leave while changes are gathered."""
    scene = Scene()
    scene.has("a", "b")
    scene.stop()
    scene.clock.pass_(20)
    assert scene.heard == []
    scene.has("a", "c")
    scene.runtime.close()
    assert scene.clock.waiting == 0


def test_each_view_hears_of_its_own_changes_once() -> None:
    """docs/views.md: one notice at most for each view whose list did change."""
    scene = Scene()
    selections = {name: Selection(view=name, tools=Globs([f"up__{name}*"])) for name in ("b", "c")}
    scene.runtime.publish(scene.runtime.snapshot.given, replace(scene.runtime.snapshot.settings, selections=selections))
    heard: dict[str, int] = {"b": 0, "c": 0}

    def count(view: str) -> None:
        heard[view] += 1

    for view in heard:
        scene.runtime.dispatcher(view).listen(lambda _, view=view: count(view))
    for number in range(100):
        scene.has("a", f"b{number}")
        scene.clock.pass_(0.02)
    scene.clock.pass_(20)
    assert heard == {"b": 1, "c": 0}
