"""`muxway call`: one tool call from the command line."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import click

from muxway.cli.exits import TOOL_FAILED
from muxway.cli.help import Verb
from muxway.cli.options import known_view, no_config_file, read_config, view_option
from muxway.cli.output import StatusLine, badge, one_line, show_json
from muxway.cli.requesting import failure_told, named_owners, patient, request_options, show_block
from muxway.cli.session import only, opened, quiet_log, run
from muxway.errors import InvalidParams, ToolNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.model import Catalog
    from muxway.config import Config
    from muxway.errors import RpcError
    from muxway.library import ToolResult

_BAR = 24
_NUMBERS = ("integer", "number")


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
@click.option("--json", "base", metavar="TEXT", help="Arguments as one JSON object; single ones win over it.")
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
    """Call one tool and print what it returns.

    KEY=VALUE passes text, or a number or true/false where the tool's schema wants
    one; KEY:=JSON passes any JSON. The tool may be written server__tool,
    server:tool or server.tool; only the servers it may belong to are started.

    Ctrl-C cancels the call at its server; a second one quits.

    Exit 0 done, 1 refused, 2 usage, 3 config, 4 server not reachable, 6 the tool
    reports an error, 7 timeout, 130 interrupted.
    """
    quiet_log(debug=debug)
    no_config_file(tool, "name of a tool")
    given = _Arguments(base, arguments)
    loaded = patient(read_config(config), timeout)
    known_view(loaded, view)
    code = run(_call(only(loaded, owners(loaded, tool)), view, tool, given, as_json=output == "json"))
    raise click.exceptions.Exit(code)


async def _call(config: Config, view: str | None, tool: str, given: _Arguments, *, as_json: bool) -> int:
    """Make the call and print its outcome. Returns the exit code."""
    line = StatusLine()

    def show_progress(done: float, total: float | None, message: str | None) -> None:
        line.show(_bar(done, total, message))

    async with opened(config) as gateway:
        catalog = (gateway.switchboard if view is None else gateway.switchboard.views[view]).catalog
        schema = _schema(catalog, tool)
        arguments = given.fitted(schema)
        missing = [str(name) for name in schema.get("required") or () if name not in arguments]
        with failure_told(tool, line, lambda error: _hint(catalog, tool, error), as_json=as_json):
            result = await gateway.call(tool, arguments, on_progress=show_progress, view=view)
    if as_json:
        show_json(result.raw)
    else:
        _show(result)
        if result.is_error and missing:
            needs = ", ".join(map(one_line, missing))
            click.echo(f"It needs {needs}: `muxway tools {tool} --schema` shows its arguments.", err=True)
    return TOOL_FAILED if result.is_error else 0


def owners(config: Config, tool: str) -> list[str]:
    """The servers that may have the tool: those its name begins with, or all if it begins with none.

    A compound tool belongs to the servers of its subtools, a composed one to those of its steps.
    """
    if tool in config.tools:
        made = config.tools[tool]
        return [*made.subtools, *(name for step in made.steps for name in owners(config, step.tool))]
    return named_owners(config, tool)


# --- arguments --------------------------------------------------------------------------------


class _Arguments:
    """The arguments as given on the command line. Whatever can be wrong with them is told before anything starts."""

    def __init__(self, base: str | None, words: Sequence[str]) -> None:
        self._values = {} if base is None else _object(base)
        self._texts: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or not key.rstrip(":"):
                raise click.UsageError(f"{word!r} is no argument: write KEY=VALUE, or KEY:=JSON for other than text.")
            if key.endswith(":"):
                self._values[key[:-1]] = _json(value, f"the value of {key[:-1]}")
                self._texts.pop(key[:-1], None)
            else:
                self._texts[key] = value

    def fitted(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with each text turned into the number or flag that the schema wants, if it does."""
        known = _mapping(schema.get("properties"))
        return {**self._values, **{key: _fitted(text, known.get(key)) for key, text in self._texts.items()}}


def _fitted(text: str, schema: object) -> object:
    kind = _mapping(schema).get("type")
    if kind == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if kind in _NUMBERS:
        # What is no number goes as it is: the server's complaint about it is better than ours.
        with suppress(ValueError):
            return json.loads(text) if kind == "number" else int(text)
    return text


def _object(text: str) -> dict[str, Any]:
    value = _json(text, "--json")
    if not isinstance(value, dict):
        raise click.UsageError('--json must be an object, such as {"city": "Paris"}. For JSON output use -o json.')
    return cast("dict[str, Any]", value)


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON ({error}): {text}") from None


def _schema(catalog: Catalog, tool: str) -> Mapping[str, Any]:
    route = catalog.find(tool).route
    return {} if route is None else _mapping(route.describe().get("inputSchema"))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


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


def _hint(catalog: Catalog, tool: str, error: RpcError) -> str | None:
    if not isinstance(error, ToolNotFound | InvalidParams) or catalog.find(tool).route is not None:
        return None
    near = catalog.nearest(tool)
    return f"Did you mean {' or '.join(near)}?" if near else "`muxway tools` lists what there is."
