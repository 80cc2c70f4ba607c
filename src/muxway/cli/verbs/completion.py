"""`muxway completion`: the script that teaches a shell our verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from muxway.cli.group import cli
from muxway.cli.help import Verb


@click.command(
    cls=Verb,
    examples=[
        'eval "$(muxway completion bash)"     (in ~/.bashrc)',
        'eval "$(muxway completion zsh)"      (in ~/.zshrc)',
        "muxway completion fish > ~/.config/fish/completions/muxway.fish",
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell."""
    make = get_completion_class(shell)
    if make is None:
        raise AssertionError(f"click has no completion for {shell}")
    click.echo(make(cli, {}, "muxway", "_MUXWAY_COMPLETE").source())
