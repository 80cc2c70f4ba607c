"""`timeout`: how long a call may take, by tool."""

from __future__ import annotations

import asyncio
import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from muxway.config import durations
from muxway.errors import UpstreamError
from muxway.middleware.engine.base import Middleware

if TYPE_CHECKING:
    from muxway.calls.server_request import ServerRequest
    from muxway.errors import RpcError
    from muxway.middleware.engine.base import Next, Request, Result


class Timeout(Middleware):
    """End calls that take too long: the server is told to stop, the caller gets an error that says so.

    The clock stands still while the caller is asked something, and starts anew with the answer. Progress does not
    restart it; for that there is `callTimeout`.

    Options:
        seconds: for every tool call, read, prompt and completion. Without it, only for the tools below.
        tools: glob → seconds, for tools by the name they are called with; the first glob that fits counts.

    The error is -32603 with `data.muxway.reason` = `timeout`. What the server did until then is done: the call may have
    run.

    Costs a task and a timer: about 24 µs a call.
    """

    def __init__(self, *, seconds: float | str | None = None, tools: dict[str, float | str] | None = None) -> None:
        if seconds is None and not tools:
            raise ValueError('give `seconds`, such as 30, or `tools`, such as {"github__*": 10}, or both')
        self._seconds = None if seconds is None else _positive(seconds)
        self._tools = {glob: _positive(given) for glob, given in (tools or {}).items()}
        self._clocks: dict[int, _TimeoutClock] = {}

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Around `tools/call`."""
        name = request.name
        for glob, seconds in self._tools.items():
            if fnmatchcase(name, glob):
                return await self._timed(request, go, seconds)
        return await self._others(request, go)

    async def _others(self, request: Request, go: Next) -> Result:
        return await go(request) if self._seconds is None else await self._timed(request, go, self._seconds)

    read_resource = _others
    get_prompt = _others
    complete = _others

    async def _timed(self, request: Request, go: Next, seconds: float) -> Result:
        scope = asyncio.timeout(seconds)
        self._clocks[id(request)] = _TimeoutClock(scope, seconds)
        try:
            async with scope:
                return await go(request)
        except TimeoutError:
            who = f'server "{request.server}"' if request.server else "the server"
            why = f"{who} did not answer within {seconds:g} s (middleware timeout) and was told to stop"
            raise UpstreamError(request.server, "timeout", f"{why}; the call may have run") from None
        finally:
            self._clocks.pop(id(request)).over = True

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest | None:
        """Stop the clock until the caller has answered."""
        clock = self._clocks.get(id(request))
        return ask if clock is None else clock.stopped_for(ask)


def _positive(given: float | str) -> float:
    """Seconds. Raises ValueError."""
    read = durations.seconds(given)
    if not 0 < read < math.inf:
        raise ValueError('each timeout must be a positive number of seconds, or text like "30s", "2m"')
    return read


class _TimeoutClock:
    """The clock of one call, and how many questions it waits for."""

    def __init__(self, scope: asyncio.Timeout, seconds: float) -> None:
        self._scope = scope
        self._seconds = seconds
        self._open = 0
        self.over = False
        """Whether the call has ended; a question may be settled later."""

    def stopped_for(self, ask: ServerRequest) -> ServerRequest:
        """The question, with the clock stopped until it is settled."""

        def answer(result: bytes) -> None:
            self._go_on()
            ask.answer(result)

        def refuse(error: RpcError) -> None:
            self._go_on()
            ask.refuse(error)

        def withdrawn() -> None:
            self._go_on()
            passed.withdraw()

        self._open += 1
        self._scope.reschedule(None)
        passed = ask.passed_on(answer, refuse)
        ask.on_withdrawn = withdrawn
        return passed

    def _go_on(self) -> None:
        self._open -= 1
        if not self._open and not self.over:
            self._scope.reschedule(asyncio.get_running_loop().time() + self._seconds)
