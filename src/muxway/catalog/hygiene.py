"""Characters that a reader does not see but a model or terminal obeys, taken out of what servers say about themselves.

Control characters, escape sequences, direction changes, zero-width and tag characters hide instructions from people.
They go out of what is only read: titles, descriptions, names of resources, instructions. Where a text is a value
(`default`, `enum`, names of arguments) it stays, because the server means exactly that value, and is reported.

A definition without any of them passes as the bytes that came: a search over the listing is all that it costs.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from msgspec import Raw

from muxway.errors import ParseError
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from muxway.wire.envelopes import Buffer, Params

LONGEST_DESCRIPTION: Final = 4 * 1024
"""Bytes of a description that are shown."""
LARGE_SCHEMA: Final = 64 * 1024
"""Bytes of a schema from which on it is reported."""
MOST_BYTES: Final = 256 * 1024
"""Bytes of a definition that is listed."""
_CUT: Final = "…"
_DEEPEST: Final = 64
_MOST_LOOKED_AT: Final = 8 * MOST_BYTES
"""Bytes that are looked at in one definition: each level of it is looked at again."""
_MOST_PASSES: Final = 4
_MOST_NOTED: Final = 64
"""Hidden pieces of one text whose kinds are noted."""
_NAMED: Final = 3
"""How many of the characters found a finding names."""

# Persian and the scripts of India write words with joiners; emoji are joined to families. Elsewhere a joiner hides.
_JOINED: Final = "[\u0600-\u07ff\u0840-\u0dff\u0f00-\u109f\u1780-\u18af\ua800-\uabff]"
_BEFORE_JOINED_EMOJI: Final = "[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]"
_JOINED_EMOJI: Final = "[\u2190-\u2bff\U0001f000-\U0001faff]"
_SELECTOR: Final = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_ALONE: Final = (
    # Controls. Line feed and tab are layout.
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
    # Direction, zero width, fillers, line and paragraph separators, annotations, tags.
    "|[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
)
_HIDDEN: Final = (
    # Whole escape sequences: what is left of one would be litter.
    "[\x1b\x9b](?:(?<=\x9b)|\\[)[0-?]*+[ -/]*+[@-~]"
    "|\x1b\\][^\x07\x1b]*+(?:\x07|\x1b\\\\)?"
    # A return before a line feed is layout.
    f"|{_ALONE}|\r(?!\n)"
    # One variation selector chooses a look; a row of them is hidden text.
    f"|(?<={_SELECTOR}){_SELECTOR}"
    f"|(?!(?<={_JOINED})[\u200c\u200d]{_JOINED}|(?<={_BEFORE_JOINED_EMOJI})\u200d{_JOINED_EMOJI})[\u200c\u200d]"
)
# The same as an escape or in UTF-8, and a little more: whatever these find is looked at closely.
_ESCAPE: Final = re.compile(
    rb"\\(?:[bf]|r(?!\\n)|u(?i:00(?:[01][0-9a-f]|7f|[89][0-9a-f]|ad)|061c|115f|1160|180e|200[b-f]|202[89a-e]"
    rb"|206[0-9a-f]|3164|fe0|feff|ffa0|fff[9ab]|db40))"
).search
_DELETE: Final = b"\x7f"
_UTF8: Final = re.compile(
    rb"\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe1(?:\x85[\x9f\xa0]|\xa0\x8e)|\xe2(?:\x80[\x8b-\x8f\xa8-\xae]|\x81[\xa0-\xaf])"
    rb"|\xe3\x85\xa4|\xef(?:\xbb\xbf|\xbe\xa0|\xbf[\xb9-\xbb]|\xb8[\x80-\x8f](?:\xef\xb8|\xf3\xa0))|\xf3\xa0"
).search

_READ: Final = frozenset({"title", "description"})
"""Members that are only read, at any depth of a definition or schema."""
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
"""Members of a schema that hold values: what looks like a title in there is none."""
_BY_NAME: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Members of a schema whose own members are schemas by name: one may be called `default`."""
_PRIVATE: Final = frozenset({"_meta", "icons"})
"""Members that are for programs."""


def visible(text: str, instead: str = "") -> str:
    """The text without what a reader would not see, or with something to see `instead`."""
    if _is_plain(text):
        return text
    for _ in range(_MOST_PASSES):
        # What stood apart may now stand together.
        shorter = _hidden().sub(instead, text)
        if shorter == text:
            return text
        text = shorter
    # Made for that, again and again: whatever may hide goes, wherever it stands.
    return _any_hidden().sub(instead, text)


def is_visible(text: str) -> bool:
    """Whether a reader sees all there is in the text."""
    return _is_plain(text) or _hidden().search(text) is None


def _is_plain(text: str) -> bool:
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


@cache
def _hidden() -> re.Pattern[str]:
    # Only where something is suspected: to compile it takes its part of a start.
    return re.compile(_HIDDEN)


@cache
def _any_hidden() -> re.Pattern[str]:
    return re.compile(f"{_ALONE}|\r|{_SELECTOR}|[\u200c\u200d]")


def may_hide(raw: Buffer) -> bool:
    """Whether something may be hidden in this JSON. Most is ASCII, in which only escapes can be."""
    text = bytes(raw)
    return _ESCAPE(text) is not None or _DELETE in text or not (text.isascii() or _UTF8(text) is None)


def is_long(raw: Buffer) -> bool:
    """Whether a definition may have more to read than is shown."""
    return memoryview(raw).nbytes > LONGEST_DESCRIPTION


def clean(raw: Buffer, members: Params, *, names: bool) -> tuple[Params, str]:
    """The members of a definition fit to be shown, and what had to be done for it; empty if nothing.

    Args:
        raw: the definition they are from.
        members: all of it but what tells it from others, which nobody may change.
        names: whether `name` is only read, because something else tells it from others.

    Raises:
        TooNested: it would have to be looked at too often.
    """
    cleaning = _Cleaning()
    cut: list[str] = []
    members = _cut(members, cut)
    if may_hide(raw):
        read = _READ | {"name"} if names else _READ
        members = {**members, **cleaning.changed(members, read)}
    return members, "; ".join((*cleaning.said(), *cut, *_large(members)))


def _cut(members: Params, said: list[str]) -> Params:
    """The members with a description that can be read."""
    raw = members.get("description")
    if raw is None or memoryview(raw).nbytes <= LONGEST_DESCRIPTION:
        return members
    text = (envelopes.text(raw) or "").encode()
    if len(text) <= LONGEST_DESCRIPTION:
        return members
    said.append(f"its description of {len(text):,} bytes is cut after {LONGEST_DESCRIPTION:,}")
    kept = text[: LONGEST_DESCRIPTION - len(_CUT.encode())].decode("utf-8", "ignore")
    return {**members, "description": Raw(envelopes.encode(kept + _CUT))}


def _large(members: Params) -> list[str]:
    sizes = {key: memoryview(members[key]).nbytes for key in ("inputSchema", "outputSchema") if key in members}
    return [
        f"its {key} has {size:,} bytes, a lot for a model to read" for key, size in sizes.items() if size > LARGE_SCHEMA
    ]


class TooNested(Exception):
    """A definition has large parts inside large parts, so that looking through it never ends."""


class _Cleaning:
    """One definition being cleaned."""

    def __init__(self) -> None:
        self._left_to_look = _MOST_LOOKED_AT
        self._found: dict[str, None] = {}
        self._taken: dict[str, None] = {}
        """Members of the definition out of which something was taken."""
        self._left: dict[str, None] = {}
        """What was left as it is."""
        self._member = ""

    def changed(self, members: Mapping[str, Buffer], read: frozenset[str]) -> dict[str, Raw]:
        """Those members of the definition that had to be changed."""
        new: dict[str, Raw] = {}
        for key, raw in members.items():
            if key not in _PRIVATE:
                self._member = key
                shown = self._of_member(key, raw, 0, read)
                if shown is not raw:
                    new[key] = Raw(shown)
        return new

    def _of_member(self, key: str, raw: Buffer, depth: int, read: frozenset[str] = _READ) -> Buffer:
        self._left_to_look -= memoryview(raw).nbytes
        if self._left_to_look < 0:
            raise TooNested
        if not may_hide(raw):
            return raw
        if key in read and (text := envelopes.text(raw)) is not None:
            return self._text(text, raw)
        if key in _VALUES or depth > _DEEPEST:
            self._leave(f"`{key}`", raw)
            return raw
        return self._inside(key, raw, depth + 1)

    def _text(self, text: str, raw: Buffer) -> Buffer:
        hidden = _first_hidden(text)
        if not hidden:
            return raw
        self._note(hidden)
        self._taken[self._member] = None
        return envelopes.encode(visible(text))

    def _inside(self, key: str, raw: Buffer, depth: int) -> Buffer:
        """An object or array with what is read in it changed; the very same if nothing is."""
        fields = envelopes.members(raw)
        if fields is not None:
            for name in fields:
                self._leave("names in it", envelopes.encode(name))
            # What is called `default` among properties is a schema, not a value.
            by_name = key in _BY_NAME
            inside = {name: self._of_member("" if by_name else name, one, depth) for name, one in fields.items()}
            same = all(inside[name] is one for name, one in fields.items())
            return raw if same else envelopes.object_of(inside.items())
        items = envelopes.items(raw)
        if items is not None:
            each = [self._of_member("", one, depth) for one in items]
            same = all(new is old for new, old in zip(each, items, strict=True))
            return raw if same else b"[" + b",".join(each) + b"]"
        self._leave(f"`{key}`" if key else "values in it", raw)
        return raw

    def _leave(self, what: str, raw: Buffer) -> None:
        if not may_hide(raw):
            return
        try:
            hidden = _hidden_in(envelopes.value(raw))
        except ParseError:
            return  # A number or a half of a character that Python cannot hold: nothing that hides.
        if hidden:
            self._note(hidden)
            self._left[f"{what} of `{self._member}`" if what.strip("`") != self._member else what] = None

    def _note(self, hidden: Iterable[str]) -> None:
        for text in hidden:
            self._found[f"U+{ord(text[0]):04X}"] = None

    def said(self) -> list[str]:
        """What was done, and what was not."""
        points = [*self._found]
        which = ", ".join((*points[:_NAMED], "…") if len(points) > _NAMED else points)
        done: list[str] = []
        if self._taken:
            done.append(f"are taken out of {_listed(self._taken)}")
        if self._left:
            done.append(f"stay in {_listed(self._left)}, where they are part of a value")
        return [f"hidden characters ({which}) {' and '.join(done)}"] if done else []


def _first_hidden(text: str) -> list[str]:
    """Hidden pieces of a text, as many as are noted."""
    return [match[0] for match in islice(_hidden().finditer(text), _MOST_NOTED)]


def _hidden_in(value: object) -> list[str]:
    """Every hidden piece in the texts of a JSON value."""
    found: list[str] = []
    parts = [value]
    # Not by recursion: it may be nested deeper than that goes.
    while parts and len(found) < _MOST_NOTED:
        part = parts.pop()
        if isinstance(part, str):
            found += _first_hidden(part)
        elif isinstance(part, dict):
            for name, one in cast("dict[str, object]", part).items():
                parts += (one, name)
        elif isinstance(part, list):
            parts += cast("list[object]", part)
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name if name.startswith(("`", "names", "values")) else f"its {name}" for name in names)
