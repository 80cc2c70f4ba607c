"""The folders a client works on, for servers that want to know them outside any call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.testing import RawClient
from tests.conftest import HANDSHAKE_REVISIONS
from tests.journeys.test_pool import Pipe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVER = str(Path(__file__).with_name("roots_server.py"))
ROOTS = {"roots": {"listChanged": True}}


def a_config(**entry: Any) -> Any:
    return parse_config({"mcpServers": {"fs": {"command": sys.executable, "args": [SERVER], **entry}}})


class Wire:
    """Both ends of a stdio door, for a client in this process."""

    def __init__(self, reader: asyncio.StreamReader, stdin: int) -> None:
        self._reader, self._stdin = reader, stdin

    def send(self, frame: bytes) -> None:
        os.write(self._stdin, frame + b"\n")

    async def receive(self) -> bytes:
        return (await self._reader.readline()).rstrip(b"\n")


@contextlib.asynccontextmanager
async def piped(config: Any) -> AsyncIterator[tuple[Gateway, Wire]]:
    """A gateway on a pipe, as `muxway stdio` is."""
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    gateway = Gateway(config)
    door = gateway.stdio_door(stdin=stdin, stdout=stdout)
    serving = asyncio.create_task(door.serve())
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_stdout, "rb")
    )
    gateway.start()
    try:
        yield gateway, Wire(reader, to_stdin)
    finally:
        os.close(to_stdin)
        await asyncio.wait_for(serving, 10)
        await gateway.stop()
        transport.close()
        os.close(stdin)
        os.close(stdout)


class Folders:
    """A client's roots; counts how often they were asked for."""

    def __init__(self, client: RawClient, *uris: str) -> None:
        self.uris = list(uris)
        self.asked = 0
        client.answers["roots/list"] = self._answer

    def _answer(self, _: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        return {"roots": [{"uri": uri} for uri in self.uris]}


async def seen(client: RawClient, tool: str = "fs__roots") -> dict[str, Any]:
    return json.loads((await client.call(tool)).result["content"][0]["text"])


async def until_seen(client: RawClient, roots: list[str]) -> None:
    async with asyncio.timeout(30):
        while (await seen(client))["roots"] != roots:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_the_first_call_on_a_pipe_finds_the_clients_roots(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/questions.md: on a pipe there is one client, and whatever a server asks is asked of it."""
    caplog.set_level(logging.INFO, "muxway")
    async with piped(a_config()) as (_, wire):
        client = RawClient(wire, revision=revision, capabilities=ROOTS)
        folders = Folders(client, "file:///one")
        await client.hello()
        found = await seen(client)
        assert (found["roots"], found["told"]["roots"]) == (["file:///one"], {"listChanged": True})
        folders.uris.append("file:///two")
        client.tell("notifications/roots/list_changed")
        await until_seen(client, ["file:///one", "file:///two"])
        assert folders.asked == 2
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_call_that_waited_for_the_start_comes_after_the_roots_are_taken_up() -> None:
    """docs/questions.md: server-filesystem looks roots up on disk and answers calls meanwhile, as if it had none."""
    async with piped(a_config(args=[SERVER, "--looks-up"])) as (_, wire):
        client = RawClient(wire, capabilities=ROOTS)
        Folders(client, "file:///one")
        await client.hello()
        assert (await seen(client))["roots"] == ["file:///one"]


async def test_an_only_server_that_asks_first_and_its_client_do_not_wait_for_each_other() -> None:
    """docs/questions.md: the client hears of its only server before it is ready, but not of one that asks it first."""
    async with piped(a_config(prefix="")) as (_, wire):
        client = RawClient(wire, capabilities=ROOTS)
        folders = Folders(client, "file:///one")
        await client.hello()
        assert (await seen(client, "roots"))["roots"] == ["file:///one"]
        assert folders.asked == 1


async def test_a_client_that_comes_late_is_asked_when_it_is_ready() -> None:
    """docs/questions.md: a server that is there before its client waits for it, and asks nobody who is not ready."""
    async with piped(a_config()) as (gateway, wire):
        await gateway.settled()
        client = RawClient(wire, capabilities=ROOTS)
        Folders(client, "file:///one")
        info = {"name": "raw", "version": "1"}
        await client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": ROOTS, "clientInfo": info})
        await client.ask("ping")
        assert client.notices == [], "it is asked nothing before it says that it is ready"
        client.tell("notifications/initialized")
        await until_seen(client, ["file:///one"])


async def test_a_client_without_roots_is_asked_for_none() -> None:
    """2025-11-25, client/roots: a server asks whoever declared them. The only client is all there is to declare."""
    async with piped(a_config()) as (_, wire):
        client = RawClient(wire, capabilities={"experimental": {"x": {}}})
        await client.hello()
        assert await seen(client) == {"roots": [], "told": {"experimental": {"x": {}}}, "asked": 0}


async def test_a_stateless_client_on_a_pipe_holds_nothing_up() -> None:
    """2026-07-28 has no requests of servers: what is asked outside a call is refused."""
    async with piped(a_config()) as (_, wire):
        client = RawClient(wire, revision="2026-07-28", capabilities={"roots": {}})
        assert (await seen(client))["roots"] == []


async def client_of(gateway: Gateway, *uris: str) -> tuple[RawClient, Folders, Pipe]:
    pipe = Pipe(gateway, b"")
    client = RawClient(pipe, capabilities=ROOTS)
    folders = Folders(client, *uris)
    await client.hello()
    return client, folders, pipe


async def test_sessions_that_are_kept_apart_have_their_own_roots() -> None:
    """docs/questions.md: `isolation: session` gives each client a server of its own, which has that client's roots."""
    async with Gateway.open(a_config(isolation="session")) as gateway:
        ann, folders, _ = await client_of(gateway, "file:///ann")
        bob, _, _ = await client_of(gateway, "file:///bob")
        assert (await seen(ann))["roots"] == ["file:///ann"]
        assert (await seen(bob))["roots"] == ["file:///bob"]
        folders.uris.append("file:///more")
        ann.tell("notifications/roots/list_changed")
        await until_seen(ann, ["file:///ann", "file:///more"])
        assert (await seen(bob))["roots"] == ["file:///bob"]


async def test_a_server_of_its_own_is_told_what_nobody_here_has_heard_of() -> None:
    """2025-11-25, schema: capabilities are an open set. Only a connection that is for one client can carry them."""
    unknown = {"experimental": {"x": {"a": 1}}, "extensions": {"com.example/x": {"b": 2}}, "vendor": True}
    for isolation, told in (("session", {**unknown, **ROOTS}), ("principal", {"roots": {}})):
        async with Gateway.open(a_config(isolation=isolation)) as gateway:
            await (RawClient(Pipe(gateway, b"ann"))).hello()
            first = RawClient(Pipe(gateway, b"ann"))
            await first.hello()
            await seen(first)
            client = RawClient(Pipe(gateway, b"bob"), capabilities={**unknown, **ROOTS, "tasks": {}})
            Folders(client)
            await client.hello()
            assert (await seen(client))["told"] == told


async def test_a_server_that_many_share_gets_nobodys_roots_and_nobody_is_warned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/questions.md: it could not know whose they are; and it asks at each start."""
    caplog.set_level(logging.INFO, "muxway")
    async with Gateway.open(a_config(isolation="shared")) as gateway:
        ann, folders, _ = await client_of(gateway, "file:///ann")
        ann.tell("notifications/roots/list_changed")
        assert await seen(ann) == {**(await seen(ann)), "roots": [], "asked": 1}
        assert folders.asked == 0
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_session_may_end_with_a_question_open() -> None:
    """Ours: nobody waits for a client that is gone (docs/questions.md)."""
    async with Gateway.open(a_config(isolation="session")) as gateway:
        client, _, pipe = await client_of(gateway)
        del client.answers["roots/list"]
        client.start("tools/call", {"name": "fs__roots", "arguments": {}})
        await client.notice("roots/list")
        async with asyncio.timeout(30):
            await pipe.endpoint.finish(0.1)
