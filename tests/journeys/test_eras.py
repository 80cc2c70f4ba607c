"""Which era a server is spoken to in, when it could be either."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from muxway import Gateway, Status
from muxway.config import parse_config
from muxway.testing import RawClient
from tests.journeys.test_pool import BESIDE, SERVER, Pipe, who
from tests.journeys.test_roots import piped

if TYPE_CHECKING:
    from pathlib import Path


def impatient(until: Path, *, handshake: bool = True) -> dict[str, Any]:
    """A server of both eras, or of the stateless one only, that ends unless somebody shakes hands until that is there.

    It takes the file away: the next process has a time of its own.
    """
    refuses = "" if handshake else "modern = True; "
    ends = (
        f"[time.sleep(0.01) for _ in iter(lambda: os.path.exists({str(until)!r}), True)]; os.unlink({str(until)!r}); "
        "modern is not False and os._exit(3)"
    )
    script = (
        f"{BESIDE}; import os, threading, time; "
        f"threading.Thread(target=lambda: exec({ends!r}, globals()), daemon=True).start(); "
        f"source = open({SERVER!r}).read().replace('modern: bool | None = None', 'modern = None'); "
        f"sys.argv = ['x', 'dual']; head, body = source.split('serve(worded)', 1); exec(head); {refuses}"
        "exec('serve(worded)' + body)"
    )
    return {"command": sys.executable, "args": ["-c", script]}


async def a_client(gateway: Gateway, revision: str = "2026-07-28") -> RawClient:
    client = RawClient(Pipe(gateway, b""), revision=revision)
    await client.hello()
    return client


async def restarted(gateway: Gateway, times: int) -> None:
    async with asyncio.timeout(30):
        while (server := gateway.servers()[0]).restarts < times or server.status is not Status.RUNNING:
            await asyncio.sleep(0.01)


async def test_a_server_that_ends_without_a_handshake_gets_one(tmp_path: Path) -> None:
    """docs/behaviour.md#start: some answer `server/discover`, and end because nobody shakes hands."""
    until = tmp_path / "until"
    async with Gateway.open(parse_config({"mcpServers": {"up": impatient(until)}})) as gateway:
        client = await a_client(gateway)
        assert (await who(client))["era"] == "modern"
        until.touch()
        await restarted(gateway, 1)
        assert (await who(client))["era"] == "legacy"
        pid = gateway.servers()[0].pid
        until.touch()
        async with asyncio.timeout(30):
            while until.exists():
                await asyncio.sleep(0.01)
        assert (await who(client))["era"] == "legacy"
        assert (gateway.servers()[0].pid, gateway.servers()[0].restarts) == (pid, 1)


async def test_a_stateless_server_that_ends_is_not_taken_for_another(tmp_path: Path) -> None:
    """docs/behaviour.md#start: one that takes no handshake either is used in its own era, and just keeps ending."""
    until = tmp_path / "until"
    async with Gateway.open(parse_config({"mcpServers": {"up": impatient(until, handshake=False)}})) as gateway:
        for times in (1, 2):
            until.touch()
            await restarted(gateway, times)
            assert gateway.servers()[0].revision == "2026-07-28"


async def test_on_a_pipe_a_server_of_both_eras_speaks_that_of_the_client() -> None:
    """docs/design/decisions/0017: there is one client, so there need not be a second process."""
    entry = {"command": sys.executable, "args": [SERVER, "dual"]}
    for revision, era in (("2025-11-25", "legacy"), ("2024-11-05", "legacy"), ("2026-07-28", "modern")):
        async with piped(parse_config({"mcpServers": {"up": entry}})) as (gateway, wire):
            client = RawClient(wire, revision=revision)
            await client.hello()
            found = await who(client)
            assert (found["era"], found["pid"]) == (era, gateway.servers()[0].pid)


async def test_a_stateless_server_that_is_spoilt_by_a_handshake_is_started_again() -> None:
    """Ours: after a refused `initialize` the Python SDK takes nothing else on that pipe (docs/behaviour.md#start)."""
    script = (
        f"{BESIDE}; source = open({SERVER!r}).read(); "
        "source = source.replace('if method == \"initialize\" and modern is not True:', "
        '\'if method == "initialize": modern = False; return None\\n    if method == "initialize":\'); '
        "sys.argv = ['x', 'dual']; exec(source)"
    )
    entry = {"command": sys.executable, "args": ["-c", script]}
    async with piped(parse_config({"mcpServers": {"up": entry}})) as (_, wire):
        client = RawClient(wire)
        await client.hello()
        assert (await who(client))["era"] == "modern"
