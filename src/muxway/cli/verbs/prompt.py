"""`muxway prompt`: the prompts there are, and one of them filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from muxway.cli.describing import failures, tell_failures
from muxway.cli.help import Verb
from muxway.cli.options import command_line, no_config_file, read_config
from muxway.cli.output import StatusLine, dim, one_line, show_json, show_table
from muxway.cli.requesting import failure_told, named_owners, patient, request_options, show_block
from muxway.cli.session import only, opened, quiet_log, run
from muxway.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.model import Catalog
    from muxway.config import Config
    from muxway.errors import RpcError
    from muxway.results import Prompt, PromptResult, Server


@click.command(
    cls=Verb,
    examples=[
        "muxway prompt --config servers.json",
        "muxway prompt writer__summary topic=otters length=short",
        "muxway prompt writer__summary topic=otters -o json | jq .messages",
    ],
)
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@request_options
def command(
    name: str | None,
    arguments: Sequence[str],
    config: str | None,
    output: str,
    timeout: float | None,
    *,
    debug: bool,
) -> None:
    """Fill in one prompt and print it, or list all.

    Without NAME, the prompts of all servers are listed, with their arguments. The
    name can be written server__prompt, server:prompt or server.prompt; only servers
    that can have this prompt are started.

    If there are several messages, each is printed below its role.

    Ctrl-C cancels the request at its server; a second one quits.

    Exit 0 done, 1 refused, 2 usage, 3 config, 4 server not reachable, 7 timeout,
    130 interrupted.
    """
    quiet_log(debug=debug)
    no_config_file(name, "name of a prompt")
    given = _arguments(arguments)
    loaded = patient(read_config(config), timeout)
    as_json = output == "json"
    if name is not None:
        run(_prompt(only(loaded, named_owners(loaded, name)), config, name, given, as_json=as_json))
        return
    prompts, servers = run(_listed(loaded))
    if as_json:
        show_json({"prompts": [_described(prompt) for prompt in prompts], "failed": failures(servers)})
    else:
        show_table([[prompt.name, _wanted(prompt), one_line(prompt.description)] for prompt in prompts])
    tell_failures(servers)
    if not prompts and not as_json:
        click.echo("there are no prompts", err=True)


def _arguments(words: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{word!r} is no argument: write KEY=VALUE.")
        given[key] = value
    return given


async def _prompt(config: Config, file: str | None, name: str, arguments: Mapping[str, str], *, as_json: bool) -> None:
    line = StatusLine()
    async with opened(config) as gateway:
        known = gateway.runtime.snapshot.whole.prompts
        with failure_told(name, line, lambda error: _hint(known, file, name, error), as_json=as_json):
            result = await gateway.prompt(name, arguments)
    if as_json:
        show_json(result.raw)
    else:
        _show(result)


def _hint(known: Catalog, file: str | None, name: str, error: RpcError) -> str | None:
    if not isinstance(error, InvalidParams) or known.find(name).route is not None:
        return None
    near = known.nearest(name)
    every = command_line("prompt", config=file)
    return f"Did you mean {' or '.join(near)}?" if near else f"{every} without a name lists what there is."


def _show(result: PromptResult) -> None:
    several = len(result.messages) > 1
    for message in result.messages:
        if several:
            click.echo(dim(f"{one_line(str(message.get('role')))}:"))
        content = message.get("content")
        for block in cast("list[Any]", content) if isinstance(content, list) else [content]:
            show_block(cast("Mapping[str, Any]", block) if isinstance(block, dict) else {})


async def _listed(config: Config) -> tuple[list[Prompt], list[Server]]:
    async with opened(config) as gateway:
        return gateway.prompts(), gateway.servers()


def _wanted(prompt: Prompt) -> str:
    """Its arguments, those that may be left out in brackets."""
    words = [(one_line(str(one.get("name"))), one.get("required") is True) for one in prompt.arguments]
    return " ".join(f"{word}=" if required else f"[{word}=]" for word, required in words)


def _described(prompt: Prompt) -> dict[str, Any]:
    return {
        "name": prompt.name,
        "server": prompt.server,
        "originalName": prompt.original_name,
        "definition": prompt.definition,
    }
