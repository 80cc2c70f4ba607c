"""JSON texts of megabytes, read in steps.

A decoder reads a text in one go, 2 ms for each MiB, and nothing else runs meanwhile, in whatever thread. So a large one
is cut into pieces, behind commas and inside long strings. Each is made JSON of its own, by the brackets that are open
where it begins, and those that close what is open at its end. If all pieces are valid so is the text, and the other way
round: a piece says of itself whether these brackets are the right ones. What a piece begins or ends in the middle of
has a placeholder there, so that a comma with nothing before or behind it is found, too.

The functions are for threads that run beside the event loop: they leave the interpreter to it between two steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from muxway.errors import ParseError
from muxway.wire import depth, envelopes
from muxway.wire.envelopes import LONGEST_ID, MOST_MEMBERS, NotAnEnvelope, Raw

if TYPE_CHECKING:
    from collections.abc import Generator

    from muxway.wire.envelopes import Params

T = TypeVar("T")
LONG: Final = 1024 * 1024
"""Bytes above which a text is long: up to that it is read at once."""
_STEP: Final = 256 * 1024
"""Bytes of a piece, about."""
_LONGEST_BLANK: Final = 1024 * 1024
"""Bytes with nothing in them to cut at: blanks, or the digits of one number."""
_LONGEST_SPELLED: Final = 12 * LONGEST_ID
"""Bytes that a name of LONGEST_ID characters may have: two escapes make one character, at the most."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_ROUNDS: Final = 8
"""How often pairs of brackets are taken out all at once. What is left is nested deeper, and seldom much."""
_QUOTES: Final = 6
"""Quotes at which to look for a comma before them. Between two commas there are four: of a name and of a value."""
_ESCAPE: Final = len(rb"\u0000")
_FIRST_HALF: Final = tuple(rb"\u" + d + n for d in (b"d", b"D") for n in (b"8", b"9", b"a", b"b", b"A", b"B"))
"""How the escape begins that makes one character with the next one."""
_OBJECT: Final = ord("{")
_INSIDE: Final = b'{"":'
MOST_LOOKED_INTO: Final = 10_000
"""Items of an array in which middleware looks at each."""


class _Place(NamedTuple):
    """Where a piece begins or ends: the brackets that are open there, and the kind of string that it is inside of."""

    brackets: bytes
    string: Literal["", "name", "value"] = ""
    """Nothing: it is behind a comma."""


_HEADS: Final = {
    b"{": {"": b'{"":0,', "name": b'{"', "value": b'{"":"'},
    b"[": {"": b"[0,", "name": b'["', "value": b'["'},
}
"""What leads to a place inside an object or an array."""
_TAILS: Final = {
    b"{": {"": b'"":0}', "name": b'":0}', "value": b'"}'},
    b"[": {"": b"0]", "name": b'"]', "value": b'"]'},
}
"""What leads out from there."""


def few_members(raw: Raw | bytes) -> Params | None:
    """The members of a JSON object, as `envelopes.few_members`; of a large one in steps, for a thread beside others."""
    if len(raw) <= LONG:
        return envelopes.few_members(raw)
    if not envelopes.is_object(raw):
        return None
    try:
        return _at_once(Reading(bytes(raw), "it").steps())
    except ParseError:
        return None
    except NotAnEnvelope as error:
        raise envelopes.TooManyMembers(str(error).removeprefix("it has ")) from None


def few_items(raw: Raw | bytes) -> tuple[list[Raw], list[Raw]] | None:
    """The first items of a JSON array, MOST_LOOKED_INTO, and all others, of which the last may be many; None if none.

    Millions of items would be made objects in one go, for which everything else waits, in whatever thread.
    """
    if len(raw) <= _STEP:
        items, rest = envelopes.items(raw), []
    else:
        reading = _ReadingArray(bytes(raw), "it")
        try:
            _at_once(reading.steps())
        except (ParseError, NotAnEnvelope):
            return None
        items, rest = reading.items, reading.rest
    if items is None:
        return None
    return items[:MOST_LOOKED_INTO], items[MOST_LOOKED_INTO:] + rest


def text(raw: Raw | bytes | None) -> str | None:
    """The value of a JSON string, as `envelopes.text`; of a long one in steps."""
    if raw is None or len(raw) <= LONG:
        return envelopes.text(raw)
    whole = bytes(raw)
    if whole[:1] != b'"':
        return None
    begin, end = 1, len(whole) - 1
    pieces: list[str] = []
    while begin < end:
        cut = min(begin + _STEP, end)
        if cut < end:
            cut = begin + _between_escapes(_without_escapes(whole[begin:cut], escaped=False)[0])
            while whole[cut] & 0xC0 == 0x80:  # inside a character of UTF-8
                cut -= 1
        piece = envelopes.text(b'"%b"' % whole[begin:cut])
        if piece is None:
            return None
        pieces.append(piece)
        begin = cut
    return "".join(pieces)


def encoded(string: str) -> bytes:
    """A JSON string, as `envelopes.encode`; of a long one in steps."""
    if len(string) <= LONG:
        return envelopes.encode(string)
    pieces = [envelopes.encode(string[begin : begin + _STEP])[1:-1] for begin in range(0, len(string), _STEP)]
    return b"".join((b'"', *pieces, b'"'))


def _at_once(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


class Reading:
    """One JSON object as it is read, piece by piece, and its members."""

    _outer = _Place(b"{")
    _before_value = _INSIDE

    def __init__(self, text: bytes, what: str, begin: int = 0, end: int | None = None) -> None:
        """Read what stands there in a text; `what` it is."""
        self.huge = False
        self._members: dict[str, Raw] = {}
        self._long: dict[str, tuple[int, int]] = {}
        """Where those members stand that are in several pieces."""
        self._text, self._what = text, what
        self._begin, self._end = begin, len(text) if end is None else end
        self._decode = envelopes.counted_members()
        self._count = 0
        self._open = ("", 0)
        """The member that goes on in the next piece, and where its value begins."""

    def member(self, name: str) -> Reading:
        """A member that is an object, to be read on its own."""
        what = "params._meta" if name == "_meta" else name
        if name in self._long:
            return Reading(self._text, what, *self._long[name])
        return Reading(bytes(self._members[name]), what)

    def steps(self) -> Generator[None, None, dict[str, Raw]]:
        """Its members. Raises ParseError or NotAnEnvelope."""
        text, end = self._text, self._end
        begin = scanned = self._begin
        before = _Place(b"")
        # Of what has been scanned and not read: its brackets, the string and the escape it ends in the middle of,
        # where that string began, and the last byte that is no blank.
        brackets, string, escaped, opened, last = b"", before.string, False, begin, b","
        while begin < end:
            stop = min(scanned + _STEP, end)
            plain, half = _without_escapes(text[scanned:stop], escaped=escaped)
            cut, cut_in_string, quoted = len(plain), False, bool(string)
            if stop < end:
                outside, quoted = _outside(plain, quoted=quoted)
                cut, cut_in_string = _where_to_cut(plain, quoted=quoted)
            outside, _ = _outside(plain[:cut], quoted=bool(string))
            yield
            after = _Place(_still_open(before.brackets + brackets + outside))
            if cut_in_string:
                quote = plain.rfind(b'"', 0, cut)
                if quote >= 0:
                    opened = scanned + quote
                    after = _Place(after.brackets, _kind(plain[:quote].rstrip()[-1:] or last, after.brackets))
                else:
                    after = _Place(after.brackets, string)
            yield
            own_name = after.string == "name" and len(after.brackets) == 1
            if stop < end and (scanned + cut == begin or own_name or not cut):
                if own_name and quoted and stop - opened > _LONGEST_SPELLED:
                    raise NotAnEnvelope(f"{self._what} has a name of more than {LONGEST_ID} characters")
                if not quoted and stop - begin > _LONGEST_BLANK:
                    raise NotAnEnvelope(f"{self._what} has more than {_LONGEST_BLANK} bytes of blanks or digits")
                brackets += _outside(plain, quoted=bool(string))[0]
                string, escaped, scanned = after.string if quoted else "", half, stop
                last = plain.rstrip()[-1:] or last
                continue
            yield from self._read(begin, scanned + cut, before, after)
            begin = scanned = scanned + cut
            if self._has_enough(begin, after):
                break
            before = after
            brackets, string, escaped, opened, last = b"", before.string, False, begin, b","
        return self._members

    def _read(self, begin: int, end: int, before: _Place, after: _Place) -> Generator[None, None, None]:
        """Decode what stands between two cuts."""
        first, last = begin == self._begin, end == self._end
        head, tail = b"" if first else _head(before), b"" if last else _tail(after)
        piece = b"".join((head, memoryview(self._text)[begin:end], tail))
        if depth.UNBOUNDED and depth.too_deep(piece):
            raise ParseError(f"not valid JSON: nested in more than {depth.MOST} levels")
        found = self._found(piece)
        yield
        self.huge = self.huge or envelopes.has_huge_integer(piece)
        yield
        # What a placeholder stands for is none of the members.
        if not first and before == self._outer:
            del found[0]
        if not last and after == self._outer:
            del found[-1]
        goes_on = not last and after != self._outer
        if not first and before != self._outer:
            if goes_on and len(found) == 1:
                return
            name, start = self._open
            _, rest = found.pop(0)
            self._add_long(name, start, begin - len(head) + len(self._before_value) + len(rest))
        if goes_on:
            name, value = found.pop()
            self._open = name, begin - len(head) + len(piece) - len(b"}") - len(value)
            self._check_name(name)
        self._count += len(found) + goes_on
        self._add(found)

    def _found(self, piece: bytes) -> list[tuple[str, Raw]]:
        """What is in a piece."""
        try:
            return self._decode(piece)
        except envelopes.TooManyMembers as error:
            raise NotAnEnvelope(f"{self._what} has {error}") from None

    def _add_long(self, name: str, begin: int, end: int) -> None:
        """Note a member that is in several pieces."""
        self._long[name] = begin, end
        self._members[name] = Raw(memoryview(self._text)[begin:end])

    def _add(self, found: list[tuple[str, Raw]]) -> None:
        """Note members that are in one piece."""
        if self._count > MOST_MEMBERS:
            raise NotAnEnvelope(f"{self._what} has more than {MOST_MEMBERS} members")
        for name, value in found:
            self._check_name(name)
            # A view would keep its piece.
            self._members[name] = value.copy()
            self._long.pop(name, None)

    def _has_enough(self, place: int, after: _Place) -> bool:
        """Whether what follows this place need not be read."""
        del place, after
        return False

    def _check_name(self, name: str) -> None:
        if len(name) > LONGEST_ID:
            raise NotAnEnvelope(f"{self._what} has a name of more than {LONGEST_ID} characters")


class _ReadingArray(Reading):
    """A JSON array, up to where it has many items."""

    _outer = _Place(b"[")
    _before_value = b"["

    def __init__(self, text: bytes, what: str) -> None:
        super().__init__(text, what)
        self.items: list[Raw] = []
        self.rest: list[Raw] = []
        """The items that were not read, as one text, if there are such."""

    def _found(self, piece: bytes) -> list[tuple[str, Raw]]:
        items = envelopes.items(piece)
        if items is None:
            raise ParseError("not valid JSON: no array")
        return [("", item) for item in items]

    def _add_long(self, name: str, begin: int, end: int) -> None:
        del name
        self.items.append(Raw(memoryview(self._text)[begin:end]))

    def _add(self, found: list[tuple[str, Raw]]) -> None:
        self.items += [item for _, item in found]

    def _has_enough(self, place: int, after: _Place) -> bool:
        if len(self.items) <= MOST_LOOKED_INTO or place == self._end:
            return False
        begin = place if after == self._outer else self._open[1]
        self.rest.append(Raw(memoryview(self._text)[begin : self._text.rindex(b"]")]))
        return True


def _head(place: _Place) -> bytes:
    """What leads to a place, from outside of all brackets."""
    outer = b"".join([_INSIDE if bracket == _OBJECT else b"[" for bracket in place.brackets[:-1]])
    return outer + _HEADS.get(place.brackets[-1:], _HEADS[b"["])[place.string]


def _tail(place: _Place) -> bytes:
    """What leads out from there."""
    outer = b"".join([b"}" if bracket == _OBJECT else b"]" for bracket in reversed(place.brackets[:-1])])
    return _TAILS.get(place.brackets[-1:], _TAILS[b"["])[place.string] + outer


def _without_escapes(text: bytes, *, escaped: bool) -> tuple[bytes, bool]:
    r"""A text with something else in place of each `\\` and `\"`, and whether it ends with half an escape.

    `escaped` says the same of where it begins. It is as long as before. Each quote that is left begins or ends a
    string, and each backslash begins an escape.
    """
    if escaped:
        text = b"_" + text[1:]
    if b"\\" not in text:
        return text, False
    text = text.replace(b"\\\\", b"__")
    return text.replace(b'\\"', b"__"), text.endswith(b"\\")


def _outside(plain: bytes, *, quoted: bool) -> tuple[bytes, bool]:
    """The brackets outside strings, and whether the text ends in a string; `quoted`: it begins in one."""
    marks = plain.translate(None, _NO_BRACKETS)
    if quoted:
        marks = b'"' + marks
    quoted = marks.count(b'"') % 2 == 1
    # Two quotes side by side begin and end nothing that is left: without them all else is inside or outside as before.
    marks = marks.replace(b'""', b"")
    return (b"".join(marks.split(b'"')[::2]) if b'"' in marks else marks), quoted


def _where_to_cut(plain: bytes, *, quoted: bool) -> tuple[int, bool]:
    """Where to cut this, and whether that is in a string; 0 if there is no such place. `quoted`: it ends in one."""
    upto, inside = len(plain), quoted
    for _ in range(_QUOTES):
        if inside:
            upto = plain.rfind(b'"', 0, upto)
        else:
            string_end, comma = plain.rfind(b'"', 0, upto), plain.rfind(b",", 0, upto)
            if comma > string_end:
                return comma + 1, False
            upto = string_end
        if upto < 0:
            break
        inside = not inside
    if not quoted:
        # Just before the last string ends.
        return max(plain.rfind(b'"'), 0), True
    return _between_escapes(plain), True


def _between_escapes(plain: bytes) -> int:
    """Where to cut a text that ends in a string, near its end."""
    cut = len(plain)
    if (escape := plain.rfind(b"\\", max(0, cut - _ESCAPE))) >= 0:
        cut = escape
        if plain.startswith(_FIRST_HALF, max(0, cut - _ESCAPE)):
            cut -= _ESCAPE
    return max(cut, 0)


def _kind(before: bytes, brackets: bytes) -> Literal["name", "value"]:
    """What a string is, by the byte before it and the brackets that it is in."""
    return "name" if before == b"{" or (before == b"," and brackets.endswith(b"{")) else "value"


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
