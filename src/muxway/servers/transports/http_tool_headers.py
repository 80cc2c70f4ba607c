"""What the tools of a stateless server want repeated in headers, learned from its lists of tools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.errors import HEADER_MISMATCH, ParseError
from muxway.log import EventLog
from muxway.net.http_errors import HttpTrouble
from muxway.servers.transports.http_message import HttpMessage
from muxway.servers.transports.port import Outgoing
from muxway.wire import envelopes
from muxway.wire import headers as names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from msgspec import Raw

    from muxway.wire.envelopes import Buffer, Envelope

_ANNOTATION: Final = names.ANNOTATION.encode()
_PAGES: Final = 100
"""Most pages of a list that are read again."""
_PATIENCE: Final = 30.0
"""Seconds for each of them."""

log = EventLog("upstream")


class ToolHeaders:
    """The headers of one server's tools."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._wanted: dict[str, names.ParamHeaders] = {}
        """Tool → headers."""
        self.listing: Mapping[str, Buffer] | None = None
        """How its tools were asked for, from the first page on."""

    def asked(self, params: Mapping[str, Buffer]) -> None:
        """The tools are asked for."""
        self.listing = {name: raw for name, raw in params.items() if name != "cursor"}

    def of(self, message: HttpMessage) -> dict[str, str]:
        """What a message has to repeat of its arguments."""
        if message.method != "tools/call" or not self._wanted:
            return {}
        wanted = self._wanted.get(envelopes.text(message.params.get("name")) or "")
        arguments = message.params.get("arguments")
        return {} if arguments is None or wanted is None else names.param_values(wanted, envelopes.value(arguments))

    def are_wrong(self, message: HttpMessage, error: Raw | None) -> bool:
        """Whether a message was refused because its tool wants other headers by now, which a list would tell."""
        if message.stateless is None or message.method != "tools/call" or self.listing is None:
            return False
        said = None if error is None else envelopes.said_error(error)
        return said is not None and said.code == HEADER_MISMATCH

    async def relearn(self, exchange: Callable[[HttpMessage], Awaitable[bool]]) -> None:
        """List the tools again, to learn which headers they want now. Raises HttpTrouble."""
        log.info("wants other headers; listing its tools again", upstream=self._name)
        params = dict(self.listing or {})
        for _ in range(_PAGES):
            about = Outgoing("tools/list", b'"muxway-headers"', params)
            page = b"".join(envelopes.request(about.id, "tools/list", envelopes.object_of(params.items())))
            stateless = names.stateless_headers("tools/list", params)
            asked = HttpMessage(page.rstrip(b"\n"), *about, stateless, quiet=True)
            try:
                async with asyncio.timeout(_PATIENCE):
                    await exchange(asked)
            except TimeoutError:
                why = f"wants other headers than it said, and did not list its tools again within {_PATIENCE:g} s"
                raise HttpTrouble(why, "timeout") from None
            if asked.cursor is None:
                break
            params["cursor"] = asked.cursor

    def learn(self, message: HttpMessage, envelope: Envelope, frame: bytes) -> bytes:
        """Learn from a list of tools which headers they want; leave out those that want it wrongly, as one must."""
        if message.stateless is None:
            return frame
        if _ANNOTATION not in frame and not self._wanted and not message.quiet:
            return frame
        result = envelopes.members(envelope.result) or {}
        message.cursor = result.get("nextCursor")
        kept: list[bytes] = []
        for tool in envelopes.items(result.get("tools", b"")) or []:
            members = envelopes.members(tool) or {}
            name = envelopes.text(members.get("name")) or ""
            try:
                self._wanted[name] = names.param_headers(envelopes.value(members.get("inputSchema", b"{}")))
                kept.append(bytes(tool))
            except (names.BadAnnotation, ParseError) as error:
                log.warning("tool left out", upstream=self._name, tool=name, why=error)
        listed = {**result, "tools": b"[" + b",".join(kept) + b"]"}
        return b"".join(envelopes.result(envelope.id, envelopes.object_of(listed.items()))).rstrip(b"\n")
