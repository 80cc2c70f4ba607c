"""`muxway list`: the servers and how they are."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from muxway.cli.describing import holdings, reason, trouble
from muxway.cli.help import Verb
from muxway.cli.options import chosen, config_option, debug_option, json_option, read_config
from muxway.cli.output import badge, cut, one_line, show_json, show_table, wrapped
from muxway.cli.session import awake, opened, quiet_log, run
from muxway.cli.verbs.check import describe
from muxway.servers.state import Status

if TYPE_CHECKING:
    from muxway.config import Config
    from muxway.results import Server

_LONGEST_NAME = 36
"""Characters of a name on a terminal, so that there is room beside it."""


@click.command(
    cls=Verb,
    examples=[
        "muxway list servers.json",
        "muxway list --json | jq -r '.servers[] | select(.status == \"failed\").name'",
    ],
)
@click.argument("file", required=False)
@config_option
@json_option
@debug_option
def command(file: str | None, config: str | None, *, as_json: bool, debug: bool) -> None:
    """Start the servers and show their status and contents.

    A failed server is shown with its reason, and the exit code is still 0;
    `muxway check --connect` also shows times and stderr, and exits 4.
    `muxway tools`, `muxway read` and `muxway prompt` list what the servers have.
    """
    file = chosen(file, config)
    quiet_log(debug=debug)
    loaded = read_config(file)
    servers = run(_servers(awake(loaded)))
    if as_json:
        show_json({"servers": [_described(loaded, name, servers.get(name)) for name in loaded.servers]})
    else:
        show_table([_row(name, servers.get(name)) for name in loaded.servers])
        down = [(one, one.error) for one in servers.values() if one.error is not None]
        lines = [wrapped(trouble(one), f"{one_line(one.name)}: {reason(one.name, why)}") for one, why in down]
        if lines:
            click.echo("\n".join(("", *chain.from_iterable(lines))))


async def _servers(config: Config) -> dict[str, Server]:
    async with opened(config) as gateway:
        return {server.name: server for server in gateway.servers()}


def _row(name: str, server: Server | None) -> list[str]:
    shown = cut(one_line(name), _LONGEST_NAME)
    if server is None:
        return [badge("disabled"), shown, "", ""]
    has = holdings(server) if server.status in (Status.RUNNING, Status.SLEEPING) else ""
    return [badge(server.status), shown, server.revision or "", has]


def _described(config: Config, name: str, server: Server | None) -> dict[str, Any]:
    facts = {"name": name, "transport": config.servers[name].transport}
    return {**facts, "status": "disabled"} if server is None else {**facts, **describe(server)}
