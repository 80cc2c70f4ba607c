"""Running a gateway for the time of one command: start, wait with the user watching, use, end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muxway import log
from muxway.cli.exits import INTERRUPTED
from muxway.cli.options import trace_to
from muxway.cli.output import StatusLine, one_line
from muxway.gateway import Gateway
from muxway.servers.state import Status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Coroutine, Generator

    from muxway.config import Config

T = TypeVar("T")

_QUIET_FOR = 0.4
"""Seconds before the user is told what is being waited for: most servers are ready by then."""
_REDRAW = 0.2
_TELL_EVERY = 10.0
"""Seconds between two lines about it where stderr is no terminal."""
_NAMED = 3
"""Servers that are named in one line of a terminal; the others are counted."""


@contextlib.asynccontextmanager
async def opened(config: Config) -> AsyncGenerator[Gateway]:
    """A gateway whose servers are all ready or failed; everything is ended on leaving."""
    gateway = Gateway(config, trace=trace_to(None))
    try:
        gateway.start()
        with _shown_waiting(gateway):
            await gateway.settled()
        yield gateway
    finally:
        await gateway.stop()


def only(config: Config, names: Collection[str]) -> Config:
    """The configuration with these servers alone."""
    return replace(config, servers={name: server for name, server in config.servers.items() if name in names})


def awake(config: Config) -> Config:
    """The configuration with no server waiting to be needed: for whoever wants to know whether they start."""
    servers = {name: replace(server, start="eager") for name, server in config.servers.items()}
    return replace(config, servers=servers)


def quiet_log(*, debug: bool) -> None:
    """Set up the log of a verb that tells about failures itself: silent, unless asked for."""
    log.setup("debug" if debug else "critical")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it on the fastest loop there is. The first Ctrl-C cancels it, so that it can tidy up; the second quits."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_interruptible(main))


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """What makes the fastest event loop there is; None for asyncio's own."""
    try:
        from uvloop import Loop
    except ImportError:
        return None
    return Loop


async def _interruptible(main: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main)
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            # The reaper sees our end of its socket close, and ends the children.
            os._exit(INTERRUPTED)
        interrupted = True
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        if interrupted:
            raise click.exceptions.Exit(INTERRUPTED) from None
        raise


@contextlib.contextmanager
def _shown_waiting(gateway: Gateway) -> Generator[None]:
    """Say which servers are still being waited for: on a terminal in a line that is wiped away, else now and then."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    line = StatusLine()
    on_terminal = line.on

    def tell() -> None:
        nonlocal timer
        servers = gateway.servers()
        waiting = [one_line(server.name) for server in servers if server.status is Status.INITIALIZING]
        # Nobody has run yet: one that restarts has failed, and is tried again.
        failed = sum(server.status in (Status.FAILED, Status.RESTARTING) for server in servers)
        names = ", ".join(waiting)
        if on_terminal and len(waiting) > _NAMED:
            names = f"{', '.join(waiting[:_NAMED])} and {len(waiting) - _NAMED} more"
        waited = f"{loop.time() - began:.0f} s"
        parts = [f"waiting for {names}"]
        if len(servers) > 1:
            there = f"{len(servers) - len(waiting) - failed} of {len(servers)} servers are there"
            parts = [there, *([f"{failed} failed"] if failed else []), *parts]
        said = ", ".join(parts)
        if on_terminal:
            # The line is cut at the end of the terminal, and the time shows that something goes on.
            line.show(f"{waited}: {said}")
        elif waiting:
            click.echo(f"{said} ({waited})", err=True)
        timer = loop.call_later(_REDRAW if on_terminal else _TELL_EVERY, tell)

    timer = loop.call_later(_QUIET_FOR if on_terminal else _TELL_EVERY, tell)
    try:
        yield
    finally:
        timer.cancel()
        line.wipe()
