"""The middleware API: one class with a hook for each method, and the views its hooks work on.

    class Shout(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            result = await go(request)
            return result.replace(content=[{"type": "text", "text": result.text.upper()}])

Hooks form an onion: the first middleware is the outermost. A hook may answer without going on, change the request with
`request.replace(…)`, change the result with `result.replace(…)`, or raise an `RpcError`. Payloads are views of the
bytes that came: what a hook does not look at is never decoded, what it does not change is never encoded.

A middleware that changes nothing has `before` and `after` instead: ordinary functions, which cost a fraction of a hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, cast

import msgspec
from msgspec import Raw

from muxway.errors import InvalidParams, RpcError
from muxway.routing.target import NOTHING, Target
from muxway.wire import envelopes, reading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from muxway.calls.call import Call, Caller
    from muxway.calls.identity import Decision, Denial
    from muxway.calls.server_request import ServerRequest
    from muxway.wire.envelopes import Params


_LARGE: Final = 64 * 1024
"""Bytes of arguments that are looked through for what stands twice; to do so with all would hold up everybody."""
_TELLING: Final = ("name", "uri", "ref", "taskId")
"""The params that say what a request is about."""

ConfigPath = Annotated[str, "relative to the config"]
"""The type of an option that is a path: in a config file, a relative one begins at that file's folder."""

Word = Literal["ok", "isError", "asked", "task", "error", "cancelled"]
"""`isError`: a tool says that it failed. `asked`: the caller must answer something first.
`task`: the caller got a task instead, which goes on. `error`: there is a code."""


class Next(Protocol):
    """Goes on to the next middleware, and in the end to the server."""

    def __call__(self, request: Request, /) -> Awaitable[Result]:
        """Go on; awaited, this is the result."""
        ...

    def ask_caller(self, method: str, params: Params) -> Awaitable[bytes]:
        """Ask the caller something in the middle of its call; awaited, this is its answer. Raises RpcError."""
        ...


class Request(msgspec.Struct, eq=False):
    """One request on its way in. Never changes; a changed one is made with `replace`."""

    # A struct, like all that is made for each call: it takes a third of the time.
    call: Call
    target: Target = NOTHING
    """What it is about, as the gateway found it."""
    resolve: Callable[[Call], Target] | None = None
    """Finds that anew, for a request with another name; None: it stays what it is."""
    moved: bool = False
    """Whether a middleware has made it a request about something else."""
    _arguments: Any = None
    _name: str | None = None

    @property
    def server(self) -> str:
        """The server it goes to; empty where that is not one server's, as for lists."""
        return self.target.server

    @property
    def tool(self) -> Mapping[str, Any]:
        """The listed definition of the tool that is called, or that a task is of; empty for everything else."""
        return self.target.definition

    @property
    def method(self) -> str:
        """`tools/call`, for one."""
        return self.call.method

    @property
    def caller(self) -> Caller:
        """Who asks: revision, capabilities, principal."""
        return self.call.caller

    @property
    def name(self) -> str:
        """What is asked for: a tool's or prompt's public name, a resource's URI; empty where nothing is."""
        if self._name is None:
            said = envelopes.text(self.call.params.get("name") or self.call.params.get("uri"))
            self._name = said or (self.target.names[0] if self.target.names else "")
        return self._name

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of a tool or prompt, decoded when first looked at.

        Whoever decides by them must see what the server gets. Raises InvalidParams if a member stands there twice,
        as readers differ in which of the two they take. From 64 KiB on, what was read is what is sent.
        """
        if self._arguments is None:
            raw = self.call.params.get("arguments")
            self._arguments = {} if raw is None or not envelopes.is_object(raw) else self._read(raw)
        return self._arguments

    def _read(self, raw: Raw) -> Any:
        value = envelopes.value(raw)
        written = envelopes.encode(value)
        if written == bytes(raw):
            return value
        if len(written) > _LARGE:
            params = {**self.call.params, "arguments": Raw(written)}
            self.call = msgspec.structs.replace(self.call, params=params)
        elif envelopes.stands_twice(raw):
            raise InvalidParams("params.arguments has a duplicate key, which is not passed on")
        return value

    def replace(self, **params: Any) -> Request:
        """The request with these params in place of its own; only these are encoded. None takes one away."""
        given: dict[str, Raw] = dict(self.call.params)
        for name, value in params.items():
            if value is None:
                given.pop(name, None)
            else:
                given[name] = Raw(envelopes.encode(value))
        return self.with_params(given)

    def with_params(self, params: dict[str, Raw]) -> Request:
        """The request with these params instead of all its own."""
        # What goes on is the opened `_meta`, which also has the envelope of a stateless caller and its progress token.
        raw = params.get("_meta")
        meta = self.call.meta if raw is self.call.params.get("_meta") else envelopes.members(raw or b"{}")
        before, call = self.call.params, msgspec.structs.replace(self.call, params=params, meta=meta)
        keys = _TELLING if not self.target.vague else (*_TELLING, "arguments")
        if self.resolve is None or all(_same(params.get(key), before.get(key)) for key in keys):
            return Request(call, self.target, self.resolve, self.moved)
        # Whatever stands around the server that it leads to now is not to be passed by.
        target = self.resolve(call)
        return Request(target.call or call, target, self.resolve, True)


def _same(new: Raw | None, old: Raw | None) -> bool:
    return new is old or (new is not None and old is not None and bytes(new) == bytes(old))


_WIDE: Final = 128 * 1024
"""Bytes of a result that may have more members than anybody needs: each would become an object."""
_MARKS: Final = ("resultType", "isError", "ttlMs", "cacheScope", "taskId", "status", "requestState")
_pick_marks: Final = envelopes.picker(_MARKS)


class Result:
    """What a request gave. Never changes; a changed one is made with `replace`."""

    __slots__ = ("_fields", "_marks", "_value", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        """The JSON as it came."""
        self._fields: Mapping[str, Raw] | None = None
        self._marks: Mapping[str, Raw | None] | None = None
        self._value: Any = None

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Result:
        """A result made here."""
        return cls(envelopes.encode(value))

    @classmethod
    def saying(cls, text: str, *, is_error: bool = False) -> Result:
        """A tool's result that is one text."""
        content = [{"type": "text", "text": text}]
        return cls.of({"content": content, "isError": True} if is_error else {"content": content})

    @property
    def fields(self) -> Mapping[str, Raw]:
        """Its members, each still as it came. Raises RpcError if a large result has more than 1,000."""
        return self._opened(envelopes.few_members) if self._fields is None else self._fields

    def fields_aside(self) -> Mapping[str, Raw]:
        """The same in short steps, for a thread that runs beside the event loop."""
        return self._opened(reading.few_members) if self._fields is None else self._fields

    def _opened(self, members: Callable[[bytes], Params | None]) -> Mapping[str, Raw]:
        try:
            self._fields = members(self.raw) or {}
        except envelopes.TooManyMembers as error:
            raise RpcError(f"the result cannot be looked into: it has {error}") from None
        return self._fields

    def mark(self, name: str) -> Raw | None:
        """One of the members that say what kind of result it is; a large result is not taken apart for that."""
        if self._fields is not None or len(self.raw) <= _WIDE:
            return self.fields.get(name)
        if self._marks is None:
            self._marks = dict(zip(_MARKS, _pick_marks(self.raw), strict=True))
        return self._marks[name]

    @property
    def value(self) -> Mapping[str, Any]:
        """All of it as Python objects, decoded when first looked at. Not to be changed: see `replace`."""
        if self._value is None:
            self._value = envelopes.value(self.raw)
        return self._value

    @property
    def is_final(self) -> bool:
        """Whether this is the outcome; False if the caller is asked something first, or gets a task instead."""
        kind = self.mark("resultType")
        return kind is None or bytes(kind) == b'"complete"'

    @property
    def is_error(self) -> bool:
        """Whether a tool says that it failed."""
        return bytes(self.mark("isError") or b"") == b"true"

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:
        """A tool's content blocks."""
        raw = self.fields.get("content")
        blocks: object = None if raw is None else envelopes.value(raw)
        return cast("list[Mapping[str, Any]]", blocks) if isinstance(blocks, list) else ()

    @property
    def text(self) -> str:
        """All its text, joined by newlines."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    def replace(self, **fields: Any) -> Result:
        """The result with these members in place of its own; only these are encoded. None takes one away."""
        given: dict[str, envelopes.Buffer] = dict(self.fields)
        for name, value in fields.items():
            if value is None:
                given.pop(name, None)
            else:
                given[name] = value if isinstance(value, Raw) else envelopes.encode(value)
        return Result(envelopes.object_of(given.items()))


class Outcome(msgspec.Struct, eq=False):
    """How a request went: a result, an error, or neither if it was cancelled."""

    seconds: float
    """How long it took."""
    error: RpcError | None = None
    """What it failed with, if it did."""
    _pieces: Sequence[envelopes.Buffer] = ()
    _result: Result | None = None
    _word: Word | None = None

    @property
    def result(self) -> Result | None:
        """What it gave, if it succeeded. Put together when first looked at."""
        if self._result is None and self._pieces:
            self._result = Result(b"".join(self._pieces))
        return self._result

    @property
    def size(self) -> int:
        """Bytes of the result."""
        if self._result is not None:
            return len(self._result.raw)
        return sum(memoryview(piece).nbytes for piece in self._pieces)

    @property
    def word(self) -> Word:
        """How it went, in a word."""
        if self._word is None:
            self._word = self._in_a_word()
        return self._word

    def _in_a_word(self) -> Word:
        result = self.result
        if result is None:
            return "cancelled" if self.error is None else "error"
        if result.is_error:
            return "isError"
        return "ok" if result.is_final else "asked" if self.task is None else "task"

    @property
    def task(self) -> str | None:
        """The name of the task that its caller got instead of an outcome, if it did."""
        result = self.result
        if result is None or bytes(result.mark("resultType") or b"") != b'"task"':
            return None
        return envelopes.text(result.mark("taskId"))


class Aside:
    """Work on a large result that another thread does: `await Aside(work)` in a `plain` middleware of ours."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work

    def __await__(self) -> Generator[Aside, Any, Any]:
        return (yield self)


class Middleware:
    """Base of every middleware. Override the hooks you need; a hook that is not overridden costs nothing.

    A subclass takes its options as keyword arguments of `__init__`, each with a type; the configuration gives them.
    """

    plain: ClassVar[bool] = False
    """Whether its hooks await nothing but `go`. Such hooks run without a task of their own, which is much cheaper."""
    shared: ClassVar[bool] = False
    """Whether the whole gateway and all its views have one of it. Else each has its own, and nothing crosses."""
    hides: ClassVar[bool] = True
    """Whether what its hooks for lists take out of a list cannot be used, either. False if they take nothing out."""
    excludes: ClassVar[Sequence[str]] = ()
    """Names of middlewares that make no sense around the same calls."""

    async def list_tools(self, request: Request, go: Next) -> Result:
        """Around `tools/list`: the result has `tools`."""
        return await go(request)

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Around `tools/call`."""
        return await go(request)

    async def list_resources(self, request: Request, go: Next) -> Result:
        """Around `resources/list`: the result has `resources`."""
        return await go(request)

    async def list_templates(self, request: Request, go: Next) -> Result:
        """Around `resources/templates/list`: the result has `resourceTemplates`."""
        return await go(request)

    async def read_resource(self, request: Request, go: Next) -> Result:
        """Around `resources/read`: the result has `contents`."""
        return await go(request)

    async def list_prompts(self, request: Request, go: Next) -> Result:
        """Around `prompts/list`: the result has `prompts`."""
        return await go(request)

    async def get_prompt(self, request: Request, go: Next) -> Result:
        """Around `prompts/get`: the result has `messages`."""
        return await go(request)

    async def complete(self, request: Request, go: Next) -> Result:
        """Around `completion/complete`."""
        return await go(request)

    async def any_request(self, request: Request, go: Next) -> Result:
        """Around every request there is, outside the hook for its method."""
        return await go(request)

    def before(self, request: Request) -> None:
        """Look at every request before it goes on, outside the hooks above; raise an RpcError to refuse it."""

    def after(self, request: Request, outcome: Outcome) -> None:
        """Look at how every request went that `before` let through. Its caller gets the outcome in any case."""

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest | None:
        """A server asks the caller something. Return the question, or None if it was answered or refused here."""
        del request
        return ask

    def notice(self, request: Request, params: dict[str, envelopes.Buffer]) -> dict[str, envelopes.Buffer] | None:
        """A server reports progress, or logs something, about a request. Return it, changed or not; None drops it."""
        del request
        return params

    def forget(self, server: str | None) -> None:
        """What this server gave is not true any more: it is another one now, shows something else, or is gone.

        None: of all servers. Whoever remembers something of what servers gave lets go of it here.
        """

    def task_ended(self, name: str) -> None:
        """A call that became a task of this name is over. Called for tasks of the gateway, whoever asks after them."""

    def turned_away(self, denial: Denial) -> None:
        """Somebody was turned away by `muxway serve` for want of good credentials, before there was a request."""

    def decided(self, decision: Decision) -> None:
        """Somebody was asked whether a request may be made, as an access rule wants, and this was the answer."""

    async def close(self) -> None:
        """Called after the last request."""


HOOKS: Final = {
    "tools/list": "list_tools",
    "tools/call": "call_tool",
    "resources/list": "list_resources",
    "resources/templates/list": "list_templates",
    "resources/read": "read_resource",
    "prompts/list": "list_prompts",
    "prompts/get": "get_prompt",
    "completion/complete": "complete",
}
"""Method → hook."""
