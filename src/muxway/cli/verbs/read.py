"""`muxway read`: the resources there are, and one of them."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from muxway.cli.describing import failures, tell_failures
from muxway.cli.exits import Failed
from muxway.cli.help import Verb
from muxway.cli.options import command_line, no_config_file, read_config
from muxway.cli.output import StatusLine, on_terminal, one_line, show_json, show_table
from muxway.cli.requesting import failure_told, patient, request_options, show_block
from muxway.cli.session import opened, quiet_log, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.config import Config
    from muxway.errors import RpcError
    from muxway.results import Resource, ResourceTemplate, Server


@click.command(
    cls=Verb,
    examples=[
        "muxway read --config servers.json",
        "muxway read file:///notes/today.md -c servers.json",
        "muxway read file:///logo.png > logo.png",
    ],
)
@click.argument("uri", required=False)
@request_options
def command(uri: str | None, config: str | None, output: str, timeout: float | None, *, debug: bool) -> None:
    """Read one resource and print it, or list all.

    Without URI, the resources and resource templates of all servers are listed.
    You can also read a URI that is not listed but matches a template.

    Binary content is written to a file or pipe unchanged; a terminal shows its
    size.

    Ctrl-C cancels the request at its server; a second one quits.

    Exit 0 done, 1 refused, 2 usage, 3 config, 4 server not reachable, 7 timeout,
    130 interrupted.
    """
    quiet_log(debug=debug)
    no_config_file(uri, "URI")
    loaded = patient(read_config(config), timeout)
    as_json = output == "json"
    if uri is not None:
        run(_read(loaded, config, uri, as_json=as_json))
        return
    resources, templates, servers = run(_listed(loaded))
    if as_json:
        show_json(_document(resources, templates, servers))
    else:
        rows = [[one_line(one.uri), one_line(one.description or one.name)] for one in resources]
        rows += [[one_line(one.uri_template), one_line(one.description or one.name)] for one in templates]
        show_table(rows)
    tell_failures(servers)
    if not resources and not templates and not as_json:
        click.echo("there are no resources", err=True)


async def _read(config: Config, file: str | None, uri: str, *, as_json: bool) -> None:
    line = StatusLine()
    async with opened(config) as gateway:
        with failure_told(uri, line, partial(_hint, file), as_json=as_json):
            result = await gateway.read(uri)
    if as_json:
        show_json(result.raw)
        return
    for content in result.contents:
        _show(content)


def _hint(file: str | None, error: RpcError) -> str | None:
    from muxway.exchange.resources import NOT_FOUND

    every = command_line("read", config=file)
    return f"{every} without a URI lists what there is." if error.code == NOT_FOUND else None


def _show(content: Mapping[str, Any]) -> None:
    blob = content.get("blob")
    if isinstance(blob, str) and not on_terminal():
        try:
            data = base64.b64decode(blob, validate=True)
        except binascii.Error as error:
            raise Failed(f"the server sent no proper base64 ({error}). See it as it came with -o json.") from None
        click.echo(data, nl=False)
        return
    # A file's text ends with a newline, and `show_block` adds one.
    text = content.get("text")
    shown = {**content, "text": text.removesuffix("\n")} if isinstance(text, str) else content
    show_block({"type": "resource", "resource": shown})


async def _listed(config: Config) -> tuple[list[Resource], list[ResourceTemplate], list[Server]]:
    async with opened(config) as gateway:
        return gateway.resources(), gateway.resource_templates(), gateway.servers()


def _document(
    resources: Sequence[Resource], templates: Sequence[ResourceTemplate], servers: Sequence[Server]
) -> dict[str, Any]:
    return {
        "resources": [
            {"uri": one.uri, "server": one.server, "originalUri": one.original_uri, "definition": one.definition}
            for one in resources
        ],
        "resourceTemplates": [
            {
                "uriTemplate": one.uri_template,
                "server": one.server,
                "originalTemplate": one.original_template,
                "definition": one.definition,
            }
            for one in templates
        ],
        "failed": failures(servers),
    }
