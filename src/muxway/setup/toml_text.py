"""One table put at the end of TOML text, or taken out of it; every other character stays.

Only tables with headers of their own are touched. Whatever else is written (inline tables, dotted keys) is refused by
whoever compares what came of it.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from muxway.config.report import as_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TOKEN = re.compile(
    r'"""(?s:(?:[^\\]|\\.)*?)"{3,5}|\'\'\'(?s:.*?)\'{3,5}|"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'|#[^\n]*+|[\[\]{}\n]'
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PART = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[A-Za-z0-9_-]+")


def insert(text: str, container: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """The text with one table more, at its end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return text + (gap + "\n".join(_table([*container, name], entry)) + "\n").replace("\n", newline)


def remove(text: str, container: Sequence[str], name: str) -> str:
    """The text without that table and those inside it, and without the empty line before it.

    Raises:
        LookupError: it is not there, or not under a header of its own.
    """
    path = [*container, name]
    headers = [*_headers(text), (len(text), list[str]())]
    pieces = list[tuple[int, int]]()
    for (start, keys), (following, _) in pairwise(headers):
        if keys[: len(path)] == path:
            pieces.append((start, _end_of_content(text, start, following)))
    if not pieces:
        raise LookupError(name)
    for start, end in reversed(pieces):
        before = text[:start]
        blank = re.search(r"(?:(?<=\n)|^)\r?\n\Z", before)
        text = (before if blank is None else before[: blank.start()]) + text[end:]
    return text


def _table(path: list[str], entry: Mapping[str, object]) -> list[str]:
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in entry.items() if as_mapping(value) is None]
    for key, value in entry.items():
        inner = as_mapping(value)
        if inner is not None:
            lines += ["", *_table([*path, key], cast("Mapping[str, object]", inner))]
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for this one, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, cast('list[object]', value)))}]"
    inner = as_mapping(value)
    if inner is not None:
        return "{" + ", ".join(f"{_key(str(key))} = {_value(item)}" for key, item in inner.items()) + "}"
    return json.dumps(value)


def _headers(text: str) -> Iterator[tuple[int, list[str]]]:
    """Where each header begins, and its keys. Brackets in strings, comments and arrays are none."""
    depth, line = 0, 0
    at = 0
    while (match := _TOKEN.search(text, at)) is not None:
        at = match.end()
        if match[0] == "\n":
            line = at
        elif match[0] == "[" and depth == 0 and not text[line : match.start()].strip(" \t\ufeff"):
            end = _end_of_header(text, match.start())
            yield line, [_unquoted(part) for part in _PART.findall(text[match.start() : end])]
            at = end
        elif match[0] in ("[", "{"):
            depth += 1
        elif match[0] in ("]", "}"):
            depth -= 1


def _end_of_header(text: str, at: int) -> int:
    while (match := _TOKEN.search(text, at)) is not None and match[0] != "\n":
        at = match.end()
        if match[0] == "]" and text[at : at + 1] != "]":
            return at
    return at


def _unquoted(part: str) -> str:
    if part.startswith("'"):
        return part[1:-1]
    return json.loads(part) if part.startswith('"') else part


def _end_of_content(text: str, start: int, end: int) -> int:
    """Where the last line of a table ends that is neither empty nor a comment: those may belong to what follows."""
    lines = text[start:end].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start + sum(map(len, lines))
