"""One entry of a settings file put in or taken out, so that every other byte stays; proven before it is believed.

Whatever the editors of the three formats make of a text is parsed again and compared with what was meant. What they
cannot do, and what would be ambiguous, is refused: then a person has to do it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, cast

import yaml

from muxway.config.documents import MAX_FILE_BYTES, parse_document
from muxway.config.report import as_list, as_mapping
from muxway.errors import MuxwayError
from muxway.setup import json_text, toml_text, yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

_EDITORS: dict[str, ModuleType] = {"JSON": json_text, "TOML": toml_text, "YAML": yaml_text}
_BOM = "\ufeff"


class Unspliceable(MuxwayError):
    """The text is such that an entry cannot be put in or taken out without touching the rest."""


def with_entry(text: str, kind: str, container: Sequence[str], entry: tuple[str, Mapping[str, object]]) -> str:
    """The text with one entry more.

    Raises:
        ConfigError: the text is not of that format.
        Unspliceable: it has the entry already, or has no place for it.
    """
    name, value = entry
    bom, text = _without_bom(text)
    meant = _parsed(text, kind, container)
    there = _entries_of(meant, container)
    if name in (map(_name_of, there) if isinstance(there, list) else there):
        raise Unspliceable(f'it has an entry "{name}" already')
    if isinstance(there, list):
        value = {"name": name, **value}
        there.insert(0, value)
    else:
        there[name] = dict(value)
    if not text.strip() and kind == "JSON":
        text = "{\n}\n"
    return bom + _compared(lambda: _EDITORS[kind].insert(text, container, name, value), kind, meant)


def without_entry(text: str, kind: str, container: Sequence[str], name: str) -> str:
    """The text without that entry.

    Raises:
        ConfigError: the text is not of that format.
        Unspliceable: it is not there, or cannot be taken out alone.
    """
    bom, text = _without_bom(text)
    meant = _parsed(text, kind, container)
    there = _entries_of(meant, container)
    if name not in (map(_name_of, there) if isinstance(there, list) else there):
        raise Unspliceable(f'it has no entry "{name}"')
    if isinstance(there, list):
        there[:] = [item for item in there if _name_of(item) != name]
    else:
        del there[name]
    return bom + _compared(lambda: _EDITORS[kind].remove(text, container, name), kind, meant)


def entries_in(text: str, kind: str, container: Sequence[str]) -> dict[str, object]:
    """Name → entry, of all that stand in the container.

    Raises:
        ConfigError: the text is not of that format.
        Unspliceable: the container is something else than a container.
    """
    there = _entries_of(_parsed(_without_bom(text)[1], kind, container), container)
    return {str(_name_of(item)): item for item in there} if isinstance(there, list) else there


def _name_of(item: object) -> object:
    """The name of an entry in an array."""
    return (as_mapping(item) or {}).get("name")


def _compared(edit: Any, kind: str, meant: object) -> str:
    """What the editor makes, if that is what was meant."""
    try:
        text: str = edit()
        came = plain_data(text, kind, "the text")
    except (LookupError, ValueError, yaml.YAMLError, MuxwayError):
        raise Unspliceable("it is written in a way that cannot be changed without touching the rest") from None
    if came != meant and _pruned(came) != _pruned(meant):
        raise Unspliceable("it is written in a way that cannot be changed without touching the rest")
    return text


def _parsed(text: str, kind: str, container: Sequence[str]) -> object:
    quick = _strict_json(text) if kind == "JSON" else None
    if quick is not None or not text.strip():
        return {} if quick is None else quick
    document = parse_document(text, kind, "it")
    for twice in document.duplicates:
        if twice.path[: len(container)] == tuple(container)[: len(twice.path)]:
            lines = f"{twice.first_line} and {twice.line}"
            raise Unspliceable(f"the key `{twice.path[-1]}` occurs twice in it, on lines {lines}")
    return _plain(document.value if document.value is not None else {})


def plain_data(text: str, kind: str, source: str) -> object:
    """What the text says, as dicts and lists; nothing at all is an empty object.

    Raises:
        ConfigError: it is not of that format.
    """
    text = _without_bom(text)[1]
    quick = _strict_json(text) if kind == "JSON" else None
    if quick is not None or not text.strip():
        return {} if quick is None else quick
    value = parse_document(text, kind, source).value
    return _plain(value if value is not None else {})


def _strict_json(text: str) -> object | None:
    """The value of a text without comments and the like, by a reader that is quick; else None.

    Claude Code keeps all it knows in the file that has its servers.
    """
    if len(text) > MAX_FILE_BYTES:
        return None
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _entries_of(root: object, container: Sequence[str]) -> dict[str, Any] | list[Any]:
    """What is in the container, which is made if it is not there."""
    there = root
    for key in container:
        if not isinstance(there, dict):
            raise Unspliceable("its top level is no object")
        inside = cast("dict[str, object]", there)
        if inside.get(key) is None:
            # A `null` in JSON is a value of the user's; in YAML it is a key with nothing below it.
            inside[key] = {}
        there = inside[key]
    if not isinstance(there, dict | list):
        raise Unspliceable(f"`{'.'.join(container)}` is no object")
    return cast("dict[str, Any] | list[Any]", there)


def _pruned(value: object) -> object:
    """The value without objects and lists in which there is nothing: TOML has no place for them."""
    mapping, listed = as_mapping(value), as_list(value)
    if mapping is not None:
        inner = {key: _pruned(item) for key, item in mapping.items()}
        return {key: item for key, item in inner.items() if item not in ({}, None)}
    return [_pruned(item) for item in listed] if listed is not None else value


def _plain(value: object) -> object:
    """Mappings and sequences of the parsers as dicts and lists of ours."""
    mapping, listed = as_mapping(value), as_list(value)
    if mapping is not None:
        return {str(key): _plain(item) for key, item in mapping.items()}
    return [_plain(item) for item in listed] if listed is not None else value


def _without_bom(text: str) -> tuple[str, str]:
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
