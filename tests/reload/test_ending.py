"""How `muxway serve` and `muxway stdio` end, and what a SIGHUP means to them."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ..pace import crowding
from ..stdio.harness import alive, child, children_of, connected, muxway, until
from .harness import Held, called, config, serve, server, tools, who

if TYPE_CHECKING:
    from pathlib import Path

    from .harness import Served

NINE = 9.0
"""docs/behaviour.md#shutdown-and-kill--9: gone within 9 s."""


async def stopping(served: Served) -> str:
    """Wait until it has begun to end; returns what it says of itself then."""
    async with asyncio.timeout(NINE):
        while (ready := await served.web.ask("GET", "/readyz")).status == 200:
            await asyncio.sleep(0.02)
    assert ready.status == 503
    return ready.json["status"]


async def test_while_it_ends_it_takes_nothing_new_and_says_so(tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    `/readyz` false first, stop accepting, drain; and whoever is being served is answered.
    """
    async with serve(tmp_path, config()) as served:
        client = await served.web.session()
        pid = (await who(client, "a__who"))["pid"]
        assert (await served.web.ask("GET", "/readyz")).status == 200
        held = Held(tmp_path)
        slow = asyncio.create_task(who(await served.web.session(), "a__who", **held.arguments))
        await held.begun()
        served.process.terminate()
        assert await stopping(served) == "stopping"
        assert (await served.web.ask("GET", "/healthz")).status == 200
        assert (await client.ask("tools/list")).status == 503
        held.let_go()
        assert (await slow)["pid"] == pid
        assert await asyncio.wait_for(served.process.wait(), NINE + crowding()) == 0
        assert not alive([pid])


@pytest.mark.parametrize("how", ["signal", "end of input"])
async def test_nine_seconds_are_enough_whatever_everybody_does(how: str, tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    Exit ≤ 9 s. A call does not end, a client does not read, a child heeds nothing.
    """
    servers = {"stubborn": child("ignore"), "plain": child()}
    async with muxway(tmp_path, {"mcpServers": servers}) as process:
        client = await connected(process, *servers)
        pids = (await client.call("stubborn__spawn")).result["pids"] + children_of(process.pid)
        for _ in range(8):
            client.start("tools/call", {"name": "plain__big", "arguments": {"size": 4_000_000}})
        client.start("tools/call", {"name": "stubborn__hang"})
        await asyncio.sleep(0.5)
        began = time.monotonic()
        if how == "signal":
            os.kill(process.pid, signal.SIGTERM)
        else:
            process.close()
        # Nobody reads its output; waiting for the process alone does not.
        async with asyncio.timeout(NINE + 2 + crowding()):
            while alive([process.pid]):
                await asyncio.sleep(0.02)
        assert time.monotonic() - began < NINE + crowding()
        await until(lambda: not alive(pids), max(0.0, NINE - (time.monotonic() - began)) + 0.3)


async def test_over_http_too(tmp_path: Path) -> None:
    """The same for `serve`."""
    async with serve(tmp_path, config({"stubborn": child("ignore"), "plain": child()})) as served:
        client = await served.web.session()
        answer = (await client.ask("tools/call", {"name": "stubborn__spawn"})).json
        pids = [*answer["result"]["pids"], *children_of(served.process.pid)]
        hanging = asyncio.create_task(client.ask("tools/call", {"name": "stubborn__hang"}, 7))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        served.process.terminate()
        assert await asyncio.wait_for(served.process.wait(), NINE + crowding()) == 0
        assert time.monotonic() - began < NINE + crowding()
        # Whatever the client of the endless call got, it got something.
        await asyncio.wait([hanging], timeout=1)
        assert hanging.done()
        hanging.exception()
        await until(lambda: not alive(pids), 1)


async def test_the_death_of_the_reaper_leaves_nobody_behind(tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: the servers are started again under a new one."""
    async with serve(tmp_path, config({"a": child()})) as served:
        client = await served.web.session()
        pids = (await called(client, "a__spawn"))["result"]["pids"]
        (reaper,) = [pid for pid in children_of(served.process.pid) if pid not in children_of_all(pids)]
        os.kill(reaper, signal.SIGKILL)
        await until(lambda: not alive([reaper, *pids]), 5)
        async with asyncio.timeout(30):
            while "result" not in (answer := await called(client, "a__spawn")):
                await asyncio.sleep(0.1)
        pids = [*answer["result"]["pids"], *children_of(served.process.pid)]
        served.process.terminate()
        assert await asyncio.wait_for(served.process.wait(), NINE + crowding()) == 0
        await until(lambda: not alive(pids), 0.5)


def children_of_all(pids: list[int]) -> set[int]:
    """The processes and all below them."""
    return {*pids, *(below for pid in pids for below in children_of(pid))}


# --- SIGHUP -----------------------------------------------------------------------------------


async def test_a_hang_up_reloads_stdio_too(tmp_path: Path) -> None:
    """docs/reload.md#reloading-the-config: SIGHUP. A client that launched us is told what changed."""
    async with muxway(tmp_path, config({"a": server()})) as process:
        client = await connected(process, "a")
        pid = (await client.call("a__who")).result["structuredContent"]["pid"]
        (tmp_path / "muxway.json").write_text(json.dumps(config({"a": server(), "b": server("x")})))
        await asyncio.sleep(1.5)
        assert "config reloaded" not in process.log(), "stdio does not watch unless it is told to"
        os.kill(process.pid, signal.SIGHUP)
        await client.notice("notifications/tools/list_changed")
        assert await client.tools() == ["a__who", "b__who", "b__x"]
        assert (await client.call("a__who")).result["structuredContent"]["pid"] == pid
        assert 'config reloaded changes="start b"' in process.log()
        process.close()
        assert await process.ended() == 0


async def test_stdio_watches_if_it_is_told_to(tmp_path: Path) -> None:
    """docs/reload.md#reloading-the-config: `--watch`."""
    async with muxway(tmp_path, config({"a": server()}), "--watch") as process:
        client = await connected(process, "a")
        (tmp_path / "muxway.json").write_text(json.dumps(config({"b": server()})))
        while await client.tools() != ["b__who"]:
            await client.notice("notifications/tools/list_changed")


class OnTerminal:
    """`muxway serve` in the foreground of a terminal of its own."""

    def __init__(self, folder: Path, *, nohup: bool = False) -> None:
        file = folder / "servers.json"
        file.write_text(json.dumps(config()))
        (folder / "log").touch()
        command = [sys.executable, "-m", "muxway", "serve", "-c", str(file), "--port", "0", "--no-watch"]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # Said either way: whoever runs the tests may ignore it, and that is inherited.
            signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
            # Its own messages must not depend on a terminal that goes.
            log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.execv(command[0], command)
        self.folder = folder

    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def up(self) -> list[int]:
        """Wait until it serves; returns its children."""
        await until(lambda: "servers up" in self.log(), 20)
        return children_of(self.pid)

    def close(self) -> None:
        """Close the window."""
        os.close(self.terminal)
        self.terminal = -1

    async def ended(self) -> int:
        """Its exit code."""
        try:
            async with asyncio.timeout(NINE + crowding()):
                while (found := os.waitpid(self.pid, os.WNOHANG)) == (0, 0):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"it goes on; its log:\n{self.log()}") from None
        self.pid = 0
        return os.waitstatus_to_exitcode(found[1])

    def tidy(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.terminal >= 0:
            self.close()


async def test_closing_the_terminal_still_ends_it(tmp_path: Path) -> None:
    """Ours: a SIGHUP has meant "your terminal has gone" for longer than it has meant "reload"."""
    on = OnTerminal(tmp_path)
    try:
        pids = await on.up()
        assert pids
        os.kill(on.pid, signal.SIGHUP)
        await until(lambda: "config reloaded" in on.log(), 20)
        on.close()
        assert await on.ended() == 0
        await until(lambda: not alive(pids), 2)
    finally:
        on.tidy()


async def test_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    """Ours: whoever says `nohup` means it."""
    on = OnTerminal(tmp_path, nohup=True)
    try:
        await on.up()
        on.close()
        await until(lambda: "config reloaded" in on.log(), 20)
        assert alive([on.pid])
        os.kill(on.pid, signal.SIGTERM)
        assert await on.ended() == 0
    finally:
        on.tidy()


async def test_a_reload_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """Ours: a server that never gets ready, started by a reload, is no reason to wait."""
    async with serve(tmp_path, config(), "--no-watch") as served:
        client = await served.web.session()
        served.write(config({"a": child("mute"), "b": server()}))
        served.hang_up()
        async with asyncio.timeout(30):
            while len(children_of(served.process.pid)) < 3:
                await asyncio.sleep(0.02)
        pids = children_of(served.process.pid)
        assert "a__who" in await tools(client)
        began = time.monotonic()
        served.process.terminate()
        assert await asyncio.wait_for(served.process.wait(), NINE + crowding()) == 0
        assert time.monotonic() - began < NINE + crowding()
        await until(lambda: not alive(pids), 1)


async def test_nothing_is_reloaded_while_it_ends(tmp_path: Path) -> None:
    """Ours: a SIGHUP after the SIGTERM neither starts servers nor cuts off who is still being served."""
    async with serve(tmp_path, config(), "--no-watch") as served:
        held = Held(tmp_path)
        slow = asyncio.create_task(who(await served.web.session(), "a__who", **held.arguments))
        await held.begun()
        served.process.terminate()
        await stopping(served)
        served.write(config({"a": server(), "b": server()}))
        served.hang_up()
        # When it answers this, it has heard of that.
        assert (await served.web.ask("GET", "/healthz")).status == 200
        held.let_go()
        assert (await slow)["pid"]
        assert await asyncio.wait_for(served.process.wait(), NINE + crowding()) == 0
        assert "config reloaded" not in served.log()
