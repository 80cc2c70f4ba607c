"""What must change when a result crosses from one revision to another.

A converter takes the bytes of a result and gives the bytes the caller understands.
Between two handshake revisions there is mostly none, and then nothing is done at all.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from muxway.wire import asking, conversion, envelopes
from muxway.wire.revisions import RELATED_TASK, SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.revisions import Revision

Converter: TypeAlias = "Callable[[Buffer], Buffer]"

_MAYBE_EMPTY: Final = 64
_STATELESS_ONLY: Final = frozenset(("resultType", "ttlMs", "cacheScope"))


class InputRequired(Exception):
    """The server wants something of its caller before it goes on.

    What it said is taken apart here: it may be large, and who converts large results holds up nobody.
    """

    def __init__(self, fields: Params) -> None:
        super().__init__()
        self.state = fields.get("requestState")
        """What it wants to have back."""
        self.entries = few_questions(fields.get("inputRequests", b"{}"))
        """What it asks, as `few_questions` gives it; None if that is no object."""


class TaskMade(Exception):
    """The server has made a task of the call, and this is not its result. Carries the members of what it said."""

    def __init__(self, fields: Params) -> None:
        super().__init__()
        self.fields = fields


def few_questions(raw: Buffer) -> Params | None:
    """Questions by their keys; of too many only one more than may be open at once. None if they are no object."""
    entries = envelopes.members(raw)
    if entries is not None and len(entries) > asking.MOST_OPEN:
        return dict(islice(entries.items(), asking.MOST_OPEN + 1))
    return entries


def result_converter(
    caller: Revision, upstream: Revision, server_info: bytes, *, wrapped: bool = False
) -> Converter | None:
    """The conversion of tool results on the way from a server to a caller; None if they pass as they are.

    Args:
        caller: the revision to give results in.
        upstream: the revision they come in.
        server_info: the gateway's name and version, as JSON.
        wrapped: whether the tool is one of those whose output is wrapped, see `convert.is_wrapped`.
    """
    if caller.stateless:
        return _to_stateless(upstream, server_info)
    if upstream.stateless:
        return _from_stateless(caller, wrapped=wrapped)
    marks = conversion.result_marks(caller, wrapped=wrapped)
    return _between_handshakes(caller, marks, wrapped=wrapped) if marks else None


def _to_stateless(upstream: Revision, server_info: bytes) -> Converter:
    stamp = b'"_meta":{' + envelopes.encode(SERVER_INFO) + b":" + server_info + b"}"
    # A task of 2025-11-25 means nothing here; the tasks of the stateless revision do not use this key.
    hop = {SERVER_INFO} if upstream.stateless else {SERVER_INFO, RELATED_TASK}

    def to_stateless(result: Buffer) -> Buffer:
        raw = bytes(result)
        # Two scans are far cheaper than opening the object; most results have neither key at any depth.
        if b'"_meta"' not in raw and b'"resultType"' not in raw:
            empty = len(raw) < _MAYBE_EMPTY and not raw.strip()[1:-1].strip()
            return b'{"resultType":"complete",' + stamp + (b"" if empty else b",") + raw.lstrip()[1:]
        fields = envelopes.members(raw) or {}
        _refuse_unfinished(fields)
        meta = envelopes.members(fields.pop("_meta", b"{}")) or {}
        kept: dict[str, Buffer] = {name: value for name, value in meta.items() if name not in hop}
        kept[SERVER_INFO] = server_info
        stamped: dict[str, Buffer] = {"resultType": b'"complete"', **fields}
        stamped["_meta"] = envelopes.object_of(kept.items())
        return envelopes.object_of(stamped.items())

    return to_stateless


def _from_stateless(caller: Revision, *, wrapped: bool) -> Converter:
    def to_handshake(result: Buffer) -> Buffer:
        """Take away what only 2026-07-28 knows. Unknown fields and all values stay."""
        fields = envelopes.members(result)
        if fields is None:
            return result
        _refuse_unfinished(fields)
        kept: dict[str, Buffer] = {name: value for name, value in fields.items() if name not in _STATELESS_ONLY}
        changed = len(kept) != len(fields)
        meta = envelopes.members(kept["_meta"]) if "_meta" in kept else None
        if meta is not None and meta.pop(SERVER_INFO, None) is not None:
            changed = True
            if meta:
                kept["_meta"] = envelopes.object_of(meta.items())
            else:
                del kept["_meta"]
        changed |= conversion.convert_result(caller, kept, wrapped=wrapped)
        return envelopes.object_of(kept.items()) if changed else result

    return to_handshake


def _between_handshakes(caller: Revision, marks: tuple[bytes, ...], *, wrapped: bool) -> Converter:
    def to_older(result: Buffer) -> Buffer:
        if not conversion.marked(bytes(result), marks):
            return result
        fields: dict[str, Buffer] = {**(envelopes.members(result) or {})}
        changed = conversion.convert_result(caller, fields, wrapped=wrapped)
        return envelopes.object_of(fields.items()) if changed else result

    return to_older


def _refuse_unfinished(fields: envelopes.Params) -> None:
    kind = bytes(fields.get("resultType", b""))
    if kind == b'"input_required"':
        raise InputRequired(fields)
    if kind == b'"task"':
        raise TaskMade(fields)
