"""The server of the matrix: any revision, with what `subjects` needs. As a program it serves on stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from muxway.testing import ScriptedServer
from muxway.wire.revisions import LOG_LEVELS, SUBSCRIPTION_ID
from tests.compatibility.subjects import NEWEST, SUBJECTS, lists, prompts, questions, resources, tasks

_PAGE = 5
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

REQUEST: ContextVar[Any] = ContextVar("REQUEST", default=None)
"""The id of the request that is being handled: whatever is said meanwhile belongs to it."""


@dataclass
class Server(ScriptedServer):
    """A scripted server that counts what is cancelled, and tells of changes as its revision says."""

    name: str = "matrix"
    waiting: dict[Any, asyncio.Event] = field(default_factory=dict)
    cancelled: int = 0
    again: int = 0
    """How often a call was made again that should not have been."""
    log_level: int = 0
    visits: int = 0
    looks: dict[str, int] = field(default_factory=dict)
    """Task → how often it was looked at."""
    listeners: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """The subscriptions of a stateless client: id → what it wants to hear of."""
    subscribed: set[str] = field(default_factory=set)
    """The URIs that a handshake client has subscribed to."""
    told: int = 0
    """How many heard of the last change."""
    _late: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tools = {subject.name: subject.tool for subject in SUBJECTS if subject.exists_in(self.revision)}
        self.prompts = {name: prompts.say for name, since in prompts.SINCE.items() if since <= self.revision}
        self.prompts["curious"] = questions.ask_for_prompt
        self.prompts |= {f"more_{n}": prompts.say for n in lists.FILLERS}
        more = [resources.uri(self.name, f"more/{n}") for n in lists.FILLERS]
        self.resources = dict.fromkeys((*resources.contents_of(self.name), *more), resources.read)
        self.resources[resources.uri(self.name, "curious")] = questions.ask_for_resource
        self.templates = {resources.uri(self.name, "item/{id}"): resources.read}
        self.templates |= {resources.uri(self.name, f"more_{n}/{{id}}"): None for n in lists.FILLERS}
        self.completing = _complete
        self.instructions = f"Ask {self.name} kindly."
        self.page_size = _PAGE
        changing = {"listChanged": True}
        self.capabilities = {
            "tools": changing,
            "prompts": changing,
            "resources": {**changing, "subscribe": True},
            "logging": {},
            **({"completions": {}} if self.revision > "2024-11-05" else {}),
            **({"tasks": tasks.CAPABILITY} if self.revision == "2025-11-25" else {}),
            **({"extensions": {tasks.EXTENSION: {}}} if self.revision == NEWEST else {}),
        }
        self._make_lists()

    def _make_lists(self) -> None:
        plain = {"inputSchema": {"type": "object"}}
        tools = [
            {"name": subject.name, **plain, **subject.definition} for subject in SUBJECTS if subject.name in self.tools
        ]
        item = resources.definition_in(self.revision)
        self.definitions = [*tools, *([{"name": "late", **plain}] if "tools" in self._late else [])]
        names = [*(self.prompts or ()), *(["late"] if "prompts" in self._late else [])]
        uris = [*(self.resources or ()), *([resources.uri(self.name, "late")] if "resources" in self._late else [])]
        self.lists = {
            "prompts": [{"name": name, **prompts.definition_in(self.revision)} for name in names],
            "resources": [{"uri": uri, **item} for uri in uris],
            "resourceTemplates": [{"uriTemplate": template, **item} for template in self.templates],
        }

    # --- changes ------------------------------------------------------------------------------

    def change_list(self, kind: str) -> None:
        """Add something to a list, or take it away again, and tell of it."""
        self._late ^= {kind}
        self._make_lists()
        self._tell(f"notifications/{kind}/list_changed", {}, lambda wanted: wanted.get(f"{kind}ListChanged") is True)

    def update(self, uri: str, part: str) -> None:
        """Tell those who want to know that a resource, or a part of it, is not what it was."""
        self.told = 0
        if self.revision == NEWEST or uri in self.subscribed:
            method, params = "notifications/resources/updated", {"uri": uri + part}
            self._tell(method, params, lambda wanted: uri in wanted.get("resourceSubscriptions", ()))

    def _tell(self, method: str, params: dict[str, Any], is_wanted: Any) -> None:
        # It belongs to no request, whoever caused it.
        REQUEST.set(None)
        if self.revision != NEWEST:
            self.told = 1
            self.say({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})
            return
        listeners = [id_ for id_, wanted in self.listeners.items() if is_wanted(wanted)]
        self.told = len(listeners)
        for id_ in listeners:
            self.say({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": {SUBSCRIPTION_ID: id_}}})

    # --- requests -----------------------------------------------------------------------------

    async def until_cancelled(self, id_: Any) -> None:
        """Wait until this request is cancelled."""
        event = self.waiting[id_] = asyncio.Event()
        try:
            await event.wait()
        finally:
            del self.waiting[id_]
        self.cancelled += 1
        # As the SDKs do: until then it might still ask, and on a pipe nobody could tell for whom.
        self.fail({"id": id_}, 0, "Request cancelled")

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        REQUEST.set(message.get("id"))
        handshake = self.revision != NEWEST
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": id_}}:
                if id_ in self.waiting:
                    self.waiting[id_].set()
                self.listeners.pop(id_, None)
            case {"method": "logging/setLevel", "params": {"level": level}} if handshake:
                self.log_level = LOG_LEVELS.index(level)
                self.reply(message, {})
            case {"method": "resources/subscribe", "params": {"uri": uri}} if handshake:
                self.subscribed.add(uri)
                self.reply(message, {})
            case {"method": "resources/unsubscribe", "params": {"uri": uri}} if handshake:
                self.subscribed.discard(uri)
                self.reply(message, {})
            case {"method": "tasks/get" | "tasks/result"}:
                tasks.answer(self, message)
            case {"method": "subscriptions/listen", "id": id_} if not handshake:
                wanted = self.listeners[id_] = message["params"]["notifications"]
                params = {"_meta": {SUBSCRIPTION_ID: id_}, "notifications": wanted}
                self.say({"jsonrpc": "2.0", "method": _ACKNOWLEDGED, "params": params})
            case _:
                await super()._handle(message, line)


def _complete(server: Any, request: dict[str, Any]) -> Any:
    curious = request["params"]["ref"].get("name") == "curious"
    return (questions.ask_for_completion if curious else prompts.complete)(server, request)


async def _serve(revision: str, name: str) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def receive() -> bytes | None:
        return await reader.readline() or None

    def send(line: bytes) -> None:
        data = line + b"\n"
        while data:  # stdout blocks, and the one who reads it is always there
            data = data[os.write(1, data) :]

    await Server(revision, name=name).serve(receive, send)


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
