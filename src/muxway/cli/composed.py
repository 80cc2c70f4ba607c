"""What running servers say about the composed tools, and the access rules, that name what they have."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from muxway.composed import fitting
from muxway.config.documents import Document, read_document
from muxway.config.report import dotted
from muxway.errors import ConfigError, Problem
from muxway.log import printable
from muxway.servers.state import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config import Config
    from muxway.gateway import Gateway


def composed_problems(config: Config, gateway: Gateway) -> tuple[list[Problem], list[Problem]]:
    """Steps whose tools do not exist, or cannot take what they are given; and steps that are doubtful.

    Servers that are down are not judged.
    """
    composed = [tool for tool in config.tools.values() if tool.steps]
    if not composed:
        return [], []
    document = _document(config)
    runtime = gateway.runtime
    running = {server.name: server.status is Status.RUNNING for server in gateway.servers()}
    problems: list[Problem] = []
    doubts: list[Problem] = []
    for tool in composed:
        definitions: dict[str, Mapping[str, object] | None] = {}
        for step in tool.steps:
            definition = gateway.definition(step.tool)
            owner, _ = runtime.router.native(runtime.snapshot.whole, step.tool) or ("", "")
            if definition is not None or (running.get(owner, False) if owner else all(running.values())):
                definitions[step.tool] = definition
        for misfit in fitting.problems(tool, definitions):
            steps = ("tools", tool.name, "steps")
            by_name, by_number = (*steps, misfit.step.name), (*steps, misfit.number)
            place = by_name if by_name in document.positions else by_number
            path = (*place, *misfit.place)
            problem = Problem(path=dotted(path), message=misfit.why, line=document.line(path))
            (doubts if misfit.doubtful else problems).append(problem)
    return problems, doubts


def subtool_problems(config: Config, gateway: Gateway) -> list[Problem]:
    """Subtools of compound tools that their servers do not have. Servers that are down are not judged."""
    document: Document | None = None
    running = {server.name for server in gateway.servers() if server.status is Status.RUNNING}
    problems: list[Problem] = []
    for tool in config.tools.values():
        for server, subtools in tool.subtools.items():
            for sub in subtools if server in running else ():
                if gateway.definition(f"{server}__{sub.name}") is None:
                    document = document or _document(config)
                    path = ("tools", tool.name, "subtools", server)
                    why = printable(f'the server "{server}" has no tool "{sub.name}"')
                    problems.append(Problem(path=dotted(path), message=why, line=document.line(path)))
    return problems


def rules_in_vain(config: Config, gateway: Gateway) -> list[Problem]:
    """Names in access rules that no tool or prompt has. Not while a server is down: it may be one of its."""
    if any(server.status is not Status.RUNNING for server in gateway.servers()):
        return []
    snapshot = gateway.runtime.snapshot
    shown = [snapshot.whole, *snapshot.views.values()]
    doubts: list[Problem] = []
    for key, catalogs in (("tools", [one.tools for one in shown]), ("prompts", [one.prompts for one in shown])):
        routes = [route for catalog in catalogs for route in catalog.routes.values()]
        names = {name for route in routes for name in (route.public, f"{route.upstream}__{route.native}")}
        for rule in config.gateway.access:
            for glob in getattr(rule, key) or ():
                if not any(fnmatchcase(name, glob) for name in names):
                    why = printable(f'no {key.removesuffix("s")} is called "{glob}", so that this matches nothing')
                    doubts.append(Problem(path=f"{rule.where}.{key}", message=why, line=rule.line))
    return doubts


def _document(config: Config) -> Document:
    """The file, to tell lines by; nothing if the configuration came from elsewhere."""
    try:
        return read_document(config.source or "")
    except ConfigError:
        return Document(None)
