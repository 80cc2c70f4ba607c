"""`cache`: what was answered a moment ago is answered again without asking the server."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.config import durations
from muxway.middleware.engine.base import Middleware
from muxway.middleware.engine.epochs import Epochs
from muxway.middleware.engine.tools import hint, is_named
from muxway.wire import envelopes
from muxway.wire.revisions import HOP_KEYS

if TYPE_CHECKING:
    from muxway.calls.identity import Identity
    from muxway.calls.server_request import ServerRequest
    from muxway.middleware.engine.base import Next, Request, Result
    from muxway.wire.revisions import Revision

    _Key = tuple[tuple[bytes, Identity | None] | None, str, Revision, str, bytes]
    """Who asks, None for everybody; which server, how, for what, and with what."""

_ALWAYS_ANEW: Final = ("inputResponses", "requestState", "task")
"""Params of requests whose outcome is not that of the same request without them."""
_LONGEST: Final = 24 * 3600.0
"""Seconds a result is kept at most, whatever the server says."""
_OVERHEAD: Final = 500
"""Bytes an entry takes beside its texts, about."""


class _Entry(NamedTuple):
    result: Result
    expires: float
    size: int


class Cache(Middleware):
    """Keep results for a while, and answer the same request of the same caller with them.

    For tools whose definition says `readOnlyHint`, for resources, prompts and completions. Kept for as long as the
    server says (`ttlMs`, which only servers and clients of 2026-07-28 have; 0 means not at all), else for `seconds`.
    Each principal has its own results, unless the server says that they are for everybody (`cacheScope: public`); all
    who come without credentials are one. Never kept: errors, results with `isError`, questions, tasks, and results that
    depend on an answer to a question or on `_meta` of the caller's own. The same call with its arguments in another
    order is the same; in another revision it is not. Calls that run at the same time each go on. What came from a
    server is forgotten when that is started anew, swapped or removed, or its lists change; everything, at a reload.

    Options:
        seconds: how long a result is good where the server does not say; 60.
        tools: globs of tools, as listed, whose results are kept although they are not marked read-only.
        lists: also keep lists. A client that is told of a change may then see the old list once more; worth it only
            around middlewares that take long to make them.
        entries: the most results kept; 1,000. The ones not used for the longest time go first.
        bytes: the most memory for results; 64 MiB.

    Costs 28 µs for a result that is not found, and kept; less for one that is.
    """

    plain = True
    hides = False

    def __init__(
        self,
        *,
        seconds: float | str = 60.0,
        tools: tuple[str, ...] = (),
        lists: bool = False,
        entries: int = 1000,
        bytes: int = 64 * 1024 * 1024,  # noqa: A002 - the word people write in a configuration
    ) -> None:
        good_for = durations.seconds(seconds)
        if not 0 <= good_for <= _LONGEST:
            raise ValueError(f'`seconds` must be a number from 0 to {_LONGEST:g}, or text like "5m"')
        if entries < 1 or bytes < 1:
            raise ValueError("`entries` and `bytes` must be 1 or more; to keep nothing, leave the middleware out")
        self._seconds = good_for
        self._tools = tools
        self._lists = lists
        self._most = entries
        self._room = bytes
        self._kept: OrderedDict[_Key, _Entry] = OrderedDict()
        self._size = 0
        self._epochs = Epochs()
        self._asked: dict[int, bool] = {}
        """Requests under way, by identity: whether their caller was asked something on the way."""

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Answer calls of tools that only read."""
        if hint(request, "readOnlyHint") or is_named(request, self._tools):
            return await self._answer(request, go)
        return await go(request)

    async def _answer(self, request: Request, go: Next) -> Result:
        key = _key(request)
        if key is None:
            return await go(request)
        now = monotonic()
        for wanted in (key, (None, *key[1:])):
            entry = self._kept.get(wanted)
            if entry is not None:
                if now < entry.expires:
                    self._kept.move_to_end(wanted)
                    return _aged(entry, now)
                self._drop(wanted)
        self._asked[id(request)] = False
        epoch = self._epochs.now(request.server)
        try:
            result = await go(request)
            if not self._asked[id(request)] and epoch == self._epochs.now(request.server):
                self._keep(key, result)
        finally:
            del self._asked[id(request)]
        return result

    async def _answer_list(self, request: Request, go: Next) -> Result:
        return await (self._answer(request, go) if self._lists else go(request))

    read_resource = _answer
    get_prompt = _answer
    complete = _answer
    list_tools = _answer_list
    list_resources = _answer_list
    list_templates = _answer_list
    list_prompts = _answer_list

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest:
        """Note that the outcome will depend on somebody's answer."""
        if id(request) in self._asked:
            self._asked[id(request)] = True
        return ask

    def forget(self, server: str | None) -> None:
        """Drop what came from a server, and what may have come from several."""
        self._epochs.forget(server)
        for key in [key for key in self._kept if server is None or key[1] in (server, "")]:
            self._drop(key)

    async def close(self) -> None:
        """Forget everything."""
        self.forget(None)

    # --- what is kept -------------------------------------------------------------------------

    def _keep(self, key: _Key, result: Result) -> None:
        if not result.is_final or result.is_error:
            return
        seconds, public = self._seconds, False
        told = result.mark("ttlMs")
        if told is not None:
            seconds = min((envelopes.number(told) or 0) / 1000, _LONGEST)
            public = envelopes.text(result.mark("cacheScope")) == "public"
        size = len(result.raw) + len(key[4]) + _OVERHEAD
        if seconds <= 0 or size > self._room:
            return
        if public:
            key = (None, *key[1:])
        if key in self._kept:
            self._drop(key)
        self._kept[key] = _Entry(result, monotonic() + seconds, size)
        self._size += size
        while len(self._kept) > self._most or self._size > self._room:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        self._size -= self._kept.pop(key).size


def _key(request: Request) -> _Key | None:
    """What makes a request the same request; None if it is like no other."""
    call = request.call
    if request.target.error is not None or any(name in call.params for name in _ALWAYS_ANEW):
        # What somebody may not use now is not answered with what it said when they could.
        return None
    if request.target.searches or call.everything:
        # What is found, and what middleware hides, goes by more than the request says.
        return None
    if call.meta is not None and not HOP_KEYS.issuperset(call.meta):
        return None
    told = {name: raw for name, raw in call.params.items() if name != "_meta"}
    text = b",".join(envelopes.encode(name) + b":" + _ordered(raw) for name, raw in sorted(told.items()))
    # Not its date: a composed tool's steps have a revision of their own, in which results come otherwise.
    if call.caller.forwarded:
        # What a server is told of its caller may decide what it answers, also for everybody.
        text = b"%b\0%b" % (envelopes.encode(call.caller.forwarded), text)
    # What credentials say of their principal may change, and with it what rules allow.
    who = (call.caller.principal, call.caller.identity)
    return who, request.server, call.caller.revision, call.method, text


def _ordered(raw: envelopes.Raw) -> bytes:
    """A JSON value; if it is an object, its members in a fixed order."""
    text = bytes(raw)
    members = envelopes.members(text) if text[:1] == b"{" else None
    if members is None:
        return text
    ordered = envelopes.object_of(sorted(members.items()))
    # If it is shorter, there were blanks, or a member stood there twice: then only the very same text is the same.
    return ordered if len(ordered) == len(text) else text


def _aged(entry: _Entry, now: float) -> Result:
    """The result with the time that is left to it."""
    if entry.result.mark("ttlMs") is None:
        return entry.result
    return entry.result.replace(ttlMs=int((entry.expires - now) * 1000))
