"""`muxway logs`: what a server wrote to stderr."""

from __future__ import annotations

import click

from muxway.cli.help import Verb
from muxway.cli.output import show_text
from muxway.cli.running import answered, gateway_options, known_server, pick_for


@click.command(cls=Verb, examples=["muxway logs github", "muxway logs -f github", "muxway logs github -n 20"])
@click.argument("server")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@gateway_options
def command(server: str, pid: int | None, config: str | None, *, follow: bool, lines: int | None) -> None:
    """Print what a server of a running gateway wrote to stderr.

    The last 256 KiB are kept, also of a server that has failed. Secrets of the
    config are masked.

    Exit 4 if no gateway runs, or if it ends in the meantime.
    """
    gateway = pick_for(server, pid, config)
    count = 0
    with answered():
        for line in gateway.lines("logs", server=server, last=lines, follow=follow):
            count += 1
            show_text(line)
        if not count and lines != 0:
            known = known_server(gateway.ask("status"), server)
            why = "has written nothing" if known["pid"] else "has written nothing, or has no process here"
            click.echo(f"{server} {why}.", err=True)
