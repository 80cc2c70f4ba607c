"""One request to servers that are started for it: what `call`, `read` and `prompt` have in common."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muxway.catalog.naming import SEPARATORS, Naming
from muxway.cli.exits import FAILED, INTERRUPTED, TIMED_OUT, UNREACHABLE
from muxway.cli.options import Duration, above_zero, config_option, debug_option
from muxway.cli.output import badge, one_line, show_json, show_text, size
from muxway.errors import RpcError, UpstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from muxway.cli.output import StatusLine
    from muxway.config import Config

_F = TypeVar("_F", bound="Callable[..., object]")


def request_options(command: _F) -> _F:
    """`--config`, `--output`, `--timeout` and `--debug`."""
    output = click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Print the content as text, or the whole result as JSON.",
    )
    timeout = click.option(
        "--timeout",
        type=Duration(),
        callback=above_zero,
        metavar="DURATION",
        help="Timeout; each progress message restarts it.  [default: the config's, or 60]",
    )
    return config_option(output(timeout(debug_option(command))))


def patient(config: Config, timeout: float | None) -> Config:
    """The configuration with this much patience for every server, if it is given, whatever it says itself."""
    if timeout is None:
        return config
    settings = replace(config.gateway, call_timeout=timeout, call_max=max(config.gateway.call_max, timeout))
    servers = {name: replace(server, call_timeout=None) for name, server in config.servers.items()}
    return replace(config, gateway=settings, servers=servers)


def named_owners(config: Config, name: str) -> list[str]:
    """The servers that may have a tool or prompt: those its name begins with, or all if it begins with none."""
    enabled = {name: server for name, server in config.servers.items() if server.enabled}
    legal = Naming.of(config.gateway.separator, None).legal
    found = [
        server_name
        for server_name, server in enabled.items()
        for prefix in {server_name, server.prefix or server_name}
        if any(name.startswith(start + separator) for start in {prefix, legal(prefix)} for separator in SEPARATORS)
    ]
    if not found or any(server.prefix == "" for server in enabled.values()):
        return [*enabled]
    return found


@contextlib.contextmanager
def failure_told(
    what: str, line: StatusLine, hint: Callable[[RpcError], str | None], *, as_json: bool
) -> Generator[None]:
    """Whatever is asked for in here may fail, or be cancelled with Ctrl-C: that is told, and ends the command."""
    try:
        yield
    except RpcError as error:
        line.wipe()
        if as_json:
            show_json({"error": {"code": error.code, "message": error.message, "data": error.data}})
        else:
            click.echo(f"{badge('error')}  {one_line(error.message)}", err=True)
            if (advice := hint(error)) is not None:
                click.echo(advice, err=True)
        raise click.exceptions.Exit(_code(error)) from None
    except asyncio.CancelledError:
        line.wipe()
        click.echo(f"{badge('stopped')}  {one_line(what)} was cancelled", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    line.wipe()


def _code(error: RpcError) -> int:
    if isinstance(error, UpstreamError):
        return {"timeout": TIMED_OUT, "lost": UNREACHABLE, "not_running": UNREACHABLE}.get(error.reason, FAILED)
    return FAILED


def show_block(block: Mapping[str, Any]) -> None:
    """Print one block of content: its text, or what it is in a few words."""
    show_text(str(block.get("text", "")) if block.get("type") == "text" else _summary(block))


def _summary(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return f"[{kind} {one_line(str(block.get('mimeType', '')))}, {size(len(data) * 3 // 4)}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(blob)}}:
            return f"[resource {one_line(uri)}, {size(len(blob) * 3 // 4)}]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[link {one_line(uri)}]"
        case _:
            return f"[{one_line(str(block.get('type')))}]"
