"""`truncate`: large results become a digest and a link, under which the gateway serves the rest in slices."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections import OrderedDict
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.errors import INVALID_PARAMS, RpcError
from muxway.exchange.resources import NOT_FOUND
from muxway.likeness import short
from muxway.middleware.builtin.masking import change_strings
from muxway.middleware.engine.base import Aside, Middleware, Result
from muxway.middleware.engine.epochs import Epochs
from muxway.middleware.engine.tools import listed_name
from muxway.wire import envelopes, reading

if TYPE_CHECKING:
    from muxway.calls.call import Caller
    from muxway.middleware.engine.base import Next, Request
    from muxway.wire.envelopes import Buffer, Raw

PREFIX: Final = "muxway://truncated/"
_URI: Final = re.compile(r"muxway://truncated/([\w-]{22})(?:\?offset=(\d{1,15})&length=(\d{1,15}))?", re.ASCII)
_SMALLEST: Final = 1000
_AT_ONCE: Final = 128 * 1024
"""Bytes of a result up to which it is cut without the help of another thread."""
_TOKENS: Final = 10_000
_BYTES_A_TOKEN: Final = 4
_EXCERPT: Final = 4000
"""Bytes of a cut text that are shown, at most: three quarters from its beginning, one from its end."""
_NOTE: Final = 600
"""Bytes that the note about a cut block takes, with its link, at most."""
_DECODED: Final = 1024 * 1024
"""Characters of base64 that are decoded in one go: nothing else runs meanwhile. Four of them are three bytes."""
_LONGEST_NAME: Final = 100
_MOST_NAMED: Final = 3
_AROUND: Final = 6
"""Bytes that a member takes besides its name and value."""
_MAIN: Final = frozenset(("content", "structuredContent"))
_LENGTHS: Final = (2000, 500, 100)
_CONDITIONS: Final = re.compile(
    rb'"(?:pattern|format|enum|const|minLength|contentEncoding|not|if|oneOf|anyOf|uniqueItems)"'
)
"""What a schema may say so that a shorter string does not fit where a longer one does."""


class _Kept(NamedTuple):
    """Something that was taken out of a result."""

    data: bytes
    mime: str
    is_text: bool
    owner: object
    server: str
    """Where it came from; empty if that may be several."""
    expires: float


class Truncate(Middleware):
    """Keep results of tools within a budget, so that one large answer does not fill a model's context.

    The largest blocks are cut first: of a text its beginning and end stay, with a note on what is missing;
    pictures, sounds and embedded resources give way to a note; so do large members of `_meta`. What was taken out
    can be read for a while as the resource that the note names, `muxway://truncated/<id>?offset=…&length=…`, in
    slices; clients that know them also get a `resource_link`. Only the caller that got the link can read it, and only
    while the server stays what it is: a swap, a new list or a reload drops it.
    Structured content that does not fit is taken out, unless the tool has an output schema: then long strings in it
    are shortened if the schema has no conditions on strings, else it stays whole.

    Options:
        tokens: the budget of a result, with 4 bytes for a token; 10,000 if neither this nor `bytes` is given.
        bytes: the budget in bytes instead.
        keep: seconds for which what was taken out can be read; 600.
        memory: bytes for all that is kept; 64 MiB. The oldest goes first.

    Put it before `redact`, `secrets` and `cache` in the list, so that what it keeps is masked and is not kept twice.

    Costs 7 µs for a result within the budget, whatever its size; 0.2 ms to cut 100 KB.
    """

    plain = True

    def __init__(
        self,
        *,
        tokens: int | None = None,
        bytes: int | None = None,  # noqa: A002 - the word people write in a configuration
        keep: float = 600.0,
        memory: int = 64 * 1024 * 1024,
    ) -> None:
        if tokens is not None and bytes is not None:
            raise ValueError("give `tokens` or `bytes`, not both")
        self._budget = bytes if bytes is not None else _BYTES_A_TOKEN * (_TOKENS if tokens is None else tokens)
        if self._budget < _SMALLEST:
            raise ValueError(f"the budget must be at least {_SMALLEST} bytes, or {_SMALLEST // _BYTES_A_TOKEN} tokens")
        if not 0 < keep <= 24 * 3600 or memory < 0:
            raise ValueError("`keep` must be more than 0 and at most 86400 seconds, `memory` 0 bytes or more")
        self._keep_seconds = keep
        self._memory = memory
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0
        self._epochs = Epochs()

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Cut what is too large."""
        epoch = self._epochs.now(request.server)
        result = await go(request)
        if len(result.raw) <= self._budget:
            return result
        # Into a memory of its own: what came from a server that is another one now is not kept in ours.
        apart = Truncate(bytes=self._budget, keep=self._keep_seconds, memory=self._memory)
        if len(result.raw) <= _AT_ONCE:
            cut = apart._cut(request, result)
        else:
            # Beside the event loop: meanwhile something may be kept or dropped in ours.
            cut = await Aside(partial(apart._cut, request, result))
        if self._epochs.now(request.server) == epoch:
            self._forget_old()
            for id_, kept in apart._kept.items():
                self._store(id_, kept)
        return cut

    async def read_resource(self, request: Request, go: Next) -> Result:
        """Serve a slice of what was taken out."""
        match = _URI.fullmatch(request.name)
        if match is None:
            return await go(request)
        self._forget_old()
        kept = self._kept.get(match[1])
        if kept is None or kept.owner != _owner(request.caller):
            code = INVALID_PARAMS if request.caller.revision.stateless else NOT_FOUND
            kept_for = f"kept for {self._keep_seconds:g} s, while its server stays as it is"
            why = f"Resource not found: {request.name} is {kept_for}; call the tool again"
            raise RpcError(why, code=code, data={"uri": request.name})
        offset, length = int(match[2] or 0), int(match[3] or self._budget)
        if kept.is_text:
            length = min(length, self._budget)
        return self._slice(request, kept, match[1], offset, length)

    def forget(self, server: str | None) -> None:
        """Drop what came from a server, and what may have come from several."""
        self._epochs.forget(server)
        for id_ in [id_ for id_, kept in self._kept.items() if server is None or kept.server in (server, "")]:
            self._drop(id_)

    async def close(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._size = 0

    # --- cutting ------------------------------------------------------------------------------

    def _cut(self, request: Request, result: Result) -> Result:
        fields: dict[str, Buffer] = {**result.fields_aside()}
        if not result.is_final:
            return result
        structured = fields.get("structuredContent")
        first, others = reading.few_items(fields.get("content", b"[]")) or ([], [])
        blocks: list[Buffer] = [*first]
        taken = _lightened(fields, self._budget // 4)
        room = self._budget - sum(_length(raw) for name, raw in fields.items() if name not in _MAIN)
        if structured is not None and _length(structured) > room // 2:
            if "outputSchema" in request.tool:
                fields["structuredContent"] = structured = self._shortened(request, structured, room // 2)
                room -= min(_length(structured), room // 2)
            else:
                del fields["structuredContent"]
                note = f"The structured content of this result, {_length(structured):,} bytes of JSON, was taken out."
                blocks = [*self._replaced(request, bytes(structured), "application/json", note), *blocks]
        elif structured is not None:
            room -= _length(structured)
        if taken:
            data = envelopes.object_of(taken.items())
            which = ", ".join(f"`{short(name, _LONGEST_NAME)}`" for name in [*taken][:_MOST_NAMED])
            more = f" and {len(taken) - _MOST_NAMED:,} more members" if len(taken) > _MOST_NAMED else ""
            note = f"Of this result {which}{more}, {len(data):,} bytes of JSON, were taken out."
            blocks = [*self._replaced(request, data, "application/json", note), *blocks]
        fields["content"] = b"[" + b",".join(self._fitting(request, blocks, others, room)) + b"]"
        return Result(envelopes.object_of(fields.items()))

    def _fitting(self, request: Request, blocks: list[Buffer], others: list[Raw], room: int) -> list[Buffer]:
        """The blocks, the largest of them cut until all fit; if there are too many for that, the first ones.

        `others` are so many more that nobody looks at them.
        """
        size = sum(_length(block) + 1 for block in (*blocks, *others))
        cut: dict[int, list[Buffer]] = {}
        largest_first = sorted(range(len(blocks)), key=lambda index: _length(blocks[index]), reverse=True)
        for index in largest_first:
            if size <= room or _length(blocks[index]) <= 2 * _NOTE:
                break
            spare = max(0, room - (size - _length(blocks[index])) - 2 * _NOTE)
            cut[index] = self._cut_block(request, blocks[index], min(spare, _EXCERPT))
            size += sum(_length(block) + 1 for block in cut[index]) - _length(blocks[index]) - 1
        shown = [piece for index, block in enumerate(blocks) for piece in cut.get(index, [block])]
        if size <= room or not shown:
            return [*shown, *others]
        left = room - 2 * _NOTE
        count = 0
        while count < len(shown) and (left := left - _length(shown[count]) - 1) >= 0:
            count += 1
        # The last of the others may be many.
        number = f"{len(shown) - count:,}" if not others else f"More than {len(shown) - count + len(others) - 1:,}"
        note = f"{number} further blocks of this result were taken out."
        rest = b"".join((b"[", b",".join((*shown[count:], *others)), b"]"))
        return [*shown[:count], *self._replaced(request, rest, "application/json", note)]

    def _cut_block(self, request: Request, raw: Buffer, spare: int) -> list[Buffer]:
        fields = _few(raw)
        inner = _few(fields.get("resource", b"")) or fields
        mime = (envelopes.text(inner.get("mimeType")) or "")[:_LONGEST_NAME]
        text = reading.text(inner.get("text"))
        if text is not None:
            return self._cut_text(request, text.encode(), mime or "text/plain", spare)
        encoded = reading.text(inner.get("data") or inner.get("blob")) or ""
        try:
            pieces = (encoded[start : start + _DECODED] for start in range(0, len(encoded), _DECODED))
            data = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
        except (binascii.Error, ValueError):
            data = b""
        if not data:
            note = f"A block of this result, {_length(raw):,} bytes of JSON, was taken out."
            return self._replaced(request, bytes(raw), "application/json", note)
        mime = mime or "application/octet-stream"
        note = f"A part of this result ({mime}, {len(data):,} bytes) was taken out."
        return self._replaced(request, data, mime, note, is_text=False)

    def _cut_text(self, request: Request, text: bytes, mime: str, spare: int) -> list[Buffer]:
        uri = self._keep(request, text, mime, is_text=True)
        limit = spare + _NOTE
        while True:
            first, last = _border(text, spare * 3 // 4), _border(text, len(text) - spare // 4)
            sizes = f"of {len(text):,} bytes the first {first:,} and the last {len(text) - last:,} are shown."
            note = f"[This text was cut: {sizes} {self._how(uri, len(text), first)}]"
            shown = f"{text[:first].decode()}\n\n{note}\n\n{text[last:].decode()}".strip()
            block = envelopes.encode({"type": "text", "text": shown})
            if len(block) <= limit or spare == 0:
                return [block, *self._link(request, uri, mime, len(text), first)]
            # Control characters take six times their size in JSON.
            spare //= 2

    def _replaced(self, request: Request, data: bytes, mime: str, note: str, *, is_text: bool = True) -> list[Buffer]:
        uri = self._keep(request, data, mime, is_text=is_text)
        block = {"type": "text", "text": f"[{note} {self._how(uri, len(data), 0, is_text=is_text)}]"}
        return [envelopes.encode(block), *self._link(request, uri, mime, len(data), 0, is_text=is_text)]

    def _how(self, uri: str | None, size: int, offset: int, *, is_text: bool = True) -> str:
        if uri is None:
            return f"It is too large to be kept ({size:,} bytes); ask for less of it."
        link = self._address(uri, size, offset, is_text=is_text)
        more = " and go on with greater offsets" if is_text and size - offset > self._budget else ""
        return f"For {self._keep_seconds:g} s the rest can be read as the resource {link}{more}."

    def _link(
        self, request: Request, uri: str | None, mime: str, size: int, offset: int, *, is_text: bool = True
    ) -> list[Buffer]:
        if uri is None or not request.caller.revision.resource_links:
            return []
        link = {
            "type": "resource_link",
            "uri": self._address(uri, size, offset, is_text=is_text),
            "name": f"rest of {listed_name(request)[:_LONGEST_NAME]}",
            "mimeType": mime,
            "size": size,
        }
        return [envelopes.encode(link)]

    def _address(self, uri: str, size: int, offset: int, *, is_text: bool) -> str:
        return f"{uri}?offset={offset}&length={min(size - offset, self._budget) if is_text else size}"

    def _shortened(self, request: Request, raw: Buffer, room: int) -> Buffer:
        """Structured content with its long strings shortened, if it is still what the schema promises then."""
        schema = envelopes.encode(request.tool["outputSchema"])
        if _CONDITIONS.search(schema) is not None:
            return raw
        uri = self._keep(request, bytes(raw), "application/json", is_text=True)
        end = f"… [cut; all of it: {uri}]" if uri is not None else "… [cut]"
        for length in _LENGTHS:
            shortened = change_strings(raw, partial(_short, length, end))
            if _length(shortened) <= room:
                return shortened
        if uri is not None:
            self._drop(uri.removeprefix(PREFIX))
        return raw

    # --- what is kept -------------------------------------------------------------------------

    def _keep(self, request: Request, data: bytes, mime: str, *, is_text: bool) -> str | None:
        """Keep something; its URI without a slice, or None if it is too large."""
        self._forget_old()
        if len(data) > self._memory:
            return None
        id_ = secrets.token_urlsafe(16)
        expires = monotonic() + self._keep_seconds
        self._store(id_, _Kept(data, mime, is_text, _owner(request.caller), request.server, expires))
        return PREFIX + id_

    def _store(self, id_: str, kept: _Kept) -> None:
        while self._size + len(kept.data) > self._memory:
            self._drop(next(iter(self._kept)))
        self._kept[id_] = kept
        self._size += len(kept.data)

    def _forget_old(self) -> None:
        now = monotonic()
        while self._kept and (id_ := next(iter(self._kept))) and self._kept[id_].expires <= now:
            self._drop(id_)

    def _drop(self, id_: str) -> None:
        self._size -= len(self._kept.pop(id_).data)

    def _slice(self, request: Request, kept: _Kept, id_: str, offset: int, length: int) -> Result:
        data = kept.data
        first = min(offset, len(data))
        last = min(first + length, len(data))
        content: dict[str, Any] = {"uri": request.name, "mimeType": kept.mime}
        if kept.is_text:
            first, last = _border(data, first), _border(data, last)
            content["text"] = data[first:last].decode()
        else:
            content["blob"] = base64.b64encode(data[first:last]).decode()
        told: dict[str, Any] = {"offset": first, "length": last - first, "size": len(data)}
        if last < len(data):
            told["next"] = f"{PREFIX}{id_}?offset={last}&length={length}"
        content["_meta"] = {"muxway/truncated": told}
        result: dict[str, Any] = {"contents": [content]}
        if request.caller.revision.stateless:
            result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return Result.of(result)


def _owner(caller: Caller) -> object:
    """Who may read what this caller was given: whoever has its credentials, else its session."""
    return caller.principal or caller.party


def _lightened(fields: dict[str, Buffer], room: int) -> dict[str, Buffer]:
    """Take out of a result what is neither content nor structured content and too large beside them; what that was.

    The smallest members stay. Of `_meta` the same holds for its own members: small ones are what clients look for.
    """
    taken: dict[str, Buffer] = {}
    for name in sorted(fields.keys() - _MAIN, key=lambda name: _length(fields[name])):
        raw = fields[name]
        if _length(raw) <= room:
            room -= _length(raw)
            continue
        members: dict[str, Buffer] = {**_few(raw)} if name == "_meta" else {}
        kept: dict[str, Buffer] = {}
        for key in sorted(members, key=lambda key: _length(members[key])):
            size = _length(members[key]) + len(key.encode(errors="replace")) + _AROUND
            if size > room:
                break
            room -= size
            kept[key] = members.pop(key)
        taken |= {f"{name}.{key}": member for key, member in members.items()} or {name: raw}
        if kept:
            fields[name] = envelopes.object_of(kept.items())
        else:
            del fields[name]
    return taken


def _length(raw: Buffer) -> int:
    return memoryview(raw).nbytes


def _border(text: bytes, place: int) -> int:
    """The place, or the one before it at which a character begins."""
    place = max(0, place)
    while 0 < place < len(text) and text[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _short(length: int, end: str, text: str) -> str:
    return text[:length] + end if len(text) > length + len(end) else text


def _few(raw: Buffer) -> envelopes.Params:
    """The members of an object; none, if it is no object or has more than anybody needs: it is cut as a whole."""
    try:
        return reading.few_members(raw) or {}
    except envelopes.TooManyMembers:
        return {}
