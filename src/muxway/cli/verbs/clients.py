"""`muxway clients`: which MCP clients are on this machine, and what they have."""

from __future__ import annotations

import os
from typing import Any

import click

from muxway.cli.changes import clients_here, servers_of_client
from muxway.cli.help import Verb
from muxway.cli.options import json_option
from muxway.cli.output import badge, dim, one_line, plural, show_json, show_table, wrapped
from muxway.errors import MuxwayError
from muxway.setup.clients import CLIENTS, file_of
from muxway.setup.connecting import is_connected


@click.command(cls=Verb, examples=["muxway clients", "muxway clients --all", "muxway clients --json"])
@click.option("--all", "every", is_flag=True, help="Also those that are not on this machine.")
@json_option
def command(*, every: bool, as_json: bool) -> None:
    """Show the MCP clients of this machine and their servers.

    Reads the user-level config file of each client, not those of projects. Nothing
    is changed.
    """
    here = clients_here()
    found = [_about(client.id, is_here=client in here) for client in (CLIENTS.values() if every else here)]
    if as_json:
        show_json(found)
        return
    if not found:
        click.echo("No client was found. `muxway clients --all` shows where they were looked for.")
    rows = list[list[str]]()
    for about in found:
        state = "error" if about["problem"] else "ok" if about["connected"] else "disabled"
        word = badge(state).replace("disabled", "not connected").replace("ok", "connected")
        what = "cannot be read" if about["problem"] else plural(len(about["servers"]), "server")
        here = [word, what] if about["here"] else [dim("-"), "not here"]
        rows.append([about["id"], *here, dim(one_line(about["file"]))])
    show_table(rows)
    for about in found:
        if about["problem"]:
            click.echo("\n".join(wrapped("error", f"{about['id']}: {one_line(about['problem'])}")))


def _about(name: str, *, is_here: bool) -> dict[str, Any]:
    client = CLIENTS[name]
    servers, connected, problem = list[str](), False, ""
    try:
        servers = [server.name for server in servers_of_client(client)]
        connected = is_connected(client, os.environ)
    except MuxwayError as error:
        problem = str(error)
    return {
        "id": name,
        "title": client.title,
        "file": str(file_of(client, os.environ)),
        "here": is_here,
        "connected": connected,
        "servers": servers,
        "problem": problem or None,
    }
