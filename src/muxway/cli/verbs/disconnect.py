"""`muxway disconnect`: a client as it was before muxway."""

from __future__ import annotations

import os

import click

from muxway.cli.changes import dry_run_option, known_client
from muxway.cli.exits import Failed
from muxway.cli.help import Verb
from muxway.cli.output import badge
from muxway.cli.verbs.connect import show_change
from muxway.errors import MuxwayError
from muxway.setup.clients import CLIENTS
from muxway.setup.connecting import apply, disconnect


@click.command(cls=Verb, examples=["muxway disconnect cursor", "muxway disconnect --all --dry-run"])
@click.argument("client", required=False)
@click.option("--all", "every", is_flag=True, help="Every client that has muxway in its file.")
@dry_run_option
def command(client: str | None, *, every: bool, dry_run: bool) -> None:
    """Remove muxway from a client's config file; undo `connect`.

    If the file has not changed since `connect` or `setup`, its original content is
    restored byte for byte. Otherwise muxway's entry is removed, and the servers
    that it replaced are put back.
    """
    if every == (client is not None):
        raise click.UsageError("name one client, or give --all.")
    chosen = [*CLIENTS.values()] if client is None else [known_client(client)]
    refused = list[str]()
    found = False
    for about in chosen:
        try:
            change = disconnect(about, os.environ)
            if change is None:
                if not every:
                    click.echo(f"{badge('ok')}  {about.title} does not have muxway.")
                continue
            found = True
            show_change(change)
            if not dry_run:
                backup = apply(change, os.environ)
                click.echo(f"{badge('ok')}  {about.title} is as it was. {about.then}")
                if backup is not None:
                    click.echo(f"Backup of the file with muxway: {backup}")
        except MuxwayError as error:
            if not every:
                raise
            refused.append(str(error))
    if not found and not refused and every:
        click.echo(f"{badge('ok')}  No client has muxway.")
    if refused:
        raise Failed("\n".join(refused))
