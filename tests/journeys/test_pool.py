"""Who shares a server with whom: by isolation, and by the era of the caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.clients.session import Session
from muxway.config import parse_config
from muxway.testing import RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from muxway.wire.envelopes import Buffer

SERVER = str(Path(__file__).with_name("who_server.py"))
BESIDE = f"import sys; sys.path.insert(0, {str(Path(SERVER).parent)!r})"
"""What a script has to begin with that runs the server's source itself."""


class Pipe:
    """A door for one client of a principal."""

    def __init__(self, gateway: Gateway, principal: bytes) -> None:
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self.endpoint = Session(gateway.runtime.dispatcher(), self._say, principal)

    def _say(self, frame: Sequence[Buffer]) -> None:
        self._said.put_nowait(b"".join(frame))

    def send(self, frame: bytes) -> None:
        self.endpoint.hear(frame, self.endpoint.say)

    async def receive(self) -> bytes:
        return await self._said.get()


@contextlib.asynccontextmanager
async def a_gateway(*args: str, gateway: dict[str, Any] | None = None, **entry: Any) -> AsyncIterator[Gateway]:
    server = {"command": sys.executable, "args": [SERVER, *args], **entry}
    config = parse_config({"mcpServers": {"up": server}, "gateway": gateway or {}})
    async with Gateway.open(config) as opened:
        yield opened


async def client_of(
    gateway: Gateway, principal: bytes = b"", revision: str = "2025-11-25", capabilities: Any = None
) -> tuple[RawClient, Pipe]:
    pipe = Pipe(gateway, principal)
    client = RawClient(pipe, revision=revision, capabilities=capabilities or {})
    await client.hello()
    return client, pipe


async def who(client: RawClient) -> dict[str, Any]:
    return json.loads((await client.call("up__who")).result["content"][0]["text"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def gone(pid: int) -> None:
    async with asyncio.timeout(30):
        while is_alive(pid):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("isolation", ["shared", "principal"])
async def test_callers_without_credentials_share(isolation: str) -> None:
    async with a_gateway(isolation=isolation) as gateway:
        one, _ = await client_of(gateway)
        two, _ = await client_of(gateway, revision="2026-07-28")
        first, second = await who(one), await who(two)
        assert first["pid"] == second["pid"] == gateway.servers()[0].pid
        assert second["calls"] == 2


async def test_principals_are_kept_apart_and_the_first_one_needs_no_second_process() -> None:
    async with a_gateway() as gateway:
        ann, _ = await client_of(gateway, b"ann")
        bob, _ = await client_of(gateway, b"bob", capabilities={"roots": {"listChanged": True}})
        again, _ = await client_of(gateway, b"bob", "2026-07-28", capabilities={"roots": {}})
        of_ann, of_bob, of_bob_again = await who(ann), await who(bob), await who(again)
        assert of_ann["pid"] == gateway.servers()[0].pid
        assert of_bob["pid"] == of_bob_again["pid"] != of_ann["pid"]
        assert (of_bob["calls"], of_bob_again["calls"]) == (1, 2)
        assert of_bob["told"] == {"roots": {}}
        poor, _ = await client_of(gateway, b"bob")
        assert (await who(poor))["told"] == {}
    for pid in (of_ann["pid"], of_bob["pid"]):
        await gone(pid)


async def test_sessions_are_kept_apart_and_end_with_their_client() -> None:
    async with a_gateway(isolation="session") as gateway:
        one, pipe = await client_of(gateway)
        two, _ = await client_of(gateway)
        first, second = await who(one), await who(two)
        pids = {first["pid"], second["pid"], gateway.servers()[0].pid}
        assert len(pids) == 3
        assert (await who(one))["calls"] == 2
        await pipe.endpoint.finish(1)
        await gone(first["pid"])
        assert (await who(two))["pid"] == second["pid"]


async def test_a_server_of_both_eras_is_used_in_that_of_its_caller() -> None:
    async with a_gateway("dual") as gateway:
        new, _ = await client_of(gateway, revision="2026-07-28", capabilities={"sampling": {}})
        old, _ = await client_of(gateway, capabilities={"roots": {}})
        older, _ = await client_of(gateway, revision="2024-11-05", capabilities={"sampling": {}})
        plain, _ = await client_of(gateway)
        assert (await who(new)) | {"pid": 0} == {"pid": 0, "calls": 1, "era": "modern", "told": {"sampling": {}}}
        first, second = await who(old), await who(older)
        assert first["era"] == second["era"] == "legacy"
        assert first["pid"] == second["pid"]
        # Also one that can be asked nothing: the server may list, log and err otherwise in each era.
        assert (await who(plain))["pid"] == first["pid"]


@pytest.mark.parametrize(("era", "found"), [("modern", "modern"), ("legacy", "legacy")])
async def test_a_pinned_era_is_everybodys(era: str, found: str) -> None:
    async with a_gateway("dual", era=era) as gateway:
        for revision in ("2025-11-25", "2026-07-28"):
            client, _ = await client_of(gateway, revision=revision, capabilities={"roots": {}})
            told = await who(client)
            assert (told["era"], told["pid"]) == (found, gateway.servers()[0].pid)


async def test_many_first_calls_at_once_open_one_connection() -> None:
    async with a_gateway("dual") as gateway:
        old, _ = await client_of(gateway, capabilities={"roots": {}})
        ids = [old.start("tools/call", {"name": "up__who", "arguments": {}}) for _ in range(20)]
        pids = {json.loads((await old.answer(id_)).result["content"][0]["text"])["pid"] for id_ in ids}
        assert len(pids) == 1


async def test_there_are_only_so_many() -> None:
    async with a_gateway(isolation="session", gateway={"maxInstances": 2}) as gateway:
        clients = [(await client_of(gateway))[0] for _ in range(3)]
        pids = {(await who(client))["pid"] for client in clients[:2]}
        assert len(pids) == 2
        error = (await clients[2].call("up__who")).error
        assert error["data"]["muxway"] == {"reason": "overloaded", "upstream": "up"}
        assert "maxInstances" in error["message"]


async def test_one_principal_cannot_starve_another_whatever_it_declares() -> None:
    """Ours: only what servers heed keeps callers apart, four times for each (docs/behaviour.md#who-shares-a-server)."""
    async with a_gateway(isolation="principal", gateway={"maxInstances": 8}) as gateway:
        ann, _ = await client_of(gateway, b"ann")
        await who(ann)
        pids: set[int] = set()
        for number in range(12):
            flags = {"form": {}} if number & 1 else {"url": {}}
            capabilities: dict[str, Any] = {"elicitation": {**flags, f"vendor-{number}": {}}}
            if number & 2:
                capabilities["sampling"] = {"tools": {}} if number & 4 else {"x": number}
            if number & 8:
                capabilities["roots"] = {}
            bob, _ = await client_of(gateway, b"bob", capabilities=capabilities)
            pids.add((await who(bob))["pid"])
        slots = gateway._servers.by_name["up"].instance.pool.slots  # pyright: ignore[reportPrivateUsage]
        # The first one, which is ann's, and bob's.
        assert len(slots) <= 1 + 4
        cid, _ = await client_of(gateway, b"cid")
        assert (await who(cid))["pid"] not in pids


async def test_what_nobody_uses_is_ended_and_comes_back_when_needed() -> None:
    async with a_gateway(isolation="session", gateway={"maxInstances": 1, "instanceIdle": 0.05}) as gateway:
        one, _ = await client_of(gateway)
        two, _ = await client_of(gateway)
        first = await who(one)
        await asyncio.sleep(0.1)
        # There is room for one only: the unused one makes it.
        second = await who(two)
        await gone(first["pid"])
        await asyncio.sleep(0.1)
        third = await who(one)
        assert len({first["pid"], second["pid"], third["pid"]}) == 3


async def test_a_connection_that_cannot_be_opened_fails_its_calls_and_no_others(tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    script = (
        f"{BESIDE}; import os; os.path.exists({str(flag)!r}) and sys.exit('out of order'); "
        f"sys.argv = ['x']; exec(open({SERVER!r}).read())"
    )
    config = parse_config({"mcpServers": {"up": {"command": sys.executable, "args": ["-c", script]}}})
    async with Gateway.open(config) as gateway:
        ann, _ = await client_of(gateway, b"ann")
        await who(ann)
        flag.touch()
        bob, _ = await client_of(gateway, b"bob")
        error = (await bob.call("up__who")).error
        assert "could not be started for this caller" in error["message"]
        assert "out of order" in error["message"]
        assert (await who(ann))["calls"] == 2
        flag.unlink()
        await asyncio.sleep(2.1)
        assert (await who(bob))["calls"] == 1


def marking(pids: Path, then: str) -> dict[str, Any]:
    """A server that writes down each of its processes; from the second on, `then` comes before anything else."""
    script = (
        f"{BESIDE}; import os, time; pids = open({str(pids)!r}, 'a+'); pids.write(f'{{os.getpid()}} '); pids.flush(); "
        f"pids.seek(0); later = len(pids.read().split()) > 1; {then}; sys.argv = ['x']; exec(open({SERVER!r}).read())"
    )
    return {"command": sys.executable, "args": ["-c", script]}


async def written(pids: Path, count: int) -> list[int]:
    async with asyncio.timeout(30):
        while len(found := [int(pid) for pid in pids.read_text().split()]) < count:
            await asyncio.sleep(0.02)
    return found


async def test_connections_that_could_not_be_opened_take_nobodys_place(tmp_path: Path) -> None:
    server = marking(tmp_path / "pids", "later and sys.exit('out of order')")
    async with Gateway.open(parse_config({"mcpServers": {"up": server}, "gateway": {"maxInstances": 1}})) as gateway:
        ann, _ = await client_of(gateway, b"ann")
        await who(ann)
        for principal in (b"bob", b"cid", b"dan"):
            client, _ = await client_of(gateway, principal)
            assert "out of order" in (await client.call("up__who")).error["message"]


async def test_a_call_that_waits_for_a_connection_opens_no_other_when_its_server_is_removed(tmp_path: Path) -> None:
    server = marking(tmp_path / "pids", "later and time.sleep(30)")
    async with Gateway.open(parse_config({"mcpServers": {"up": server}})) as gateway:
        ann, _ = await client_of(gateway, b"ann")
        await who(ann)
        bob, _ = await client_of(gateway, b"bob")
        waiting = bob.start("tools/call", {"name": "up__who", "arguments": {}})
        await written(tmp_path / "pids", 2)
        await gateway.remove("up")
        assert "error" in (await bob.answer(waiting)).message
        pids = await written(tmp_path / "pids", 2)
        assert len(pids) == 2
        for pid in pids:
            await gone(pid)


async def test_a_connection_that_takes_the_place_of_one_that_ends_is_used_and_ended_in_its_turn(tmp_path: Path) -> None:
    server = marking(tmp_path / "pids", "0")
    config = parse_config({"mcpServers": {"up": server}, "gateway": {"maxInstances": 2, "instanceIdle": 0.05}})
    async with Gateway.open(config) as gateway:
        ann, bob, cid, dan = [(await client_of(gateway, name))[0] for name in (b"ann", b"bob", b"cid", b"dan")]
        before = [await who(client) for client in (ann, bob, cid)]
        await asyncio.sleep(0.1)
        # There is room for two beside the first: those of bob and cid are ended for dan, and at once bob is back.
        for_dan = dan.start("tools/call", {"name": "up__who", "arguments": {}})
        again = await who(bob)
        await dan.answer(for_dan)
        for earlier in before[1:]:
            await gone(earlier["pid"])
        assert (await who(bob))["pid"] == again["pid"]
        assert len(await written(tmp_path / "pids", 5)) == 5


async def test_a_subscription_never_tells_of_another_users_changes() -> None:
    """docs/subscriptions.md: with `isolation: principal` the first connection is that of the user who came first."""
    async with a_gateway("watched") as gateway:
        ann, _ = await client_of(gateway, b"ann")
        bob, _ = await client_of(gateway, b"bob")
        await who(ann)
        assert (await ann.ask("resources/subscribe", {"uri": "who://it"})).result == {}
        assert "isolation" in (await bob.ask("resources/subscribe", {"uri": "who://it"})).error["message"]
    async with a_gateway("watched", isolation="shared") as gateway:
        for name in (b"ann", b"bob"):
            client, _ = await client_of(gateway, name)
            assert (await client.ask("resources/subscribe", {"uri": "who://it"})).result == {}
