"""JSON-RPC envelopes whose payloads stay the bytes that came in.

The only module that knows the JSON library. A message is decoded exactly one level:
`id`, `params` values, `result` and `error` are `Raw`, views of the received line that
are checked to be valid JSON but never turned into objects. Ids are kept as their JSON
text, so `1` and `"1"` are different and each goes back as it came.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import struct
from codecs import utf_8_decode
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw

from muxway.errors import ParseError, RpcError, UpstreamSaid
from muxway.wire import depth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Buffer: TypeAlias = bytes | Raw
"""A piece of an outgoing frame; frames are lists of these, joined only by the system call that writes them."""
Params: TypeAlias = dict[str, Raw]
T = TypeVar("T")

ABSENT: Final = Raw()
_EMPTY: Final = b""
_BRACE: Final = (ord("{"),)
_ZERO: Final = ord("0")
_PIECE: Final = 32 * 1024
_FIXED: Final = len(b'{"jsonrpc":"2.0","id":,"method":"","params":{}}') - len(b",")
"""Bytes of a request beside its values and the names of its params, each of which has four more: `,"":`."""
_QUOTES: Final = b'{"jsonrpc":"2.0","id":,"method":"","params":{}}'.count(b'"')
"""Quotes of a request beside those of its id and its params."""


class Envelope(msgspec.Struct, gc=False, frozen=True):
    """One JSON-RPC message, opened one level."""

    jsonrpc: Literal["2.0"]
    id: Raw = ABSENT
    method: str | None = None
    params: Params | None = None
    result: Raw = ABSENT
    error: Raw = ABSENT


class LooseEnvelope(msgspec.Struct, gc=False, frozen=True):
    """The same fields with nothing asked of them: to say what is wrong with a message that is no `Envelope`."""

    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class ErrorObject(msgspec.Struct, gc=False, frozen=True):
    """The error member of a response, its data still raw."""

    code: int
    message: str = ""
    data: Raw = ABSENT


class _Member:
    """One occurrence of a key. Equal to no other, so that a dict keeps a key as often as it stands there."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _CountedEnvelope(msgspec.Struct, gc=False, frozen=True):
    """An envelope whose params may be more than are worth a look, or stand there twice."""

    jsonrpc: Literal["2.0"]
    id: Raw = ABSENT
    method: str | None = None
    params: dict[_Member, Raw] | None = None
    result: Raw = ABSENT
    error: Raw = ABSENT


class TooManyMembers(Exception):
    """An object has more members than are worth a look."""


MOST_MEMBERS: Final = 1000
"""Members of a message, of its params and of their `_meta`. Their values may have any number."""
_LONGEST_TOLD: Final = 4096
"""Bytes of a large error's message that the log and middleware are told."""
_LARGE: Final = 128 * 1024
"""Bytes above which it is worth to count first what would become objects."""
_SMALL: Final = depth.SHORTEST
"""Bytes below which a message cannot be too deep or too wide."""


class _Counting:
    """Decoders that stop where there are too many members: each would become an object of ours.

    Each large message has its own, because another thread may open it.
    """

    def __init__(self) -> None:
        self.members = self.stopping(dict[_Member, Raw])
        self.envelope = self.stopping(_CountedEnvelope)

    @staticmethod
    def stopping(kind: type[T]) -> Callable[[Raw | bytes], T]:
        left = 0

        def member(_: type, name: str) -> _Member:
            nonlocal left
            left -= 1
            if left < 0:
                raise ValueError
            return _Member(name)

        decode = msgspec.json.Decoder(kind, dec_hook=member).decode

        def counted(raw: Raw | bytes) -> T:
            nonlocal left
            left = MOST_MEMBERS
            try:
                return decode(raw)
            except msgspec.ValidationError:
                if left < 0:
                    raise TooManyMembers(f"more than {MOST_MEMBERS} members") from None
                raise

        return counted


def counted_members() -> Callable[[Raw | bytes], list[tuple[str, Raw]]]:
    """What takes an object apart: each member as often as it stands there. It raises ParseError, or TooManyMembers."""
    decode = _Counting.stopping(dict[_Member, Raw])

    def counted(raw: Raw | bytes) -> list[tuple[str, Raw]]:
        try:
            return [(member.name, value) for member, value in decode(raw).items()]
        except _INVALID as error:
            raise ParseError(f"not valid JSON: {error}") from None

    return counted


_counting: Final = _Counting()
_INVALID: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for text that is not what it should be; recursion, for text nested without end."""

_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_loose = msgspec.json.Decoder(LooseEnvelope).decode
_decode_error = msgspec.json.Decoder(ErrorObject).decode
_decode_params = msgspec.json.Decoder(Params).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_str = msgspec.json.Decoder(str).decode
_decode_float = msgspec.json.Decoder(float).decode
_decode_any = msgspec.json.Decoder().decode
_check = msgspec.json.Decoder(Raw).decode
encode = msgspec.json.encode
encode_sorted = partial(msgspec.json.encode, order="sorted")
"""Any Python value → compact JSON."""


class NotAnEnvelope(Exception):
    """Valid JSON, but not a JSON-RPC 2.0 message. Carries the id when one could be read."""

    def __init__(self, why: str, id_: bytes = _EMPTY) -> None:
        super().__init__(why)
        self.id = id_


def decode(frame: bytes) -> Envelope:
    """Open a frame.

    Raises:
        ParseError: it is not UTF-8 JSON.
        NotAnEnvelope: it is JSON, but no JSON-RPC 2.0 message.
    """
    try:
        # The decoder skips over strings inside Raw without looking at their encoding.
        if not frame.isascii():
            _check_utf8(frame)
        if len(frame) < _SMALL:
            return _decode_envelope(frame)
        if depth.UNBOUNDED:
            _check_depth(frame)
        return _decode_envelope(frame) if len(frame) <= _LARGE else _decode_large(frame, _Counting())
    except msgspec.ValidationError as error:
        raise _explain(frame, str(error)) from None
    except _INVALID as error:
        raise ParseError(f"not valid JSON: {error}") from None


def _check_depth(text: Raw | bytes) -> None:
    """Raise ParseError if it is nested too deep."""
    if memoryview(text).nbytes >= depth.SHORTEST and depth.too_deep(bytes(text)):
        raise ParseError(f"not valid JSON: nested in more than {depth.MOST} levels")


def _decode_large(frame: bytes, counting: _Counting) -> Envelope:
    """Open a frame that has room for more members than anybody needs. Reading it once takes 2.5 ms for each MiB."""
    try:
        counted = counting.envelope(frame)
    except TooManyMembers:
        raise NotAnEnvelope(f"params has more than {MOST_MEMBERS} members") from None
    params = None if counted.params is None else {member.name: value for member, value in counted.params.items()}
    meta = ABSENT if params is None else params.get("_meta", ABSENT)
    if meta is not ABSENT:
        try:
            counting.members(meta)
        except TooManyMembers:
            raise NotAnEnvelope(f"params._meta has more than {MOST_MEMBERS} members") from None
        except _INVALID:
            pass  # What it is, if it is no object, is for others to say.
    return Envelope("2.0", counted.id, counted.method, params, counted.result, counted.error)


def decode_strict(frame: bytes) -> Envelope:
    """Open a frame in which nothing stands twice: of two `method`s, others might heed the one that we do not.

    Raises:
        ParseError: it is not UTF-8 JSON, or a member of it stands twice.
        NotAnEnvelope: it is JSON, but no JSON-RPC 2.0 message, or has an integer that many programs cannot read.
    """
    envelope = decode(frame)
    if len(frame) > MAX_DIGITS:
        check_integers(frame, envelope)
    method, params, id_ = envelope.method, envelope.params, envelope.id
    if method is not None and params is not None and id_ is not ABSENT:
        # Most messages are what was read of them, without a byte to spare: nothing can stand there twice. Others have
        # blanks, or escapes, but no other name, which would have two quotes.
        size = _FIXED + len(method) + len(id_) + 4 * len(params)
        for name, raw in params.items():
            size += len(name) + len(raw)
        if size == len(frame) or frame.count(b'"') == _QUOTES + _quotes(id_) + _quotes_in(params):
            if "_meta" in params:
                _check_once(params["_meta"], _counting if size <= _LARGE else _Counting())
            return envelope
    counting = _counting if len(frame) <= _LARGE else _Counting()
    try:
        named = [(member.name, raw) for member, raw in counting.members(frame).items()]
    except TooManyMembers as error:
        raise ParseError(f"the message has {error}") from None
    if len({name for name, _ in named}) < len(named):
        raise ParseError("the message has a duplicate key")
    _check_once(dict(named).get("params"), counting)
    _check_once(None if params is None else params.get("_meta"), counting)
    return envelope


def _check_once(raw: Raw | None, counting: _Counting) -> None:
    """Raise ParseError if a member of a JSON object stands twice; what is no object is none of this business."""
    if raw is None or not is_object(raw):
        return
    if len(raw) <= _LARGE:
        # Blanks, escapes and what stands twice only ever make the text longer than what was read of it.
        size, known = 1, members(raw) or {}
        for name, value in known.items():
            size += len(name) + 4 + len(value)
        if size == len(raw) or _quotes(raw) == _quotes_in(known):
            return
    try:
        named = [member.name for member in counting.members(raw)]
    except TooManyMembers as error:
        raise ParseError(f"an object of the message has {error}") from None
    if len(set(named)) < len(named):
        raise ParseError("the message has a duplicate key")


def _quotes(raw: Raw | bytes) -> int:
    return bytes(raw).count(b'"')


def _quotes_in(known: Params) -> int:
    """The fewest quotes that an object with these members can have: it has just so many if each stands there once."""
    return 2 * len(known) + sum(map(_quotes, known.values()))


def stands_twice(raw: Raw) -> bool:
    """Whether a member stands twice in a JSON value, at any level. Not for large ones: it takes its time."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise _Twice
        return {}

    # Only for texts that are not as we would write them.
    import json

    try:
        json.loads(bytes(raw), object_pairs_hook=once)
    except _Twice:
        return True
    return False


class _Twice(Exception):
    """A member of an object stands there twice."""


MAX_DIGITS: Final = 400
"""Python refuses to read integers of more than 4,300 digits, others take quadratic time for them."""
HUGE_INTEGER: Final = f"an integer of more than {MAX_DIGITS} digits, which many programs cannot read"
_STRIDE: Final = MAX_DIGITS // 3
_TWO_DIGITS = re.compile(rb"[0-9]{2}")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_STRING_END = re.compile(rb'(?:[^"\\]++|\\.)*+"')
_DIGITS: Final = b"0123456789"
_ALL_DIGITS = re.compile(rb"[0-9]*+")
_BEFORE: Final = frozenset((b".", b"e", b"E", b"+"))
_NEGATIVE: Final = frozenset((b"e-", b"E-"))
_BEHIND: Final = frozenset((b".", b"e", b"E"))
"""What makes digits, before or behind them, a part of a fraction or an exponent."""


def has_huge_integer(frame: bytes) -> bool:
    """Whether valid JSON has an integer that is too long. Digits inside strings and fractions are no integers.

    Every frame of some length is asked this, so it looks at a few bytes only. So many digits in a row have three of
    these among them, and if the first was taken for a pair with the byte before, the other two are a pair.
    """
    end = outside = 0
    for match in _TWO_DIGITS.finditer(frame[::_STRIDE]):
        place = match.start() * _STRIDE
        if place < end or not frame[place : place + _STRIDE].isdigit():
            continue
        start, end = _run(frame, place)
        if end - start <= MAX_DIGITS or _is_fraction(frame, start, end) or start < outside:
            continue
        if b'"' not in _STRING.sub(b"", frame[outside:start]):
            return True
        # It is inside a string: go on behind that.
        string_end = _STRING_END.match(frame, end)
        if string_end is None:
            return False
        outside = string_end.end()
    return False


def _run(frame: bytes, place: int) -> tuple[int, int]:
    """Where the digits that stand around a place begin and end. Not by a search, which would look at each of them."""
    start, rest = place, b""
    while start and not rest:
        before = frame[max(0, start - _STRIDE) : start]
        rest = before.rstrip(_DIGITS)
        start -= len(before) - len(rest)
    found = _ALL_DIGITS.match(frame, place)
    return start, place if found is None else found.end()


def _is_fraction(frame: bytes, start: int, end: int) -> bool:
    """Whether digits are part of a number with a fraction or an exponent."""
    before = frame[max(0, start - 2) : start]
    return before[-1:] in _BEFORE or before in _NEGATIVE or frame[end : end + 1] in _BEHIND


def check_integers(frame: bytes, envelope: Envelope) -> None:
    """Raise NotAnEnvelope if a message of more than MAX_DIGITS bytes has an integer that is too long."""
    if has_huge_integer(frame):
        id_ = bytes(envelope.id)
        raise NotAnEnvelope(HUGE_INTEGER, id_ if len(id_) <= MAX_DIGITS and is_id(id_) else _EMPTY)


def _check_utf8(frame: bytes) -> None:
    """Raise UnicodeDecodeError if it is none. In pieces, because a megabyte of text takes fresh memory each time."""
    if len(frame) <= _PIECE:
        frame.decode()
        return
    view = memoryview(frame)
    position = 0
    while position < len(frame):
        piece = view[position : position + _PIECE]
        # A character cut in two at the end of a piece is taken up again with the next one.
        position += utf_8_decode(piece, "strict", position + len(piece) == len(frame))[1]


def _explain(frame: bytes, why: str) -> NotAnEnvelope | ParseError:
    try:
        # The decoder stops at the first wrong type; whether what follows is JSON at all is not known yet.
        (_decode_few if is_batch(frame) else _check)(frame)
    except msgspec.ValidationError as error:
        return NotAnEnvelope(str(error))
    except _INVALID as error:
        return ParseError(f"not valid JSON: {error}")
    try:
        loose = _decode_loose(frame)
    except _INVALID:
        return NotAnEnvelope("a JSON-RPC message is an object")
    id_ = bytes(loose.id) if is_id(loose.id) else _EMPTY
    if bytes(loose.jsonrpc) != b'"2.0"':
        return NotAnEnvelope('"jsonrpc" must be "2.0"', id_)
    return NotAnEnvelope(why, id_)


MOST_IN_A_BATCH: Final = 100
"""Messages of one batch. Each is a request that may have an answer, and all are looked at in one turn of the loop."""
TOO_MANY: Final = f"a batch may hold at most {MOST_IN_A_BATCH} messages: send several batches"
# A list would be read to its end before its length is known. This stops at the first item too many.
_Batch = msgspec.defstruct(
    "_Batch",
    [(f"message_{number}", Raw, ABSENT) for number in range(MOST_IN_A_BATCH)],
    array_like=True,
    forbid_unknown_fields=True,
)
_decode_few = msgspec.json.Decoder(_Batch).decode


def decode_batch(frame: bytes) -> list[bytes]:
    """The messages of a JSON array, each as its own frame.

    Raises:
        ParseError: it is not JSON.
        NotAnEnvelope: there are more than MOST_IN_A_BATCH. What follows the last that may be has not been looked at.
    """
    if depth.UNBOUNDED:
        _check_depth(frame)
    try:
        return [bytes(item) for item in msgspec.structs.astuple(_decode_few(frame)) if item is not ABSENT]
    except _INVALID as error:
        if isinstance(error, msgspec.ValidationError) and is_batch(frame):
            raise NotAnEnvelope(TOO_MANY) from None
        raise ParseError(f"not valid JSON: {error}") from None


def is_batch(frame: bytes) -> bool:
    """Whether a frame is a JSON array."""
    return frame.lstrip()[:1] == b"["


_PLAIN_ID = re.compile(rb'-?(?:0|[1-9][0-9]*+)|"[^"\\\x00-\x1f\x80-\xff]*+"').fullmatch


LONGEST_ID: Final = 4096


def read_id(raw: Raw | bytes) -> bytes | None:
    """A request id as JSON text, in one spelling for each id: `"\\u0078"` is `"x"`, but `"1"` is not `1`.

    None if it is neither a string nor an integer, or no JSON at all: it may have been cut out of an unreadable line.
    """
    if len(raw) > LONGEST_ID:
        return None
    written = raw if type(raw) is bytes else bytes(raw)
    if (written.isdigit() and written[0] != _ZERO) or _PLAIN_ID(written) is not None:
        return written
    string = text(written) if written[:1] == b'"' else None
    return None if string is None else encode(string)


def own(raw: Raw | None) -> Raw | None:
    """The same bytes by themselves. What is kept must not keep the whole message that it was a part of."""
    return None if raw is None else raw.copy()


def is_id(raw: Raw | bytes) -> bool:
    """Whether this text may be a request id: a string or an integer, never null, a float or a boolean."""
    return read_id(raw) is not None


_first = struct.Struct("B").unpack_from


def is_object(raw: Raw | bytes) -> bool:
    """Whether this valid JSON text is an object. Looks at its first byte only."""
    return _first(raw) == _BRACE


def is_null(raw: Raw | bytes) -> bool:
    """Whether a member is null, which many senders write for one that is absent."""
    return bytes(memoryview(raw)[:5]) == b"null"


def members(raw: Raw | bytes) -> Params | None:
    """The members of a JSON object, their values raw; None if it is no object."""
    try:
        return _decode_params(raw)
    except _INVALID:
        return None


def few_members(raw: Raw | bytes) -> Params | None:
    """The same. A million of them would be made objects in one go, for which everything else waits.

    Raises:
        TooManyMembers: there are more than MOST_MEMBERS, in a large object.
    """
    if len(raw) <= _LARGE:
        return members(raw)
    try:
        return dict(counted_members()(raw)) if is_object(raw) else None
    except ParseError:
        return None


def picker(names: Sequence[str]) -> Callable[[Raw | bytes], list[Raw | None]]:
    """What takes these members out of a JSON object, in their order, and makes nothing of all others.

    There may be a million of them, and each would become an object. None stands for what is not there.
    """
    fields = [f"f{number}" for number in range(len(names))]
    kind = msgspec.defstruct(
        "Picked", [(field, Raw, ABSENT) for field in fields], rename=dict(zip(fields, names, strict=True))
    )
    decode_picked = msgspec.json.Decoder(kind).decode

    def picked(raw: Raw | bytes) -> list[Raw | None]:
        try:
            found = decode_picked(raw)
        except _INVALID:
            return [None] * len(fields)
        return [None if (value := getattr(found, field)) is ABSENT else value for field in fields]

    return picked


def text(raw: Raw | bytes | None) -> str | None:
    """The value of a JSON string; None if it is anything else."""
    if raw is None:
        return None
    try:
        return _decode_str(raw)
    except _INVALID:
        return None


def number(raw: Raw | bytes | None) -> float | None:
    """The value of a JSON number; None if it is anything else."""
    if raw is None:
        return None
    try:
        return _decode_float(raw)
    except _INVALID:
        return None


def value(raw: Raw | bytes) -> Any:
    """Any JSON value as Python objects. Raises ParseError."""
    if depth.UNBOUNDED:
        _check_depth(raw)
    try:
        return _decode_any(raw)
    except _INVALID as error:
        raise ParseError(f"not valid JSON: {error}") from None


def holdable(raw: Raw | bytes) -> dict[str, Any]:
    """A JSON object as Python objects, without those members that Python cannot hold, such as 1e999."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except _INVALID:
        pass
    held: dict[str, Any] = {}
    for name, member in (members(raw) or {}).items():
        with contextlib.suppress(*_INVALID):
            held[name] = _decode_any(member)
    return held


def items(raw: Raw | bytes) -> list[Raw] | None:
    """The items of a JSON array, raw; None if it is no array."""
    try:
        return _decode_batch(raw)
    except _INVALID:
        return None


def as_object(value: object) -> dict[str, Any]:
    """What `value` gave, if that is an object; else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """What `value` gave, if that is an array; else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


# --- frames to send -------------------------------------------------------------------------

_KEYS: dict[str, bytes] = {"arguments": b',"arguments":', "_meta": b',"_meta":', "name": b',"name":'}


def key(name: str) -> bytes:
    """`,"name":` as bytes. Only the keys above are remembered, so that callers cannot fill the memory."""
    return _KEYS.get(name) or b"," + encode(name) + b":"


def object_of(members: Iterable[tuple[str, Buffer]]) -> bytes:
    """A JSON object of raw members, in their order."""
    parts: list[Buffer] = []
    for name, raw in members:
        parts += (key(name), raw)
    if not parts:
        return b"{}"
    parts[0] = bytes(parts[0])[1:]
    return b"{" + b"".join(parts) + b"}"


def request(id_: int | bytes, method: str, params: Buffer | None = None) -> list[Buffer]:
    """A request frame, with its newline."""
    number = b"%d" % id_ if isinstance(id_, int) else id_
    head: list[Buffer] = [b'{"jsonrpc":"2.0","id":', number, b',"method":', encode(method)]
    return [*head, b"}\n"] if params is None else [*head, b',"params":', params, b"}\n"]


def notification(method: str, params: Buffer | None = None) -> list[Buffer]:
    """A notification frame, with its newline."""
    head: list[Buffer] = [b'{"jsonrpc":"2.0","method":', encode(method)]
    return [*head, b"}\n"] if params is None else [*head, b',"params":', params, b"}\n"]


def result(id_: Buffer, *payload: Buffer) -> list[Buffer]:
    """A response frame, with its newline; the payload may come in pieces."""
    return [b'{"jsonrpc":"2.0","id":', id_, b',"result":', *payload, b"}\n"]


def failure(id_: Buffer | None, error: RpcError) -> list[Buffer]:
    """An error response frame, with its newline. No id (it could not be read) is written as null."""
    return [b'{"jsonrpc":"2.0","id":', id_ or b"null", b',"error":', error_body(error), b"}\n"]


def error_body(error: RpcError) -> bytes:
    """The one place where an error becomes JSON. A server's own error is its own bytes."""
    if isinstance(error, UpstreamSaid):
        return error.raw
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    try:
        return encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # A middleware may raise whatever it likes; its caller waits for an answer all the same.
        return encode({"code": error.code, "message": error.message.encode(errors="replace").decode()})


def said_error(raw: Raw) -> UpstreamSaid | None:
    """A server's error member; None when it is no JSON-RPC error (an object with an integer code)."""
    try:
        body = _decode_error(raw)
    except _INVALID:
        return None
    return _said(raw, body)


def said(raw: Raw | bytes, members: Params) -> UpstreamSaid | None:
    """The same for one whose members are known."""
    fields: list[tuple[str, Buffer]] = [("code", members.get("code", b"null"))]
    if (message := members.get("message")) is not None:
        # The whole of it is in the bytes that are passed on.
        fields.append(("message", message if len(message) <= _LARGE else encode(_beginning(message))))
    try:
        body = _decode_error(object_of(fields))
    except _INVALID:
        return None
    return _said(raw, msgspec.structs.replace(body, data=members.get("data", ABSENT)))


def _beginning(string: Raw) -> str:
    """Of a long JSON string what comes first, as it is spelled there."""
    return bytes(memoryview(string)[1:_LONGEST_TOLD]).decode("utf-8", "ignore") + "…"


def _said(raw: Raw | bytes, body: ErrorObject) -> UpstreamSaid:
    try:
        small = body.data is not ABSENT and memoryview(body.data).nbytes <= _LARGE
        data = _decode_any(body.data) if small else None
    except _INVALID:
        # Valid JSON that Python cannot hold, such as 1e999. The bytes that are passed on have it all the same.
        data = None
    return UpstreamSaid(bytes(raw), body.message, body.code, data)


# --- repairs --------------------------------------------------------------------------------

_BOM = b"\xef\xbb\xbf"
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_START = re.compile(rb'\{\s*"(?:jsonrpc|id|method|result|error)"')
_SEAM = re.compile(rb'\}\s*(?=\{"(?:jsonrpc|id|method|result|error)")')
_BEGIN = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:jsonrpc|id|method|params|result|error)"')
_LINE_BEGIN: Final = 4096
_LINE_END: Final = 512
"""Bytes at the beginning and at the end of a line in which to look for what it is meant for."""
_LONGEST_PRINT: Final = 256
"""Bytes in which a message must begin that has something printed before it."""
_LONGEST_REPAIRED: Final = 64 * 1024
"""Bytes of a line that is worth a repair: it is gone through several times."""
_ID = rb'"id"\s*:\s*(-?\d++(?![.eE])|"(?:[^"\\]|\\.)*")'
_ANY_ID = re.compile(_ID)
_FIRST_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_LAST_ID = re.compile(rb'\}\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\s*\}\s*\Z")


def salvage(frame: bytes, *, requests: bool = True) -> Envelope | None:
    """A message out of a line that is not quite one, or None.

    What real servers do to a good line: a byte order mark, a short text printed before it
    without a newline, bytes that are not UTF-8, and the lone surrogate escapes that
    JavaScript's JSON.stringify emits for broken strings. Nothing else is guessed at: a text
    with a brace in it may quote anybody's words. Without `requests`, a printed text cannot
    turn what follows it into a request, either.
    """
    start = _START.search(frame, 0, _LONGEST_PRINT) if len(frame) <= _LONGEST_REPAIRED else None
    if start is None or frame.find(b"{", 0, start.start()) >= 0:
        return None
    printed = frame[: start.start()].removeprefix(_BOM).strip()
    frame = frame[start.start() :].decode("utf-8", "replace").encode()
    frame = _LONE_SURROGATE.sub(lambda match: match[1] + (match[2] or rb"\ufffd"), frame)
    try:
        envelope = decode(frame)
    except (ParseError, NotAnEnvelope):
        return None
    is_request = envelope.method is not None and envelope.id is not ABSENT
    return None if printed and is_request and not requests else envelope


def unglue(frame: bytes) -> list[bytes]:
    """The messages of a line that has several, because their writer forgot a newline; nothing if it has no two.

    Where one ends and the next begins cannot be mistaken: inside of JSON, this sequence stands nowhere. But other
    texts may quote it, so the whole line must be messages, from its beginning to its end.
    """
    if len(frame) > _LONGEST_REPAIRED or _BEGIN.match(frame, 0, _LONGEST_PRINT) is None:
        return []
    seams = itertools.islice(_SEAM.finditer(frame), MOST_IN_A_BATCH)
    cuts = [match.start() + 1 for match in seams]
    if not cuts or len(cuts) == MOST_IN_A_BATCH:
        return []
    parts = [frame[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(frame)])]
    try:
        for part in parts:
            decode(part)
    except (ParseError, NotAnEnvelope):
        return []
    return parts


def claims_to_answer(frame: bytes) -> bool:
    """Whether a line that cannot be used says of itself that it is an answer: nothing that servers just print does."""
    if _BEGIN.match(frame, 0, _LONGEST_PRINT) is None:
        return False
    ends = frame[:_LINE_BEGIN] + frame[max(_LINE_BEGIN, len(frame) - _LINE_END) :]
    if b'"result"' not in ends and b'"error"' not in ends:
        return False
    if b'"jsonrpc"' in ends:
        return True
    # Some forget the version. Then it must have what an answer has, and nothing else.
    names = (members(frame) or {}).keys() if len(frame) <= _LONGEST_REPAIRED else ()
    return set(names) in ({"id", "result"}, {"id", "error"})


def visible_ids(frame: bytes) -> list[bytes]:
    """Whatever looks like a request id in a line that cannot be read: the calls it may have been meant for."""
    return [id_ for match in _ANY_ID.finditer(frame, 0, _LINE_BEGIN) if (id_ := read_id(match[1])) is not None]


def likely_id(frame: bytes) -> bytes | None:
    """The id of an answer that cannot be read, where ids usually stand: at its beginning, or behind all the rest."""
    found = _FIRST_ID.match(frame, 0, _LINE_BEGIN) or _LAST_ID.search(frame, max(0, len(frame) - _LINE_END))
    return None if found is None else found[1]
