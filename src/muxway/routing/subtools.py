"""Compound tools: one name that runs a chosen tool of a chosen server.

They are configured as `tools.<Name> = {description, subtools}`. The caller sends `{server, tool, args}`; only what is
listed can be run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Raw

from muxway.errors import InvalidParams
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.config.model import CustomTool

_NO_ARGS: Final = Raw(b"{}")


class Choice(NamedTuple):
    """The subtool a call asks for."""

    upstream: str
    tool: str
    args: Raw


def head_of(native: str) -> bytes:
    """The start of a call of a server's tool."""
    return b'"method":"tools/call","params":{"name":' + envelopes.encode(native)


def native_of(head: bytes) -> str | None:
    """The tool that a call with this start is of; None if it is of none."""
    params = envelopes.members((envelopes.members(b"{%b}}" % head) or {}).get("params", b"")) or {}
    return envelopes.text(params.get("name"))


def _any_tool(server: str, tool: str) -> bool:
    del server, tool
    return True


def choose(
    tools: Mapping[str, CustomTool], name: str, given: Raw | None, may_run: Callable[[str, str], bool] = _any_tool
) -> Choice:
    """The subtool that a call to compound tool `name` with these arguments asks for, of those that it may run.

    Raises:
        InvalidParams: it asks for nothing, or for something that is not listed; the message lists what is.
    """
    tool = tools[name]
    arguments = envelopes.members(given or _NO_ARGS) or {}
    server, subtool = envelopes.text(arguments.get("server")), envelopes.text(arguments.get("tool"))
    args = arguments.get("args", _NO_ARGS)
    listed = tool.subtools.get(server or "", ())
    known = server is not None and subtool is not None and any(subtool == sub.name for sub in listed)
    if server is None or subtool is None or not known or not may_run(server, subtool):
        raise refusal(tools, name, given, may_run)
    if not envelopes.is_object(args):
        raise InvalidParams(f"{name}: arguments.args must be an object")
    return Choice(server, subtool, args)


def refusal(
    tools: Mapping[str, CustomTool], name: str, given: Raw | None, may_run: Callable[[str, str], bool]
) -> InvalidParams:
    """What is said of a call that asks for nothing, or for something that is not there."""
    arguments = envelopes.members(given or _NO_ARGS) or {}
    server, subtool = envelopes.text(arguments.get("server")), envelopes.text(arguments.get("tool"))
    runs = [(key, sub.name) for key, subs in tools[name].subtools.items() for sub in subs]
    allowed = ", ".join(f"{key}/{one}" for key, one in runs if may_run(key, one))
    asked = f"{server}/{subtool}" if server and subtool else "nothing"
    return InvalidParams(f"{name} cannot run {asked}: give arguments.server and arguments.tool as one of: {allowed}")
