"""What must change when a result crosses from one era to the other.

A converter takes the bytes of a result and gives the bytes the caller understands.
Between two handshake revisions there is none, and nothing is done at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from muxway.protocol import messages
from muxway.protocol.era import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.protocol.era import Revision
    from muxway.protocol.messages import Buffer

Converter: TypeAlias = "Callable[[Buffer], Buffer]"

_MAYBE_EMPTY: Final = 64
_STATELESS_ONLY: Final = frozenset(("resultType", "ttlMs", "cacheScope"))


class InputRequired(Exception):
    """The upstream wants something of its caller before it goes on."""


def result_converter(caller: Revision, server_info: bytes) -> Converter:
    """The conversion of results for a caller, wherever one of the two sides is stateless."""
    if not caller.stateless:
        return to_handshake
    stamp = b'"_meta":{' + messages.encode(SERVER_INFO) + b":" + server_info + b"}"

    def to_stateless(result: Buffer) -> Buffer:
        raw = bytes(result)
        # Two scans are far cheaper than opening the object; most results have neither key at any depth.
        if b'"_meta"' not in raw and b'"resultType"' not in raw:
            empty = len(raw) < _MAYBE_EMPTY and not raw.strip()[1:-1].strip()
            return b'{"resultType":"complete",' + stamp + (b"" if empty else b",") + raw.lstrip()[1:]
        fields = messages.members(raw) or {}
        _refuse_input_required(fields)
        meta = messages.members(fields.pop("_meta", b"{}")) or {}
        kept: dict[str, Buffer] = {name: value for name, value in meta.items() if name != SERVER_INFO}
        kept[SERVER_INFO] = server_info
        stamped: dict[str, Buffer] = {"resultType": b'"complete"', **fields}
        stamped["_meta"] = messages.object_of(kept.items())
        return messages.object_of(stamped.items())

    return to_stateless


def to_handshake(result: Buffer) -> Buffer:
    """Take away what only 2026-07-28 knows. Unknown fields and all values stay."""
    fields = messages.members(result)
    if fields is None:
        return result
    _refuse_input_required(fields)
    kept: dict[str, Buffer] = {name: value for name, value in fields.items() if name not in _STATELESS_ONLY}
    meta = messages.members(kept["_meta"]) if "_meta" in kept else None
    if meta is not None and meta.pop(SERVER_INFO, None) is not None:
        if meta:
            kept["_meta"] = messages.object_of(meta.items())
        else:
            del kept["_meta"]
    return messages.object_of(kept.items())


def _refuse_input_required(fields: messages.Params) -> None:
    if bytes(fields.get("resultType", b"")) == b'"input_required"':
        raise InputRequired
