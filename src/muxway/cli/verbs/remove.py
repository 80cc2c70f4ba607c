"""`muxway remove`: one server less in the config."""

from __future__ import annotations

import shlex

import click

from muxway.cli.changes import dry_run_option, show_difference, target, target_option, write_config
from muxway.cli.help import Verb
from muxway.cli.output import badge, one_line
from muxway.config.documents import format_of
from muxway.config.references import references_in
from muxway.config.report import as_mapping, nearest
from muxway.setup.importing import container_of
from muxway.setup.splicing import entries_in, without_entry


@click.command(cls=Verb, examples=["muxway remove time", "muxway remove time --config servers.json --dry-run"])
@click.argument("name")
@target_option
@dry_run_option
def command(name: str, config: str | None, *, dry_run: bool) -> None:
    """Remove one server from the config.

    Everything else in the file stays as it is; a backup is kept. The file with the
    server's variables is kept, too.
    """
    file = target(config)
    kind = format_of(file.path, file.text or "{")
    container = container_of(file.text, kind, str(file.path))
    present = entries_in(file.text, kind, container)
    if name not in present:
        near = nearest(name, present)
        hint = f"Did you mean {near}?" if near else f"It has: {', '.join(map(one_line, present)) or 'none'}."
        raise click.BadParameter(f'{file.path} has no server "{one_line(name)}". {hint}', param_hint="NAME")
    after = without_entry(file.text, kind, container, name)
    show_difference(file, after)
    if dry_run:
        return
    write_config(file, after)
    click.echo(f"{badge('ok')}  {one_line(name)} is out of {file.path}")
    variables = (as_mapping(present[name]) or {}).get("envFile")
    if isinstance(variables, str):
        click.echo(f"Its variables are still in {one_line(variables)}.")
    names = dict.fromkeys(secret for _, secret in references_in(present[name]))
    if names:
        click.echo(f"Its secrets are still kept: {one_line(shlex.join(['muxway', 'secret', 'rm', *names]))}")
