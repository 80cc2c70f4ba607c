"""One member put into, or taken out of, JSON text with comments; every other character stays.

The text has been parsed before, so what is here only finds places: strings, comments and brackets, nothing else. A
member goes last; a comma goes right behind the value before it, where comments cannot swallow it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BLANK = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*(?s:.*?)\*/)*+")
_COMMENT = re.compile(r"//[^\r\n]*+|/\*(?s:.*?)\*/")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\[\]{}\"/]++")
_TOKEN = re.compile(r'//[^\r\n]*+|/\*(?s:.*?)\*/|"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _JsonMember:
    key: str
    start: int
    """Where its key begins."""
    value: int
    end: int
    comma: int | None
    """Where the comma behind it is, if there is one."""


@dataclass(frozen=True, slots=True)
class _JsonObject:
    start: int
    end: int
    """Where its closing bracket is."""
    members: tuple[_JsonMember, ...]


def insert(text: str, container: Sequence[str], name: str, value: object) -> str:
    """The text with one member more, last in the container; containers that are missing are made.

    Raises:
        LookupError: something on the way is no object.
    """
    found = _object_at(text, _skip(text, 0))
    missing = list(container)
    while missing and (member := _member(found, missing[0])) is not None:
        found = _object_at(text, member.value)
        missing.pop(0)
    for key in reversed(missing):
        value = {name: value}
        name = key
    return _appended(text, found, name, value)


def remove(text: str, container: Sequence[str], name: str) -> str:
    """The text without that member, its comma and the blanks before it.

    Raises:
        LookupError: it is not there.
    """
    found = _object_at(text, _skip(text, 0))
    for key in container:
        member = _member(found, key)
        if member is None:
            raise LookupError(key)
        found = _object_at(text, member.value)
    index = next((at for at, member in enumerate(found.members) if member.key == name), None)
    if index is None:
        raise LookupError(name)
    member = found.members[index]
    before = found.members[index - 1].comma if index else None
    behind = (found.start if before is None else before) + 1
    start = _end_of_comments(text, behind, member.start)
    if member.comma is not None:
        return text[:start] + text[member.comma + 1 :]
    if before is None:
        return text[:start] + text[member.end :]
    return text[:before] + text[behind:start] + text[member.end :]


def _appended(text: str, found: _JsonObject, name: str, value: object) -> str:
    inside = text[found.start + 1 : found.end]
    newline = "\r\n" if "\r\n" in text else "\n"
    last = found.members[-1] if found.members else None
    after = found.start + 1 if last is None else last.end if last.comma is None else last.comma + 1
    # Comments behind the last member belong to it.
    place = _end_of_comments(text, after, found.end)
    if "\n" in inside or "\r" in inside or (last is None and "\n" in text.strip()):
        outer = _indent_of_line(text, found.start)
        unit = _unit(text)
        inner = outer + unit if last is None else _indent_of_line(text, last.start)
        entry = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"\n{inner}")
        piece = f"\n{inner}{_key(name)}: {entry}"
        if last is None and not re.search(r"[\r\n]", text[place : found.end]):
            piece += f"\n{outer}"
        piece = piece.replace("\n", newline)
    else:
        piece = f"{' ' if last is not None else ''}{_key(name)}: {json.dumps(value, ensure_ascii=False)}"
    if last is None:
        return text[:place] + piece + text[place:]
    if last.comma is not None:
        return f"{text[:place]}{piece},{text[place:]}"
    return f"{text[: last.end]},{text[last.end : place]}{piece}{text[place:]}"


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _end_of_comments(text: str, start: int, end: int) -> int:
    """Where the last comment ends in a stretch that has only those and blanks; its start if there is none."""
    return max([start, *(match.end() for match in _COMMENT.finditer(text, start, end))])


def _indent_of_line(text: str, at: int) -> str:
    """The blanks that the line begins with."""
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    line = text[start:at]
    return line[: len(line) - len(line.lstrip(" \t"))].lstrip("\ufeff")


def _unit(text: str) -> str:
    """What one level is indented by: that of the first line that is indented."""
    match = re.search(r"[\r\n]([ \t]+)\"", text)
    if match is None:
        return "  "
    return "\t" if match[1].startswith("\t") else match[1] if len(match[1]) <= 8 else "  "


def _member(found: _JsonObject, key: str) -> _JsonMember | None:
    return next((member for member in found.members if member.key == key), None)


def _object_at(text: str, at: int) -> _JsonObject:
    """The object that begins there, with the places of its members."""
    if text[at : at + 1] != "{":
        raise LookupError("no object")
    start, members = at, list[_JsonMember]()
    at = _skip(text, at + 1)
    while text[at] != "}":
        begun = at
        at = _end_of_value(text, at)
        key = json.loads(text[begun:at])
        value = _skip(text, _skip(text, at) + 1)
        end = _end_of_value(text, value)
        at = _skip(text, end)
        comma = at if text[at] == "," else None
        members.append(_JsonMember(key, begun, value, end, comma))
        if comma is not None:
            at = _skip(text, comma + 1)
    return _JsonObject(start, at, tuple(members))


def _end_of_value(text: str, at: int) -> int:
    if text[at] not in "{[":
        match = _STRING.match(text, at) or _SCALAR.match(text, at)
        if match is None:
            raise LookupError("no value")
        return match.end()
    depth = 0
    for match in _TOKEN.finditer(text, at):
        if match[0] in ("{", "["):
            depth += 1
        elif match[0] in ("}", "]"):
            depth -= 1
            if depth == 0:
                return match.end()
    raise LookupError("no end")


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return at if match is None else match.end()
