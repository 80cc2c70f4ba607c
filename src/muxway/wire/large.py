"""Opening a large message in steps, so that others have their turn between two of them.

A decoder reads a text in one go, 2 ms for each MiB, and nothing else runs meanwhile, in whatever thread. So a large one
is cut behind commas into pieces. Each is made JSON of its own, by the brackets that are open where it begins, and those
that close what is open at its end. If all pieces are valid so is the text, and the other way round: a piece says of
itself whether these brackets are the right ones. What a piece begins or ends in the middle of has a placeholder there,
so that a comma with nothing before or behind it is found, too.
"""

from __future__ import annotations

from codecs import utf_8_decode
from typing import TYPE_CHECKING, Final, TypeAlias

from muxway.errors import ParseError, UpstreamSaid
from muxway.wire import depth, envelopes
from muxway.wire.envelopes import ABSENT, LONGEST_ID, MOST_MEMBERS, Envelope, NotAnEnvelope, Raw

if TYPE_CHECKING:
    from collections.abc import Generator

    Steps: TypeAlias = Generator[None, None, "Opened"]

Opened: TypeAlias = Envelope | ParseError | NotAnEnvelope
"""A message, or what is wrong with it."""
LARGE: Final = 1024 * 1024
"""Bytes above which a message is large: a client's is opened in steps, and some kinds of a server's are refused."""
STEPPED: Final = 2 * LARGE
"""Bytes above which a message of a server is opened in steps: up to that one look takes less than a turn may."""
_STEP: Final = 256 * 1024
"""Bytes of a piece, but where one string is longer."""
_MOST_TRIES: Final = 64
"""Commas that are looked at, from the end of a step, to find one that stands in no string."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_ROUNDS: Final = 8
"""How often pairs of brackets are taken out all at once. What is left is nested deeper, and seldom much."""
_OBJECT: Final = ord("{")
_INSIDE: Final = b'{"":'
_LEADING: Final = 4096
"""Blanks that may stand before a message."""


class LargeEnvelope(Envelope, gc=False, frozen=True):
    """A message that was opened in steps, and what else was found on the way."""

    huge: bool = False
    """Whether it has an integer that is too long; see `envelopes.has_huge_integer`."""
    said: UpstreamSaid | None = None
    """Its error."""


def has_huge_integer(frame: bytes, envelope: Envelope) -> bool:
    """Whether a message has an integer that is too long."""
    return envelope.huge if isinstance(envelope, LargeEnvelope) else envelopes.has_huge_integer(frame)


def said_error(envelope: Envelope) -> UpstreamSaid | None:
    """The error of a message; see `envelopes.said_error`."""
    return envelope.said if isinstance(envelope, LargeEnvelope) else envelopes.said_error(envelope.error)


def opening(frame: bytes) -> Steps:
    """Open a frame of more than LARGE bytes, step by step; see `envelopes.decode`."""
    try:
        return (yield from _opening(frame))
    except (ParseError, NotAnEnvelope) as error:
        return error


def _opening(frame: bytes) -> Generator[None, None, LargeEnvelope]:
    first = frame[:_LEADING].lstrip()[:1]
    if first == b"[":
        raise NotAnEnvelope(f"a batch of more than {LARGE} bytes")
    if first != b"{":
        raise ParseError("not valid JSON: no object")
    yield from _check_utf8(frame)
    message = _Reading(frame, "the message")
    yield from message.steps()
    found = message.members
    id_ = found.get("id", ABSENT)
    method = found.get("method")
    if max(len(id_), len(method or b"")) > LONGEST_ID:
        raise NotAnEnvelope(f"an id or a method of more than {LONGEST_ID} bytes")
    known = bytes(id_) if id_ is not ABSENT and envelopes.is_id(id_) else b""
    if bytes(memoryview(found.get("jsonrpc", b""))[:8]) != b'"2.0"':
        raise NotAnEnvelope('"jsonrpc" must be "2.0"', known)
    named = None if method is None else envelopes.text(method)
    if method is not None and named is None and not envelopes.is_null(method):
        raise NotAnEnvelope("method must be a string", known)
    written, error = found.get("params"), found.get("error", ABSENT)
    params = None
    if written is not None and not envelopes.is_null(written):
        if not envelopes.is_object(written):
            raise NotAnEnvelope("params must be an object", known)
        params = yield from _members(written, "params")
        if (meta := params.get("_meta")) is not None and envelopes.is_object(meta):
            yield from _members(meta, "params._meta")
    said = None
    if error is not ABSENT and envelopes.is_object(error):
        # Copied once: it is kept, and the message is not.
        kept = bytes(error)
        yield
        said = envelopes.said(kept, (yield from _members(kept, "error")))
        yield
    return LargeEnvelope("2.0", id_, named, params, found.get("result", ABSENT), error, message.huge, said)


def _check_utf8(frame: bytes) -> Generator[None, None, None]:
    # The decoder skips over strings inside Raw without looking at their encoding.
    if frame.isascii():
        return
    view = memoryview(frame)
    position = 0
    while position < len(frame):
        piece = view[position : position + _STEP]
        try:
            # A character cut in two at the end of a piece is taken up again with the next one.
            position += utf_8_decode(piece, "strict", position + len(piece) == len(frame))[1]
        except UnicodeDecodeError as error:
            raise ParseError(f"not valid JSON: {error}") from None
        yield


def _members(raw: Raw | bytes, what: str) -> Generator[None, None, dict[str, Raw]]:
    """The members of an object; `what` it is."""
    reading = _Reading(bytes(raw), what)
    yield from reading.steps()
    return reading.members


class _Reading:
    """One JSON object as it is read, piece by piece, and its members."""

    def __init__(self, text: bytes, what: str) -> None:
        self.members: dict[str, Raw] = {}
        self.huge = False
        self._text, self._what = text, what
        self._decode = envelopes.counted_members()
        self._count = 0
        self._open = ("", 0)
        """The member that goes on in the next piece, and where its value begins."""

    def steps(self) -> Generator[None, None, None]:
        """Raises ParseError or NotAnEnvelope."""
        text = self._text
        begin = scanned = 0
        quoted = escaped = False
        stack = brackets = b""
        while begin < len(text):
            stop = min(scanned + _STEP, len(text))
            outside, in_string, in_escape = _outside(text[scanned:stop], quoted=quoted, escaped=escaped)
            cut = stop if stop == len(text) else _after_comma(text, scanned, stop, quoted=in_string)
            if cut is None:
                # One long string, most often.
                brackets += outside
                quoted, escaped, scanned = in_string, in_escape, stop
                yield
                continue
            if cut < stop:
                outside, *_ = _outside(text[scanned:cut], quoted=quoted, escaped=escaped)
            yield
            after = _still_open(stack + brackets + outside)
            yield
            yield from self._read(begin, cut, stack, after)
            begin = scanned = cut
            quoted = escaped = False
            stack, brackets = after, b""

    def _read(self, begin: int, end: int, before: bytes, after: bytes) -> Generator[None, None, None]:
        """Decode what stands between two cuts; `before` and `after` are the brackets that are open there."""
        last = end == len(self._text)
        head, tail = _head(before) if begin else b"", b"" if last else _tail(after)
        piece = b"".join((head, memoryview(self._text)[begin:end], tail))
        yield
        if depth.UNBOUNDED and depth.too_deep(piece):
            raise ParseError(f"not valid JSON: nested in more than {depth.MOST} levels")
        try:
            found = self._decode(piece)
        except envelopes.TooManyMembers as error:
            raise NotAnEnvelope(f"{self._what} has {error}") from None
        yield
        self.huge = self.huge or envelopes.has_huge_integer(piece)
        yield
        # What a placeholder stands for is none of the members.
        if begin and len(before) == 1:
            del found[0]
        if not last and len(after) == 1:
            del found[-1]
        goes_on = not last and len(after) > 1
        if len(before) > 1:
            if goes_on and len(found) == 1:
                return
            name, start = self._open
            _, rest = found.pop(0)
            self.members[name] = Raw(memoryview(self._text)[start : begin - len(head) + len(_INSIDE) + len(rest)])
        if goes_on:
            name, value = found.pop()
            self._open = name, begin - len(head) + len(piece) - len(b"}") - len(value)
        self._count += len(found) + goes_on
        if self._count > MOST_MEMBERS:
            raise NotAnEnvelope(f"{self._what} has more than {MOST_MEMBERS} members")
        # Views would keep their piece; of one long string it is most.
        self.members.update((name, value if len(value) > _STEP else value.copy()) for name, value in found)


def _head(stack: bytes) -> bytes:
    """What leads into these brackets, and to where something is expected behind a comma."""
    outer = b"".join([_INSIDE if bracket == _OBJECT else b"[" for bracket in stack[:-1]])
    return outer + (b'{"":0,' if stack[-1:] == b"{" else b"[0,")


def _tail(stack: bytes) -> bytes:
    """What leads out of these brackets, from behind a comma."""
    outer = b"".join([b"}" if bracket == _OBJECT else b"]" for bracket in reversed(stack[:-1])])
    return (b'"":0}' if stack[-1:] == b"{" else b"0]") + outer


def _outside(text: bytes, *, quoted: bool, escaped: bool) -> tuple[bytes, bool, bool]:
    """The brackets outside strings, and whether the text ends in a string, and there with half an escape.

    `quoted` and `escaped` say the same of where it begins.
    """
    if escaped:
        text = text[1:]
    half = False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"")
        half = text.endswith(b"\\")
        text = text.replace(b'\\"', b"")
    marks = text.translate(None, _NO_BRACKETS)
    if quoted:
        marks = b'"' + marks
    quoted = marks.count(b'"') % 2 == 1
    # Two quotes side by side begin and end nothing that is left: without them all else is inside or outside as before.
    marks = marks.replace(b'""', b"")
    return (b"".join(marks.split(b'"')[::2]) if b'"' in marks else marks), quoted, half


def _after_comma(text: bytes, begin: int, end: int, *, quoted: bool) -> int | None:
    """Where the last comma outside strings ends, if it can be found soon; `quoted`: the end is in a string."""
    upto = before = end
    for _ in range(_MOST_TRIES):
        comma = text.rfind(b",", begin, before)
        if comma < 0:
            return None
        between = text[comma + 1 : upto]
        if b"\\" in between:
            between = between.replace(b"\\\\", b"").replace(b'\\"', b"")
        quoted ^= between.count(b'"') % 2 == 1
        if not quoted:
            return comma + 1
        # The next one outside is before the string that this one is in.
        upto, before = comma, max(text.rfind(b'"', begin, comma), begin)
    return None


def _still_open(brackets: bytes) -> bytes:
    """Those that are not closed. Of what does not fit together anything may be said."""
    for _ in range(_ROUNDS):
        size = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(brackets) == size:
            return brackets
    stack = bytearray()
    for bracket in brackets:
        if bracket in b"[{":
            stack.append(bracket)
        elif stack:
            stack.pop()
    return bytes(stack)
