"""Options that several verbs share."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muxway.cli.exits import BadConfig
from muxway.cli.inputs import ask_inputs
from muxway.cli.output import one_line
from muxway.config import durations, find_config, load_config
from muxway.errors import ConfigError, Problem
from muxway.log import EventLog, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from muxway.config import Config
    from muxway.net.message_trace import MessageTrace

if TYPE_CHECKING:
    _ParamType = click.ParamType[float, Any]
else:
    _ParamType = click.ParamType  # generic only in newer versions of click

_F = TypeVar("_F", bound="Callable[..., object]")
_CONFIG_ENDINGS = (".json", ".jsonc", ".toml", ".yaml", ".yml", ".py")


def one_config(ctx: click.Context, _: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The file named after the verb, else the one before it. Two are one too many. Callback of an option."""
    given = [*values, *(() if ctx.find_root().obj is None else (ctx.find_root().obj,))]
    if len(set(given)) > 1:
        raise click.UsageError(f"two configs are given, {' and '.join(map(printable, given))}: muxway runs one.")
    return given[0] if given else None


def above_zero(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Refuse what is no sensible duration or count. Callback of an option."""
    if value is not None and not 0 < value < float("inf"):
        raise click.BadParameter(f"{value:g} is not above zero.")
    return value


class Duration(_ParamType):
    """A number of seconds, or text like `500ms`, `30s`, `5m`, `1h`: as in a config."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        seconds = durations.seconds(value)
        if not seconds >= 0:
            self.fail(f"{value!r} is no duration: give {durations.LIKE}.", param, ctx)
        return seconds


def config_option(command: _F) -> _F:
    """`--config FILE`, before or after the verb."""
    return click.option(
        "-c",
        "--config",
        metavar="FILE",
        multiple=True,
        callback=one_config,
        help="Config file: JSON, JSON with comments, TOML or YAML.  [default: $MUXWAY_CONFIG or "
        "$MCP_PROXY_CONFIG_PATH, muxway.* or .mcp.json here, muxway.* in the user's config folder]",
    )(command)


def view_option(command: _F) -> _F:
    """`--view NAME`."""
    return click.option("--view", metavar="NAME", help="Show only this view of the config.")(command)


def known_view(config: Config, view: str | None) -> str | None:
    """The view, if the configuration has it. Raises BadParameter."""
    if view is None or view in config.views:
        return view
    there = f"There are: {', '.join(config.views)}." if config.views else "It has none."
    raise click.BadParameter(f'{config.source or "the config"} has no view "{view}". {there}', param_hint="--view")


def watch_option(default: bool) -> Callable[[_F], _F]:
    """`--watch` and `--no-watch`."""
    return click.option(
        "--watch/--no-watch",
        default=default,
        help="Reload when the config, or a file or secret that it names, changes.",
    )


def json_option(command: _F) -> _F:
    """`--json`, for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)


def debug_option(command: _F) -> _F:
    """`--debug`, for verbs that are quiet otherwise."""
    return click.option("--debug", is_flag=True, help="Show muxway's log, and the servers', on stderr.")(command)


def no_config_file(word: str | None, what: str) -> None:
    """Refuse the name of a config where something else is meant: other verbs take it there. Raises UsageError."""
    if word is not None and word.endswith(_CONFIG_ENDINGS) and Path(word).is_file():
        raise click.UsageError(f"{word} is a file, no {what}: write --config {word}.")


def chosen(file: str | None, config: str | None) -> str | None:
    """The config that a verb was given, as its argument or by `--config`. Raises UsageError if those are two."""
    if file is not None and config is not None and file != config:
        raise click.UsageError(
            f"two configs are given, {printable(file)} and, by --config, {printable(config)}: muxway runs one."
        )
    return config if file is None else file


def command_line(*words: str, config: str | None) -> str:
    """A command to type, with the config that this one was given."""
    given = () if config is None else ("-c", config)
    return one_line(f"`muxway {shlex.join((*words, *given))}`")


def read_config(path: str | None) -> Config:
    """The configuration to use. Inputs that nobody has given yet are asked for on a terminal.

    Raises:
        ConfigError: there is none, or it cannot be used.
    """
    file = find_config(path)
    ask_inputs(file)
    return read_file(file)


def read_file(file: Path, *, keep_going: bool = False) -> Config:
    """The configuration in this file. Raises ConfigError."""
    if file.suffix == ".py":
        from muxway.chaining import load_chain

        return load_chain(file)
    return load_config(file, keep_going=keep_going)


@contextlib.contextmanager
def wrong_usage_is_wrong_config(config: Config) -> Generator[None]:
    """Turn what would have ended the command at its start into a reason not to take over a configuration."""
    try:
        yield
    except click.ClickException as error:
        why = error.format_message()
        raise ConfigError("invalid_schema", why, (Problem(path=config.source or "$", message=why),)) from None


def trace_to(file: str | None) -> MessageTrace | None:
    """Who is told of every message: this file, and the log if everything is logged. None if nobody is."""
    if file is None and not EventLog("trace").debugs:
        return None
    # Only for those who look for a fault.
    from muxway.net.message_trace import MessageTrace

    try:
        return MessageTrace(None if file is None else Path(file))
    except OSError as error:
        raise BadConfig(f"--trace cannot be written to: {error.strerror}: {file}.") from None
