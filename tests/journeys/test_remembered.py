"""What a server had when it last ran is listed at once when it is started again, and only then."""

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
from muxway.catalog.kinds import TOOLS
from muxway.config import parse_config
from muxway.servers import list_memory
from muxway.servers.list_memory import ListMemory
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import a_world
from tests.noting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway.config.model import Config

SCRIPT = str(Path(__file__).with_name("listing_server.py"))
CHANGED = "notifications/tools/list_changed"


class Place:
    """A server that is started again and again, with something to list that changes in between."""

    def __init__(self, folder: Path) -> None:
        self.state, self.gate = folder / "state.json", folder / "gate"
        self.has("a", "b")
        self.open()

    def has(self, *tools: str, **more: Any) -> None:
        """What it has from its next start on."""
        self.state.write_text(json.dumps({"tools": tools, **more}))

    def open(self) -> None:
        """Let its starts come to an end."""
        self.gate.touch()

    def close(self) -> None:
        """Keep its starts from coming to an end."""
        self.gate.unlink()

    def config(self, *more: str, **keys: Any) -> Config:
        """How to start it."""
        args = ["-I", "-S", SCRIPT, str(self.state), str(self.gate), *more]
        entry = {"command": sys.executable, "args": args, "era": "legacy", **keys}
        return parse_config({"mcpServers": {"up": entry}, "gateway": {"listWait": 20}})

    async def run(self, config: Config | None = None) -> None:
        """Start it once, so that it is known."""
        async with Gateway.open(config or self.config()) as gateway:
            assert gateway.tools(), gateway.servers()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextlib.asynccontextmanager
async def starting(config: Config) -> AsyncIterator[tuple[Gateway, RawClient]]:
    """A gateway that has just been started, and a client of it."""
    async with Gateway.open(config, wait=False) as gateway:
        yield gateway, RawClient(gateway.memory_door())


async def test_what_a_server_had_is_there_at_once_and_calls_wait_for_its_start(place: Place) -> None:
    """docs/behaviour.md#start: lists and instructions of the last run; equal ones are no news."""
    place.has("a", "b", instructions="Use a before b.")
    await place.run()
    place.close()
    async with starting(place.config()) as (gateway, client):
        hello = await client.hello()
        assert hello is not None
        assert "Use a before b." in hello.result["instructions"]
        assert await client.tools() == ["up__a", "up__b"]
        assert str(gateway.servers()[0].status) == "initializing"
        called = client.start("tools/call", {"name": "up__a"})
        place.open()
        assert (await client.answer(called)).result["content"][0]["text"] == "a"
        await gateway.settled()
        assert await client.tools() == ["up__a", "up__b"]
        assert client.notices == []


async def test_a_long_list_is_remembered_too(place: Place) -> None:
    """Ours: it is written beside the event loop, and the end of the loop waits for that."""
    place.has(*(f"t{number}" for number in range(600)))
    await place.run()
    await asyncio.get_running_loop().shutdown_default_executor()
    known = ListMemory().recall(next(iter(place.config().servers.values())))
    assert known is not None
    assert len(known[1][TOOLS].natives) == 600


async def test_a_difference_is_told_once(place: Place) -> None:
    """docs/behaviour.md#start: what was remembered gives way to what is so, with one `list_changed`."""
    await place.run()
    place.close()
    place.has("b", "c")
    async with starting(place.config()) as (gateway, client):
        await client.hello()
        assert await client.tools() == ["up__a", "up__b"]
        place.open()
        await client.notice(CHANGED)
        assert await client.tools() == ["up__b", "up__c"]
        await gateway.settled()
        await client.ask("ping")
        assert client.notices == []
    place.close()
    async with starting(place.config()) as (_, client):
        await client.hello()
        assert await client.tools() == ["up__b", "up__c"]


async def test_what_is_remembered_of_a_server_that_fails_to_start_stays(place: Place) -> None:
    """docs/behaviour.md#lists: a list does not change with the health of a server; a call says what is wrong."""
    await place.run()
    place.close()
    async with starting(place.config()) as (gateway, client):
        await client.hello()
        assert len(await client.tools()) == 2
        place.has(fails=True)
        place.open()
        await until(lambda: str(gateway.servers()[0].status) == "failed")
        assert await client.tools() == ["up__a", "up__b"]
        assert client.notices == []
        assert (await client.call("up__a")).error["data"]["muxway"]["reason"] == "not_running"
        assert gateway.servers()[0].error is not None


@pytest.mark.parametrize("other", ["argument", "variable", "folder", "era"])
async def test_another_way_to_start_a_server_knows_nothing_of_the_one_before(
    other: str, place: Place, tmp_path: Path
) -> None:
    """docs/security.md#what-is-kept-on-disk: a server that may be another one is not shown for what it was."""
    await place.run(place.config(env={"TOKEN": "one"}))
    place.close()
    changed = {
        "argument": place.config("--verbose", env={"TOKEN": "one"}),
        "variable": place.config(env={"TOKEN": "two"}),
        "folder": place.config(env={"TOKEN": "one"}, cwd=str(tmp_path)),
        "era": place.config(env={"TOKEN": "one"}, era="auto"),
    }
    async with starting(changed[other]) as (gateway, _):
        assert gateway.tools() == []
    async with starting(place.config(env={"TOKEN": "one"}, hiddenTools=["a"])) as (gateway, _):
        assert [tool.name for tool in gateway.tools()] == ["up__b"], (
            "what only the gateway does differently is no start"
        )


async def test_a_reload_takes_away_what_was_remembered(place: Place) -> None:
    """docs/reload.md: the lists follow the configuration at once."""
    await place.run()
    place.close()
    async with starting(place.config()) as (gateway, client):
        await client.hello()
        assert len(await client.tools()) == 2
        await gateway.apply(place.config("--other"))
        assert await client.tools() == []
        await gateway.apply(place.config())
        assert len(await client.tools()) == 2, "this way to start it is known"
        await gateway.apply(place.config(hiddenTools=["b"]))
        assert await client.tools() == ["up__a"]


async def test_no_value_that_may_be_secret_is_in_what_is_remembered(place: Place) -> None:
    """docs/security.md#what-is-kept-on-disk: neither values of variables nor arguments, and for the user only."""
    secret = "hunter2-hunter2"
    await place.run(place.config(f"--token={secret}", env={"TOKEN": secret}))
    root = Path(os.environ["XDG_CACHE_HOME"]) / "muxway"
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) == 2, "the key, and what the server had"
    for path in files:
        assert path.stat().st_mode & 0o077 == 0
        assert secret.encode() not in path.read_bytes() + str(path).encode()


async def test_an_object_of_this_process_is_not_remembered() -> None:
    """docs/library.md: what starts it is no text that could be compared."""
    async with a_world({"up": ScriptedServer(tools={"a": None})}) as world:
        assert len(world.gateway.tools()) == 1
    assert not (Path(os.environ["XDG_CACHE_HOME"]) / "muxway").exists()


async def test_the_folder_does_not_grow_without_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: each change of an argument is another way to start a server, and makes a file."""
    monkeypatch.setattr(list_memory, "_MOST", 2)
    ways = [place.config(str(number)) for number in range(4)]
    for way in ways[:3]:
        await place.run(way)
        os.utime(min(folder().iterdir(), key=lambda path: path.stat().st_mtime), (1, 1))
    assert len([*folder().iterdir()]) == 2
    await place.run(ways[3])
    memory = ListMemory()
    assert [memory.recall(way.servers["up"]) is not None for way in ways].count(True) == 2
    assert memory.recall(ways[3].servers["up"]) is not None


def folder() -> Path:
    """Where what servers had is kept."""
    return Path(os.environ["XDG_CACHE_HOME"]) / "muxway" / "servers"


@pytest.mark.parametrize("spoiled", [b"", b"short"])
async def test_a_spoiled_key_only_means_that_nothing_is_known(spoiled: bytes, place: Place) -> None:
    """Ours: nothing in the cache folder is needed."""
    await place.run()
    folder().with_suffix(".key").write_bytes(spoiled)
    await place.run()
    place.close()
    async with starting(place.config()) as (gateway, _):
        await until(lambda: len(gateway.tools()) == 2)


async def test_without_a_folder_to_write_to_servers_are_started_all_the_same(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: a home that cannot be written to is ordinary in a container."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    await place.run()
    await place.run()
