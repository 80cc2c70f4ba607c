"""`muxway call`: one tool call from the command line."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import click

from muxway.catalog.signatures import Schema, as_schema, kind
from muxway.cli.arguments import Arguments, missing, remarks
from muxway.cli.exits import TOOL_FAILED
from muxway.cli.help import Verb
from muxway.cli.options import command_line, known_view, no_config_file, read_config, view_option
from muxway.cli.output import StatusLine, badge, dim, one_line, show_json
from muxway.cli.requesting import failure_told, named_owners, patient, request_options, show_block
from muxway.cli.session import only, opened, quiet_log, run
from muxway.errors import InvalidParams, ToolNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.catalog.model import Catalog
    from muxway.config import Config
    from muxway.errors import RpcError
    from muxway.results import ToolResult

_BAR = 24


@click.command(
    cls=Verb,
    examples=[
        "muxway call notes__add text='Buy milk' tags:='[\"home\"]'",
        "muxway call time.get_current_time timezone=Europe/Paris -c servers.json",
        'muxway call github__search --json \'{"query": "muxway"}\' -o json | jq',
    ],
)
@click.argument("tool")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE | KEY:=JSON]...")
@request_options
@view_option
@click.option("--json", "base", metavar="TEXT", help="Arguments as one JSON object; KEY=VALUE overrides it.")
def command(
    tool: str,
    arguments: Sequence[str],
    config: str | None,
    view: str | None,
    base: str | None,
    output: str,
    timeout: float | None,
    *,
    debug: bool,
) -> None:
    """Call one tool and print its result.

    KEY=VALUE passes text, or a number, true/false, null, array or object if the
    tool's schema wants one; KEY:=JSON passes any JSON. On a terminal you are asked
    for required arguments that are missing. The tool can be written server__tool,
    server:tool or server.tool; only servers that can have this tool are started.

    Ctrl-C cancels the call at its server; a second one quits.

    Exit 0 done, 1 refused, 2 usage, 3 config, 4 server not reachable, 6 the tool
    reports an error, 7 timeout, 130 interrupted.
    """
    quiet_log(debug=debug)
    no_config_file(tool, "name of a tool")
    given = Arguments(base, arguments)
    loaded = patient(read_config(config), timeout)
    known_view(loaded, view)
    code = run(_call(only(loaded, owners(loaded, tool)), config, view, tool, given, as_json=output == "json"))
    raise click.exceptions.Exit(code)


async def _call(
    config: Config, file: str | None, view: str | None, tool: str, given: Arguments, *, as_json: bool
) -> int:
    """Make the call and print its outcome. Returns the exit code."""
    line = StatusLine()

    def show_progress(done: float, total: float | None, message: str | None) -> None:
        line.show(_bar(done, total, message))

    async with opened(config) as gateway:
        catalog = gateway.runtime.snapshot.visible(view).tools
        schema = _schema(catalog, tool)
        with failure_told(tool, line, lambda error: _hint(catalog, file, tool, error), as_json=as_json):
            await _asked(given, schema)
            arguments = given.fitted(schema)
            for remark in remarks(tool, arguments, schema, file):
                click.echo(remark, err=True)
            result = await gateway.call(tool, arguments, on_progress=show_progress, view=view)
    if as_json:
        show_json(result.raw)
    else:
        _show(result)
    return TOOL_FAILED if result.is_error else 0


def owners(config: Config, tool: str) -> list[str]:
    """The servers that may have the tool: those its name begins with, or all if it begins with none.

    A compound tool belongs to the servers of its subtools, a composed one to those of its steps.
    """
    if tool in config.tools:
        made = config.tools[tool]
        return [*made.subtools, *(name for step in made.steps for name in owners(config, step.tool))]
    return named_owners(config, tool)


def _schema(catalog: Catalog, tool: str) -> Schema:
    route = catalog.find(tool).route
    return {} if route is None else as_schema(route.describe().get("inputSchema"))


async def _asked(given: Arguments, schema: Schema) -> None:
    """On a terminal, ask for what the tool needs and was not given."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    known = as_schema(schema.get("properties"))
    for name in missing(given.fitted(schema), schema):
        about = as_schema(known.get(name))
        if about.get("description"):
            click.echo(dim(one_line(str(about["description"]))), err=True)
        click.echo(f"{one_line(name)} ({one_line(kind(about, schema))}): ", err=True, nl=False)
        text = await _typed_line()
        if text is None:
            click.echo(err=True)
            return
        given.add(name, text)


async def _typed_line() -> str | None:
    """The next line from the terminal; None at its end. Ctrl-C cancels this as anything else."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(0, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    # A terminal gives whole lines.
    line = os.read(0, 65536).decode(errors="replace")
    return line.rstrip("\r\n") if line else None


# --- outcome ----------------------------------------------------------------------------------


def _bar(done: float, total: float | None, message: str | None) -> str:
    words = one_line(message or "")
    if not total:
        return f"… {done:g}  {words}"
    share = min(max(done / total, 0.0), 1.0)
    filled = round(share * _BAR)
    return f"[{'#' * filled}{'-' * (_BAR - filled)}] {share:4.0%}  {words}"


def _show(result: ToolResult) -> None:
    for block in result.content:
        show_block(block)
    if not result.text and result.structured_content is not None:
        show_json(result.structured_content)
    if result.is_error:
        click.echo(f"{badge('error')}  reported by the tool", err=True)


def _hint(catalog: Catalog, file: str | None, tool: str, error: RpcError) -> str | None:
    if not isinstance(error, ToolNotFound | InvalidParams) or catalog.find(tool).route is not None:
        return None
    near = catalog.nearest(tool)
    return (
        f"Did you mean {' or '.join(near)}?" if near else f"{command_line('tools', config=file)} lists what there is."
    )
