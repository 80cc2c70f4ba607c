"""What a subject is, and what can come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from muxway.testing import ToolScript
    from tests.compatibility.matrix import Pair

OLDEST, NEWEST = "2024-11-05", "2026-07-28"


@dataclass(frozen=True)
class Outcome:
    """What came of one subject between one client and one server."""

    kind: str
    """`same`, `converted`, `impossible`, `failed`, or `absent`: nothing that one of the two revisions could begin."""
    words: str = ""


SAME = Outcome("same")
ABSENT = Outcome("absent")


def converted(words: str) -> Outcome:
    """It arrives, in other words."""
    return Outcome("converted", words)


def impossible(words: str, because: bool) -> Outcome:
    """It does not arrive, for this reason, which must be true of these two revisions."""
    assert because, f"it did not arrive, and not because of this: {words}"
    return Outcome("impossible", words)


@dataclass(frozen=True)
class Subject:
    """Something that may cross."""

    name: str
    title: str
    group: str
    check: Callable[[Pair], Awaitable[Outcome]]
    since: str = OLDEST
    """The first revision whose servers have it."""
    until: str = NEWEST
    """The last one."""
    clients_since: str = OLDEST
    """The first revision whose clients have it, if it is they who begin."""
    tool: ToolScript | None = None
    """What the server's tool of this name does; None: it echoes its arguments."""
    definition: Mapping[str, Any] = field(default_factory=dict)
    """What the definition of that tool has besides name and input schema."""
    together: bool = False
    """All clients try it at the same time, and may wait for each other: `Pair.everybody`."""

    @property
    def sentence(self) -> str:
        """What the page says of it."""
        return (self.check.__doc__ or "").strip()

    def exists_in(self, revision: str) -> bool:
        """Whether a server of this revision can have it."""
        return self.since <= revision <= self.until


SUBJECTS: list[Subject] = []


def subject(
    title: str, group: str, **more: Any
) -> Callable[[Callable[[Pair], Awaitable[Outcome]]], Callable[[Pair], Awaitable[Outcome]]]:
    """Make a function a subject."""

    def add(check: Callable[[Pair], Awaitable[Outcome]]) -> Callable[[Pair], Awaitable[Outcome]]:
        SUBJECTS.append(Subject(check.__name__, title, group, check, **more))
        return check

    return add


def says(result: dict[str, Any]) -> ToolScript:
    """A tool that answers with this."""
    return lambda server, request: server.reply(request, result)


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def same(got: object, sent: object) -> Outcome:
    """It must have arrived as it was sent."""
    assert got == sent, f"sent {sent!r}, got {got!r}"
    return SAME
