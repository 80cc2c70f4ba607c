"""`muxway restart`: end a server of a running gateway and start it anew."""

from __future__ import annotations

import click

from muxway.cli.describing import counted
from muxway.cli.exits import UNREACHABLE
from muxway.cli.figures import latency
from muxway.cli.help import Verb
from muxway.cli.options import json_option
from muxway.cli.output import StatusLine, badge, one_line, show_json
from muxway.cli.running import CHANGE_WAIT, answered, gateway_options, pick
from muxway.cli.verbs.status import why


@click.command(cls=Verb, examples=["muxway restart github", "muxway restart github --pid 4242"])
@click.argument("server")
@gateway_options
@json_option
def command(server: str, pid: int | None, config: str | None, *, as_json: bool) -> None:
    """Restart one server of a running gateway.

    Its running calls fail; new calls wait until it is ready. A failed server is
    started at once, without waiting for its next automatic retry.

    Exit 4 if it does not start, or if no gateway runs.
    """
    gateway = pick(pid, config)
    line = StatusLine()
    line.show(f"restarting {one_line(server)}")
    try:
        with answered():
            facts = gateway.ask("restart", wait=CHANGE_WAIT, server=server)
    finally:
        line.wipe()
    facts.pop("pids")
    running = facts["status"] == "running"
    if as_json:
        show_json(facts)
    elif running:
        has = counted(facts["tools"], facts["prompts"], facts["resources"], facts["resourceTemplates"])
        click.echo(f"{badge('running')}  {one_line(server)}: {has}, after {latency(facts['startSeconds'])}")
    else:
        click.echo(f"{badge(facts['status'])}  {one_line(server)}: {why(facts)}", err=True)
    if not running:
        raise click.exceptions.Exit(UNREACHABLE)
