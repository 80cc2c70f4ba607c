"""`muxway connect`: muxway as one more server of a client, or as its only one."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from muxway.cli.changes import dry_run_option, known_client, servers_of, servers_of_client, show_difference
from muxway.cli.help import Verb
from muxway.cli.options import config_option
from muxway.cli.output import badge, dim, one_line
from muxway.config import find_config
from muxway.errors import MuxwayError
from muxway.setup import files
from muxway.setup.clear_secrets import mask_of
from muxway.setup.clients import stdio_entry, url_entry
from muxway.setup.connecting import apply, connect, muxway_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from muxway.setup.clients import KnownClient
    from muxway.setup.connecting import Change
    from muxway.setup.importing import FoundServer


@click.command(
    cls=Verb,
    examples=[
        "muxway connect cursor",
        "muxway connect codex --config servers.json --dry-run",
        "muxway connect vscode --url http://127.0.0.1:3006/mcp",
    ],
)
@click.argument("client")
@config_option
@click.option("--url", help="Let the client connect to a muxway at this URL, instead of launching one.")
@click.option("--replace", is_flag=True, help="Remove those of the client's servers that are in the config.")
@dry_run_option
def command(client: str, config: str | None, url: str | None, *, replace: bool, dry_run: bool) -> None:
    """Add muxway to a client's config file.

    CLIENT is one of `muxway clients --all`. One entry is inserted, every other byte
    of the file stays, and a backup is kept. Claude Code and Codex are changed by
    their own command if it is installed. `muxway disconnect CLIENT` undoes it.

    A file that cannot be read, that another program has locked, or that changes at
    the same moment is not changed.
    """
    about = known_client(client)
    if url is not None and about.stdio_only:
        raise click.UsageError(f"{about.title} cannot connect to a URL: leave --url out, and it starts muxway.")
    if url is not None and not url.startswith(("http://", "https://")):
        raise click.BadParameter(f"{one_line(url)} is no http:// or https:// address.", param_hint="--url")
    file = None if url is not None and not replace else find_config(config).absolute()
    gone = [] if file is None or not replace else replaceable(about, servers_of(files.read(file), str(file)))
    twice = [] if file is None or replace else _twice(about, file)
    change = connect(about, entry_for(about, file, url), os.environ, gone)
    if change is None:
        click.echo(f"{badge('ok')}  {about.title} is connected already.")
        return
    show_change(change)
    if not dry_run:
        apply(change, os.environ)
        click.echo(f"{badge('ok')}  {about.title} is connected. {about.then}")
        if twice:
            names = one_line(", ".join(twice))
            click.echo(
                f"Now there twice, as muxway has them, too: {names}. `--replace` takes them out of {about.title}."
            )
        click.echo(dim(f"The way back: muxway disconnect {about.id}"))


def entry_for(client: KnownClient, file: Path | None, url: str | None = None) -> dict[str, object]:
    """The entry that makes a client use muxway: at this address, else with this config."""
    if url is not None or file is None:
        return url_entry(client, url or "")
    program, *args = muxway_command()
    # Who lacks one variable shall not lack all servers, and what is added later is there without a restart.
    return stdio_entry(client, program, [*args, "stdio", "--keep-going", "--watch", str(file)])


def replaceable(client: KnownClient, present: Sequence[FoundServer]) -> list[str]:
    """The servers of a client that the config has, too."""
    known = {server.identity for server in present if server.identity is not None}
    return [server.name for server in servers_of_client(client) if server.identity in known]


def _twice(client: KnownClient, file: Path) -> list[str]:
    """The same for a hint. A config that cannot be read is no hindrance to connecting, and told when it is run."""
    try:
        return replaceable(client, servers_of(files.read(file), str(file)))
    except MuxwayError:
        return []


def show_change(change: Change) -> None:
    """Print what is to become of a client's file, and the client's own command if that does it."""
    if change.command:
        hidden = mask_of(dict(change.entry or {}))
        click.echo(f"Runs: {one_line(hidden(shlex.join(change.command)))}")
    show_difference(change.before, None if change.after is None else change.text)
