"""A client that says and hears raw lines, over the in-process transport or a real pipe."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATIENCE = 10.0


class Wire(Protocol):
    """Something to say lines to and hear lines from: `clients.transports.memory.MemoryClientTransport`, for one."""

    def send(self, frame: bytes) -> None: ...

    async def receive(self) -> bytes: ...


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    message: dict[str, Any]
    line: bytes

    @property
    def result(self) -> Any:
        """Its result; fails if it is an error."""
        if "result" not in self.message:
            raise AssertionError(self.message)
        return self.message["result"]

    @property
    def error(self) -> dict[str, Any]:
        """Its error; fails if there is none."""
        if "error" not in self.message:
            raise AssertionError(self.message)
        return self.message["error"]


class RawClient:
    """Speaks JSON-RPC by hand. What arrives between answers is kept in `notices`."""

    def __init__(
        self,
        wire: Wire,
        *,
        revision: str = "2025-11-25",
        capabilities: Mapping[str, Any] | None = None,
        name: str = "raw",
    ) -> None:
        self.revision = revision
        self.name = name
        """What it says that it is."""
        self.notices: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], dict[str, Any] | Exception]] = {}
        """How to answer what servers ask: method → params → the result, or an exception to refuse with."""
        self._wire = wire
        self._capabilities = dict(capabilities or {})
        self._ids = itertools.count(1)
        self._answers: dict[str, Reply] = {}

    @property
    def unread(self) -> int:
        """How many answers came that nobody asked for, or asked for and did not wait for."""
        return len(self._answers)

    @property
    def stateless(self) -> bool:
        """Whether this client speaks the stateless revision."""
        return self.revision == "2026-07-28"

    async def hello(self) -> Reply | None:
        """Open a session, if the revision has sessions."""
        if self.stateless:
            return None
        info = {"name": self.name, "version": "1"}
        params = {"protocolVersion": self.revision, "capabilities": self._capabilities, "clientInfo": info}
        reply = await self.ask("initialize", params)
        self.tell("notifications/initialized")
        return reply

    def start(self, method: str, params: Mapping[str, Any] | None = None, *, id_: Any = None) -> Any:
        """Send a request without waiting; returns its id."""
        id_ = next(self._ids) if id_ is None else id_
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "method": method}
        given = dict(params or {})
        if self.stateless:
            envelope = {
                "io.modelcontextprotocol/protocolVersion": self.revision,
                "io.modelcontextprotocol/clientCapabilities": self._capabilities,
            }
            given["_meta"] = {**envelope, **given.get("_meta", {})}
        if given or params is not None:
            message["params"] = given
        self.say(json.dumps(message).encode())
        return id_

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, *, id_: Any = None) -> Reply:
        """Send a request and wait for its answer."""
        return await self.answer(self.start(method, params, id_=id_))

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **params: Any) -> Reply:
        """Call a tool and wait for its answer."""
        return await self.ask("tools/call", {"name": tool, "arguments": dict(arguments or {}), **params})

    async def complete(self, method: str, params: Mapping[str, Any]) -> Reply:
        """Make a request and answer, with `answers`, whatever is asked on the way, however that is asked."""
        reply = await self.ask(method, params)
        while "result" in reply.message and reply.result.get("resultType") == "input_required":
            again = dict(params)
            asked: dict[str, Any] = reply.result.get("inputRequests", {})
            again["inputResponses"] = {
                key: self.answers[entry["method"]](entry.get("params", {})) for key, entry in asked.items()
            }
            if "requestState" in reply.result:
                again["requestState"] = reply.result["requestState"]
            reply = await self.ask(method, again)
        return reply

    async def tools(self) -> list[str]:
        """The names of all listed tools, every page followed."""
        names: list[str] = []
        params: dict[str, Any] = {}
        while True:
            result = (await self.ask("tools/list", params)).result
            names += [tool["name"] for tool in result["tools"]]
            if "nextCursor" not in result:
                return names
            params = {"cursor": result["nextCursor"]}

    def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self.say(json.dumps(message if params is None else {**message, "params": dict(params)}).encode())

    def say(self, line: bytes) -> None:
        """Send a line as it is."""
        self._wire.send(line)

    async def answer(self, id_: Any) -> Reply:
        """Wait for the answer to a request, or (None) for an error without an id."""
        return await self._answer(json.dumps(id_))

    async def answer_batch(self) -> Reply:
        """Wait for the answer to a batch: its result is the array."""
        return await self._answer("batch")

    async def _answer(self, wanted: str) -> Reply:
        while wanted not in self._answers:
            await self._hear()
        return self._answers.pop(wanted)

    async def notice(self, method: str) -> dict[str, Any]:
        """Wait for a notification; returns the first of this method that was not taken yet."""
        while True:
            for index, message in enumerate(self.notices):
                if message["method"] == method:
                    return self.notices.pop(index)
            await self._hear()

    async def _hear(self) -> None:
        # What comes over a wire never comes in the same turn of the loop; here it could, and starve everybody else.
        await asyncio.sleep(0)
        line = await asyncio.wait_for(self._wire.receive(), _PATIENCE)
        message = json.loads(line)
        if isinstance(message, list):
            self._answers["batch"] = Reply({"result": message}, line)
        elif "method" in message and "id" in message and message["method"] in self.answers:
            self._reply(message)
        elif "method" in message:
            self.notices.append(message)
        else:
            self._answers[json.dumps(message.get("id"))] = Reply(message, line)

    def _reply(self, request: dict[str, Any]) -> None:
        outcome = self.answers[request["method"]](request.get("params", {}))
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if isinstance(outcome, Exception):
            message["error"] = {"code": -32000, "message": str(outcome)}
        else:
            message["result"] = outcome
        self.say(json.dumps(message).encode())
