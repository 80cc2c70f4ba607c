"""`muxway import`: the servers of clients and of other files, in muxway's config."""
# ruff: noqa: N999 - a verb's file has the verb's name; it is imported by that

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from muxway.cli.changes import (
    clients_here,
    dry_run_option,
    into_store,
    known_client,
    move_secrets_option,
    servers_of,
    servers_of_client,
    show_difference,
    show_merged,
    target,
    target_option,
    tell_of_readers,
    wants_store,
    without_secrets,
    write_config,
)
from muxway.cli.help import Verb
from muxway.cli.output import badge, one_line, plural
from muxway.config.documents import format_of
from muxway.errors import MuxwayError
from muxway.net.secret_store import SecretStore
from muxway.setup import files
from muxway.setup.clients import CLIENTS
from muxway.setup.importing import merge, with_servers
from muxway.setup.stored_secrets import NewSecrets

if TYPE_CHECKING:
    from muxway.setup.importing import FoundServer


@click.command(
    cls=Verb, examples=["muxway import", "muxway import cursor --dry-run", "muxway import ./.mcp.json -c servers.json"]
)
@click.argument("source", nargs=-1, metavar="[CLIENT|FILE]...")
@target_option
@move_secrets_option
@dry_run_option
def command(
    source: tuple[str, ...], config: str | None, *, move_secrets: bool, secret_store: bool, dry_run: bool
) -> None:
    """Copy servers from clients or files into muxway's config.

    Without an argument: from every client on this machine. A server that is already
    there, under any name, is not copied again. Entries are copied as they are
    written, including references to variables and inputs. You are told where
    secrets are written in plain text; their values are never shown. On a terminal
    you are asked whether to move them into the secret store (`muxway secret`).

    Comments and order of the config are kept. The clients are not changed.
    """
    file = target(config)
    found: list[FoundServer] = []
    for name in source:
        path = Path(name)
        if name not in CLIENTS and (files.is_there(path) or path.suffix):
            read = files.read(path.absolute())
            if read.data is None:
                raise click.BadParameter(f"there is no file {one_line(name)}.", param_hint="FILE")
            found += servers_of(read, str(path))
        else:
            found += servers_of_client(known_client(name))
    for client in clients_here() if not source else ():
        try:
            found += servers_of_client(client)
        except MuxwayError as error:
            click.echo(f"{badge('warning')}  {client.title} is left out: {one_line(str(error))}")
    merged = merge(servers_of(file, str(file.path)), found)
    show_merged(merged, file)
    if not merged.added:
        click.echo(f"{badge('ok')}  There is nothing to import.")
        return
    secrets = NewSecrets(SecretStore())
    if wants_store(merged, move_secrets=move_secrets, secret_store=secret_store, quiet=dry_run):
        merged = into_store(merged, secrets)
    merged, secret_files = without_secrets(merged, file) if move_secrets else (merged, [])
    tell_of_readers(merged, file)
    after = with_servers(file.text, format_of(file.path, file.text or "{"), merged.added)
    show_difference(file, after)
    if not dry_run:
        secrets.write()
        write_config(file, after, secret_files)
        click.echo(f"{badge('ok')}  {plural(len(merged.added), 'server')} imported into {file.path}")
