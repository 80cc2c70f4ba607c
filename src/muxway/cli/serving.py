"""Running the gateway on stdin and stdout until the client or a signal ends it. Loads everything; `stdio` does not."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING

import click

from muxway.app import Gateway
from muxway.cli.exits import INTERRUPTED, Failed
from muxway.cli.session import loop_factory

if TYPE_CHECKING:
    from muxway.config import Config
    from muxway.upstream.launch import ReaperProcess

_DRAIN = 4.0
"""Seconds that calls under way, and a client that is slow to read, get after a signal."""
_HARD_END = 8.5
"""Seconds after a signal at which we leave whatever is left to the reaper: whoever sent it waits no longer than 10."""


def run_stdio(config: Config, reaper: ReaperProcess) -> int:
    """Serve this configuration. Returns the exit code."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(config, reaper))


async def _serve(config: Config, reaper: ReaperProcess) -> int:
    """Serve until the client or a signal ends it. Returns the exit code."""
    gateway = Gateway(config, reaper=reaper)
    door = gateway.stdio_door()
    loop = asyncio.get_running_loop()
    serving = loop.create_task(door.serve())
    signals: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        if signals:
            # The reaper sees our end of its socket close, and ends the children.
            os._exit(128 + number)
        signals.append(number)
        door.stop()
        loop.call_later(_DRAIN, serving.cancel)
        loop.call_later(_HARD_END, os._exit, _code(signals))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    if os.isatty(0):
        click.echo(
            "muxway speaks MCP on stdin and stdout here: it is for MCP clients to launch. "
            "To look at the tools yourself, run `muxway tools`. Ctrl-C ends this.",
            err=True,
        )
    gateway.start()
    # A call leaves nothing for the collector to find; what is loaded by now stays for good.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    try:
        await asyncio.wait([serving])
    finally:
        await gateway.stop()
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise Failed(f"cannot serve on stdin and stdout: {error}")
    return _code(signals)


def _code(signals: list[signal.Signals]) -> int:
    return INTERRUPTED if signal.SIGINT in signals else 0
