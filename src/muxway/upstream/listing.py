"""Every page of an upstream's tool list, with guards against lists that never end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.errors import METHOD_NOT_FOUND, MuxwayError, UpstreamSaid
from muxway.protocol import messages

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.upstream.link import Link

_MAX_PAGES: Final = 100
_MAX_BYTES: Final = 16 * 1024 * 1024


class ListingFailed(MuxwayError):
    """The upstream's list could not be read."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What was listed, and why it is not all, if it is not."""

    tools: list[Raw]
    cut: str | None = None


async def list_tools(link: Link, *, timeout: float, max_tools: int) -> Listing:
    """Follow all pages.

    Raises:
        ListingFailed: an answer that is no list.
        UpstreamSaid, UpstreamError: it refused, or went away.
    """
    tools: list[Raw] = []
    seen: set[bytes] = set()
    params: dict[str, messages.Buffer] = {}
    size = 0
    for _ in range(_MAX_PAGES):
        try:
            raw = await link.ask("tools/list", params, timeout=timeout)
        except UpstreamSaid as error:
            if error.code == METHOD_NOT_FOUND and not params:
                return Listing([])
            raise
        page = messages.members(raw) or {}
        listed = messages.items(page.get("tools", b""))
        if listed is None:
            raise ListingFailed("answered tools/list without a list of tools")
        tools += listed
        size += len(raw)
        if len(tools) > max_tools:
            return Listing(tools[:max_tools], f"it lists more than {max_tools} tools (maxTools)")
        if size > _MAX_BYTES:
            return Listing(tools, f"its tool list is larger than {_MAX_BYTES >> 20} MiB")
        cursor = page.get("nextCursor")
        if cursor is None or messages.is_null(cursor):
            return Listing(tools)
        if bytes(cursor) in seen:
            return Listing(tools, "its tool list repeats a cursor")
        seen.add(bytes(cursor))
        params = {"cursor": cursor}
    return Listing(tools, f"its tool list has more than {_MAX_PAGES} pages")
