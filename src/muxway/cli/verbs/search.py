"""`muxway search`: which tools a model would find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muxway.cli.describing import failures, tell_failures
from muxway.cli.help import Verb
from muxway.cli.options import config_option, debug_option, json_option, known_view, read_config, view_option
from muxway.cli.output import heading, one_line, show_json, show_table
from muxway.cli.session import opened, quiet_log, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.config import Config
    from muxway.results import FoundTool, Server


@click.command(
    cls=Verb,
    examples=[
        "muxway search open a pull request --config servers.json",
        "muxway search 'send a message' --view agent --limit 10 --explain",
        "muxway search weather --json | jq -r '.tools[0].name'",
    ],
)
@click.argument("query", nargs=-1, required=True)
@config_option
@view_option
@click.option("--limit", type=click.IntRange(1, 20), default=5, show_default=True, help="How many tools to show.")
@click.option("--explain", is_flag=True, help="Also show what each field adds to the score of a tool.")
@json_option
@debug_option
def command(
    query: Sequence[str],
    config: str | None,
    view: str | None,
    limit: int,
    *,
    explain: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Start the servers and find tools by what they do.

    QUERY is free text. Tools are ranked as `search_tools` ranks them in a view with
    `discovery: search`, even if the view is not a search view.

    Exit 4 if no server could be started.
    """
    quiet_log(debug=debug)
    loaded = read_config(config)
    known_view(loaded, view)
    words = " ".join(query)
    found, servers = run(_found(loaded, words, view, limit))
    if as_json:
        show_json({"query": words, "tools": [*map(_described, found)], "failed": failures(servers)})
    elif explain:
        for one in found:
            _show_explained(one)
    else:
        show_table([[f"{one.score:.2f}", one.tool.name, one_line(one.tool.description)] for one in found])
    tell_failures(servers)
    if not found and not as_json:
        click.echo("no tool matches", err=True)


async def _found(config: Config, query: str, view: str | None, limit: int) -> tuple[list[FoundTool], list[Server]]:
    async with opened(config) as gateway:
        return gateway.search(query, view=view, limit=limit), gateway.servers()


def _described(one: FoundTool) -> dict[str, Any]:
    fields = {name: round(share, 4) for name, share in one.fields.items()}
    return {"name": one.tool.name, "server": one.tool.server or None, "score": round(one.score, 4), "fields": fields}


def _show_explained(one: FoundTool) -> None:
    click.echo(f"{heading(one.tool.name)}  {one.score:.2f}")
    show_table([[name, f"{share:.2f}"] for name, share in one.fields.items() if share], indent=4)
    click.echo()
