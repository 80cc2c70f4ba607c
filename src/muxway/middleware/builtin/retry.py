"""`retry`: a second try where it does no harm."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.config import durations
from muxway.errors import RpcError, UpstreamError, UpstreamSaid
from muxway.middleware.engine.base import Middleware
from muxway.middleware.engine.running import did_not_run, may_repeat
from muxway.wire import envelopes

if TYPE_CHECKING:
    from muxway.calls.server_request import ServerRequest
    from muxway.middleware.engine.base import Next, Request, Result

_NOT_RUN: Final = frozenset({"not_running", "overloaded", "limited"})
_UNCERTAIN: Final = frozenset({"lost", "timeout", "malformed"})
"""Reasons after which it may have run, and another try may have a better end."""
_MOST: Final = 10
_LONGEST_PAUSE: Final = 10.0
_LONGEST: Final = 60.0
"""Seconds after which nothing is tried again."""


class Retry(Middleware):
    """Try again, after a pause, what failed for want of a server that answers.

    Only what provably did not run is repeated (the server was not running, or it or a limit refused), and what does no
    harm twice: reads, prompts, completions, and tools that are listed with `readOnlyHint` or `idempotentHint`.
    Everything else fails with a message that says it may have run. An error that the server itself gave is an answer,
    and is passed on as it is. Nothing is repeated once the caller was asked something.

    Options:
        times: how often to try again, 1 to 10. Default: 2.
        pause: seconds before the first repetition, up to 10; doubled for each further one, and varied by half.
            Default: 0.2.

    Whatever the options say, nothing is tried again after a minute.

    Costs a task: about 19 µs a call that succeeds.
    """

    def __init__(self, *, times: int = 2, pause: float | str = 0.2) -> None:
        if not 1 <= times <= _MOST:
            raise ValueError(f"`times` must be a whole number from 1 to {_MOST}")
        first_pause = durations.seconds(pause)
        if not 0 < first_pause <= _LONGEST_PAUSE:
            raise ValueError(f"`pause` must be a positive number of seconds, {_LONGEST_PAUSE:g} at most")
        self._times = times
        self._pause = first_pause
        self._heard: dict[int, _Heard] = {}

    async def _repeated(self, request: Request, go: Next) -> Result:
        heard = self._heard[id(request)] = _Heard("requestState" in request.call.params)
        try:
            return await self._try(request, go, heard)
        finally:
            del self._heard[id(request)]

    call_tool = _repeated
    read_resource = _repeated
    get_prompt = _repeated
    complete = _repeated

    async def _try(self, request: Request, go: Next, heard: _Heard) -> Result:
        clock = asyncio.get_running_loop().time
        end = clock() + _LONGEST
        tries = 0
        while True:
            tries += 1
            try:
                return await go(request)
            except UpstreamSaid:
                raise
            except RpcError as error:
                pause = self._pause_before(tries, error)
                if tries > self._times or heard.question or not _may_help(request, error) or clock() + pause > end:
                    raise _explained(request, error, tries) from None
            await asyncio.sleep(pause)

    def _pause_before(self, tries: int, error: RpcError) -> float:
        # Varied, so that all who lost the same server do not come back in one moment.
        varied = self._pause * 2 ** (tries - 1) * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        asked_for = _said(error).get("retryAfterMs")
        return max(min(varied, _LONGEST_PAUSE), asked_for / 1000 if isinstance(asked_for, int) else 0.0)

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest | None:
        """Note that the caller is asked something: it must not be asked the same again."""
        heard = self._heard.get(id(request))
        if heard is not None:
            heard.question = True
        return ask

    def notice(self, request: Request, params: dict[str, envelopes.Buffer]) -> dict[str, envelopes.Buffer] | None:
        """Drop what a further try reports again: progress may only grow."""
        heard = self._heard.get(id(request))
        progress = envelopes.number(params.get("progress"))
        if heard is None or progress is None:
            return params
        if progress <= heard.progress:
            return None
        heard.progress = progress
        return params


class _Heard:
    """What was heard of a request so far, over all tries."""

    __slots__ = ("progress", "question")

    def __init__(self, question: bool) -> None:
        self.question = question
        self.progress = -math.inf


def _may_help(request: Request, error: RpcError) -> bool:
    if did_not_run(error):
        return True
    return isinstance(error, UpstreamError) and error.reason in _UNCERTAIN and may_repeat(request)


def _said(error: RpcError) -> dict[str, Any]:
    """What muxway itself says in the data of an error."""
    data: object = error.data
    return cast("dict[str, Any]", data).get("muxway") or {} if isinstance(data, dict) else {}


def _explained(request: Request, error: RpcError, tries: int) -> RpcError:
    if not isinstance(error, UpstreamError):
        return error
    message = error.message
    if error.reason not in _NOT_RUN and not may_repeat(request) and "may have run" not in message:
        message += "; the call may have run"
    if tries > 1:
        message += f" (tried {tries} times)"
    return error if message == error.message else UpstreamError(error.upstream, error.reason, message)
