"""Which verbs there are, known without loading any of them, so that `muxway --help` costs no more than click.

Also decides what a command line without a verb means: clients launch `muxway --config FILE`, which is `stdio`.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from muxway import __version__
from muxway.cli.exits import FAILED, INTERRUPTED, BadConfig, Failed, Unreachable
from muxway.cli.help import SETTINGS, write_examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

SECTIONS = {
    "Serve": {
        "stdio": "Serve MCP on stdin and stdout. This is what clients launch.",
        "serve": "Serve MCP over HTTP, for clients of every revision.",
        "demo": "Show muxway at work with built-in servers. Needs no config.",
    },
    "Check and try a config": {
        "check": "Read the config, start nothing, print every problem.",
        "test": "Run the examples of composed tools.",
        "list": "Start the servers and show their status and contents.",
        "tools": "Start the servers and list their tools.",
        "search": "Start the servers and find tools by what they do.",
        "call": "Call one tool and print its result.",
        "read": "Read one resource and print it, or list all.",
        "prompt": "Fill in one prompt and print it, or list all.",
        "lock": "Record the tools of all servers, and report later changes.",
    },
    "Logins, keys and secrets": {
        "login": "Log in to a server that needs OAuth or a personal API key.",
        "logout": "Revoke and delete logins.",
        "auth": "Show the stored logins and when they expire.",
        "key": "Create, list and revoke API keys for machines.",
        "secret": "Set, list and remove secrets that configs refer to.",
    },
    "Operate a running gateway": {
        "status": "Show the state of a running gateway and its servers.",
        "top": "Watch a running gateway and its servers, every second.",
        "logs": "Print what a server of a running gateway wrote to stderr.",
        "restart": "Restart one server of a running gateway.",
        "reload": "Make a running gateway read its config again.",
        "approvals": "Show calls that wait for approval; allow or deny them.",
        "explain": "Explain why a tool is visible, hidden, renamed or failing.",
    },
    "Set up clients and config": {
        "setup": "Move the servers of all your clients behind muxway.",
        "clients": "Show the MCP clients of this machine and their servers.",
        "import": "Copy servers from clients or files into muxway's config.",
        "connect": "Add muxway to a client's config file.",
        "disconnect": "Remove muxway from a client's config file; undo `connect`.",
        "add": "Add one server to the config.",
        "registry": "Search the MCP registry, or show one of its servers.",
        "remove": "Remove one server from the config.",
        "config": "Explain the config file, or print its JSON Schema.",
        "completion": "Print the completion script for a shell.",
    },
}
"""The commands as `muxway --help` shows them: heading → verb → its line."""
VERBS = {verb: line for verbs in SECTIONS.values() for verb, line in verbs.items()}
"""Verb → its line in `muxway --help`. The verb's own file is `muxway/cli/verbs/<verb>.py`."""

_EXAMPLES = [
    "muxway setup",
    "muxway demo",
    "muxway check servers.json --connect",
    "muxway --config servers.json       (what an MCP client launches)",
]
_CANNOT_WRITE = frozenset((errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG))
"""Faults of what stdout goes to. A reader that left (EPIPE) is none."""


class Muxway(click.Group):
    """The group of all verbs, each imported at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"muxway.cli.verbs.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            from muxway.log import printable

            near = get_close_matches(args[0][:100], VERBS, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else f"There are: {', '.join(VERBS)}."
            ctx.fail(f'There is no command "{printable(args[0])}". {hint}')
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            args = with_verb(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:
            failure = _expected(error)
            if failure is None:
                raise
            raise failure from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, _EXAMPLES)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        longest = max(map(len, VERBS))
        with formatter.section("Commands"):
            for heading, verbs in SECTIONS.items():
                with formatter.section(heading):
                    formatter.write_dl([(verb.ljust(longest), line) for verb, line in verbs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(verb, help=line) for verb, line in VERBS.items() if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]


def with_verb(args: Sequence[str]) -> list[str]:
    """The arguments with `stdio` put in front if they name no verb but say, or imply, which config to serve.

    Nothing at all means help to a person. A program that gives us pipes, where there is a config, wants MCP.
    """
    if not args:
        return ["stdio"] if not os.isatty(0) and _is_config_there() else []
    rest = iter(args)
    for arg in rest:
        if arg in ("-c", "--config"):
            next(rest, None)
        elif arg in ("-h", "--help", "--version"):
            return [*args]
        elif not arg.startswith(("-c", "--config=")):
            return ["stdio", *args] if arg.startswith("-") else [*args]
    return ["stdio", *args]


def _is_config_there() -> bool:
    from muxway.config.find import VARIABLES

    # Named by a variable: there, or named in vain, which must be told.
    return any(map(os.environ.get, VARIABLES)) or _why_no_config() is None


def _why_no_config() -> str | None:
    """Where a config was looked for in vain; None if there is one."""
    from muxway.config.find import find_config
    from muxway.errors import ConfigError

    try:
        find_config()
    except ConfigError as error:
        return str(error)
    return None


def _expected(error: Exception) -> Failed | None:
    """What to tell the user about an error that is no bug of ours; None if it is one."""
    from muxway.errors import ConfigError, MuxwayError, SpawnError

    match error:
        case ConfigError():
            return BadConfig(str(error))
        case SpawnError():
            return Unreachable(str(error))
        case MuxwayError():
            return Failed(str(error))
        case _:
            return None


def _colour() -> bool | None:
    """Whether to colour; None leaves it to whether the output is a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or os.environ.get("FORCE_COLOR") == "0":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


@click.group(
    cls=Muxway,
    context_settings=SETTINGS,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    epilog="Without a command, `muxway --config FILE` means `muxway stdio --config FILE`. So does `muxway` alone, if a "
    "program launches it and there is a config in one of the default places.",
)
@click.option("-c", "--config", multiple=True, metavar="FILE", help="Config for the command. Can also follow it.")
@click.version_option(__version__, prog_name="muxway", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config: tuple[str, ...]) -> None:
    """Put one MCP endpoint in front of many MCP servers."""
    if len(set(config)) > 1:
        raise click.UsageError("two configs are given: muxway runs one.")
    ctx.obj = config[0] if config else None
    ctx.color = _colour()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        if not os.isatty(0):
            # A client that launched us shows its user what is on stderr, and takes no help.
            click.echo(f"Nothing is served: {_why_no_config()}", err=True)


def _open_standard_descriptors() -> None:
    """Open what our parent left closed of 0-2, so that no file of ours gets such a number and is taken for stdin."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one


def main() -> None:
    """Run the command line and leave with its exit code."""
    _open_standard_descriptors()
    # Python has no stream for a descriptor that was closed when it started.
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - open for as long as we live
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    # Text of servers may hold anything, and a terminal may know little: show it somehow rather than fail.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:
        cli(prog_name="muxway")
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        _complain(error)
    finally:
        _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
            _complain(error)


def _complain(error: OSError) -> NoReturn:
    """End because what was to be printed cannot be, as when a disk is full."""
    # What is left in the buffer would fail again when Python ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    click.echo(f"Error: the output cannot be written: {error.strerror}.", err=True)
    raise SystemExit(FAILED) from None
