"""`muxway setup`: from the servers in all clients to one muxway in all clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from muxway.cli.changes import (
    can_ask,
    clients_here,
    dry_run_option,
    into_store,
    known_client,
    move_secrets_option,
    servers_of,
    servers_of_client,
    show_difference,
    show_merged,
    show_variables,
    target,
    target_option,
    tell_of_readers,
    wants_store,
    without_secrets,
    write_config,
)
from muxway.cli.exits import Failed
from muxway.cli.help import Verb
from muxway.cli.output import badge, dim, heading, one_line, plural
from muxway.cli.verbs.connect import entry_for, show_change
from muxway.config.documents import format_of
from muxway.errors import MuxwayError
from muxway.net.secret_store import SecretStore
from muxway.setup.clients import file_of
from muxway.setup.connecting import apply, connect
from muxway.setup.importing import merge, with_servers
from muxway.setup.stored_secrets import NewSecrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.setup.clients import KnownClient
    from muxway.setup.connecting import Change
    from muxway.setup.files import ReadFile
    from muxway.setup.importing import FoundServer


@click.command(
    cls=Verb,
    examples=["muxway setup", "muxway setup --dry-run", "muxway setup --yes --client cursor --client claude-code"],
)
@target_option
@click.option("--client", "only", multiple=True, metavar="CLIENT", help="Only this client. May be repeated.")
@click.option("--keep", is_flag=True, help="Keep the imported servers in the clients, in addition to muxway.")
@move_secrets_option
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@dry_run_option
def command(
    config: str | None,
    only: tuple[str, ...],
    *,
    keep: bool,
    move_secrets: bool,
    secret_store: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Move the servers of all your clients behind muxway.

    Finds the clients of this machine and shows their servers; imports these into
    one config, each once; replaces them in each client by one entry for muxway.
    Every file is backed up, and nothing but entries of servers is changed in it.
    `muxway disconnect --all` undoes it.

    Asks before it writes; in a script, use --yes.

    Exit 1 if a client could not be changed.
    """
    clients = [known_client(name) for name in dict.fromkeys(only)] or clients_here()
    file = target(config)
    if not clients:
        raise Failed("No MCP client was found. `muxway clients --all` shows where they were looked for.")
    refused: dict[str, str] = {}
    found = {client.id: _read(client, refused) for client in clients}
    present = servers_of(file, str(file.path))
    _show_clients(clients, found, refused)
    merged = merge(present, [server for servers in found.values() for server in servers])
    show_merged(merged, file)
    if not present and not merged.added:
        raise Failed("No client has a server that muxway could run. Add one with `muxway add`.")
    kept = {server.identity for server in (*present, *merged.added)} - {None}
    secrets = NewSecrets(SecretStore())
    if wants_store(merged, move_secrets=move_secrets, secret_store=secret_store, quiet=yes or dry_run):
        merged = into_store(merged, secrets)
    merged, secret_files = without_secrets(merged, file) if move_secrets else (merged, [])
    tell_of_readers(merged, file)
    after = with_servers(file.text, format_of(file.path, file.text or "{"), merged.added)
    changes: list[Change] = []
    for client in clients:
        if client.id not in refused:
            gone = () if keep else [one.name for one in found[client.id] if one.identity in kept]
            try:
                change = connect(client, entry_for(client, file.path), os.environ, gone)
                if change is not None:
                    changes.append(change)
            except MuxwayError as error:
                refused[client.id] = str(error)
    if dry_run:
        for why in refused.values():
            click.echo(f"{badge('error')}  {one_line(why)}")
        if merged.added:
            show_difference(file, after)
        for change in changes:
            show_change(change)
        return
    if merged.added or changes:
        _agree(file, len(merged.added), changes, yes=yes)
    if merged.added:
        secrets.write()
        write_config(file, after, secret_files)
        click.echo(f"{badge('ok')}  {plural(len(merged.added), 'server')} imported into {file.path}")
    _apply(changes, clients, refused)
    # Once more, where it is seen: what was imported does not run before that.
    show_variables(merged.added)
    if refused:
        raise Failed("\n".join(refused.values()))


def _read(client: KnownClient, refused: dict[str, str]) -> list[FoundServer]:
    try:
        return servers_of_client(client)
    except MuxwayError as error:
        refused[client.id] = f"{client.title} is left alone: {error}"
        return []


def _show_clients(
    clients: Sequence[KnownClient], found: Mapping[str, Sequence[FoundServer]], refused: Mapping[str, str]
) -> None:
    click.echo(heading(f"{plural(len(clients), 'client')} found"))
    for client in clients:
        if client.id in refused:
            click.echo(f"  {one_line(refused[client.id])}")
            continue
        file = dim(one_line(str(file_of(client, os.environ))))
        click.echo(f"  {client.title}: {plural(len(found[client.id]), 'server')}  {file}")


def _agree(file: ReadFile, added: int, changes: Sequence[Change], *, yes: bool) -> None:
    """Ask, unless that was answered before. Raises what ends the command if the answer is no."""
    if yes:
        return
    parts = [f"write {plural(added, 'server')} to {file.path}"] if added else []
    parts += [f"connect {', '.join(change.client.title for change in changes)}"] if changes else []
    what = ", ".join(parts)
    if not can_ask():
        raise click.UsageError(f"this would {what}. There is no terminal to ask: add --yes, or --dry-run to see it.")
    if not click.confirm(f"{what[0].upper()}{what[1:]}?"):
        click.echo("Nothing was changed.")
        raise click.exceptions.Exit(0)


def _apply(changes: Sequence[Change], clients: Sequence[KnownClient], refused: dict[str, str]) -> None:
    for change in changes:
        try:
            apply(change, os.environ)
        except MuxwayError as error:
            refused[change.client.id] = f"{change.client.title} is left alone: {error}"
            continue
        gone = f" in place of {plural(len(change.replaced), 'server')}" if change.replaced else ""
        click.echo(f"{badge('ok')}  {change.client.title} has muxway{gone}. {change.client.then}")
    changed = {change.client.id for change in changes}
    for client in clients:
        if client.id not in changed and client.id not in refused:
            click.echo(f"{badge('ok')}  {client.title} is connected already.")
    if changes:
        click.echo(dim("See how the servers are: muxway list\nThe way back: muxway disconnect --all"))
