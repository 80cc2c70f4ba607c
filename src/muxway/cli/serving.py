"""Running the gateway on stdin and stdout until the client or a signal ends it. Loads everything; `stdio` does not."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from muxway.cli.ending import DRAIN, Ending, settle_memory
from muxway.cli.exits import Failed
from muxway.cli.hiding import hide_from_children
from muxway.cli.options import known_view, wrong_usage_is_wrong_config
from muxway.cli.session import loop_factory
from muxway.control.serving import ControlSocket
from muxway.control.watching import Reloader
from muxway.gateway import Gateway

if TYPE_CHECKING:
    from muxway.config import Config
    from muxway.config.plan import Plan
    from muxway.control.watching import WatchedConfig
    from muxway.net.message_trace import MessageTrace
    from muxway.net.processes.launch import ReaperProcess


def run_stdio(
    source: WatchedConfig,
    config: Config,
    reaper: ReaperProcess,
    view: str | None,
    trace: MessageTrace | None,
    *,
    stdout: int,
    watch: bool,
) -> int:
    """Serve this configuration, or one view of it. Returns the exit code."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(source, config, reaper, view, trace, stdout=stdout, watch=watch))


async def _serve(
    source: WatchedConfig,
    config: Config,
    reaper: ReaperProcess,
    view: str | None,
    trace: MessageTrace | None,
    *,
    stdout: int,
    watch: bool,
) -> int:
    """Serve until the client or a signal ends it. Returns the exit code."""
    gateway = Gateway(config, reaper=reaper, trace=trace)
    transport = gateway.stdio_door(stdout=stdout, view=view)
    loop = asyncio.get_running_loop()
    serving = loop.create_task(transport.serve())

    def asked() -> None:
        transport.stop()
        loop.call_later(DRAIN, serving.cancel)

    async def apply(config: Config) -> Plan:
        with wrong_usage_is_wrong_config(config):
            known_view(config, view)
        return await gateway.apply(config)

    reloader = Reloader(source, config, apply)
    control = ControlSocket(lambda: gateway, "stdio", reloader, lambda: transport.client)
    ending = Ending(asked, reloader.ask)
    transport.on_end = ending.begin
    if os.isatty(0):
        click.echo(
            "muxway speaks MCP on stdin and stdout here: it is for MCP clients to launch. "
            "To look at the tools yourself, run `muxway tools`. Ctrl-C ends this.",
            err=True,
        )
    gateway.start()
    await control.start()
    if watch:
        reloader.watch()
    # Only now: the servers take longer to start than this, and clients wait for them.
    hide_from_children()
    settle_memory()
    gateway.metronome.begin()
    try:
        await asyncio.wait([serving])
    finally:
        ending.begin()
        await control.stop()
        await reloader.stop()
        await gateway.stop()
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise Failed(f"cannot serve on stdin and stdout: {error}")
    return ending.code
