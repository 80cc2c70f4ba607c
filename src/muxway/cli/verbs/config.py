"""`muxway config`: what may stand in a config file."""

from __future__ import annotations

import click

from muxway.cli.help import SETTINGS, Verb
from muxway.cli.output import show_json
from muxway.config import explain, json_schema
from muxway.errors import ConfigError
from muxway.log import printable


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Explain the config file, or print its JSON Schema."""


@command.command("schema", cls=Verb, examples=["muxway config schema > muxway.schema.json"])
def show_schema() -> None:
    """Print the JSON Schema of the config, for completion in editors."""
    show_json(json_schema())


@command.command("explain", cls=Verb, examples=["muxway config explain", "muxway config explain gateway.callTimeout"])
@click.argument("key", required=False)
def show_explanation(key: str | None) -> None:
    """Explain one key of the config, or all of them.

    KEY is a name (env) or a path (mcpServers.github.env, gateway.separator).
    """
    try:
        click.echo(explain(key))
    except ConfigError as error:
        raise click.BadParameter(printable(str(error)), param_hint="KEY") from None
