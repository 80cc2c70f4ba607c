"""The gateway's own tools as they are listed: composed ones, and compound ones, which tell what they can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw

from muxway.catalog.build import Source
from muxway.catalog.model import NativeTool
from muxway.catalog.shaping import Shapes, shape
from muxway.catalog.signatures import Schema, as_schema, parameters
from muxway.errors import RpcError
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from muxway.catalog.model import Native
    from muxway.config.model import CustomTool

_NOTHING: Final[Mapping[tuple[str, str], Schema]] = {}
_LONGEST_SCHEMA: Final = 64 * 1024
"""Bytes of a subtool's schema that is looked at."""
_SIGNATURES: Final = 3000
"""Characters for the signatures of all subtools of a tool. Descriptions are cut at 4 KiB."""
_MOST_SCHEMAS: Final = 8
_SMALL: Final = 4096
"""How many subtools, and bytes of their schemas, the schema of a compound tool may spell out."""


class OwnTools:
    """The gateway's own tools, which tell of the servers' tools that they run as far as these are known."""

    def __init__(self, tools: Iterable[CustomTool]) -> None:
        self._tools = [*tools]
        self._wanted = {
            server: {sub.name for tool in self._tools for sub in tool.subtools.get(server, ())}
            for tool in self._tools
            for server in tool.subtools
        }
        self._known: list[tuple[str, Native]] = []
        self._source = source(self._tools)

    def source(self, sources: Iterable[Source]) -> Source:
        """Their part of the catalog beside these parts; the same as before if what they run has not changed."""
        if not self._wanted:
            return self._source
        parts = [part for part in sources if part.upstream in self._wanted]
        known = [(one.upstream, tool) for one in parts for tool in one.tools if tool.name in self._wanted[one.upstream]]
        if [(server, id(tool)) for server, tool in known] != [(server, id(tool)) for server, tool in self._known]:
            self._known = known
            shapes = {part.upstream: Shapes(part.exposure.shapes) for part in parts}
            found = {(server, tool.name): _input_schema(tool, shapes[server]) for server, tool in known}
            self._source = source(self._tools, {place: one for place, one in found.items() if one is not None})
        return self._source


def _input_schema(tool: Native, shapes: Shapes) -> Schema | None:
    """What callers may give to a tool; None if it is too much to tell, or cannot be read."""
    wishes = shapes.of(tool.name)
    members = tool.members if wishes is None else shape(tool.members, wishes).members
    raw = members.get("inputSchema", b"")
    try:
        return as_schema(envelopes.value(raw)) if 0 < len(memoryview(raw)) <= _LONGEST_SCHEMA else None
    except RpcError:
        return None


def define(tools: Iterable[CustomTool], sources: Iterable[Source]) -> Source:
    """These tools as a part of the catalog beside other parts."""
    return OwnTools(tools).source(sources)


def source(tools: Iterable[CustomTool], schemas: Mapping[tuple[str, str], Schema] = _NOTHING) -> Source:
    """The gateway's own tools as a part of the catalog; `schemas` are those of the tools they run, where known."""
    natives = [NativeTool(tool.name, _composed(tool) if tool.steps else _definition(tool, schemas)) for tool in tools]
    return Source(upstream="", tools=natives, prefix="", own=True)


def _composed(tool: CustomTool) -> envelopes.Params:
    # Only for those who have such tools: it takes its part of a start.
    from muxway.composed import fitting

    schema = envelopes.encode(fitting.input_schema(tool))
    return {"description": Raw(envelopes.encode(tool.description)), "inputSchema": Raw(schema)}


def _definition(tool: CustomTool, schemas: Mapping[tuple[str, str], Schema]) -> envelopes.Params:
    lines = [tool.description, "", "Subtools:"]
    room = _SIGNATURES
    for server, subtools in tool.subtools.items():
        for sub in subtools:
            schema = schemas.get((server, sub.name))
            signature = "" if schema is None else f"({parameters(schema)})"
            room -= len(signature)
            words = f"- server {server}, tool {sub.name}{signature if room >= 0 else ''}"
            lines.append(words + (f": {sub.description}" if sub.description else ""))
    names = dict.fromkeys(sub.name for subtools in tool.subtools.values() for sub in subtools)
    schema = {
        "type": "object",
        "properties": {
            "server": {"type": "string", **_one_of(tool.subtools), "description": "Server that has the tool."},
            "tool": {"type": "string", **_one_of(names), "description": "Tool to run on that server."},
            "args": {"type": "object", "description": "Arguments of that tool.", **_arguments(tool, schemas)},
        },
        "required": ["server", "tool"],
    }
    description = "\n".join(lines).strip()
    return {"description": Raw(envelopes.encode(description)), "inputSchema": Raw(envelopes.encode(schema))}


def _one_of(names: Iterable[str]) -> dict[str, list[str]]:
    """That it is one of these; nothing if there are none, for no schema may have an empty `enum`."""
    listed = [*names]
    return {"enum": listed} if listed else {}


def _arguments(tool: CustomTool, schemas: Mapping[tuple[str, str], Schema]) -> dict[str, object]:
    """What `args` may be: one of the subtools' own schemas, if all are known and small and refer to nothing outside."""
    places = [(server, sub.name) for server, subtools in tool.subtools.items() for sub in subtools]
    if not 0 < len(places) <= _MOST_SCHEMAS or any(place not in schemas for place in places):
        return {}
    said = [{"title": f"{server} {name}", **schemas[server, name]} for server, name in places]
    encoded = envelopes.encode(said)
    return {"anyOf": said} if len(encoded) <= _SMALL and b'"$' not in encoded else {}
