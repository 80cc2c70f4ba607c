"""Running the gateway on stdin and stdout until the client or a signal ends it. Loads everything; `stdio` does not."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from muxway.app import Gateway
from muxway.cli.ending import DRAIN, Ending, settle_memory
from muxway.cli.exits import Failed
from muxway.cli.session import loop_factory

if TYPE_CHECKING:
    from muxway.config import Config
    from muxway.upstream.launch import ReaperProcess


def run_stdio(config: Config, reaper: ReaperProcess, view: str | None) -> int:
    """Serve this configuration, or one view of it. Returns the exit code."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(config, reaper, view))


async def _serve(config: Config, reaper: ReaperProcess, view: str | None) -> int:
    """Serve until the client or a signal ends it. Returns the exit code."""
    gateway = Gateway(config, reaper=reaper)
    door = gateway.stdio_door(view=view)
    loop = asyncio.get_running_loop()
    serving = loop.create_task(door.serve())

    def asked() -> None:
        door.stop()
        loop.call_later(DRAIN, serving.cancel)

    ending = Ending(asked)
    if os.isatty(0):
        click.echo(
            "muxway speaks MCP on stdin and stdout here: it is for MCP clients to launch. "
            "To look at the tools yourself, run `muxway tools`. Ctrl-C ends this.",
            err=True,
        )
    gateway.start()
    settle_memory()
    try:
        await asyncio.wait([serving])
    finally:
        await gateway.stop()
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise Failed(f"cannot serve on stdin and stdout: {error}")
    return ending.code
