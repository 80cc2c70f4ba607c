"""`muxway tools`: what there is to call."""

from __future__ import annotations

import fnmatch
import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

import click

from muxway.catalog.signatures import kind
from muxway.cli.describing import failures, tell_failures
from muxway.cli.help import Verb
from muxway.cli.options import (
    config_option,
    debug_option,
    json_option,
    known_view,
    no_config_file,
    read_config,
    view_option,
)
from muxway.cli.output import dim, heading, one_line, show_json, show_table
from muxway.cli.session import only, opened, quiet_log, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config import Config
    from muxway.results import Server, Tool


_BYTES_PER_TOKEN = 4
"""An estimate, as each model has tokens of its own."""


@click.command(
    cls=Verb,
    examples=[
        "muxway tools --config servers.json",
        "muxway tools 'github__*issue*' --schema",
        "muxway tools --server github --json | jq -r '.tools[].name'",
        "muxway tools --tokens",
    ],
)
@click.argument("pattern", required=False)
@config_option
@click.option("--server", metavar="NAME", help="Only the tools of this server. No other server is started.")
@view_option
@click.option("--schema", is_flag=True, help="Also show the arguments of each tool.")
@click.option("--tokens", is_flag=True, help="Show instead how many tokens the lists cost, per server and per view.")
@json_option
@debug_option
def command(
    pattern: str | None,
    config: str | None,
    server: str | None,
    view: str | None,
    *,
    schema: bool,
    tokens: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Start the servers and list their tools.

    PATTERN is a part of the name, or a glob (quote it). --json prints the whole
    definition of every tool. --tokens counts four bytes of JSON as one token.

    Exit 4 if no server could be started.
    """
    quiet_log(debug=debug)
    no_config_file(pattern, "part of a tool's name")
    loaded = read_config(config)
    known_view(loaded, view)
    if server is not None:
        loaded = only(loaded, [_known(loaded, server)])
    if tokens:
        _show_tokens(loaded, view, as_json=as_json)
        return
    every, servers = run(_tools(loaded, view))
    tools = [tool for tool in every if server is None or tool.server == server]
    tools = [tool for tool in tools if pattern is None or _matches(tool.name, pattern)]
    if as_json:
        show_json({"tools": [_described(tool) for tool in tools], "failed": failures(servers)})
    elif schema:
        for tool in tools:
            _show_with_arguments(tool)
    else:
        show_table([[tool.name, one_line(tool.description)] for tool in tools])
    tell_failures(servers)
    if not tools and not as_json:
        click.echo(f"no tool matches {pattern}" if every and pattern else "there are no tools", err=True)


async def _tools(config: Config, view: str | None) -> tuple[list[Tool], list[Server]]:
    async with opened(config) as gateway:
        return await gateway.list_tools(view), gateway.servers()


def _show_tokens(config: Config, view: str | None, *, as_json: bool) -> None:
    lists, servers = run(_lists(config, view))
    whole = lists.pop("")
    by_server = {
        name: [tool for tool in whole if tool.server == name] for name in dict.fromkeys(t.server for t in whole)
    }
    parts = {f"server {name}" if name else "muxway itself": tools for name, tools in by_server.items()}
    rows = {**parts, **lists}
    if as_json:
        costs = {name: _cost(tools) for name, tools in rows.items()}
        show_json({"lists": costs, "failed": failures(servers)})
    else:
        costs = {name: [f"{number:,}" for number in _cost(tools).values()] for name, tools in rows.items()}
        heads = ["TOOLS", "BYTES", "TOKENS"]
        widths = [max(map(len, column)) for column in zip(heads, *costs.values(), strict=True)]
        table = {"": heads, **costs}
        show_table(
            [
                [name, *(cell.rjust(wide) for cell, wide in zip(cells, widths, strict=True))]
                for name, cells in table.items()
            ]
        )
    tell_failures(servers)


def _cost(tools: list[Tool]) -> dict[str, int]:
    size = sum(len(tool.raw) + 1 for tool in tools)
    return {"tools": len(tools), "bytes": size, "tokens": round(size / _BYTES_PER_TOKEN)}


async def _lists(config: Config, view: str | None) -> tuple[dict[str, list[Tool]], list[Server]]:
    """All tools under an empty name; what clients get listed without a view, and in each view or in this one."""
    async with opened(config) as gateway:
        lists = {"": gateway.tools(view), "listed": await gateway.list_tools(view)}
        for name in config.views if view is None else ():
            lists[f"listed in view {name}"] = await gateway.list_tools(name)
        return lists, gateway.servers()


def _known(config: Config, server: str) -> str:
    if server in config.servers:
        return server
    near = get_close_matches(server, config.servers, n=1)
    hint = f'Did you mean "{near[0]}"?' if near else f"There are: {', '.join(config.servers)}."
    raise click.BadParameter(f'{config.source} has no server "{server}". {hint}', param_hint="--server")


def _matches(name: str, pattern: str) -> bool:
    name, pattern = name.lower(), pattern.lower()
    return fnmatch.fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name


def _described(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "server": tool.server or None,
        "originalName": tool.original_name,
        "definition": tool.definition,
    }


def _show_with_arguments(tool: Tool) -> None:
    click.echo(heading(tool.name))
    if tool.description:
        click.echo(f"  {one_line(tool.description)}")
    properties = _object(tool.input_schema.get("properties"))
    required = tool.input_schema.get("required") or ()
    rows = [_argument(name, _object(schema), tool, required=name in required) for name, schema in properties.items()]
    show_table(rows or [[dim("no arguments")]], indent=4)
    click.echo()


def _argument(name: str, schema: Mapping[str, Any], tool: Tool, *, required: bool) -> list[str]:
    need = "required" if required else _default(schema)
    return [*map(one_line, (name, kind(schema, tool.input_schema), need, str(schema.get("description", ""))))]


def _default(schema: Mapping[str, Any]) -> str:
    return f"default {json.dumps(schema['default'], ensure_ascii=False)}" if "default" in schema else "optional"


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
