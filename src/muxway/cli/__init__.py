"""The `muxway` command. `main` is where the console script enters; each verb is one file, loaded only when used."""

from muxway.cli.group import cli, main

__all__ = ["cli", "main"]
