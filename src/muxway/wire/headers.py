"""The HTTP headers of MCP: their names, and how a value that is no plain ASCII travels in one.

2026-07-28 repeats what a request is about in headers, so that proxies need not read bodies. A tool may have any
name, a header value may not: what does not fit is sent as `=?base64?…?=`. Both sides of the gateway use this.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.wire import envelopes
from muxway.wire.revisions import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.wire.envelopes import Buffer

VERSION: Final = "MCP-Protocol-Version"
SESSION: Final = "Mcp-Session-Id"
METHOD: Final = "Mcp-Method"
NAME: Final = "Mcp-Name"
PARAM: Final = "Mcp-Param-"
ANNOTATION: Final = "x-mcp-header"
LAST_EVENT_ID: Final = "Last-Event-ID"

NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods whose requests carry `Mcp-Name`, and the parameter it repeats."""

_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?").fullmatch
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL).fullmatch
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_DATA_KEYS: Final = frozenset(("default", "const", "enum", "examples"))
"""Schema keywords whose values are data: what looks like an annotation in there is none."""
MOST_ANNOTATIONS: Final = 100
"""Headers that one tool may ask for: as many as we take of a request ourselves."""
_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}").fullmatch


def encode_value(text: str) -> str:
    """A text as a header value: itself where that is safe, else its UTF-8 in base64 between markers."""
    if (_PLAIN(text) is not None or not text) and _SENTINEL(text) is None:
        return text
    # A lone surrogate has no UTF-8; the server must see that something was there.
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def decode_value(value: str) -> str | None:
    """The text that a header value stands for; None if it is marked as base64 but is no such thing."""
    value = value.strip(" \t")
    marked = _SENTINEL(value)
    if marked is None:
        return value
    try:
        raw = base64.b64decode(marked[1], validate=True)
        # There is one right spelling of each value: others could slip past who compares headers as text.
        return raw.decode() if base64.b64encode(raw).decode() == marked[1] else None
    except (binascii.Error, ValueError):
        return None


def is_session_id(value: str) -> bool:
    """Whether this may be a session id: visible ASCII, of a length that fits a header."""
    return _SESSION_ID(value) is not None


def stateless_headers(method: str, params: Mapping[str, Buffer]) -> dict[str, str] | None:
    """What a request of 2026-07-28 repeats in headers; None when it is written in a handshake revision."""
    meta = params.get("_meta")
    version = None if meta is None else envelopes.text((envelopes.members(meta) or {}).get(PROTOCOL_VERSION))
    if version is None:
        return None
    headers = {VERSION: encode_value(version), METHOD: encode_value(method)}
    key = NAMED_BY.get(method)
    name = None if key is None else envelopes.text(params.get(key))
    if name is not None:
        headers[NAME] = encode_value(name)
    return headers


ParamHeaders = dict[tuple[str, ...], str]
"""Where in the arguments of a tool a value stands → the header that repeats it."""


class BadAnnotation(Exception):
    """A tool's schema asks for a header in a way that is not allowed; such a tool must not be offered over HTTP."""


def param_headers(schema: object) -> ParamHeaders:
    """The headers that an input schema asks for with `x-mcp-header`.

    Raises:
        BadAnnotation: one of them is no header name, stands twice, or where no single value can be meant; or there
            are too many.
    """
    found: ParamHeaders = {}
    taken: set[str] = set()
    # No path: a place that is not reached through `properties` alone.
    todo: list[tuple[object, tuple[str, ...] | None]] = [(schema, ())]
    while todo:
        node, path = todo.pop()
        if isinstance(node, list):
            todo += [(item, None) for item in cast("list[object]", node)]
        if not isinstance(node, dict):
            continue
        members = cast("dict[str, object]", node)
        if ANNOTATION in members:
            found[_place(path)] = name = _header(members)
            if name.lower() in taken:
                raise BadAnnotation(f"{ANNOTATION} {name} occurs twice")
            taken.add(name.lower())
            if len(taken) > MOST_ANNOTATIONS:
                raise BadAnnotation(f"{ANNOTATION} stands more than {MOST_ANNOTATIONS} times")
        for key, value in members.items():
            if key == "properties" and isinstance(value, dict):
                for member, inner in cast("dict[str, object]", value).items():
                    todo.append((inner, None if path is None else (*path, member)))
            elif key != ANNOTATION and key not in _DATA_KEYS:
                todo.append((value, None))
    return found


def _place(path: tuple[str, ...] | None) -> tuple[str, ...]:
    if not path:
        raise BadAnnotation(f"{ANNOTATION} stands where it is not a property of the arguments")
    return path


def _header(schema: Mapping[str, object]) -> str:
    name = schema[ANNOTATION]
    if not isinstance(name, str) or _TOKEN(name) is None:
        raise BadAnnotation(f"{ANNOTATION} is not the name of a header")
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise BadAnnotation(f"{ANNOTATION} {name} is on a property that is no string, integer or boolean")
    return name


def param_values(wanted: ParamHeaders, arguments: Any) -> dict[str, str]:
    """The headers of one call. What is absent or null has none."""
    headers: dict[str, str] = {}
    for path, name in wanted.items():
        value = arguments
        for key in path:
            value = cast("dict[str, object]", value).get(key) if isinstance(value, dict) else None
        text = _scalar(value)
        if text is not None:
            headers[PARAM + name] = encode_value(text)
    return headers


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else None
