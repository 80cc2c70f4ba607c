"""Answers to `*/list`, of any kind: pages that are encoded already, under cursors of our own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.catalog.kinds import TOOLS
from muxway.errors import InvalidParams
from muxway.wire import conversion, envelopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from muxway.calls.call import Call
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Hint, Pages
    from muxway.wire.envelopes import Buffer, Raw

_LONGEST_CURSOR: Final = 256
_CURSOR = re.compile(r"([a-z]+)-([0-9a-f]{16})\.(\d{1,15})").fullmatch


def cursor_of(call: Call) -> Raw | None:
    """Where a client goes on; None: it begins."""
    cursor = call.params.get("cursor")
    begins = cursor is None or envelopes.is_null(cursor) or bytes(memoryview(cursor)[:3]) == b'""'
    return None if begins else cursor


class Listing(NamedTuple):
    """One list as callers of one era see it. Immutable."""

    kind: Kind
    pages: Pages
    hint: Hint
    """How long it holds."""
    size: int | None
    """How many things a page has; None: all in one."""
    stamp: bytes
    """The `_meta` of results for stateless callers."""

    def differs_from(self, other: Listing) -> bool:
        """Whether a client that lists both sees a difference."""
        return self.pages is not other.pages and self.pages.page() != other.pages.page()

    def following(self, before: Listing | None) -> Listing:
        """The same, with what is encoded already if a client that lists both sees no difference."""
        return self if before is None or self.differs_from(before) else self._replace(pages=before.pages)

    def answer(self, call: Call, earlier: Iterable[Listing] = (), holds: int | None = None) -> Sequence[Buffer]:
        """One page, or everything.

        Args:
            call: the request.
            earlier: what was listed in its place before: a client half way goes on in the list it began with.
            holds: for how many milliseconds all that is known still holds, if anybody knows.

        Raises:
            InvalidParams: the cursor is of another list, or too old.
        """
        listing, offset = self, 0
        cursor = cursor_of(call)
        if cursor is not None:
            known = memoryview(cursor).nbytes < _LONGEST_CURSOR
            listing, offset = self._resume(envelopes.text(cursor) if known else None, earlier)
        revision, size, pages = call.caller.revision, self.size, listing.pages
        variant = conversion.tool_converter(revision) if self.kind is TOOLS else conversion.item_converter(revision)
        parts: list[Buffer] = [b'{"%b":[' % self.kind.member.encode(), pages.page(offset, size, variant)]
        if size is not None and offset + size < len(pages):
            cursor = f"{self.kind.name}-{pages.digest}.{offset + size}"
            parts.append(b'],"nextCursor":"%b"' % cursor.encode())
        else:
            parts.append(b"]")
        if revision.stateless:
            scope = b"public" if listing.hint.public else b"private"
            ttl_ms = listing.hint.ttl_ms if holds is None else min(listing.hint.ttl_ms, holds)
            parts.append(b',"resultType":"complete","ttlMs":%d,"cacheScope":"%b",' % (ttl_ms, scope))
            parts += (self.stamp, b"}")
        else:
            parts.append(b"}")
        return parts

    def _resume(self, cursor: str | None, earlier: Iterable[Listing]) -> tuple[Listing, int]:
        match = _CURSOR(cursor or "")
        if match is not None and match[1] == self.kind.name and self.size is not None:
            offset = int(match[3])
            for listing in (self, *earlier):
                # Only where a page begins: anything else was not ours, and each page asked for is kept encoded.
                its = listing.size == self.size and offset < len(listing.pages) and offset % self.size == 0
                if its and listing.pages.digest == match[2]:
                    return listing, offset
        raise InvalidParams("params.cursor is not one of ours or has expired: list again without a cursor")
