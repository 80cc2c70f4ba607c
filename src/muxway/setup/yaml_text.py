"""One entry put into, or taken out of, YAML text; every other character stays.

Block mappings and lists get whole lines right below the key of their container, in which strings are quoted as in JSON;
flow mappings get JSON, which is YAML, too. The places are those that PyYAML gives.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

import yaml

from muxway.config.report import as_list, as_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_COMMA = re.compile(r"\s*, ?")


def insert(text: str, container: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """The text with one entry more, first in the container, which is made at the end of the text if it is missing.

    Raises:
        LookupError: something on the way is no mapping.
    """
    (key,) = container
    newline = "\r\n" if "\r\n" in text else "\n"
    found = _member(_root(text), key)
    if found is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        lines = [f"{key}:", *_lines({name: entry}, "  ")]
        return text + (gap + "\n".join(lines) + "\n").replace("\n", newline)
    at, node = found
    if isinstance(node, yaml.CollectionNode) and node.flow_style:
        if isinstance(node, yaml.SequenceNode):
            raise LookupError(key)
        place = node.start_mark.index + 1
        comma = ", " if node.value else ""
        return f"{text[:place]}{_quoted(name)}: {json.dumps(entry, ensure_ascii=False)}{comma}{text[place:]}"
    is_list = isinstance(node, yaml.SequenceNode)
    if isinstance(node, yaml.ScalarNode) and node.value:
        raise LookupError(key)
    is_empty = isinstance(node, yaml.ScalarNode)
    if not is_empty and node.start_mark.line == at.end_mark.line:
        raise LookupError(key)
    indent = " " * (2 if is_empty else node.start_mark.column)
    if is_list:
        lines = _lines(entry, f"{indent}  ")
        lines[0] = f"{indent}- {lines[0].lstrip()}"
    else:
        lines = _lines({name: entry}, indent)
    place = text.find("\n", at.end_mark.index) + 1
    piece = "\n".join(lines) + "\n"
    if not place:
        place, piece = len(text), "\n" + piece
    return text[:place] + piece.replace("\n", newline) + text[place:]


def remove(text: str, container: Sequence[str], name: str) -> str:
    """The text without the lines of that entry, or of a flow mapping without its member.

    Raises:
        LookupError: it is not there, or not on lines of its own.
    """
    (key,) = container
    found = _member(_root(text), key)
    if found is None or not isinstance(found[1], yaml.CollectionNode):
        raise LookupError(key)
    if found[1].flow_style:
        return _without_member(text, found[1], name)
    for first, last in _entries(found[1], name):
        start = text.rfind("\n", 0, first.start_mark.index) + 1
        if text[start : first.start_mark.index].strip(" -"):
            raise LookupError(name)
        ends = _end(last)
        end = text.find("\n", ends) + 1 if text[ends - 1 : ends] != "\n" else ends
        return text[:start] + text[end or len(text) :]
    raise LookupError(name)


def _without_member(text: str, node: yaml.CollectionNode, name: str) -> str:
    """The text without a member of a flow mapping, and without one of the commas beside it."""
    pairs = _pairs(node) if isinstance(node, yaml.MappingNode) else []
    at = next((at for at, (key, _) in enumerate(pairs) if key.value == name), None)
    if at is None:
        raise LookupError(name)
    start, end = pairs[at][0].start_mark.index, pairs[at][1].end_mark.index
    if at + 1 < len(pairs) or not at:
        comma = _COMMA.match(text, end)
        return text[:start] + text[comma.end() if comma is not None else end :]
    before = pairs[at - 1][1].end_mark.index
    if text[before:start].strip() != ",":
        raise LookupError(name)  # a comment, which is somebody's
    return text[:before] + text[end:]


def _entries(node: yaml.CollectionNode, name: str) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Where the entry of that name begins and what it ends with."""
    if isinstance(node, yaml.MappingNode):
        yield from (pair for pair in _pairs(node) if pair[0].value == name)
    else:
        for item in cast("list[yaml.Node]", node.value):
            named = _member(item, "name") if isinstance(item, yaml.MappingNode) else None
            if named is not None and named[1].value == name:
                yield item, item


def _end(node: yaml.Node) -> int:
    """Where the text of a node ends. Marks of block collections are behind the comments that follow."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        return max(_end(value) for _, value in _pairs(node))
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return max(map(_end, cast("list[yaml.Node]", node.value)))
    return node.end_mark.index


def _root(text: str) -> yaml.Node | None:
    return cast("Any", yaml).compose(text, Loader=yaml.SafeLoader) if text.strip() else None


def _member(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    if node is None:
        return None
    if not isinstance(node, yaml.MappingNode):
        raise LookupError(key)
    return next((pair for pair in _pairs(node) if pair[0].value == key), None)


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _lines(value: Mapping[str, object], indent: str) -> list[str]:
    lines = list[str]()
    for key, item in value.items():
        word = key if key.isidentifier() and key not in ("on", "off", "yes", "no", "y", "n", "null") else _quoted(key)
        inner, listed = as_mapping(item), as_list(item)
        if inner:
            lines += [f"{indent}{word}:", *_lines(cast("Mapping[str, object]", inner), f"{indent}  ")]
        elif listed:
            lines += [f"{indent}{word}:", *(f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in listed)]
        else:
            lines.append(f"{indent}{word}: {json.dumps(item, ensure_ascii=False)}")
    return lines
