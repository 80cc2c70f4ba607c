"""`muxway reload`: make a running gateway read its config again."""

from __future__ import annotations

import click

from muxway.cli.exits import CONFIG_INVALID
from muxway.cli.help import Verb
from muxway.cli.options import json_option
from muxway.cli.output import StatusLine, badge, one_line, show_json
from muxway.cli.running import CHANGE_WAIT, answered, gateway_options, pick
from muxway.log import printable


@click.command(cls=Verb, examples=["muxway reload", "muxway reload --config servers.json"])
@gateway_options
@json_option
def command(pid: int | None, config: str | None, *, as_json: bool) -> None:
    """Make a running gateway read its config again.

    Servers whose entry did not change keep their processes and sessions. If the
    config cannot be used, nothing changes, and every problem is printed.

    Exit 3 if the config cannot be used, 4 if no gateway runs.
    """
    gateway = pick(pid, config)
    line = StatusLine()
    line.show("waiting until every server is up or has failed")
    try:
        with answered():
            done = gateway.ask("reload", wait=CHANGE_WAIT)
    finally:
        line.wipe()
    problems = done["problems"]
    if as_json:
        show_json({"ok": not problems, "problems": problems, "plan": done.get("plan")})
    elif problems:
        first, *rest = done["text"].splitlines()
        click.echo(f"{badge('error')}  {one_line(first)}", err=True)
        for problem in rest:
            click.echo(f"  {one_line(problem)}", err=True)
        click.echo("Nothing has changed.", err=True)
    elif not done["plan"]["changes"]:
        click.echo(f"{badge('ok')}  nothing changes")
    else:
        click.echo(f"{badge('ok')}  reloaded")
        for change in done["text"].splitlines():
            click.echo(f"  {printable(change)}")
    if problems:
        raise click.exceptions.Exit(CONFIG_INVALID)
