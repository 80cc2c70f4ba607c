"""An in-process MCP server of any revision that does exactly what a test says, right or wrong."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

ToolScript: TypeAlias = "Callable[[ScriptedServer, dict[str, Any]], Awaitable[None] | None]"
"""What a tool does: gets the server and the whole request, and says whatever it likes."""

_STATELESS = "2026-07-28"


@dataclass
class ScriptedServer:
    """Speaks one revision. Tools are scripts; whatever else is asked gets the usual answer.

    Tools whose script is None answer with their own arguments, byte for byte.
    """

    revision: str = "2025-11-25"
    tools: dict[str, ToolScript | None] = field(default_factory=dict[str, "ToolScript | None"])
    definitions: Sequence[Any] | None = None
    """What `tools/list` shows; by default one plain definition for each tool."""
    page_size: int | None = None
    heard: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Every message received, decoded."""
    lines: list[bytes] = field(default_factory=list[bytes])
    """Every message received, as it came."""
    remember: bool = True
    """Whether to keep what was received; not for floods."""
    silent: frozenset[str] = frozenset()
    """Methods that get no answer at all."""
    prompts: dict[str, ToolScript | None] | None = None
    """Prompts as scripts, or None for one that says its own name and arguments. Without any, no such capability."""
    resources: dict[str, str | bytes | ToolScript] | None = None
    """URI → text, bytes or a script. Without any, no such capability."""
    templates: dict[str, ToolScript | None] = field(default_factory=dict[str, "ToolScript | None"])
    """Templates; a URI that is not in `resources` is read by the script of the first one that has a script."""
    completing: ToolScript | None = None
    """What `completion/complete` does. Without it, no such capability."""
    lists: dict[str, Sequence[Any]] = field(default_factory=dict[str, "Sequence[Any]"])
    """What the listings of prompts, resources and resourceTemplates show, if not one plain definition for each."""
    capabilities: dict[str, Any] | None = None
    """What it declares, if not what it has."""
    instructions: str | None = None
    _asked: dict[Any, asyncio.Future[dict[str, Any]]] = field(default_factory=dict[Any, Any], repr=False)
    _send: Callable[[bytes], None] | None = field(default=None, repr=False)
    _ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    async def serve(self, receive: Callable[[], Awaitable[bytes | None]], send: Callable[[bytes], None]) -> None:
        """Take messages until told to end."""
        self._send = send
        running: set[asyncio.Task[None]] = set()
        ended = asyncio.create_task(self._ended.wait())
        try:
            while not ended.done():
                next_line = asyncio.ensure_future(receive())
                await asyncio.wait((next_line, ended), return_when=asyncio.FIRST_COMPLETED)
                if not next_line.done():
                    next_line.cancel()
                    return
                line = next_line.result()
                if line is None:
                    return
                message = json.loads(line)
                if self.remember:
                    self.lines.append(line)
                    self.heard.append(message)
                task = asyncio.create_task(self._handle(message, line))
                running.add(task)
                task.add_done_callback(running.discard)
        finally:
            ended.cancel()
            for task in running:
                task.cancel()

    def end(self) -> None:
        """Go away for good: whoever starts it again sees it end again."""
        self._ended.set()

    def crash(self) -> None:
        """Go away once: started again, it serves again."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()

    def say(self, line: bytes | dict[str, Any]) -> None:
        """Send a line: bytes as they are, a mapping as JSON."""
        if self._send is not None:
            self._send(line if isinstance(line, bytes) else json.dumps(line).encode())

    def reply(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        """Answer a request."""
        if self.revision == _STATELESS:
            result = {"resultType": "complete", **result}
        self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def fail(self, request: dict[str, Any], code: int, message: str, data: Any = None) -> None:
        """Answer a request with an error."""
        error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        self.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    def progress(self, request: dict[str, Any], progress: float, **more: Any) -> None:
        """Send progress for a request that asked for it."""
        params = {"progressToken": request["params"]["_meta"]["progressToken"], "progress": progress, **more}
        self.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the client something in the middle of a call, as handshake servers do; returns its whole answer."""
        id_ = f"ask-{len(self._asked) + 1}"
        answer = self._asked[id_] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "method": method}
        self.say(message if params is None else {**message, "params": params})
        return await answer

    def need(self, request: dict[str, Any], asked: dict[str, Any], state: str | None = None) -> None:
        """End a call with questions, as stateless servers do."""
        result: dict[str, Any] = {"resultType": "input_required"}
        if asked:
            result["inputRequests"] = asked
        if state is not None:
            result["requestState"] = state
        self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        method = message.get("method")
        if method is None and message.get("id") in self._asked:
            self._asked[message["id"]].set_result(message)
        if method is None or "id" not in message or method in self.silent:
            return
        if method == "initialize" and self.revision != _STATELESS:
            info = {"name": "scripted", "version": "1"}
            self.reply(message, {"protocolVersion": self.revision, "serverInfo": info, **self._introduction()})
        elif method == "server/discover" and self.revision == _STATELESS:
            self.reply(message, {"supportedVersions": [_STATELESS], "ttlMs": 0, **self._introduction()})
        elif method == "tools/list":
            self.reply(message, self._list(message))
        elif method == "tools/call":
            await self._call(message, line)
        elif await self._handle_more(method, message):
            pass
        elif self.revision == _STATELESS and method == "initialize":
            self.fail(message, -32022, "no handshake here", {"supported": [_STATELESS], "requested": "?"})
        else:
            self.fail(message, -32601, f"no method {method}")

    def _introduction(self) -> dict[str, Any]:
        declared: dict[str, Any] = {"tools": {}}
        if self.prompts is not None:
            declared["prompts"] = {}
        if self.resources is not None:
            declared["resources"] = {}
        if self.completing is not None:
            declared["completions"] = {}
        said = {"capabilities": declared if self.capabilities is None else self.capabilities}
        return said if self.instructions is None else {**said, "instructions": self.instructions}

    async def _handle_more(self, method: str, message: dict[str, Any]) -> bool:
        """Whatever is not about tools; False if this server has no such thing."""
        if method == "prompts/list" and self.prompts is not None:
            self.reply(message, self._page(message, "prompts", [{"name": name} for name in self.prompts]))
        elif method == "prompts/get" and self.prompts is not None:
            await self._run(self.prompts.get(message["params"]["name"], _no_such_prompt) or _say_prompt, message)
        elif method == "resources/list" and self.resources is not None:
            shown = [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in self.resources]
            self.reply(message, self._page(message, "resources", shown))
        elif method == "resources/templates/list" and self.resources is not None:
            shown = [{"uriTemplate": text, "name": text} for text in self.templates]
            self.reply(message, self._page(message, "resourceTemplates", shown))
        elif method == "resources/read" and self.resources is not None:
            await self._read(self.resources, message)
        elif method == "completion/complete" and self.completing is not None:
            await self._run(self.completing, message)
        else:
            return False
        return True

    async def _run(self, script: ToolScript, message: dict[str, Any]) -> None:
        outcome = script(self, message)
        if outcome is not None:
            await outcome

    async def _read(self, resources: dict[str, str | bytes | ToolScript], message: dict[str, Any]) -> None:
        uri = message["params"]["uri"]
        found = resources.get(uri) or next((script for script in self.templates.values() if script), None)
        if isinstance(found, str):
            self.reply(message, {"contents": [{"uri": uri, "text": found}]})
        elif isinstance(found, bytes):
            self.reply(message, {"contents": [{"uri": uri, "blob": b64encode(found).decode()}]})
        elif found is not None:
            await self._run(found, message)
        else:
            code = -32602 if self.revision == _STATELESS else -32002
            self.fail(message, code, "Resource not found", {"uri": uri})

    def _list(self, message: dict[str, Any]) -> dict[str, Any]:
        shown = self.definitions
        if shown is None:
            shown = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
        return self._page(message, "tools", shown)

    def _page(self, message: dict[str, Any], member: str, shown: Sequence[Any]) -> dict[str, Any]:
        shown = self.lists.get(member, shown)
        if self.page_size is None:
            return {member: list(shown)}
        params: dict[str, Any] = message.get("params", {})
        start = int(params.get("cursor", 0))
        page: dict[str, Any] = {member: list(shown[start : start + self.page_size])}
        if start + self.page_size < len(shown):
            page["nextCursor"] = str(start + self.page_size)
        return page

    async def _call(self, message: dict[str, Any], line: bytes) -> None:
        script = self.tools.get(message["params"]["name"])
        if script is not None:
            outcome = script(self, message)
            if outcome is not None:
                await outcome
            return
        # Cut out of the line, so that a test can compare bytes.
        start = line.index(b'"arguments":') + len(b'"arguments":')
        arguments = _balanced(line[start:])
        extra = b'"resultType":"complete",' if self.revision == _STATELESS else b""
        head = b'{"jsonrpc":"2.0","id":' + json.dumps(message["id"]).encode() + b',"result":{' + extra
        self.say(head + b'"content":[],"structuredContent":' + arguments + b"}}")


def _say_prompt(server: ScriptedServer, request: dict[str, Any]) -> None:
    params = request["params"]
    text = json.dumps([params["name"], params.get("arguments", {})])
    server.reply(request, {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})


def _no_such_prompt(server: ScriptedServer, request: dict[str, Any]) -> None:
    server.fail(request, -32602, f"Unknown prompt: {request['params']['name']}")


def _balanced(text: bytes) -> bytes:
    """The JSON object at the start of a text, as it is written."""
    depth, in_string, escaped = 0, False, False
    for index, byte in enumerate(text):
        character = chr(byte)
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                return text[: index + 1]
    raise ValueError("no object")
