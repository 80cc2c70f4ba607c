"""Answers to `*/list`, of any kind: pages that are encoded already, under cursors of our own."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.catalog.kinds import TOOLS
from muxway.catalog.model import UNSAID, Hint, Pages
from muxway.errors import InvalidParams
from muxway.wire import conversion, envelopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.calls.call import Call
    from muxway.catalog.kinds import Kind
    from muxway.wire.envelopes import Buffer

_REMEMBERED: Final = 8
_LONGEST_CURSOR: Final = 256
_CURSOR = re.compile(r"([a-z]+)-(\d{1,15})\.(\d{1,15})").fullmatch


class _Edition(NamedTuple):
    version: int
    pages: Pages
    hint: Hint


class Shelf:
    """The list of one kind that is in force, and the last ones before it."""

    def __init__(self, kind: Kind, page_size: int | None, stamp: bytes) -> None:
        """Begin with an empty list. `stamp` is the `_meta` of results for stateless callers."""
        self._kind = kind
        self._page_size = page_size
        self._stamp = stamp
        self._edition = _Edition(0, Pages(()), UNSAID)
        # A client half way through its pages goes on in the list it began with.
        self._recent: deque[_Edition] = deque(maxlen=_REMEMBERED)

    def reconfigure(self, page_size: int | None, stamp: bytes) -> None:
        """Another size of pages, another stamp. Cursors to pages of another size have expired."""
        if page_size != self._page_size:
            self._recent.clear()
        self._page_size, self._stamp = page_size, stamp

    def put(self, pages: Pages, hint: Hint) -> bool:
        """Make this the list in force. False if a client that lists both sees no difference."""
        old = self._edition
        if pages is old.pages or pages.page() == old.pages.page():
            # What is encoded stays so.
            self._edition = old._replace(hint=hint)
            return False
        self._edition = _Edition(old.version + 1, pages, hint)
        self._recent.append(old)
        return True

    def answer(self, call: Call, holds: int | None = None) -> Sequence[Buffer]:
        """One page, or everything.

        Args:
            call: the request.
            holds: for how many milliseconds all that is known still holds, if anybody knows.

        Raises:
            InvalidParams: the cursor is of another list, or too old.
        """
        edition, offset = self._edition, 0
        cursor = call.params.get("cursor")
        if cursor is not None and not envelopes.is_null(cursor) and bytes(memoryview(cursor)[:3]) != b'""':
            known = memoryview(cursor).nbytes < _LONGEST_CURSOR
            edition, offset = self._resume(envelopes.text(cursor) if known else None)
        revision, size, pages = call.caller.revision, self._page_size, edition.pages
        variant = conversion.tool_converter(revision) if self._kind is TOOLS else conversion.item_converter(revision)
        parts: list[Buffer] = [b'{"%b":[' % self._kind.member.encode(), pages.page(offset, size, variant)]
        if size is not None and offset + size < len(pages):
            name = self._kind.name.encode()
            parts.append(b'],"nextCursor":"%b-%d.%d"' % (name, edition.version, offset + size))
        else:
            parts.append(b"]")
        if revision.stateless:
            scope = b"public" if edition.hint.public else b"private"
            ttl_ms = edition.hint.ttl_ms if holds is None else min(edition.hint.ttl_ms, holds)
            parts.append(b',"resultType":"complete","ttlMs":%d,"cacheScope":"%b",' % (ttl_ms, scope))
            parts += (self._stamp, b"}")
        else:
            parts.append(b"}")
        return parts

    def _resume(self, cursor: str | None) -> tuple[_Edition, int]:
        match = _CURSOR(cursor or "")
        if match is not None and match[1] == self._kind.name and self._page_size is not None:
            version, offset = int(match[2]), int(match[3])
            for edition in (self._edition, *self._recent):
                # Only where a page begins: anything else was not ours, and each page asked for is kept encoded.
                if edition.version == version and offset < len(edition.pages) and offset % self._page_size == 0:
                    return edition, offset
        raise InvalidParams("params.cursor is not one of ours or has expired: list again without a cursor")
