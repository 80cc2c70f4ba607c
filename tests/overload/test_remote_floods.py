"""A remote server that floods is slowed down and ended like a child (docs/behaviour.md#a-remote-server-errs)."""

from __future__ import annotations

import pytest

from muxway.net.metronome import LONG
from muxway.servers.transports import intake

from .flooding_remote import KINDS, flooding
from .watched import TRIES, hostile, watched

OTHERS = ("comments", "notices", "lines")
"""Enough to see that a stream is read the same way."""


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        *((kind, "get") for kind in KINDS if kind != "crumbs"),
        *((kind, where) for where in ("answer", "sse") for kind in OTHERS),
    ],
)
def test_no_remote_flood_holds_the_loop_or_goes_on_for_ever(
    kind: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: not 20 ms of work at a time; others are served meanwhile; in the end its calls fail with the reason."""
    monkeypatch.setattr(intake, "_BURST", 0.02)
    monkeypatch.setattr(intake, "FLOOD_SECONDS", 0.3)
    found: list[float] = []
    while len(found) < TRIES and (not found or found[-1] >= LONG):
        found.append(flooded(kind, where))
    assert min(found) < LONG


@pytest.mark.parametrize("where", ["get", "answer", "sse"])
def test_a_remote_flood_in_chunks_of_one_byte_is_ended_too(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: what it costs to find the parts of a stream is paid for, not only what is in them.

    A single read of them takes longer than 20 ms, in the HTTP library.
    """
    monkeypatch.setattr(intake, "_BURST", 0.02)
    monkeypatch.setattr(intake, "FLOOD_SECONDS", 0.3)
    flooded("crumbs", where)


def flooded(kind: str, where: str) -> float:
    """Let it flood until it is ended; the seconds of the longest turn."""
    with flooding(kind, where) as server, watched({"s": hostile(), "up": {"url": server.url}}) as gateway:
        session = gateway.session()
        gateway.call(session, "s__say", kind="")
        gateway.longest(anew=True)
        caller = gateway.caller(session, "up__flood")
        calls = gateway.served_during(caller, session, "s__say")
        longest = gateway.turn()
        assert b"flooded its event streams" in caller.answer
        assert calls >= 2
        return longest
