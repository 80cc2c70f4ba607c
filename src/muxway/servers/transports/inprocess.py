"""Python code in this process as a server: a plain object, or a server of the official SDK."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args, get_origin

from muxway.calls.incidents import internal
from muxway.errors import InvalidParams, MethodNotFound, MuxwayError
from muxway.wire import envelopes
from muxway.wire.revisions import negotiate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from muxway.servers.transports.memory import InProcessServer
    from muxway.wire.envelopes import Envelope, Params

_JSON_TYPES: Final[dict[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    tuple: "array",
    dict: "object",
    type(None): "null",
}


def as_server(thing: object, name: str) -> InProcessServer:
    """Whatever a user gives as `server=`, as something that can be served.

    Raises:
        MuxwayError: it has no public methods, so there would be nothing to call.
    """
    if hasattr(thing, "serve"):
        return cast("InProcessServer", thing)
    low_level = _low_level(thing)
    return ObjectServer(thing, name) if low_level is None else _SdkServer(low_level)


def takes_several(thing: object) -> bool:
    """Whether it can be served several times at once: the SDK's servers keep each connection to itself."""
    return not hasattr(thing, "serve") and _low_level(thing) is not None


def _low_level(thing: object) -> object | None:
    # The SDK's high-level servers wrap a low-level one, under a name that differs between its major versions.
    candidates = (thing, getattr(thing, "_lowlevel_server", None), getattr(thing, "_mcp_server", None))
    return next((one for one in candidates if hasattr(one, "create_initialization_options")), None)


class ToolServer:
    """A server in this process that has tools and nothing else."""

    def __init__(self, name: str, tools: list[dict[str, Any]]) -> None:
        self._name = name
        self._tools = tools
        self._running: dict[bytes, asyncio.Task[None]] = {}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result of a call; None if there is no such tool."""
        raise NotImplementedError

    async def serve(self, receive: Callable[[], Awaitable[bytes | None]], send: Callable[[bytes], None]) -> None:
        """Speak MCP until there is no more to receive."""
        try:
            while (frame := await receive()) is not None:
                envelope = envelopes.decode(frame)
                id_ = bytes(envelope.id)
                if envelope.method == "notifications/cancelled" and envelope.params is not None:
                    if task := self._running.get(bytes(envelope.params.get("requestId", b""))):
                        task.cancel()
                elif envelope.method is not None and id_:
                    task = self._running[id_] = asyncio.create_task(self._answer(envelope, envelope.method, send))
                    task.add_done_callback(lambda _, id_=id_: self._running.pop(id_, None))
        finally:
            for task in list(self._running.values()):
                task.cancel()

    async def _answer(self, envelope: Envelope, method: str, send: Callable[[bytes], None]) -> None:
        try:
            result = await self._handle(method, envelope.params or {})
            send(b"".join(envelopes.result(envelope.id, envelopes.encode(result)))[:-1])
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller waits for an answer
            send(b"".join(envelopes.failure(envelope.id, internal(error, upstream=self._name)))[:-1])

    async def _handle(self, method: str, params: Params) -> dict[str, Any]:
        if method == "initialize":
            revision = negotiate(envelopes.text(params.get("protocolVersion")))
            info = {"name": self._name, "version": "1"}
            return {"protocolVersion": revision.date, "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": self._tools}
        if method != "tools/call":
            raise MethodNotFound(f"{method} is not offered")
        name = envelopes.text(params.get("name")) or ""
        result = await self.call(name, envelopes.value(params.get("arguments", b"null")) or {})
        if result is None:
            raise InvalidParams(f"Unknown tool: {name}")
        return result


class ObjectServer(ToolServer):
    """A plain object as an MCP server: each public method is a tool.

    The docstring is the description, the type hints are the schema, and what the method
    returns is the result: text as it is, anything else as structured content. An exception
    becomes a result with `isError`, so that the caller learns of it.
    """

    def __init__(self, thing: object, name: str) -> None:
        self._methods = {
            key: cast("Callable[..., Any]", getattr(thing, key))
            for key in dir(thing)
            if not key.startswith("_") and callable(getattr(thing, key))
        }
        if not self._methods:
            raise MuxwayError(f'"{name}": {type(thing).__name__} has no public methods to offer as tools')
        super().__init__(name, [_describe(key, method) for key, method in self._methods.items()])

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        tool = self._methods.get(name)
        if tool is None:
            return None
        try:
            given = tool(**arguments)
            if inspect.isawaitable(given):
                given = await given
            return _result(given)
        except Exception as error:  # noqa: BLE001 - the method is the user's code: whatever it raises is its answer
            return {"content": [_text(f"{type(error).__name__}: {error}")], "isError": True}


def _result(given: object) -> dict[str, Any]:
    if given is None or isinstance(given, str):
        return {"content": [_text(given)] if given else []}
    encoded = envelopes.encode(given)
    structured = envelopes.Raw(encoded if isinstance(given, dict) else b'{"result":' + encoded + b"}")
    return {"content": [_text(encoded.decode())], "structuredContent": structured}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _describe(name: str, method: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(method)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            continue
        properties[parameter.name] = schema_of(hints.get(parameter.name, Any))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif parameter.default is not None:
            properties[parameter.name]["default"] = parameter.default
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": inspect.getdoc(method) or "", "inputSchema": schema}


def schema_of(hint: object) -> dict[str, Any]:
    """The JSON Schema of a type hint; an empty one, which allows anything, where the hint says nothing we know."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(arg) for arg in args]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is list and args:
        return {"type": "array", "items": schema_of(args[0])}
    if origin is dict and len(args) > 1:
        return {"type": "object", "additionalProperties": schema_of(args[1])}
    known = _JSON_TYPES.get(origin or hint)
    return {"type": known} if known is not None else {}


class _LowLevel(Protocol):
    """What we use of the SDK's low-level server, the same in its versions 1 and 2."""

    def create_initialization_options(self) -> Any: ...

    async def run(self, read_stream: Any, write_stream: Any, initialization_options: Any) -> None: ...


class _SdkServer:
    """A server of the official Python SDK, run on its own memory streams."""

    def __init__(self, low_level: object) -> None:
        self._server = cast("_LowLevel", low_level)

    async def serve(self, receive: Callable[[], Awaitable[bytes | None]], send: Callable[[bytes], None]) -> None:
        """Run the SDK's server until there is no more to receive."""
        # Imported here: the SDK takes most of a second to import and is there only if the user brought it.
        anyio: Any = importlib.import_module("anyio")
        envelope: Any = importlib.import_module("mcp.shared.message").SessionMessage
        parse = _message_parser()
        to_server, from_us = anyio.create_memory_object_stream[Any](64)
        to_us, from_server = anyio.create_memory_object_stream[Any](64)

        async def pump_in() -> None:
            async with to_server:
                while (frame := await receive()) is not None:
                    await to_server.send(envelope(parse(frame)))

        async def pump_out() -> None:
            async with from_server:
                async for item in from_server:
                    send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

        pumps = [asyncio.create_task(pump_in()), asyncio.create_task(pump_out())]
        try:
            await self._server.run(from_us, to_us, self._server.create_initialization_options())
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


def _message_parser() -> Callable[[bytes], Any]:
    types_: Any = importlib.import_module("mcp.types")
    adapter = getattr(types_, "jsonrpc_message_adapter", None)
    return types_.JSONRPCMessage.model_validate_json if adapter is None else adapter.validate_json
