"""An MCP server in one file, standard library only: lines of JSON-RPC in, lines out, one thread a call.

Speaks one revision, given by its author, like most servers in the field: either a handshake revision or the
stateless 2026-07-28. Main loop reads, so that a cancellation is heard while a slow tool is working.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STATELESS = "2026-07-28"
_PREFIX = "io.modelcontextprotocol/"


class ToolError(Exception):
    """The tool could not do what it was asked; its caller sees the message."""


class _Refused(Exception):
    """The request is wrong, which is a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message, **({} if data is None else {"data": data})}


@dataclass(slots=True)
class Run:
    """One call at work, as its tool sees it."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when the caller has given up."""
    progress: Callable[[float, float, str], None] = lambda _done, _total, _message: None
    """Tell how far the work is: done, total, message. Does nothing if the caller does not want to know."""


@dataclass(frozen=True, slots=True)
class DemoTool:
    """One tool of a server."""

    description: str
    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    run: Callable[[Mapping[str, Any], Run], str | dict[str, Any]]
    """Does the work: text for people, or an object for programs."""


class DemoServer:
    """A server with these tools, on stdin and stdout."""

    def __init__(self, name: str, revision: str, tools: Mapping[str, DemoTool]) -> None:
        self._info = {"name": f"demo-{name}", "version": "1.0"}
        self._name = name
        self._revision = revision
        self._tools = tools
        self._writing = threading.Lock()
        self._running: dict[object, Run] = {}
        self._unwanted: set[object] = set()

    def serve(self) -> None:
        """Serve until the client closes its side."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            method, id_ = message.get("method"), message.get("id")
            params: dict[str, Any] = message.get("params") or {}
            if method == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            elif method is None or id_ is None:
                continue
            elif method == "tools/call":
                run = self._running[id_] = Run()
                threading.Thread(target=self._call, args=(id_, params, run)).start()
            else:
                self._answer(id_, lambda method=method, params=params: self._handle(method, params))
        # The threads end before the process does: quick ones answer, slow ones stop.
        for run in list(self._running.values()):
            run.cancelled.set()

    # --- requests -----------------------------------------------------------------------------

    def _handle(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        stateless = self._revision == STATELESS
        if stateless:
            self._check_envelope(params)
        match method:
            case "server/discover" if stateless:
                return {"supportedVersions": [STATELESS], "capabilities": {"tools": {}}, **self._fresh()}
            case "initialize" if not stateless:
                return {
                    "protocolVersion": self._revision,
                    "capabilities": {"tools": {}},
                    "serverInfo": self._info,
                }
            case "tools/list":
                return {"tools": [self._listed(name, tool) for name, tool in self._tools.items()], **self._fresh()}
            case "ping" if not stateless:
                return {}
            case _:
                raise _Refused(-32601, f"Method not found: {method}")

    def _call(self, id_: object, params: dict[str, Any], run: Run) -> None:
        token = _meta(params).get("progressToken")
        if token is not None:
            run.progress = lambda done, total, message: self._write(
                method="notifications/progress", params=self._progress(token, done, total, message)
            )
        self._answer(id_, lambda: self._result(params, run))
        del self._running[id_]

    def _result(self, params: dict[str, Any], run: Run) -> dict[str, Any]:
        if self._revision == STATELESS:
            self._check_envelope(params)
        tool = self._tools.get(params.get("name", ""))
        if tool is None:
            raise _Refused(-32602, f"Unknown tool: {params.get('name')}")
        arguments: dict[str, Any] = params.get("arguments") or {}
        try:
            missing = [name for name in tool.required if name not in arguments]
            if missing:
                raise ToolError(f"missing argument: {', '.join(missing)}")
            outcome = tool.run(arguments, run)
        except ToolError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if isinstance(outcome, str):
            return {"content": [{"type": "text", "text": outcome}]}
        content = [{"type": "text", "text": json.dumps(outcome, ensure_ascii=False)}]
        return {"content": content, "structuredContent": outcome}

    def _cancel(self, id_: object) -> None:
        run = self._running.get(id_)
        if run is not None:
            self._unwanted.add(id_)
            run.cancelled.set()
            sys.stderr.write(f"{self._name}: call cancelled by the client\n")
            sys.stderr.flush()

    # --- spelling -----------------------------------------------------------------------------

    def _check_envelope(self, params: dict[str, Any]) -> None:
        version = _meta(params).get(_PREFIX + "protocolVersion")
        if version != STATELESS:
            data = {"supported": [STATELESS], "requested": version}
            raise _Refused(-32022, f"Unsupported protocol version: {version}", data)

    def _fresh(self) -> dict[str, Any]:
        return {"ttlMs": 0, "cacheScope": "private"} if self._revision == STATELESS else {}

    def _listed(self, name: str, tool: DemoTool) -> dict[str, Any]:
        schema = {"type": "object", "properties": tool.properties, "required": list(tool.required)}
        return {"name": name, "description": tool.description, "inputSchema": schema}

    def _progress(self, token: object, done: float, total: float, message: str) -> dict[str, Any]:
        return {"progressToken": token, "progress": done, "total": total, "message": message}

    def _answer(self, id_: object, work: Callable[[], dict[str, Any]]) -> None:
        try:
            result = work()
        except _Refused as error:
            self._write(id=id_, error=error.body)
            return
        if self._revision == STATELESS:
            result = {"resultType": "complete", **result, "_meta": {_PREFIX + "serverInfo": self._info}}
        if id_ not in self._unwanted:
            self._write(id=id_, result=result)

    def _write(self, **message: object) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
        with self._writing:
            sys.stdout.buffer.write(line.encode() + b"\n")
            sys.stdout.buffer.flush()


def _meta(params: dict[str, Any]) -> dict[str, Any]:
    return params.get("_meta") or {}
