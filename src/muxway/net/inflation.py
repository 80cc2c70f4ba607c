"""A compressed body of an HTTP answer, unpacked a little at a time (RFC 9110 §8.4.1)."""

from __future__ import annotations

import zlib
from typing import Final

CODINGS: Final = frozenset((b"gzip", b"x-gzip", b"deflate"))
_INFLATED: Final = 256 * 1024
"""Bytes that a compressed body gives at a time, however much is in it."""
_PACKED: Final = 16 * 1024
"""Bytes that are looked at for it: the rest of them is copied each time."""
_GZIP: Final = zlib.MAX_WBITS | 16
_ZLIB: Final = 8
"""The low half of the first byte of compressed data that says what it is (RFC 1950 §2.2)."""


class Inflation:
    """A body in one of the CODINGS."""

    def __init__(self, coding: bytes) -> None:
        self._coding = coding
        self._inflater = zlib.decompressobj(_GZIP)
        self._begun = False
        self._packed = b""
        self._at = 0
        """How much of that is unpacked."""
        self._filled = False
        """Whether what was taken last was cut, so that there may be more, wherever it is kept."""

    @property
    def has_more(self) -> bool:
        """Whether what came may have more in it than was taken out."""
        return self._filled or self._at < len(self._packed)

    @property
    def is_whole(self) -> bool:
        """Whether it may end here."""
        return not self.has_more and (self._inflater.eof or not self._begun)

    def put(self, data: bytes) -> None:
        """More has come. Only when there is no more of what came before: what waits must not become ever more."""
        self._packed, self._at = data, 0

    def take(self) -> bytes:
        """What is in it, up to so much at once; perhaps nothing, though there is more. Raises zlib.error."""
        if not self.has_more:
            return b""
        piece = self._packed[self._at : self._at + _PACKED]
        if (self._inflater.eof and piece) or not self._begun:
            self._begun = True
            # Many servers send deflated data without the header that it should have.
            bare = self._coding == b"deflate" and piece[0] & 0x0F != _ZLIB
            bits = _GZIP if self._coding != b"deflate" else -zlib.MAX_WBITS if bare else zlib.MAX_WBITS
            self._inflater = zlib.decompressobj(bits)
        inflated = self._inflater.decompress(piece, _INFLATED)
        self._at += len(piece) - len(self._inflater.unconsumed_tail or self._inflater.unused_data)
        self._filled = len(inflated) == _INFLATED and not self._inflater.eof
        return inflated
