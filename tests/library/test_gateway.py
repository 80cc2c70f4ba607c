"""muxway as a library: what a Python program sees."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal

import pytest

import muxway
from muxway.testing import ScriptedServer
from tests.stdio.harness import alive, child, until

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_usage_example_of_the_multi_mcp_client(tmp_path: Path) -> None:
    """docs/library.md#a-gateway-in-your-program: a file of `servers`, opened, listed and called as `server.tool`."""
    entry = child()
    config = {"servers": {"database": {"transport": "stdio", "command": [entry["command"], *entry["args"]]}}}
    config["servers"]["github"] = config["servers"]["database"]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))

    async with muxway.Gateway.open(file) as aggregator:  # 1 create with a config file, 2 connect to all servers
        names = [f"{tool.server}.{tool.original_name}" for tool in aggregator.tools()]  # 3 list all tools
        assert {"database.echo", "github.echo"} <= set(names)
        result = await aggregator.call("database.echo", {"sql": "select 1"})  # 4 call by "server.tool"
        assert result.text == '{"sql": "select 1"}'


async def test_servers_tell_how_they_are() -> None:
    """docs/library.md#a-gateway-in-your-program: status, error, tools."""
    config = {"mcpServers": {"good": child(), "bad": {"command": "no-such-program-anywhere"}, "gone": child("exit")}}
    async with muxway.Gateway.open(config) as gateway:
        good, bad, gone = gateway.servers()
        assert (good.name, good.status, good.error) == ("good", muxway.Status.RUNNING, None)
        assert good.revision == "2025-11-25"
        assert alive([good.pid or 0])
        assert "good__echo" in [tool.name for tool in good.tools]
        assert (bad.status, list(bad.tools)) == (muxway.Status.FAILED, [])
        assert "no-such-program-anywhere" in (bad.error or "")
        assert gone.stderr == ["cannot read my database"]
        assert "cannot read my database" in (gone.error or "")
    await until(lambda: not alive([good.pid or 0]), 2)


async def test_every_error_has_its_type() -> None:
    """docs/library.md#errors: typed results and errors."""

    def refuse(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.fail(request, -32000, "not today", {"when": "tomorrow"})

    def tool_error(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, {"content": [{"type": "text", "text": "no such row"}], "isError": True})

    async with muxway.Gateway.open() as gateway:
        await gateway.add("up", server=ScriptedServer(tools={"refuse": refuse, "tool_error": tool_error}))
        with pytest.raises(muxway.UpstreamSaid, match="not today") as said:
            await gateway.call("up.refuse")
        assert (said.value.code, said.value.data) == (-32000, {"when": "tomorrow"})
        with pytest.raises(muxway.ToolNotFound, match=r"Tool not found: up\.refuze"):
            await gateway.call("up.refuze")
        with pytest.raises(muxway.InvalidParams, match="must be prefixed with server key: refuse"):
            await gateway.call("refuse")
        await gateway.add("off", command="no-such-program-anywhere")
        with pytest.raises(muxway.UpstreamError, match='server "off" is not running: could not be started'):
            await gateway.call("off.x")
        failed = await gateway.call("up.tool_error")
        assert (failed.is_error, failed.text) == (True, "no such row")


async def test_a_configuration_that_cannot_be_used_raises_before_anything_starts(tmp_path: Path) -> None:
    """docs/library.md#errors: `ConfigError` with every problem."""
    with pytest.raises(muxway.ConfigError) as missing:
        async with muxway.Gateway.open(tmp_path / "none.json"):
            pytest.fail("not reached")
    assert missing.value.code == "file_not_found"
    with pytest.raises(muxway.ConfigError) as wrong:
        async with muxway.Gateway.open({"mcpServers": {"a": {"args": 5}, "b": 7}}):
            pytest.fail("not reached")
    assert len(wrong.value.details) >= 3


async def test_servers_are_added_and_removed_at_run_time() -> None:
    """docs/library.md#servers-that-come-and-go: at run time."""
    async with muxway.Gateway.open() as gateway:
        server = await gateway.add("one", **child())
        assert server.status is muxway.Status.RUNNING
        assert (await gateway.call("one.echo", {"a": 1})).text == '{"a": 1}'
        with pytest.raises(muxway.ConfigError, match="already a server"):
            await gateway.add("one", **child())
        with pytest.raises(muxway.ConfigError, match="command"):
            await gateway.add("two", {"args": ["x"]})
        await gateway.remove("one")
        assert gateway.tools() == []
        assert gateway.servers() == []
        with pytest.raises(KeyError):
            await gateway.remove("one")
        await until(lambda: not alive([server.pid or 0]), 2)
        assert (await gateway.add("one", **child())).status is muxway.Status.RUNNING


async def test_removing_a_server_fails_its_calls_under_way() -> None:
    """Ours: nobody waits for a server that is gone."""
    async with muxway.Gateway.open() as gateway:
        await gateway.add("one", **child())
        call = asyncio.ensure_future(gateway.call("one.hang"))
        await asyncio.sleep(0.1)
        await gateway.remove("one")
        with pytest.raises(muxway.UpstreamError, match="was stopped"):
            await call


async def test_cancelling_the_task_cancels_the_call() -> None:
    """docs/library.md#progress-cancellation-time: cancellation."""
    started = asyncio.Event()

    def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
        started.set()

    server = ScriptedServer(tools={"hang": hang, "echo": None})
    async with muxway.Gateway.open() as gateway:
        await gateway.add("up", server=server)
        call = asyncio.ensure_future(gateway.call("up.hang"))
        await asyncio.wait_for(started.wait(), 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await gateway.call("up.echo")
        assert any(message.get("method") == "notifications/cancelled" for message in server.heard)


async def test_progress_is_told() -> None:
    """docs/library.md#progress-cancellation-time: progress."""

    def work(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.progress(request, 1, total=2, message="half")
        server.progress(request, 2)
        server.reply(request, {"content": []})

    heard: list[tuple[float, float | None, str | None]] = []
    async with muxway.Gateway.open() as gateway:
        await gateway.add("up", server=ScriptedServer(tools={"work": work}))
        await gateway.call("up.work", on_progress=lambda *step: heard.append(step))
    assert heard == [(1, 2, "half"), (2, None, None)]


class Notes:
    """A plain object."""

    unit = "not a tool"

    def __init__(self) -> None:
        self.kept: list[str] = []

    def add(self, text: str, tags: list[str] | None = None, kind: Literal["idea", "task"] = "idea") -> str:
        """Add a note."""
        self.kept.append(text)
        return f"{len(self.kept)} {kind}"

    async def all(self) -> list[str]:
        """List them."""
        return self.kept

    def count(self, weights: dict[str, float], exact: bool = False) -> dict[str, float]:
        return weights

    def nothing(self) -> None:
        """Do nothing."""

    def boom(self) -> None:
        raise ValueError("broken")

    def unspeakable(self) -> object:
        return object()

    async def wait(self) -> None:
        self.waiting = asyncio.current_task()
        await asyncio.sleep(60)

    def _private(self) -> None:
        raise AssertionError("not a tool")


async def test_a_plain_object_is_a_server() -> None:
    """docs/library.md#servers-in-this-process: its public methods are the tools, their hints the schemas."""
    async with muxway.Gateway.open() as gateway:
        server = await gateway.add("notes", server=Notes())
        tools = {tool.original_name: tool for tool in server.tools}
        assert set(tools) == {"add", "all", "count", "nothing", "boom", "unspeakable", "wait"}
        assert tools["add"].description == "Add a note."
        assert tools["add"].input_schema == {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
                "kind": {"enum": ["idea", "task"], "default": "idea"},
            },
            "required": ["text"],
        }
        assert (await gateway.call("notes.add", {"text": "x", "kind": "task"})).text == "1 task"
        assert (await gateway.call("notes.all")).structured_content == {"result": ["x"]}
        weights = await gateway.call("notes.count", {"weights": {"a": 1.5}})
        assert weights.structured_content == {"a": 1.5}
        assert (await gateway.call("notes.nothing")).content == []
        for tool, arguments in (("boom", {}), ("add", {}), ("add", {"wrong": 1}), ("unspeakable", {})):
            assert (await gateway.call(f"notes.{tool}", arguments)).is_error
        with pytest.raises(muxway.MuxwayError, match="no public methods"):
            await gateway.add("empty", server=object())


async def test_cancelling_a_call_cancels_a_plain_objects_method() -> None:
    """docs/library.md#progress-cancellation-time: cancellation reaches whoever works on it, in process too."""
    notes = Notes()
    async with muxway.Gateway.open() as gateway:
        await gateway.add("notes", server=notes)
        call = asyncio.ensure_future(gateway.call("notes.wait"))
        await until(lambda: hasattr(notes, "waiting"), 2)
        call.cancel()
        await until(lambda: notes.waiting is not None and notes.waiting.cancelled(), 2)


async def test_odd_names_are_told_with_their_server() -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: never silently."""
    config = {"mcpServers": {"fine": child(), "my server": child(hiddenTools=["nothing"])}}
    async with muxway.Gateway.open(config) as gateway:
        fine, odd = gateway.servers()
        assert any("listed under 'my_server'" in note for note in odd.notes)
        assert any("named in hiddenTools" in note for note in odd.notes)
        assert list(fine.notes) == []
        assert "my_server__echo" in [tool.name for tool in odd.tools]


async def test_open_without_waiting_gives_a_gateway_that_is_still_starting() -> None:
    """Ours: `wait=False` for those who want to be quick; calls wait for their server."""
    async with muxway.Gateway.open({"mcpServers": {"up": child()}}, wait=False) as gateway:
        assert [str(server.status) for server in gateway.servers()] == ["initializing"]
        assert (await gateway.call("up.echo", {"a": 1})).text == '{"a": 1}'


async def test_two_gateways_do_not_disturb_each_other() -> None:
    """Ours: no globals."""
    async with muxway.Gateway.open({"mcpServers": {"up": child()}}) as one:
        async with muxway.Gateway.open({"mcpServers": {"up": child()}}) as two:
            assert (await two.call("up.echo", {"n": 2})).text == '{"n": 2}'
        assert (await one.call("up.echo", {"n": 1})).text == '{"n": 1}'


def test_the_synchronous_helper_does_the_same() -> None:
    """docs/library.md#without-await: a synchronous helper for scripts."""
    with muxway.SyncGateway({"mcpServers": {"up": child()}}) as gateway:
        assert "up__echo" in [tool.name for tool in gateway.tools()]
        assert gateway.call("up.echo", {"a": 1}).text == '{"a": 1}'
        assert gateway.add("notes", server=Notes()).status is muxway.Status.RUNNING
        assert gateway.call("notes.add", {"text": "x"}).text == "1 idea"
        gateway.remove("notes")
        [server] = gateway.servers()
        with pytest.raises(muxway.ToolNotFound):
            gateway.call("up.nothing")
    assert not alive([server.pid or 0])


def test_the_synchronous_helper_raises_what_opening_raises(tmp_path: Path) -> None:
    """docs/library.md#without-await: the same errors."""
    with pytest.raises(muxway.ConfigError), muxway.SyncGateway(tmp_path / "none.json"):
        pytest.fail("not reached")
