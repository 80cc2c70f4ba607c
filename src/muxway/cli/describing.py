"""What several verbs say of a gateway and its servers, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muxway.cli.exits import UNREACHABLE
from muxway.cli.output import badge, one_line, plural
from muxway.servers.state import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.config import Config
    from muxway.results import Server


def holdings(server: Server) -> str:
    """What a server has: `17 tools, 4 prompts, 7 resources`."""
    return counted(len(server.tools), server.prompts, server.resources, server.resource_templates)


def counted(tools: int, prompts: int, resources: int, templates: int) -> str:
    """These numbers in words. Tools are always told, the rest if there is any."""
    more = {"prompt": prompts, "resource": resources, "resource template": templates}
    return ", ".join([plural(tools, "tool"), *(plural(count, noun) for noun, count in more.items() if count)])


def reason(name: str, error: str) -> str:
    """Why a server is not there, for a place that says whose reason it is."""
    return one_line(error).removeprefix(f'server "{one_line(name)}" ')


def trouble(server: Server) -> str:
    """The word for a server that is not there."""
    return "login needed" if server.status is Status.LOGIN_NEEDED else "failed"


def failures(servers: Sequence[Server]) -> dict[str, str]:
    """Which servers are not there, and why."""
    return {server.name: server.error for server in servers if server.error is not None}


def tell_failures(servers: Sequence[Server]) -> None:
    """Say on stderr which servers are not there. If none is, that ends the command."""
    for server in servers:
        if server.error is not None:
            click.echo(f"{badge(trouble(server))}  {one_line(server.error)}", err=True)
    if servers and not any(server.status in (Status.RUNNING, Status.SLEEPING) for server in servers):
        raise click.exceptions.Exit(UNREACHABLE)


def middlewares(config: Config) -> list[tuple[str, str]]:
    """The middlewares of the gateway, the outermost first: name, and what they stand around."""
    given = [(type(one).__name__, "everything") for one in config.middleware]
    return [*given, *((spec.use, ", ".join(spec.match) or "everything") for spec in config.gateway.middleware)]
