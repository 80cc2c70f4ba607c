"""Where in a config file something stands, found by reading it once more."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from muxway.config.documents import Document, read_document
from muxway.config.model import GATEWAY, SERVER, VIEW
from muxway.config.report import as_list, as_mapping, dotted
from muxway.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.fields import Section
    from muxway.config.report import Path

_SECTIONS = {"views": VIEW, "gateway": GATEWAY}


class ConfigLines:
    """Finds lines in one file; none, if it cannot be read or is a program."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self._document: Document | None = None
        if file is not None and FilePath(file).suffix != ".py":
            try:
                self._document = read_document(file)
            except ConfigError:
                # It was readable when it was loaded; what is told is true without lines too.
                self.file = None

    def find(self, place: Mapping[str, Any] | None) -> tuple[str | None, int | None]:
        """The path as it is spelled in the file, and its line. See `explaining.Fact` for what a place is."""
        if place is None:
            return None, None
        at, key, item = place["at"], place["key"], place["item"]
        document = self._document
        path = None if document is None else _resolve(document.value, at)
        if document is None or path is None:
            return (at if key is None else f"{at}.{key}"), None
        if key is not None:
            there = as_mapping(_value(document.value, path)) or {}
            spellings = _spellings(_SECTIONS.get(str(path[0]), SERVER), key)
            path = (*path, next((one for one in spellings if one in there), key))
        if item is not None:
            path = (*path, *_item(_value(document.value, path), item))
        return dotted(path), document.line(path)


def _spellings(section: Section, key: str) -> tuple[str, ...]:
    # Most clients write the opposite.
    return section.by_spelling[key].spellings + (("disabled",) if key == "enabled" else ())


def _resolve(value: object, at: str) -> Path | None:
    """The path that is written with dots; names may have dots too."""
    if not at:
        return ()
    fields = as_mapping(value)
    entries = enumerate(as_list(value) or ()) if fields is None else fields.items()
    for key, below in entries:
        name = dotted((str(key),))
        if at == name or at.startswith(f"{name}."):
            rest = _resolve(below, at[len(name) + 1 :])
            if rest is not None:
                return (key if isinstance(key, int) else str(key), *rest)
    return None


def _value(value: object, path: Path) -> object:
    for key in path:
        fields, items = as_mapping(value), as_list(value)
        if fields is not None:
            value = fields.get(key)
        elif items is not None and isinstance(key, int) and key < len(items):
            value = items[key]
        else:
            return None
    return value


def _item(value: object, name: str) -> Path:
    """Where in a list or an object a name is named."""
    fields = as_mapping(value)
    if fields is not None:
        return (name,) if name in fields else ()
    for index, one in enumerate(as_list(value) or ()):
        if one == name or (as_mapping(one) or {}).get("original") == name:
            return (index,)
    return ()
