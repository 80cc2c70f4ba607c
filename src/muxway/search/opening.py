"""How much of a tool's definition is looked at. Pure.

A definition may have megabytes, of which each piece would become an object, for every search that finds the tool. Of
one that is too large only what says what it is for is taken, and nothing is made of the rest; of one that takes too
long to look through, nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST: Final = 128 * 1024
"""Bytes of definitions that are opened for one answer: some ten milliseconds."""
_LARGEST_SCANNED: Final = 8 * LARGEST
"""Bytes of a larger one that are looked through, if nothing else was opened: some four milliseconds."""
_TAKEN: Final[Mapping[str, int]] = {
    "name": 4 * 1024,
    "title": 16 * 1024,
    "description": 1024 * 1024,
    "annotations": 4 * 1024,
}
"""What is taken of a larger one, if it has no more bytes than this."""

_PICK: Final = envelopes.picker([*_TAKEN])


class Opened(NamedTuple):
    """A definition as Python objects."""

    members: Mapping[str, Any]
    whole: bool
    """Whether nothing is missing: else its schemas are."""


def opened(definition: bytes, room: int = LARGEST) -> Opened:
    """Open a definition, the whole of it if it has no more than so many bytes."""
    if len(definition) <= room:
        return Opened(envelopes.holdable(definition), True)
    if len(definition) > (_LARGEST_SCANNED if room else LARGEST):
        return Opened({}, False)
    few = {
        name: raw
        for (name, most), raw in zip(_TAKEN.items(), _PICK(definition), strict=True)
        if raw is not None and memoryview(raw).nbytes <= most
    }
    return Opened(envelopes.holdable(envelopes.object_of(few.items())), False)
