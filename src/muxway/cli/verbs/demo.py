"""`muxway demo`: everything at once, for someone who has just installed it.

Nothing is staged: the servers are child processes, the two clients launch `muxway stdio` and talk to it over its
pipes as any MCP client would, and what is served at the end is `muxway serve`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from muxway import demo
from muxway.cli.exits import Failed
from muxway.cli.help import Verb
from muxway.cli.output import badge, dim, heading, one_line, plural, show_table
from muxway.cli.session import opened, quiet_log, run
from muxway.cli.verbs.check import show_connected
from muxway.clients.transports.guard import Guard
from muxway.config import load_config
from muxway.demo import web
from muxway.demo.client import DemoClient
from muxway.demo.serving import STATELESS
from muxway.net.processes.launch import ReaperProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.demo.client import Answer

_HANDSHAKE = "2025-11-25"
_ROUNDS = 100
_HOST, _PORT = "127.0.0.1", 3006


@click.command(cls=Verb, examples=["muxway demo", "muxway demo --no-keep | less"])
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Serve until Ctrl-C, or end after the first call over HTTP.  "
    "[default: serve if stdin and stdout are a terminal]",
)
def command(*, keep: bool | None) -> None:
    """Show muxway at work with built-in servers. Needs no config.

    Starts three small servers with three protocol revisions behind one gateway,
    connects an older and a newer client to it, and makes real calls, with times.

    Then it serves them over HTTP on port 3006, or another if that is taken, so that
    you can connect a client. On a terminal it serves until Ctrl-C; in a script it
    makes one call over HTTP and ends. Exit 0 both ways.
    """
    by_person = sys.stdin.isatty() and sys.stdout.isatty()
    quiet_log(debug=False)
    with tempfile.TemporaryDirectory(prefix="muxway-demo-") as folder:
        file = Path(folder) / "servers.json"
        file.write_text(json.dumps(demo.config(), indent=2))
        try:
            run(_show(file))
            _show_http(file, keep=by_person if keep is None else keep)
        except BrokenPipeError:
            raise  # Nobody reads on, as with `| head`: click ends quietly then.
        except OSError as error:
            why = str(error) or "the gateway did not answer in time"
            raise Failed(f"the demo could not go on: {why}. Please report this with your platform.") from None


async def _show(file: Path) -> None:
    click.echo(heading("muxway: one MCP endpoint in front of many servers, for clients of every revision"))
    await _show_servers(file)
    await _show_handshake_client(file)
    await _show_stateless_client(file)


async def _show_servers(file: Path) -> None:
    _part("Three servers, each of another protocol revision, started in parallel")
    config = load_config(file)
    async with opened(config) as gateway:
        show_connected(config, gateway.servers())


async def _show_handshake_client(file: Path) -> None:
    _part(f"A client of revision {_HANDSHAKE} launches `muxway --config servers.json`")
    async with DemoClient.launch(_gateway(file), _HANDSHAKE) as client:
        listing = await _show_connecting(client, "start and initialize")
        click.echo()
        show_table([[tool["name"], one_line(tool["description"])] for tool in listing], indent=2)
        click.echo()
        await _show_call(client, "notes__add", {"text": "Buy milk", "tags": ["home"]})
        await _show_call(client, "notes__search", {"query": "home"})
        await _show_call(client, "clock__convert", {"time": "09:30", "from": "UTC", "to": _far_away()})
        await _show_call(client, "text__read_aloud", {"text": "one two three", "pause_ms": 30}, progress=True)
        await _show_call(client, "notes__delete", {"id": 99})
        await _show_call(client, "notes__ad", {"text": "Buy bread"})


async def _show_stateless_client(file: Path) -> None:
    _part(f"A client of revision {STATELESS}, stateless, sees the same servers")
    async with DemoClient.launch(_gateway(file), STATELESS) as client:
        await _show_connecting(client, "start and discover")
        click.echo()
        await _show_call(client, "clock__now", {})
        await _show_call(client, "text.count", {"text": "text:count and text__count would do as well"})
        times = [(await client.call("clock__now", {})).ms for _ in range(_ROUNDS)]
        median = statistics.median(times)
        click.echo(f"  {badge('ok')}     {_ROUNDS} calls of clock__now, one after another: median {median:.2f} ms each")


# --- over HTTP --------------------------------------------------------------------------------


def _show_http(file: Path, *, keep: bool) -> None:
    _part("The same over HTTP: `muxway serve --config servers.json`")
    listener = _listen()
    # Loaded only now: the first lines of the demo need not wait for it.
    from muxway.cli.http_serving import Address, Terms, run_http
    from muxway.cli.verbs.serve import AcceptedTokens
    from muxway.control.watching import WatchedConfig
    from muxway.net.peer_user import can_tell

    address = Address(_HOST, listener)
    source = WatchedConfig(file, lambda: load_config(file))
    guard = Guard(host=_HOST, own_user=can_tell())
    terms = Terms(address=address, guard=guard, credentials=lambda _: AcceptedTokens((), {}), keep_open=True)
    visitor = _Visitor(f"{address.url}/mcp", keep=keep)
    visitor.start()
    # What it says of itself is part of the show, so it belongs where the rest of it goes.
    with contextlib.redirect_stderr(sys.stdout):
        run_http(source, source.read(), ReaperProcess(), terms)
    visitor.join()
    if visitor.problem is not None:
        raise visitor.problem
    if keep:
        click.echo("\nStopped.")


def _listen() -> socket.socket:
    try:
        listener = socket.create_server((_HOST, _PORT))
    except OSError as error:
        listener = socket.create_server((_HOST, 0))
        why = os.strerror(error.errno or 0).lower()
        click.echo(f"  {badge('warning')}  port {_PORT} is not available ({why}): using another one")
    listener.setblocking(False)
    return listener


class _Visitor(threading.Thread):
    """Uses the served endpoint as a stranger would, and tells how; the main thread is busy serving."""

    def __init__(self, url: str, *, keep: bool) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._keep = keep
        self._context = click.get_current_context()  # knows whether there are colours
        self.problem: Exception | None = None

    def run(self) -> None:
        """Make one call, say what to do next, and, unless it is to be kept, end the serving."""
        try:
            with self._context.scope(cleanup=False):
                self._visit()
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self.problem = error
        if self.problem is not None or not self._keep:
            os.kill(os.getpid(), signal.SIGTERM)

    def _visit(self) -> None:
        web.wait_until_ready(self._url)
        click.echo(f"\n  A client posts a call to {self._url}")
        _show_answer(web.call(self._url, "clock__now", {}), "clock__now", {})
        _show_next_steps(self._url)
        ending = "Ctrl-C stops it" if self._keep else "stopped after this call; --keep serves until Ctrl-C"
        click.echo(f"\n{heading(f'Served at {self._url}')}  ({ending})")


def _show_next_steps(url: str) -> None:
    _part("Next")
    served = {"mcpServers": {"muxway": {"type": "http", "url": url}}}
    # Clients do not have the shell's PATH; after `make run` the shell itself does not find us either.
    beside = Path(sys.executable).with_name("muxway")
    program = str(beside) if beside.exists() else "muxway"
    typed = "muxway" if shutil.which("muxway") == program else shlex.quote(program)
    launched = {"mcpServers": {"muxway": {"command": program, "args": ["--config", "/path/to/servers.json"]}}}
    click.echo(f"  Read on         {typed} --help, {typed} config explain, docs/ in the repository")
    click.echo(f"  Your clients    {typed} setup   (moves their servers behind muxway; asks first)")
    click.echo(f"  Your servers    {typed} check servers.json --connect   (any client's mcpServers file)")
    click.echo(f"  Without HTTP    {json.dumps(launched)}")
    click.echo(f"  Over HTTP       {json.dumps(served)}")
    click.echo(f"  In Claude Code  claude mcp add --transport http muxway {url}")
    click.echo(f"  By hand         {web.curl(url, 'clock__now', {})}")


# --- pieces -----------------------------------------------------------------------------------


def _part(title: str) -> None:
    click.echo(f"\n{heading(title)}")


def _gateway(file: Path) -> list[str]:
    return [sys.executable, "-m", "muxway", "stdio", "--config", str(file)]


async def _show_connecting(client: DemoClient, what: str) -> list[dict[str, Any]]:
    """Connect, wait for every server's tools, tell how it went; returns the tools."""
    opening = await client.open()
    first, last = await client.tools_of(demo.SERVERS)
    early, tools = len(first.body["result"]["tools"]), last.body["result"]["tools"]
    click.echo(f"  {badge('ok')}  {what}: {opening.ms:.0f} ms")
    rest = "" if early == len(tools) else f" ({early} at once, the rest announced as servers got ready)"
    click.echo(f"  {badge('ok')}  tools/list: {last.ms:.1f} ms, {plural(len(tools), 'tool')}{rest}")
    return tools


async def _show_call(client: DemoClient, tool: str, arguments: Mapping[str, Any], *, progress: bool = False) -> None:
    """Make a call and tell about it: verdict, time and call on one line, what came of it on the next."""
    _show_answer(await client.call(tool, arguments, progress=progress), tool, arguments)


def _show_answer(answer: Answer, tool: str, arguments: Mapping[str, Any]) -> None:
    words = "".join(f" {key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    good, text = _outcome(answer)
    verdict = f"{badge('ok')}   " if good else badge("error")
    click.echo(f"  {verdict}  {answer.ms:5.1f} ms  {tool}{dim(words) if words else ''}")
    click.echo(f"{'':21}{text}")


def _outcome(answer: Answer) -> tuple[bool, str]:
    """Whether the call succeeded, and what came of it."""
    error = answer.body.get("error")
    if error is not None:
        near = ", ".join(error.get("data", {}).get("muxway", {}).get("nearest", []))
        return False, f"{error['code']} {error['message']}" + (f" (nearest: {near})" if near else "")
    result = answer.body["result"]
    text = one_line(result["content"][0]["text"])
    reports = sum(notice.get("method") == "notifications/progress" for notice in answer.notices)
    return not result.get("isError"), text + (f" (after {plural(reports, 'progress notice')})" if reports else "")


def _far_away() -> str:
    """A place in another time zone, or its offset on a machine without a time zone database."""
    try:
        return ZoneInfo("Asia/Tokyo").key
    except ZoneInfoNotFoundError:
        return "+09:00"
