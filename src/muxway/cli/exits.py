"""What the exit codes mean, and the errors that carry them. Wrong usage is click's own: `UsageError`, 2."""

from __future__ import annotations

import click

FAILED = 1
"""Something went wrong at run time."""
CONFIG_INVALID = 3
"""The configuration, or a variable that belongs to it, cannot be used."""
UNREACHABLE = 4
"""A server could not be started, or was lost."""
TOOL_FAILED = 6
"""The tool itself says that it failed."""
TIMED_OUT = 7
"""The server did not answer in time."""
INTERRUPTED = 130
"""Ended by Ctrl-C."""


class Failed(click.ClickException):
    """Ends the command with a message on stderr, which says what to do."""

    exit_code = FAILED

    def __init__(self, message: str) -> None:
        from muxway.log import printable  # not for `--help`, which shall be quick

        # What went wrong is told in words of files, servers and registries, which may hold anything.
        super().__init__("\n".join(map(printable, message.split("\n"))))


class BadConfig(Failed):
    """The same for a configuration that cannot be used."""

    exit_code = CONFIG_INVALID


class Unreachable(Failed):
    """The same for a server that cannot be reached."""

    exit_code = UNREACHABLE
