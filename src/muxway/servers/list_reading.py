"""Every page of one of a server's lists, with guards against lists that never end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.catalog.model import UNSAID, Hint
from muxway.errors import METHOD_NOT_FOUND, MuxwayError, UpstreamSaid
from muxway.wire import envelopes

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.catalog.kinds import Kind
    from muxway.servers.connection import Connection
    from muxway.wire.envelopes import Params

_MAX_PAGES: Final = 100
_MAX_BYTES: Final = 16 * 1024 * 1024


class ListReadingFailed(MuxwayError):
    """The server's list could not be read."""


@dataclass(frozen=True, slots=True)
class ListReading:
    """What was listed, and why it is not all, if it is not."""

    items: list[Raw]
    cut: str | None = None
    hint: Hint = UNSAID


async def list_all(connection: Connection, kind: Kind, *, timeout: float, most: int) -> ListReading:
    """Follow all pages.

    Raises:
        ListReadingFailed: an answer that is no list.
        UpstreamSaid, UpstreamError: it refused, or went away.
    """
    items: list[Raw] = []
    hints: list[Hint] = []
    seen: set[bytes] = set()
    params: dict[str, envelopes.Buffer] = {}
    size = 0
    for _ in range(_MAX_PAGES):
        try:
            raw = await connection.own.ask(kind.method, params, timeout=timeout)
        except UpstreamSaid as error:
            if error.code == METHOD_NOT_FOUND and not params:
                return ListReading([])
            raise
        page = envelopes.members(raw) or {}
        listed = envelopes.items(page.get(kind.member, b""))
        if listed is None:
            raise ListReadingFailed(f"answered {kind.method} without a list of {kind.word}s")
        items += listed
        size += len(raw)
        hints.append(_hint(page))
        hint = Hint.of(hints)
        if len(items) > most:
            return ListReading(items[:most], f"it lists more than {most} {kind.word}s (maxTools)", hint)
        if size > _MAX_BYTES:
            return ListReading(items, f"its {kind.word} list is larger than {_MAX_BYTES >> 20} MiB", hint)
        cursor = page.get("nextCursor")
        if cursor is None or envelopes.is_null(cursor):
            return ListReading(items, hint=hint)
        if bytes(cursor) in seen:
            return ListReading(items, f"its {kind.word} list repeats a cursor", hint)
        seen.add(bytes(cursor))
        params = {"cursor": cursor}
    return ListReading(items, f"its {kind.word} list has more than {_MAX_PAGES} pages", Hint.of(hints))


def _hint(page: Params) -> Hint:
    ttl = envelopes.number(page.get("ttlMs"))
    return Hint(0 if ttl is None else max(0, int(ttl)), envelopes.text(page.get("cacheScope")) == "public")
