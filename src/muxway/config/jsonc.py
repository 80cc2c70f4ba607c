"""JSON with comments and trailing commas, read with the place of every value.

Accepts exactly JSON plus `// …`, `/* … */` and a comma before `}` or `]`: what VS Code, Zed and the MCP clients
write. A syntax error says line, column and what to do; a key given twice is kept for the caller to report, because
the rest of the file is still worth checking. Linear in the size of the text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from muxway.config.report import Path

MAX_DEPTH = 100
"""Deepest nesting read; far beyond any real file, well within the interpreter's stack."""

MAX_VALUES = 500_000
"""Most values read. Files in which clients keep their state have some ten thousands."""

# Possessive, so that a long run of blanks or comments costs neither backtracking nor memory.
_SKIP = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*(?s:.*?)\*/)*+")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?(?![0-9A-Za-z_.+-])")
_WORD = re.compile(r"[^\s,:\[\]{}\"'/]+")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_TYPOGRAPHIC = "“”„‟‘’«»"

_decode_string = json.JSONDecoder().raw_decode


class JsoncError(ValueError):
    """The text is not JSON. Lines and columns count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key given twice in one object; the later value is the one kept."""

    path: Path
    first_line: int
    line: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value with the place of everything in it."""

    value: object
    positions: dict[Path, tuple[int, int]]
    """Path → (line, column) of its key, or of the value itself in an array."""
    duplicates: tuple[Duplicate, ...]


def parse_jsonc(text: str) -> Parsed:
    """Read one JSON text.

    Raises:
        JsoncError: it is not JSON, even allowing comments and trailing commas.
    """
    reader = _Reader(text.removeprefix("\ufeff"))
    value = reader.document()
    return Parsed(value, reader.positions, tuple(reader.duplicates))


class _Reader:
    """Recursive descent over one text; `at` is where we are, `path` what we are in."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.path: list[str | int] = []
        self.positions: dict[Path, tuple[int, int]] = {}
        self.duplicates: list[Duplicate] = []
        self.line_starts = [0, *(match.end() for match in re.finditer("\r\n|\r|\n", text))]

    def document(self) -> object:
        self.skip()
        self.note(self.at)
        value = self.value()
        if self.skip():
            self.fail("there is more text after the end of the top-level value; remove it")
        return value

    def value(self) -> object:
        match self.text[self.at : self.at + 1]:
            case "{":
                return self.object()
            case "[":
                return self.array()
            case '"':
                return self.string()
            case _:
                return self.scalar()

    def object(self) -> dict[str, object]:
        opened = self.open()
        items: dict[str, object] = {}
        while (char := self.skip()) != "}":
            if char != '"':
                self.fail_at_key(opened)
            start = self.at
            key = self.string()
            self.path.append(key)
            if key in items:
                path = tuple(self.path)
                self.duplicates.append(Duplicate(path, self.positions[path][0], self.place(start)[0]))
            self.note(start)
            if self.skip() != ":":
                self.fail("expected a colon after the key", opened)
            self.at += 1
            self.skip()
            items[key] = self.value()
            self.path.pop()
            self.comma("}", opened)
        self.at += 1
        return items

    def array(self) -> list[object]:
        opened = self.open()
        items: list[object] = []
        while self.skip() != "]":
            self.path.append(len(items))
            self.note(self.at)
            items.append(self.value())
            self.path.pop()
            self.comma("]", opened)
        self.at += 1
        return items

    def open(self) -> int:
        """Step over the opening bracket; its place is for the message when it is never closed."""
        if len(self.path) >= MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep")
        self.at += 1
        return self.at - 1

    def comma(self, closing: str, opened: int) -> None:
        """Step over the comma, which only the closing bracket may replace."""
        end = self.at
        char = self.skip()
        if char == ",":
            self.at += 1
        elif char != closing:
            if char and char not in "}]":
                line, _ = self.place(end)
                self.fail(f"expected a comma or `{closing}`; a comma is missing after the value on line {line}")
            self.fail(f"expected a comma or `{closing}`", opened)

    def string(self) -> str:
        try:
            value, self.at = _decode_string(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = error.pos
            if error.msg.startswith("Invalid \\"):
                self.fail("a backslash starts an escape in JSON; write it twice (`C:\\\\Users`)")
            if error.msg.startswith("Invalid control"):
                self.fail('the string goes on past the end of the line; close it with `"`, write a line break as `\\n`')
            self.fail('the string is never closed; add a `"`')
        return value

    def scalar(self) -> object:
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            try:
                value = float(number[0]) if number[2] or number[3] else int(number[0])
            except ValueError:  # the interpreter refuses integers of thousands of digits
                self.fail("the number has too many digits")
            self.at = number.end()
            return value
        word = _WORD.match(self.text, self.at)
        if word is not None and word[0] in _LITERALS:
            self.at = word.end()
            return _LITERALS[word[0]]
        return self.fail_at_value(word[0] if word is not None else self.text[self.at : self.at + 1])

    def skip(self) -> str:
        """Step over blanks and comments; the character that follows, empty at the end."""
        match = _SKIP.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        if self.text.startswith("/*", self.at):
            self.fail("the comment is never closed; add `*/`")
        return self.text[self.at : self.at + 1]

    def note(self, at: int) -> None:
        if len(self.positions) >= MAX_VALUES:
            self.fail(f"there are more than {MAX_VALUES:,} values; is it the right file?")
        self.positions[tuple(self.path)] = self.place(at)

    def place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.line_starts, at)
        return line, at - self.line_starts[line - 1] + 1

    def fail_at_key(self, opened: int) -> NoReturn:
        char = self.text[self.at : self.at + 1]
        if char == "'" or (char and char in _TYPOGRAPHIC):
            self.fail('keys must be in plain double quotes (`"`)')
        if char == ",":
            self.fail("one comma too many")
        if _WORD.match(self.text, self.at):
            self.fail("expected a key in double quotes", opened)
        self.fail("expected a key or `}`", opened)

    def fail_at_value(self, word: str) -> NoReturn:
        if not word:
            self.fail("the text ends where a value is expected")
        if word.lower() in _LITERALS:
            self.fail(f"write `{word.lower()}` in small letters")
        if word in {"None", "undefined"}:
            self.fail("write `null`")
        if word[0] == "'" or word[0] in _TYPOGRAPHIC:
            self.fail('strings must be in plain double quotes (`"`)')
        if word[0].isdigit() or word[0] in "+-.":
            self.fail("this is not a JSON number; put it in double quotes if it is text")
        if word[0] in "}],:":
            self.fail(f"expected a value before `{word[0]}`")
        self.fail("expected a value; text must be in double quotes")

    def fail(self, message: str, opened: int | None = None) -> NoReturn:
        """Raise at the current place; a bracket still open at the end of the text is named with its line."""
        char = self.text[self.at : self.at + 1]
        if not char and opened is not None:
            message = f"the text ends, but the `{self.text[opened]}` of line {self.place(opened)[0]} is not closed"
        elif char and not char.isprintable():
            message += f" (there is an invisible character here, U+{ord(char):04X})"
        raise JsoncError(message, *self.place(self.at))
