"""The middle of the gateway: every request comes in at `handle`, whoever asks and however."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from muxway.catalog import build
from muxway.catalog.model import EMPTY, Catalog
from muxway.core.relay import Held, Relay, StillStarting
from muxway.errors import InvalidParams, MethodNotFound, RpcError
from muxway.protocol import convert, messages
from muxway.protocol.era import SERVER_INFO, SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.naming import Naming
    from muxway.config.model import CustomTool
    from muxway.core.call import Call
    from muxway.core.ports import Running, Sink
    from muxway.core.relay import Member
    from muxway.protocol.messages import Buffer

CAPABILITIES: Final = {"tools": {"listChanged": True}}
_LIST_TTL_MS: Final = 0
_CURSOR = re.compile(r"(\d{1,15})\.(\d{1,15})").fullmatch
_REMEMBERED: Final = 8


class _HeldCall:
    """A request that came before the servers were ready: a client need not fail for being quick."""

    __slots__ = ("_call", "_cancelled", "_running", "_sink", "_switchboard")

    def __init__(self, switchboard: Switchboard, call: Call, sink: Sink) -> None:
        self._switchboard = switchboard
        self._call = call
        self._sink = sink
        self._cancelled = False
        self._running: Running | None = None

    def release(self) -> None:
        if not self._cancelled:
            self._running = self._switchboard.handle(self._call, self._sink)

    def cancel(self, reason: str | None) -> None:
        self._cancelled = True
        if self._running is not None:
            self._running.cancel(reason)


class Switchboard:
    """Answers what the gateway answers itself and sends the rest to the upstream it belongs to."""

    def __init__(
        self,
        *,
        name: str,
        version: str,
        naming: Naming,
        members: Mapping[str, Member],
        tools: Mapping[str, CustomTool],
        page_size: int | None = None,
    ) -> None:
        self.identity = {"name": name, "version": version}
        self.catalog: Catalog = EMPTY
        self._naming = naming
        self._page_size = page_size
        server_info = messages.encode(self.identity)
        self._relay = Relay(members, tools, server_info)
        self._meta = b'"_meta":{' + messages.encode(SERVER_INFO) + b":" + server_info + b"}}"
        # A client half way through its pages goes on in the list it began with.
        self._recent: deque[Catalog] = deque(maxlen=_REMEMBERED)
        self._listeners: dict[object, Callable[[], None]] = {}
        self._held_listings: list[_HeldCall] | None = None

    # --- requests -----------------------------------------------------------------------------

    def handle(self, call: Call, sink: Sink) -> Running | None:
        """Start a request. Its outcome goes to the sink, perhaps before this returns.

        Returns the request under way, to cancel it by, or None when it is already over.
        """
        try:
            if call.method == "tools/call":
                return self._relay.call_tool(self.catalog, call, sink)
            if call.method == "tools/list":
                if self._held_listings is not None:
                    return self._hold(self._held_listings, call, sink)
                sink.done(*self._list_tools(call))
            elif call.method == "server/discover" and call.caller.revision.stateless:
                sink.done(self._discover())
            else:
                raise MethodNotFound(f"method {call.method} is not offered in revision {call.caller.revision.date}")
        except RpcError as error:
            sink.failed(error)
        except StillStarting as wait:
            return self._hold(wait.member.held, call, sink)
        return None

    def _hold(self, queue: list[_HeldCall] | list[Held], call: Call, sink: Sink) -> _HeldCall:
        held = _HeldCall(self, call, sink)
        queue.append(held)
        return held

    def hold_listings(self) -> None:
        """Keep listings waiting until `release_listings`: most clients list once, and the servers are being started."""
        self._held_listings = []

    def release_listings(self) -> None:
        """Answer the listings that wait, and all later ones at once."""
        held, self._held_listings = self._held_listings or [], None
        for call in held:
            call.release()

    def _list_tools(self, call: Call) -> Sequence[Buffer]:
        catalog, offset = self.catalog, 0
        cursor = call.params.get("cursor")
        if cursor is not None and not messages.is_null(cursor) and messages.text(cursor) != "":
            catalog, offset = self._resume(messages.text(cursor))
        size = self._page_size
        shown = catalog.page(offset, size, convert.tool_converter(call.caller.revision))
        parts: list[Buffer] = [b'{"tools":[', shown]
        if size is not None and offset + size < len(catalog.routes):
            parts.append(b'],"nextCursor":"%d.%d"' % (catalog.version, offset + size))
        else:
            parts.append(b"]")
        if call.caller.revision.stateless:
            parts.append(b',"resultType":"complete","ttlMs":%d,"cacheScope":"private",' % _LIST_TTL_MS)
            parts.append(self._meta)
        else:
            parts.append(b"}")
        return parts

    def _resume(self, cursor: str | None) -> tuple[Catalog, int]:
        match = _CURSOR(cursor or "")
        if match is not None and self._page_size is not None:
            version, offset = int(match[1]), int(match[2])
            for catalog in (self.catalog, *self._recent):
                # Only where a page begins: anything else was not ours, and each page asked for is kept encoded.
                if catalog.version == version and offset < len(catalog.routes) and offset % self._page_size == 0:
                    return catalog, offset
        raise InvalidParams("params.cursor is not one of ours or has expired: list again without a cursor")

    def _discover(self) -> bytes:
        body = {
            "resultType": "complete",
            "supportedVersions": list(SUPPORTED),
            "capabilities": CAPABILITIES,
            "ttlMs": _LIST_TTL_MS,
            "cacheScope": "private",
            "_meta": {SERVER_INFO: self.identity},
        }
        return messages.encode(body)

    # --- the catalog --------------------------------------------------------------------------

    def publish(self, sources: Sequence[Source]) -> Catalog:
        """Make the catalog of these sources the one in force; listeners hear of it only if it differs."""
        old = self.catalog
        new = self.catalog = build.build(self._naming, sources, old)
        if new.version != old.version:
            self._recent.append(old)
        # While listings wait nobody has seen the old one, so nobody need hear of the new.
        if new.version != old.version and self._held_listings is None:
            for changed in list(self._listeners.values()):
                changed()
        return new

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever the listing has changed. Returns how to stop that."""
        key = object()
        self._listeners[key] = changed
        return lambda: self._listeners.pop(key, None) and None
