"""A remote server that floods is slowed down and ended like a child (docs/behaviour.md#a-remote-server-errs)."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import TYPE_CHECKING

import pytest

from muxway.metronome import LONG
from muxway.upstream import intake

from ..serve.harness import BOTH, request
from .flooding_remote import KINDS, flooding
from .watched import WAIT, Watched, hostile, watched

if TYPE_CHECKING:
    from collections.abc import Callable

OTHERS = ("comments", "notices", "lines")
"""Enough to see that a stream is read the same way."""


class Caller(threading.Thread):
    """Makes one call, beside the others."""

    def __init__(self, gateway: Watched, session: dict[str, str], tool: str) -> None:
        super().__init__(daemon=True)
        self._gateway, self._session, self._tool = gateway, session, tool
        self.answer = b""

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._gateway.port, timeout=WAIT)
        headers = {"Content-Type": "application/json", "Accept": BOTH, **self._session}
        body = json.dumps(request("tools/call", {"name": self._tool, "arguments": {}}, 8))
        connection.request("POST", "/mcp", body, headers)
        self.answer = connection.getresponse().read()
        connection.close()


def served_until(gateway: Watched, session: dict[str, str], over: Callable[[], bool]) -> int:
    """Calls the healthy server for as long as that; how often it answered."""
    end = time.monotonic() + WAIT
    calls = 0
    while not over():
        assert time.monotonic() < end
        assert b'"result"' in gateway.call(session, "s__say", kind="")
        calls += 1
    return calls


@pytest.mark.parametrize(
    ("kind", "where"),
    [*((kind, "get") for kind in KINDS), *((kind, where) for where in ("answer", "sse") for kind in OTHERS)],
)
def test_no_remote_flood_holds_the_loop_or_goes_on_for_ever(
    kind: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: not 20 ms of work at a time; others are served meanwhile; in the end its calls fail with the reason."""
    monkeypatch.setattr(intake, "_BURST", 0.02)
    monkeypatch.setattr(intake, "FLOOD_SECONDS", 0.3)
    with flooding(kind, where) as server, watched({"s": hostile(), "up": {"url": server.url}}) as gateway:
        session = gateway.session()
        gateway.call(session, "s__say", kind="")
        gateway.longest(anew=True)
        caller = Caller(gateway, session, "up__flood")
        caller.start()
        calls = served_until(gateway, session, lambda: not caller.is_alive())
        longest = gateway.longest()
        assert b"flooded its event streams" in caller.answer
        assert longest < LONG
        assert calls >= 2
