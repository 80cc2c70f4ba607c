"""How deep JSON may be nested. Decoders recurse, and each interpreter stops them at another depth: this bound is ours.

CPython 3.11 ends its decoder a little above it, later ones only at ten times as much. So there the brackets are counted
before anything is decoded, in texts that have enough of them; most have not, and pay for a look at their length.
"""

from __future__ import annotations

import sys
from itertools import accumulate
from typing import Final

MOST: Final = 920
"""Levels of arrays and objects in one message."""
SHORTEST: Final = 2 * MOST
"""Bytes that so many levels take at least."""
UNBOUNDED: Final = sys.version_info >= (3, 12)
"""Whether the decoder itself goes on far beyond the bound."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_SIGNED: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Each opening bracket as 1, each closing one as -1."""
_CHUNK: Final = 256
_MOST_CHUNKS: Final = 1000
"""Chunks near the bound in which each bracket is counted. What stays there for longer is nothing but brackets."""


def too_deep(text: bytes) -> bool:
    """Whether JSON of at least SHORTEST bytes is nested too deep; of what is no JSON, anything may be said."""
    if text.count(b"[") + text.count(b"{") <= MOST:
        return False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = text.translate(None, _NO_BRACKETS)
    # Two quotes side by side begin and end nothing that is left: without them all else is inside or outside as before.
    brackets = brackets.replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    signed = brackets.translate(_SIGNED)
    depth = near = 0
    for begin in range(0, len(signed), _CHUNK):
        chunk = signed[begin : begin + _CHUNK]
        opened = chunk.count(b"\x01")
        if depth + opened > MOST:
            near += 1
            if near > _MOST_CHUNKS or max(accumulate(memoryview(chunk).cast("b"), initial=depth)) > MOST:
                return True
        depth += 2 * opened - len(chunk)
    return False
