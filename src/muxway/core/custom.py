"""The gateway's own tools as they are listed, and compound tools: one name that runs a chosen tool of a chosen server.

Compound tools are configured as mcp-coordinator has them: `tools.<Name> = {description, subtools}`. The
caller sends `{server, tool, args}`; only what is listed can be run. How composed tools run is in `composing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Raw

from muxway.catalog.build import Source
from muxway.catalog.model import NativeTool
from muxway.errors import InvalidParams
from muxway.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from muxway.config.model import CustomTool

_NO_ARGS: Final = Raw(b"{}")


class Choice(NamedTuple):
    """The subtool a call asks for."""

    upstream: str
    tool: str
    args: Raw


def source(tools: Iterable[CustomTool]) -> Source:
    """The gateway's own tools as a part of the catalog."""
    natives = [NativeTool(tool.name, _composed(tool) if tool.steps else _definition(tool)) for tool in tools]
    return Source(upstream="", tools=natives, prefix="", own=True)


def _composed(tool: CustomTool) -> messages.Params:
    # Only for those who have such tools: it takes its part of a start.
    from muxway.core import fitting

    schema = messages.encode(fitting.input_schema(tool))
    return {"description": Raw(messages.encode(tool.description)), "inputSchema": Raw(schema)}


def _definition(tool: CustomTool) -> messages.Params:
    lines = [tool.description, "", "Subtools:"]
    for server, subtools in tool.subtools.items():
        lines += [
            f"- server {server}, tool {sub.name}" + (f": {sub.description}" if sub.description else "")
            for sub in subtools
        ]
    names = dict.fromkeys(sub.name for subtools in tool.subtools.values() for sub in subtools)
    schema = {
        "type": "object",
        "properties": {
            "server": {"type": "string", "enum": list(tool.subtools), "description": "Server that has the tool."},
            "tool": {"type": "string", "enum": list(names), "description": "Tool to run on that server."},
            "args": {"type": "object", "description": "Arguments of that tool."},
        },
        "required": ["server", "tool"],
    }
    description = "\n".join(lines).strip()
    return {"description": Raw(messages.encode(description)), "inputSchema": Raw(messages.encode(schema))}


def head_of(native: str) -> bytes:
    """The start of a call of a server's tool."""
    return b'"method":"tools/call","params":{"name":' + messages.encode(native)


def choose(tools: Mapping[str, CustomTool], name: str, given: Raw | None) -> Choice:
    """The subtool that a call to compound tool `name` with these arguments asks for.

    Raises:
        InvalidParams: it asks for nothing, or for something that is not listed; the message lists what is.
    """
    tool = tools[name]
    arguments = messages.members(given or _NO_ARGS) or {}
    server, subtool = messages.text(arguments.get("server")), messages.text(arguments.get("tool"))
    args = arguments.get("args", _NO_ARGS)
    listed = tool.subtools.get(server or "", ())
    if server is None or subtool is None or not any(subtool == sub.name for sub in listed):
        allowed = ", ".join(f"{key}/{sub.name}" for key, subs in tool.subtools.items() for sub in subs)
        asked = f"{server}/{subtool}" if server and subtool else "nothing"
        raise InvalidParams(f"{name} cannot run {asked}: give arguments.server and arguments.tool as one of: {allowed}")
    if not messages.is_object(args):
        raise InvalidParams(f"{name}: arguments.args must be an object")
    return Choice(server, subtool, args)
