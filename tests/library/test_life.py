"""The life of real child processes: replaced when they answer nothing, asleep, lazy, few at a time, swapped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, UpstreamError
from muxway.config import parse_config
from tests.noting import until
from tests.pace import crowding
from tests.stdio.harness import child

if TYPE_CHECKING:
    from pathlib import Path

    from muxway import Server


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def config(servers: dict[str, Any], **gateway: Any) -> Any:
    """A configuration with these servers."""
    return parse_config({"mcpServers": servers, "gateway": gateway})


def one(gateway: Gateway, name: str = "up") -> Server:
    """How a server is."""
    return next(server for server in gateway.servers() if server.name == name)


def is_alive(pid: int | None) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_child_that_answers_nothing_is_replaced() -> None:
    """docs/behaviour.md#a-server-hangs: declared dead after the call that got no answer, and started again."""
    servers = {"up": child(callTimeout=1), "other": child()}
    async with Gateway.open(config(servers)) as gateway:
        frozen = one(gateway).pid
        assert frozen is not None
        os.kill(frozen, signal.SIGSTOP)
        with pytest.raises(UpstreamError, match="gave no sign"):
            await gateway.call("up.echo", {})
        async with asyncio.timeout(15 + crowding()):
            await until(lambda: one(gateway).pid not in (None, frozen) and str(one(gateway).status) == "running")
        assert (await gateway.call("up.echo", {"x": 1})).text == json.dumps({"x": 1})
        assert not is_alive(frozen)
        assert one(gateway, "other").restarts == 0


async def test_a_quiet_child_is_asked_and_replaced_only_if_it_does_not_answer() -> None:
    """docs/configuration.md#servers: `probeInterval`, health probes of silent links."""
    async with Gateway.open(config({"up": child(probeInterval=0.2)})) as gateway:
        first = one(gateway).pid
        await asyncio.sleep(1)
        assert (one(gateway).pid, one(gateway).restarts) == (first, 0)


async def test_a_lazy_server_is_listed_before_it_ever_runs(tmp_path: Path) -> None:
    """docs/behaviour.md#start: lazy start; what it has is remembered from the run before."""
    lazy = config({"up": child(start="lazy")})
    async with Gateway.open(lazy) as gateway:
        assert str(one(gateway).status) == "running"  # nothing was known of it
        listed = gateway.tools()
    async with Gateway.open(lazy) as gateway:
        assert (str(one(gateway).status), one(gateway).pid) == ("sleeping", None)
        assert gateway.tools() == listed
        assert (await gateway.call("up.echo", {"x": 1})).text == json.dumps({"x": 1})
        assert str(one(gateway).status) == "running"
    [file] = (tmp_path / "cache" / "muxway" / "servers").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b'{"revision": "2025-11-25", "offers": {"tools": 7}}')
    async with Gateway.open(lazy) as gateway:
        assert str(one(gateway).status) == "running"  # what was remembered was of no use


async def test_no_more_processes_than_allowed() -> None:
    """docs/behaviour.md#size-limits: a cap on processes; whoever has been idle for the longest time makes room."""
    servers = {name: child() for name in ("a", "b", "c")}
    async with Gateway.open(config(servers, maxProcesses=2)) as gateway:
        await until(lambda: all(server.tools for server in gateway.servers()))
        for name in ("a", "b", "c", "a"):
            assert (await gateway.call(f"{name}.echo", {"x": name})).text == json.dumps({"x": name})
            states = [str(server.status) for server in gateway.servers()]
            assert states.count("running") <= 2, states
        assert len(gateway.tools()) == 3 * len(one(gateway, "a").tools)


async def test_a_changed_server_is_swapped_and_the_others_never_notice() -> None:
    """docs/behaviour.md#reload: make before break; a call under way ends where it began."""
    before = config({"up": child(env={"WHO": "old"}), "same": child()})
    after = config({"up": child(env={"WHO": "new"}), "same": child()})
    async with Gateway.open(before) as gateway:
        old, same = one(gateway).pid, one(gateway, "same").pid
        slow = asyncio.ensure_future(gateway.call("up.sleep", {"seconds": 1.0}))
        await asyncio.sleep(0.2)
        assert list((await gateway.apply(after)).swap) == ["up"]
        await gateway.settled()
        assert (await gateway.call("up.environment")).raw["env"]["WHO"] == "new"
        assert (await slow).raw["slept"] is True
        assert one(gateway, "same").pid == same
        async with asyncio.timeout(30):
            await until(lambda: not is_alive(old))


async def test_a_configuration_that_takes_a_change_back_keeps_the_old_process() -> None:
    """Ours: a swap that has not happened yet is called off."""
    before = config({"up": child()})
    async with Gateway.open(before) as gateway:
        pid = one(gateway).pid
        await gateway.apply(config({"up": {"command": "sleep", "args": ["60"]}}))
        assert (await gateway.call("up.echo", {"x": 1})).text == json.dumps({"x": 1})
        await gateway.apply(before)
        await gateway.settled()
        assert one(gateway).pid == pid


async def test_servers_come_and_go_with_the_configuration() -> None:
    """docs/reload.md#what-happens-to-a-server: started, stopped and reordered, each once."""
    async with Gateway.open(config({"a": child(), "b": child()})) as gateway:
        gone = one(gateway, "a").pid
        changes = await gateway.apply(config({"c": child(), "b": child(prefix="bee")}))
        assert (changes.start, changes.stop, list(changes.adjust)) == (("c",), ("a",), ["b"])
        await gateway.settled()
        assert [server.name for server in gateway.servers()] == ["c", "b"]
        assert {tool.name.partition("__")[0] for tool in gateway.tools()} == {"c", "bee"}
        async with asyncio.timeout(30):
            await until(lambda: not is_alive(gone))
