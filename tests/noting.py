"""A scripted server with notes: resources that change, and clients that are told, in the way of its revision."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muxway.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
MODERN = "2026-07-28"
PATIENCE = 10.0


def notes(revision: str = "2025-11-25", *uris: str, **more: Any) -> NoteServer:
    """A server that has these notes, and says that it tells of changes."""
    resources = {uri: f"text of {uri}" for uri in uris or ("note://a", "note://b")}
    return NoteServer(revision=revision, resources=resources, prompts={"greet": None}, **more)


@dataclass
class NoteServer(ScriptedServer):
    """Takes subscriptions. What it is asked for is kept, and what it does of itself is for the test to say."""

    capabilities: dict[str, Any] | None = field(
        default_factory=lambda: {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
        }
    )
    subscribed: dict[str, int] = field(default_factory=dict)
    """Subscriptions in force, of a handshake server: URI → how often it was asked for."""
    listens: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """Streams in force, of a stateless server: id → filter as acknowledged."""
    unknown: frozenset[str] = frozenset()
    """URIs that it does not take subscriptions to."""

    def times(self, method: str) -> int:
        """How often a method was asked for."""
        return sum(message.get("method") == method for message in self.heard)

    def asked(self, method: str) -> list[Any]:
        """The params of every request of a method."""
        return [message["params"] for message in self.heard if message.get("method") == method]

    def update(self, uri: str) -> None:
        """Tell, if anybody asked to be told, that a resource has changed."""
        self._tell("notifications/resources/updated", {"uri": uri}, "resourceSubscriptions")

    def change(self, kind: str) -> None:
        """Tell that a list has changed."""
        self._tell(f"notifications/{kind}/list_changed", {}, f"{kind}ListChanged")

    def _tell(self, method: str, params: dict[str, Any], wanted: str) -> None:
        if self.revision != MODERN:
            self.say({"jsonrpc": "2.0", "method": method, "params": params})
        for id_, honoured in self.listens.items():
            if honoured.get(wanted):
                stamped = {"_meta": {SUBSCRIPTION: id_}, **params}
                self.say({"jsonrpc": "2.0", "method": method, "params": stamped})

    def hang_up(self, *, politely: bool = True) -> None:
        """End every stream, with a result or, as on a pipe, with a cancellation only."""
        for id_ in list(self.listens):
            del self.listens[id_]
            if politely:
                self.reply({"id": id_}, {"_meta": {SUBSCRIPTION: id_}})
            else:
                self.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}})

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "notifications/cancelled":
            self.listens.pop(params["requestId"], None)
        if method in self.silent:
            return
        if self.revision != MODERN and method in ("resources/subscribe", "resources/unsubscribe"):
            self._subscribe(message, params["uri"], method == "resources/subscribe")
        elif self.revision == MODERN and method == "subscriptions/listen":
            self._listen(message, params["notifications"])
        else:
            await super()._handle(message, line)

    def _subscribe(self, message: dict[str, Any], uri: str, on: bool) -> None:
        if uri in self.unknown:
            self.fail(message, -32002, f"Resource not found: {uri}")
            return
        if on:
            self.subscribed[uri] = self.subscribed.get(uri, 0) + 1
        else:
            self.subscribed.pop(uri, None)
        self.reply(message, {})

    def _listen(self, message: dict[str, Any], wanted: dict[str, Any]) -> None:
        honoured = dict(wanted)
        if "resourceSubscriptions" in wanted:
            honoured["resourceSubscriptions"] = [
                uri for uri in wanted["resourceSubscriptions"] if uri not in self.unknown
            ]
        self.listens[message["id"]] = honoured
        params = {"_meta": {SUBSCRIPTION: message["id"]}, "notifications": honoured}
        self.say({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})

    @property
    def watched(self) -> set[str]:
        """Every URI that it is to tell of."""
        streams = [honoured.get("resourceSubscriptions", []) for honoured in self.listens.values()]
        return {*self.subscribed, *(uri for uris in streams for uri in uris)}


async def until(condition: Callable[[], object]) -> None:
    """Wait for something to come true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)
