"""Opening and closing a gateway without `with`, and what misuse is told."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import muxway
from muxway import ConfigError, Gateway, SyncGateway, UnknownName, chain
from muxway.config import parse_config

NOTES = {"mcpServers": {"notes": {"command": sys.executable, "args": ["-m", "muxway.demo.notes"]}}}


class Shelf:
    """A server in this process."""

    def put(self, title: str) -> str:
        """Put a book on it."""
        return title


def _threads() -> int:
    """How many gateways run in threads of their own."""
    return [thread.name for thread in threading.enumerate()].count("muxway")


async def test_a_gateway_can_be_awaited_and_closed() -> None:
    """docs/library.md#without-await: where no `async with` fits."""
    gateway = await Gateway.open()
    await gateway.add("shelf", server=Shelf())
    assert (await gateway.call("shelf.put", {"title": "Emma"})).text == "Emma"
    await gateway.close()
    await gateway.close()
    assert [str(server.status) for server in gateway.servers()] == ["stopped"]
    # Each is a coroutine only when it is used.
    for use in (
        lambda: gateway.call("shelf.put", {"title": "Emma"}),
        lambda: gateway.read("shelf://x"),
        lambda: gateway.add("other", server=Shelf()),
        lambda: gateway.remove("shelf"),
        lambda: gateway.restart("shelf"),
        lambda: gateway.apply(gateway.config),
    ):
        with pytest.raises(RuntimeError, match="this gateway is closed; open another one"):
            await use()


async def test_names_that_nobody_has_are_told_with_those_there_are() -> None:
    """docs/library.md: a KeyError, whose text says what there is."""
    views = {"v": {}, "w": {}}
    config = parse_config({"mcpServers": {"shelf": {"command": "(in process)"}}, "views": views})
    async with Gateway.open(replace(config, objects={"shelf": Shelf()})) as gateway:
        for use in (gateway.remove, gateway.restart):
            with pytest.raises(KeyError) as caught:
                await use("shelv")
            assert str(caught.value) == 'there is no server "shelv"; there are: shelf'
        for look in (gateway.tools, gateway.memory_door, gateway.notes):
            with pytest.raises(UnknownName) as unknown:
                look("x")
            assert str(unknown.value) == 'there is no view "x"; there are: v, w'
        with pytest.raises(KeyError, match='no view "x"'):
            await gateway.call("shelf.put", {"title": "Emma"}, view="x")


async def test_an_object_is_added_with_what_is_said_of_it() -> None:
    """docs/library.md: the keys of a server's entry, as a mapping or as keywords, also for an object."""
    async with Gateway.open() as gateway:
        await gateway.add("one", {"prefix": ""}, server=Shelf())
        await gateway.add("two", server=Shelf(), prefix="b")
        assert [tool.name for tool in gateway.tools()] == ["put", "b__put"]
        with pytest.raises(ConfigError, match="prefix"):
            await gateway.add("three", {"prefix": 7}, server=Shelf())


async def test_a_chain_can_be_awaited_too() -> None:
    """Ours: it is the same opening."""
    gateway = await chain().then(shelf=Shelf()).open()
    assert [tool.name for tool in gateway.tools()] == ["shelf__put"]
    await gateway.close()


def test_a_sync_gateway_can_be_opened_and_closed() -> None:
    """docs/library.md#without-await."""
    gateway = SyncGateway.open(NOTES)
    assert gateway.call("notes.add", {"text": "Buy milk"}).is_error is False
    with gateway as same:
        assert same is gateway
    gateway.close()
    for use in (gateway.tools, gateway.__enter__, lambda: gateway.call("notes.list")):
        with pytest.raises(RuntimeError, match="is closed; make another one"):
            use()


def test_a_sync_gateway_makes_nothing_before_it_is_opened() -> None:
    """Ours: one that is never opened leaves no loop, socket or thread behind."""
    threads = _threads()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SyncGateway(NOTES)
        gc.collect()
    assert _threads() == threads


def test_a_sync_gateway_that_cannot_be_opened_leaves_nothing_behind() -> None:
    """Ours."""
    threads = _threads()
    with pytest.raises(ConfigError):
        SyncGateway.open({"mcpServers": 1})
    assert _threads() == threads


@pytest.mark.parametrize("use", [lambda gateway: gateway.tools(), lambda gateway: gateway.call("notes.list")])
def test_a_sync_gateway_that_is_not_open_says_how_to_open_it(use: Any) -> None:
    """Ours: what to write."""
    with pytest.raises(RuntimeError, match=r"is not open: write `with SyncGateway\(\.\.\.\) as gateway`, or"):
        use(SyncGateway(NOTES))


def test_an_opening_that_is_used_as_a_gateway_says_what_is_missing() -> None:
    """Ours: `await` and `async` are forgotten easily."""
    opening: Any = Gateway.open(NOTES)
    with pytest.raises(AttributeError, match=r"not a gateway yet, so it has no 'tools': write `async with"):
        opening.tools()
    with pytest.raises(TypeError, match=r"opened with `async with`.*SyncGateway"), opening:
        pass


@pytest.mark.parametrize("given", ["servers.json", {"mcpServers": {}}, None])
def test_a_gateway_that_is_made_from_a_file_says_how_to(given: Any) -> None:
    """Ours: the constructor takes a loaded configuration."""
    with pytest.raises(TypeError, match=r"takes a loaded Config. For a file or a mapping write .* Gateway.open"):
        Gateway(given)


def test_every_public_name_can_be_completed() -> None:
    """Ours: IPython and editors ask `dir`."""
    assert set(muxway.__all__) <= set(dir(muxway))
    assert dir(muxway) == sorted(dir(muxway))
    assert {name for name in dir(muxway) if not name.startswith("__")} <= set(muxway.__all__)
    assert [name for name in muxway.__all__ if getattr(muxway, name, None) is None] == []


def test_a_gateway_that_cannot_start_is_stopped() -> None:
    """Ours: whoever awaits it has nothing to close."""

    async def cancelled() -> None:
        slow = {"mcpServers": {"slow": {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}}}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Gateway.open(slow), 0.5)

    asyncio.run(cancelled())


def _documented() -> list[str]:
    """The methods of a gateway that the page of the library shows."""
    page = Path(__file__).parents[2] / "docs" / "library.md"
    names = re.findall(r"^\| `(?:await )?gateway\.(\w+)\(", page.read_text(), re.MULTILINE)
    # Its `tools` is the other's `list_tools`: it can wait. The doors are for those who await.
    return [name for name in names if name not in {"list_tools", "memory_door", "stdio_door"}]


@pytest.mark.parametrize("name", ["close", *_documented()])
def test_a_sync_gateway_can_do_the_same(name: str) -> None:
    """docs/library.md#without-await."""
    of_async, of_sync = (inspect.signature(getattr(kind, name)) for kind in (Gateway, SyncGateway))
    assert of_sync.parameters == of_async.parameters
    assert of_sync.return_annotation == of_async.return_annotation


def test_a_sync_gateway_reports_progress_and_restarts_and_takes_another_config() -> None:
    """docs/library.md#without-await."""
    heard: list[float] = []
    text = {"text": {"command": sys.executable, "args": ["-m", "muxway.demo.text"]}}
    with SyncGateway({"mcpServers": text}) as gateway:
        arguments = {"text": "one two", "pause_ms": 1}
        gateway.call("text.read_aloud", arguments, on_progress=lambda done, _total, _message: heard.append(done))
        before = gateway.servers()[0].pid
        assert gateway.restart("text").pid != before
        gateway.apply(muxway.parse_config(NOTES))
        assert [server.name for server in gateway.servers()] == ["notes"]
    assert heard == [1, 2]


class Marks(muxway.Middleware):
    """Marks every text."""

    async def call_tool(self, request: muxway.Request, go: muxway.Next) -> muxway.Result:
        return muxway.Result.saying((await go(request)).text + "!")


def test_middleware_can_be_given_to_either_gateway() -> None:
    """docs/middleware/writing.md."""
    call = ("notes.delete", {"id": 7})

    async def awaited() -> str:
        async with Gateway.open(NOTES, middleware=[Marks()]) as gateway:
            return (await gateway.call(*call)).text

    with SyncGateway(NOTES, middleware=[Marks()]) as gateway:
        waited = gateway.call(*call).text
    assert waited == asyncio.run(awaited())
    assert waited.endswith("!")


@pytest.mark.parametrize("wrong", ["log", Marks, lambda request, go: go(request)])
def test_what_is_no_middleware_is_refused_with_what_to_give(wrong: Any) -> None:
    """Ours: what to write."""
    with pytest.raises(TypeError, match=r"is no middleware: give instances of muxway\.Middleware"):
        SyncGateway.open(NOTES, middleware=[wrong])


@pytest.mark.parametrize("wrong", [["text"], "{}", [("text", "x")], 7])
def test_arguments_that_are_no_mapping_are_refused(wrong: Any) -> None:
    """Ours: what to write."""
    with (
        SyncGateway() as gateway,
        pytest.raises(TypeError, match=r"must be a mapping such as a dict, by name; found a"),
    ):
        gateway.call("notes.add", wrong)
