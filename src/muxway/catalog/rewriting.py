"""URIs inside results and definitions, put in the words of the gateway. All else stays the bytes that came."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from muxway.catalog.model import Native
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.catalog.build import Source
    from muxway.wire.envelopes import Buffer

Rename: TypeAlias = "Callable[[str], str]"
"""A server's own URI → the one it has here."""

_URI: Final = b'"uri"'
_APP: Final = b'"ui'
_ESCAPE: Final = b"\\u00"
"""A word may hide behind an escape; whoever writes it like that is understood by clients."""
_APP_KEY: Final = "ui/resourceUri"


def rewrite_blocks(result: Buffer, rename: Rename) -> Buffer:
    """The result of a tool or prompt with the URIs of its links and embedded resources renamed."""
    raw = bytes(result)
    if _URI not in raw and _ESCAPE not in raw:
        return result

    def block(one: Buffer) -> Buffer:
        return _block(one, rename)

    return _items(_items(result, "content", block), "messages", lambda message: _inside(message, "content", block))


def rewrite_contents(result: Buffer, rename: Rename) -> Buffer:
    """The result of `resources/read` with the URIs of what was read renamed."""
    return _items(result, "contents", lambda content: _uri(content, "uri", rename))


def rewrite_app(meta: Buffer, rename: Rename) -> Buffer:
    """The `_meta` of a tool with the URI of its app renamed."""
    raw = bytes(meta)
    if _APP not in raw and _ESCAPE not in raw:
        return meta
    renamed = _inside(meta, "ui", lambda ui: _uri(ui, "resourceUri", rename))
    return _uri(renamed, _APP_KEY, rename)


def _items(whole: Buffer, name: str, change: Callable[[Buffer], Buffer]) -> Buffer:
    """An object with each item of one of its arrays changed; the very same object if none was."""

    def each(array: Buffer) -> Buffer:
        items = envelopes.items(array) or []
        changed = [change(item) for item in items]
        if all(new is old for new, old in zip(changed, items, strict=True)):
            return array
        return b"[" + b",".join(changed) + b"]"

    return _inside(whole, name, each)


def _block(block: Buffer, rename: Rename) -> Buffer:
    kind = envelopes.text((envelopes.members(block) or {}).get("type"))
    if kind == "resource_link":
        return _uri(block, "uri", rename)
    if kind == "resource":
        return _inside(block, "resource", lambda resource: _uri(resource, "uri", rename))
    return block


def _inside(whole: Buffer, name: str, change: Callable[[Buffer], Buffer]) -> Buffer:
    fields = envelopes.members(whole) or {}
    if name not in fields:
        return whole
    changed = change(fields[name])
    return whole if changed is fields[name] else envelopes.object_of({**fields, name: changed}.items())


def _uri(whole: Buffer, name: str, rename: Rename) -> Buffer:
    fields = envelopes.members(whole) or {}
    uri = envelopes.text(fields.get(name))
    if uri is None:
        return whole
    renamed = rename(uri)
    return whole if renamed == uri else envelopes.object_of({**fields, name: envelopes.encode(renamed)}.items())


def rename_apps(source: Source, rename: Rename) -> Source:
    """The source with the URIs of its tools' apps renamed; the very same one if none is."""
    tools = [_renamed_app(tool, rename) for tool in source.tools]
    if all(new is old for new, old in zip(tools, source.tools, strict=True)):
        return source
    return replace(source, tools=tools)


def _renamed_app(tool: Native, rename: Rename) -> Native:
    meta = tool.members.get("_meta")
    if meta is None:
        return tool
    renamed = rewrite_app(meta, rename)
    return tool if renamed is meta else Native(tool.name, {**tool.members, "_meta": envelopes.Raw(renamed)})
