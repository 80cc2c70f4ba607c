"""Plain functions as middleware, on plain dicts: `(metadata, next)` around lists, `(request, next)` around requests.

    async def quiet(metadata, next):
        metadata = await next(metadata)
        metadata["tools"] = [tool for tool in metadata["tools"] if tool["name"] != "shout"]
        return metadata

    async def polite(request, next):
        response = await next(request)
        return response

What a function is for is told by the name of its first parameter. An ordinary function works, too: it runs in a thread,
and its `next` waits.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Raw

from muxway.errors import INTERNAL_ERROR, RpcError
from muxway.middleware.engine.base import HOOKS, Middleware, Request, Result
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.middleware.engine.base import Next

_LISTS: Final = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}
_KINDS: Final = ("metadata", "request")
_MOST_THREADS: Final = 10_000


def of_function(function: Callable[..., Any], name: str) -> type[Middleware]:
    """A function as a kind of middleware.

    Raises:
        ValueError: its first parameter says neither `metadata` nor `request`.
    """
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) < 2 or parameters[0] not in _KINDS:
        raise ValueError(f"{name} must take (metadata, next) or (request, next), not ({', '.join(parameters)})")
    base = _Metadata if parameters[0] == "metadata" else _Requests
    return type(getattr(function, "__name__", name), (base,), {"function": staticmethod(function)})


class _OfFunction(Middleware):
    function: Callable[..., Any]

    def __init__(self) -> None:
        # A thread for each call under way, as each waits for what is further in: with too few of them, calls that
        # hold one would wait for ever for calls that want one. None is started before it is needed.
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="middleware")

    async def _call(self, given: dict[str, Any], go: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        if inspect.iscoroutinefunction(self.function):
            outcome: object = await self.function(given, go)
        else:
            outcome = await self._call_in_thread(given, go)
        if not isinstance(outcome, dict):
            raise TypeError(f"returned {type(outcome).__name__} instead of a dict")
        return cast("dict[str, Any]", outcome)

    async def _call_in_thread(self, given: dict[str, Any], go: Callable[[dict[str, Any]], Any]) -> object:
        loop = asyncio.get_running_loop()
        under_way: list[Future[dict[str, Any]]] = []
        over = False

        def go_and_wait(changed: dict[str, Any]) -> dict[str, Any]:
            if over:
                raise CancelledError
            future: Future[dict[str, Any]] = asyncio.run_coroutine_threadsafe(go(changed), loop)
            under_way.append(future)
            if over:  # It may have been cancelled just now, before there was something to cancel here.
                future.cancel()
            return future.result()

        try:
            return await loop.run_in_executor(self._threads, self.function, given, go_and_wait)
        finally:
            # If the call was cancelled nothing will come back to what waits in the thread.
            over = True
            for future in under_way:
                future.cancel()

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Metadata(_OfFunction):
    """Around what a server says of itself: its lists."""

    async def _list(self, request: Request, go: Next) -> Result:
        kind = _LISTS[request.method]

        async def onward(metadata: dict[str, Any]) -> dict[str, Any]:
            del metadata  # What goes in asks for the list; there is nothing in it to change.
            return dict((await go(request)).value)

        listed = await self._call({kind: []}, onward)
        return Result.of(listed)

    list_tools = _list
    list_resources = _list
    list_prompts = _list


class _Requests(_OfFunction):
    """Around every request that is not a list."""

    async def any_request(self, request: Request, go: Next) -> Result:
        if request.method in _LISTS or request.method not in HOOKS:
            return await go(request)

        async def onward(changed: dict[str, Any]) -> dict[str, Any]:
            params = {name: Raw(envelopes.encode(value)) for name, value in changed.get("params", {}).items()}
            try:
                return {"result": dict((await go(request.with_params(params))).value)}
            except RpcError as error:
                return {"error": {"code": error.code, "message": error.message, "data": error.data}}

        given = {name: envelopes.value(raw) for name, raw in request.call.params.items()}
        response = await self._call({"method": request.method, "params": given}, onward)
        if "error" in response:
            error = response["error"]
            code = error.get("code", INTERNAL_ERROR)
            raise RpcError(str(error.get("message", "")), code=code, data=error.get("data"))
        return Result.of(response.get("result", response))
