"""A gateway in a thread of its own, with a metronome, and a client in this one: what the client does is not counted."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..pace import heap_of_its_own, slowness
from ..serve.harness import BOTH, a_web, initialize, request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from muxway import Gateway


SERVER = str(Path(__file__).with_name("hostile_server.py"))
WAIT = 60.0
TRIES = 4
"""What holds the loop does so each time; what a machine does now and then does not."""


class Watched:
    """A gateway behind HTTP."""

    def __init__(self, servers: dict[str, Any], **top: Any) -> None:
        self._top = {"mcpServers": servers, **top}
        self._ready = threading.Event()
        self._done: asyncio.Event | None = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the test, in its thread
            self._failed = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        async with a_web(top=self._top) as web:
            gateway = web.world.gateway
            await gateway.settled()
            self.port, self.metronome, self._dispatcher = web.port, gateway.metronome, gateway.runtime.dispatcher()
            self._gateway = gateway
            self.metronome.watch()
            self._ready.set()
            await self._done.wait()
            self.metronome.stop()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT)
        if self._failed is not None:
            raise self._failed
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        assert self._done is not None
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(WAIT)

    def holds_for(self, most: float, do: Callable[[], object]) -> float:
        """Do something, again if that held the loop for as long as this. How long it holds the loop at the least."""
        found: list[float] = []
        while len(found) < TRIES and (not found or found[-1] >= most):
            self.longest(anew=True)
            do()
            found.append(self.turn())
        return min(found)

    def turn(self) -> float:
        """Seconds that the longest turn would have taken on the machine that the bars are for."""
        return self.longest() / slowness()

    def longest(self, *, anew: bool = False) -> float:
        """Seconds of the longest turn since the last time it was counted anew."""
        answer: list[float] = []
        asked = threading.Event()

        def look(beats: int = 5) -> None:
            # A turn shows at the beat after it.
            if beats:
                self._loop.call_later(0.005, look, beats - 1)
                return
            answer.append(self.metronome.longest)
            if anew:
                self.metronome.begin()
            asked.set()

        self._loop.call_soon_threadsafe(look)
        assert asked.wait(WAIT)
        return answer[0]

    @contextlib.contextmanager
    def changing(self, capability: str) -> Iterator[None]:
        """What is done inside changes the lists that go by this capability: wait until clients would be told."""
        listening, changed = threading.Event(), threading.Event()

        def told(which: frozenset[str]) -> None:
            if capability in which:
                changed.set()

        def listen() -> None:
            self._dispatcher.listen(told)
            listening.set()

        self._loop.call_soon_threadsafe(listen)
        assert listening.wait(WAIT)
        yield
        assert changed.wait(WAIT)

    def do(self, what: Callable[[Gateway], Coroutine[Any, Any, None]]) -> None:
        """Do something to the gateway where it runs."""
        asyncio.run_coroutine_threadsafe(what(self._gateway), self._loop).result(WAIT)

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        """POST this body."""
        given = {"Content-Type": "application/json", "Accept": BOTH, **headers}
        for attempt in range(2):
            try:
                self._connection.request("POST", "/mcp", body, given)
                response = self._connection.getresponse()
                return response, response.read()
            except (http.client.HTTPException, ConnectionError):
                self._connection.close()
                if attempt:
                    raise
        raise AssertionError

    def session(self, revision: str = "2025-11-25", capabilities: dict[str, Any] | None = None) -> dict[str, str]:
        """The headers of a new session."""
        first = initialize(revision)
        first["params"]["capabilities"] = capabilities or {}
        response, body = self.post(json.dumps(first).encode(), {})
        assert response.status == 200, body
        return {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}

    def call(self, session: dict[str, str], tool: str, **arguments: Any) -> bytes:
        """Call a tool; the body of the answer."""
        message = request("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}, 7)
        return self.post(json.dumps(message).encode(), session)[1]

    def caller(self, session: dict[str, str], tool: str) -> Caller:
        """Call a tool on a connection of its own, beside what else goes on."""
        caller = Caller(self.port, session, tool)
        caller.start()
        return caller

    def served_during(self, caller: Caller, session: dict[str, str], tool: str) -> int:
        """Call a healthy server's tool until that call is over; how often it answered."""
        end = time.monotonic() + WAIT
        calls = 0
        while caller.is_alive():
            assert time.monotonic() < end
            assert b'"result"' in self.call(session, tool)
            calls += 1
        return calls


class Caller(threading.Thread):
    """Makes one call."""

    def __init__(self, port: int, session: dict[str, str], tool: str) -> None:
        super().__init__(daemon=True)
        self._port, self._session, self._tool = port, session, tool
        self.answer = b""

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT)
        headers = {"Content-Type": "application/json", "Accept": BOTH, **self._session}
        body = json.dumps(request("tools/call", {"name": self._tool, "arguments": {}}, 8))
        connection.request("POST", "/mcp", body, headers)
        self.answer = connection.getresponse().read()
        connection.close()


def hostile(listing: str = "", *when: str) -> dict[str, Any]:
    """A server that lists this, from the beginning or `later`."""
    return {"command": sys.executable, "args": [SERVER, listing, *when], "callTimeout": 20}


@contextlib.contextmanager
def watched(servers: dict[str, Any], **top: Any) -> Iterator[Watched]:
    """A gateway in front of these."""
    with heap_of_its_own(), Watched(servers, **top) as gateway:
        yield gateway
