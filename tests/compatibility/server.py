"""The server of the matrix: any revision, the tools of `subjects.py`. As a program it serves on stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from muxway.testing import ScriptedServer
from tests.compatibility.subjects import NEWEST, SUBJECTS

CAPABILITIES = {"tools": {"listChanged": True}}
"""What the server says it can do. A subject that needs more adds it here, and a case to `Server._handle`."""
_INFO = {"name": "matrix", "version": "1"}
_PAGE = 5
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_CHANGED = "notifications/tools/list_changed"
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@dataclass
class Server(ScriptedServer):
    """A scripted server that counts what is cancelled, and tells of changes as its revision says."""

    waiting: dict[Any, asyncio.Event] = field(default_factory=dict)
    cancelled: int = 0
    listeners: list[Any] = field(default_factory=list)
    """The ids of the subscriptions of a stateless client."""
    told: int = 0
    """How many heard of the last change."""
    _late: bool = False

    def __post_init__(self) -> None:
        offered = [subject for subject in SUBJECTS if subject.exists_in(self.revision)]
        self.tools = {subject.name: subject.tool for subject in offered}
        self.page_size = _PAGE
        self._list_tools()

    def _list_tools(self) -> None:
        plain = {"inputSchema": {"type": "object"}}
        definitions = {
            subject.name: {**plain, **subject.definition} for subject in SUBJECTS if subject.name in self.tools
        }
        if self._late:
            definitions["late"] = plain
        self.definitions = [{"name": name, **definition} for name, definition in definitions.items()]

    def change_list(self) -> None:
        """Add a tool, or take it away again, and tell of it."""
        self._late = not self._late
        self._list_tools()
        if self.revision != NEWEST:
            self.told = 1
            self.say({"jsonrpc": "2.0", "method": _CHANGED})
            return
        self.told = len(self.listeners)
        for id_ in self.listeners:
            self.say({"jsonrpc": "2.0", "method": _CHANGED, "params": {"_meta": {_SUBSCRIPTION: id_}}})

    async def until_cancelled(self, id_: Any) -> None:
        """Wait until this request is cancelled."""
        event = self.waiting[id_] = asyncio.Event()
        await event.wait()
        del self.waiting[id_]
        self.cancelled += 1

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        stateless = self.revision == NEWEST
        match message:
            case {"method": "initialize"} if not stateless:
                greeting = {"protocolVersion": self.revision, "capabilities": CAPABILITIES, "serverInfo": _INFO}
                self.reply(message, greeting)
            case {"method": "server/discover"} if stateless:
                self.reply(message, {"supportedVersions": [NEWEST], "capabilities": CAPABILITIES, "ttlMs": 0})
            case {"method": "notifications/cancelled", "params": {"requestId": id_}}:
                if id_ in self.waiting:
                    self.waiting[id_].set()
                if id_ in self.listeners:
                    self.listeners.remove(id_)
            case {"method": "subscriptions/listen", "id": id_} if stateless:
                params = {"_meta": {_SUBSCRIPTION: id_}, "notifications": message["params"]["notifications"]}
                self.listeners.append(id_)
                self.say({"jsonrpc": "2.0", "method": _ACKNOWLEDGED, "params": params})
            case _:
                await super()._handle(message, line)


async def _serve(revision: str) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def receive() -> bytes | None:
        return await reader.readline() or None

    def send(line: bytes) -> None:
        data = line + b"\n"
        while data:  # stdout blocks, and the one who reads it is always there
            data = data[os.write(1, data) :]

    await Server(revision).serve(receive, send)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
