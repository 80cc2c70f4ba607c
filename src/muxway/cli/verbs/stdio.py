"""`muxway stdio`: the gateway on this process's stdin and stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muxway import log
from muxway.cli.exits import BadConfig
from muxway.cli.help import Verb
from muxway.cli.inputs import ask_inputs
from muxway.cli.options import (
    Duration,
    above_zero,
    chosen,
    config_option,
    known_view,
    read_file,
    trace_to,
    view_option,
    watch_option,
)
from muxway.config import find_config
from muxway.net.processes.launch import ReaperProcess

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from muxway.config import Config
    from muxway.control.watching import WatchedConfig

_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}
"""What MCP_PROXY_LOG_LEVEL may be, and what it means."""


@click.command(
    cls=Verb,
    examples=[
        "muxway stdio --config servers.json",
        "muxway --config servers.json              (the same)",
        "muxway stdio -c servers.json --separator : --debug 2>muxway.log",
    ],
)
@click.argument("file", required=False)
@config_option
@click.option(
    "--debug", is_flag=True, help="Log everything to stderr, with one line per message.  [env: MCP_PROXY_LOG_LEVEL]"
)
@click.option(
    "--trace", "trace_file", metavar="FILE", help="Write every message to this file, with secrets of the config masked."
)
@click.option("--name", help="Server name that clients see.  [default: muxway]", metavar="TEXT")
@click.option("--server-version", help="Server version that clients see.  [default: muxway's own]", metavar="TEXT")
@click.option(
    "--separator",
    type=click.Choice(["__", ":", "."]),
    help="Separator between server and tool name.  [default: __]",
)
@click.option(
    "--call-timeout",
    type=Duration(),
    callback=above_zero,
    metavar="DURATION",
    help="Timeout of one call; each progress message restarts it.  [default: 60]",
)
@click.option(
    "--list-wait",
    type=Duration(),
    metavar="DURATION",
    help="How long the first listing waits for servers that are new to muxway.  [default: depends on the server]",
)
@click.option(
    "--page-size",
    type=int,
    callback=above_zero,
    metavar="N",
    help="Tools per page of a list.  [default: all on one page]",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="If a variable of a server is missing, start without that server, as if it were `optional`.",
)
@view_option
@watch_option(default=False)
def command(
    file: str | None,
    config: str | None,
    *,
    debug: bool,
    trace_file: str | None,
    view: str | None,
    watch: bool,
    **overrides: Any,
) -> None:
    """Serve MCP on stdin and stdout. This is what clients launch.

    FILE is a config, or a Python file with a chain (muxway.chain). All servers of
    the config start at once, in parallel; the tools of each are listed as soon as
    it is ready. Logs go to stderr, and also to muxway.log in
    $MCP_PROXY_LOG_DIRECTORY_PATH if that is set. Options override the config.

    Reloads the config on SIGHUP. Ends when stdin is closed or on SIGTERM (exit 0),
    or on Ctrl-C (exit 130). Running calls get 5 seconds to finish.
    """
    file = chosen(file, config)
    start_log(os.environ, debug=debug)
    # Before any Python of the user's is loaded: it may print at once.
    with stdout_for_messages() as stdout:
        raise click.exceptions.Exit(_serve(file, stdout, view, trace_file, overrides, watch=watch))


def _serve(
    file: str | None, stdout: int, view: str | None, trace_file: str | None, overrides: dict[str, Any], *, watch: bool
) -> int:
    """Read the configuration and serve it until the client ends. Returns the exit code."""
    # Its own start-up overlaps all that is loaded from here on.
    reaper = ReaperProcess()
    try:
        source = config_source(file, **overrides)
        loaded = source.read()
        known_view(loaded, view)
    except BaseException:
        reaper.close()
        raise
    for warning in loaded.warnings:
        log.EventLog("config").warning("config", problem=warning)
    from muxway.cli.serving import run_stdio

    trace = trace_to(trace_file)
    return run_stdio(source, loaded, reaper, view, trace, stdout=stdout, watch=watch)


@contextlib.contextmanager
def stdout_for_messages() -> Generator[int]:
    """A descriptor of the stdout we were given. What is printed meanwhile, by whatever code, goes to stderr.

    One `print` in somebody's middleware would stand between two messages, and clients give up at such a line.
    """
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    if (configure := getattr(sys.stdout, "reconfigure", None)) is not None:
        # For a pipe Python buffers until the end, which is too late for somebody who looks for a fault.
        configure(line_buffering=True)
    try:
        yield ours
    finally:
        sys.stdout.flush()
        os.dup2(ours, 1)
        os.close(ours)


def start_log(environ: Mapping[str, str], *, debug: bool) -> None:
    """Set up the log as the environment and `--debug` say."""
    given = environ.get("MCP_PROXY_LOG_LEVEL", "").lower() or "info"
    level = _LEVELS.get(given)
    if level is None:
        raise BadConfig(f"MCP_PROXY_LOG_LEVEL is {given!r}: set it to {', '.join(_LEVELS)}, or unset it.")
    folder = environ.get("MCP_PROXY_LOG_DIRECTORY_PATH")
    try:
        log.setup("debug" if debug else level, Path(folder) if folder else None)
    except OSError as error:
        why = f"{error.strerror or error}: {error.filename or folder}"
        raise BadConfig(f"MCP_PROXY_LOG_DIRECTORY_PATH cannot be written to: {why}.") from None


def config_source(path: str | None, *, keep_going: bool, **overrides: Any) -> WatchedConfig:
    """The configuration to use, with these options; it can be read again.

    Raises:
        ConfigError: there is none.
    """
    from muxway.control.watching import WatchedConfig

    file = find_config(path)
    ask_inputs(file)
    return WatchedConfig(file, lambda: overridden(read_file(file, keep_going=keep_going), **overrides))


def overridden(config: Config, *, server_version: str | None, **settings: Any) -> Config:
    """The configuration with the options given on the command line instead of its own."""
    given = {key: value for key, value in {"version": server_version, **settings}.items() if value is not None}
    if "call_timeout" in given:
        # Asking for more patience than the hard limit allows means asking for a higher limit.
        given["call_max"] = max(config.gateway.call_max, given["call_timeout"])
    return replace(config, gateway=replace(config.gateway, **given))
