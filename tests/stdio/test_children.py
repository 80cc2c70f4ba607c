"""`muxway stdio` and its child processes: starting, crashing, ending, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from muxway.testing import RawClient
from tests import signals
from tests.pace import crowding
from tests.stdio.harness import CHILD, alive, child, children_of, connected, muxway, until


def _servers(**servers: dict[str, Any]) -> dict[str, Any]:
    return {"mcpServers": servers}


async def test_a_crash_names_server_status_and_last_stderr_line(tmp_path: Path) -> None:
    """docs/behaviour.md#a-server-crashes: the calls fail with its name, exit status and last stderr line."""
    async with muxway(tmp_path, _servers(bad=child(), good=child())) as process:
        client = await connected(process, "bad", "good")
        waiting = client.start("tools/call", {"name": "bad__hang", "arguments": {}})
        error = (await client.call("bad__crash")).error
        assert error["code"] == -32603
        assert 'server "bad" exited with status 3' in error["message"]
        assert "fatal: out of cheese" in error["message"]
        assert (await client.answer(waiting)).error["message"] == error["message"]
        assert (await client.call("good__echo", {"a": 1})).result
        assert (await client.call("bad__echo", {"a": 2})).result
        assert "server ended; starting it again upstream=bad" in process.log()


@pytest.mark.parametrize(
    ("tool", "says"),
    [("kill", "was killed by SIGKILL"), ("partial", "exited with status 0"), ("close_stdout", "closed its output")],
)
async def test_every_way_to_go_fails_the_call_at_once(tmp_path: Path, tool: str, says: str) -> None:
    """docs/behaviour.md#a-server-crashes: in a second, with the cause."""
    async with muxway(tmp_path, _servers(bad=child(), good=child())) as process:
        client = await connected(process, "bad", "good")
        error = (await client.call(f"bad__{tool}")).error
        assert says in error["message"]
        assert error["data"]["muxway"] == {"reason": "lost", "upstream": "bad"}
        assert (await client.call("good__echo")).result


async def test_a_line_without_end_fails_its_call_and_is_skipped(tmp_path: Path) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: over the limit, skipped without being buffered; the server goes on."""
    async with muxway(tmp_path, _servers(bad=child(), good=child())) as process:
        client = await connected(process, "bad", "good")
        error = (await client.call("bad__endless")).error
        assert error["data"]["muxway"] == {"reason": "too_large", "upstream": "bad"}
        assert (await client.call("good__echo")).result
        assert (await client.call("bad__echo", {"still": "here"})).result
        peak = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmHWM" in line)
        assert int(peak.split()[1]) < 150_000


async def test_a_large_result_crosses(tmp_path: Path) -> None:
    """docs/behaviour.md#size-limits: up to 16 MiB by default."""
    async with muxway(tmp_path, _servers(up=child())) as process:
        client = await connected(process, "up")
        for size in (100_000, 1_000_000, 15_000_000):
            assert len((await client.call("up__big", {"size": size})).result["content"][0]["text"]) == size


async def test_a_flood_on_stderr_stops_nobody(tmp_path: Path) -> None:
    """docs/behaviour.md#a-server-hangs: stderr is always drained."""
    async with muxway(tmp_path, _servers(up=child())) as process:
        client = await connected(process, "up")
        assert (await client.call("up__stderr_flood")).result["done"]
        assert len(process.log()) < 100_000


async def test_a_child_sees_only_what_it_should(tmp_path: Path) -> None:
    """docs/behaviour.md#start: allow-listed plus configured variables, and descriptors 0 to 2."""
    config = _servers(up=child(env={"MINE": "yes", "FROM": "${OUTER}"}))
    async with muxway(tmp_path, config, OUTER="expanded", AWS_SECRET_ACCESS_KEY="leak", RANDOM_THING="leak") as process:
        client = await connected(process, "up")
        seen = (await client.call("up__environment")).result
        assert seen["fds"] == [0, 1, 2]
        assert seen["env"]["MINE"] == "yes"
        assert seen["env"]["FROM"] == "expanded"
        assert "leak" not in seen["env"].values()
        assert "PATH" in seen["env"]


async def test_secrets_are_masked_in_what_a_child_says(tmp_path: Path) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: secrets never appear in logs or errors."""
    async with muxway(tmp_path, _servers(up=child(env={"TOKEN": "${TOKEN}"})), TOKEN="hunter2hunter2") as process:
        client = await connected(process, "up")
        error = (await client.call("up__secret")).error
        assert "my token is ***" in error["message"]
        assert "hunter2" not in process.log()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (child("exit"), ["exited with status 7", "cannot read my database"]),
        ({"command": "no-such-program-anywhere"}, ["no-such-program-anywhere", "not found"]),
        ({"command": "npx", "env": {"PATH": "/nowhere"}}, ["npx", "Node.js"]),
        ({"command": "uvx", "env": {"PATH": "/nowhere"}}, ["uvx", "uv"]),
        ({"command": str(CHILD)}, [CHILD.name, "chmod +x"]),
        (child("mute", startTimeout=0.5), ["not ready after 0.5 s"]),
        (child("endless", startTimeout=0.5), ["not ready after 0.5 s"]),
        ({"url": "http://127.0.0.1:9/mcp"}, ["URL"]),
    ],
    ids=["exit", "not found", "no npx", "no uvx", "not executable", "mute", "endless line", "remote"],
)
async def test_a_server_that_cannot_start_fails_alone_and_says_why(
    tmp_path: Path, entry: dict[str, Any], says: list[str]
) -> None:
    """docs/behaviour.md#start.

    Command not found or not executable, exits at once, never answers, a line without end.
    """
    async with muxway(tmp_path, _servers(bad=entry, good=child())) as process:
        client = await connected(process, "good")
        assert (await client.call("good__echo")).result
        error = (await client.call("bad__anything")).error
        assert error["data"]["muxway"].pop("retryAfterMs") > 0
        assert error["data"]["muxway"] == {"reason": "not_running", "upstream": "bad"}
        for words in says:
            assert words in error["message"]
            assert words in process.log()


async def test_junk_at_the_start_is_skipped(tmp_path: Path) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: a child that writes junk."""
    async with muxway(tmp_path, _servers(up=child("junk"))) as process:
        client = await connected(process, "up")
        assert (await client.call("up__echo")).result


async def test_fifty_children_start_in_parallel(tmp_path: Path) -> None:
    """docs/behaviour.md#start.

    50 children start in parallel; here that all are there and one at a time would not do.
    """
    async with muxway(tmp_path, _servers(**{f"s{n}": child() for n in range(50)})) as process:
        client = await connected(process, *(f"s{n}__" for n in range(50)))
        for n in (0, 25, 49):
            assert (await client.call(f"s{n}__echo", {"n": n})).result["content"][0]["text"] == f'{{"n": {n}}}'
        # The order is the configuration's, whoever was first.
        names = [name for name in await client.tools() if name.endswith("__echo")]
        assert names == [f"s{n}__echo" for n in range(50)]


async def test_initialize_is_answered_before_any_server_is_ready(tmp_path: Path) -> None:
    """docs/behaviour.md#start: at once, with what is ready."""
    async with muxway(tmp_path, _servers(slow=child("mute")), "--list-wait", "0") as process:
        client = await connected(process)
        assert await client.tools() == []


async def test_the_first_listing_waits_for_servers_that_are_about_to_be_ready(tmp_path: Path) -> None:
    """Decision 8: most clients list once; what is ready within the window is in that one list."""
    async with muxway(tmp_path, _servers(one=child(), two=child()), "--list-wait", "30") as process:
        client = RawClient(process)
        await client.hello()
        names = await client.tools()
        assert {"one__echo", "two__echo"} <= set(names)
        assert client.notices == [], "complete from the start: nothing to announce"


async def test_a_server_that_hangs_holds_the_first_listing_only_so_long(tmp_path: Path) -> None:
    """docs/behaviour.md#start: one slow server does not keep the others from being listed."""
    async with muxway(tmp_path, _servers(slow=child("mute"), good=child()), "--list-wait", "3") as process:
        client = await connected(process, "good")
        began = time.monotonic()
        assert "good__echo" in await client.tools()
        assert time.monotonic() - began < 2 + crowding(), "only the start is waited for, not each listing"


async def test_a_config_that_starts_muxway_itself_ends_somewhere(tmp_path: Path) -> None:
    """Ours: a mistake in a config must not fill the machine with processes."""
    # In a script, where nobody who only reads the config finds it.
    script = tmp_path / "start"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -m muxway stdio --config {tmp_path / 'muxway.json'}\n")
    script.chmod(0o755)
    itself = {"command": str(script)}
    async with muxway(tmp_path, _servers(itself=itself)) as process:
        await connected(process)
        # Each level adds a gateway and its reaper; the deepest one refuses to start another.
        await until(lambda: len(children_of(process.pid)) >= 8, 30)
        await asyncio.sleep(2)
        settled = len(children_of(process.pid))
        await asyncio.sleep(2)
        assert len(children_of(process.pid)) == settled < 14


# --- ending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["eof", "term", "int", "kill"])
async def test_nothing_is_left_behind(tmp_path: Path, how: str) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: no child or grandchild, whatever they ignore, however muxway ends."""
    config = _servers(plain=child(), stubborn=child("ignore"), lingering=child("linger"))
    async with muxway(tmp_path, config) as process:
        client = await connected(process, *config["mcpServers"])
        pids = [pid for name in config["mcpServers"] for pid in (await client.call(f"{name}__spawn")).result["pids"]]
        helpers = children_of(process.pid)
        assert len(alive(pids)) == 9
        began = time.monotonic()
        if how == "eof":
            process.close()
        else:
            os.kill(process.pid, {"term": signal.SIGTERM, "int": signal.SIGINT, "kill": signal.SIGKILL}[how])
        status = await process.ended()
        assert status == {"eof": 0, "term": 0, "int": 130, "kill": -9}[how]
        assert time.monotonic() - began < 9 + crowding()
        await until(lambda: not alive([*pids, *helpers]), 2 if how == "kill" else 0.5)


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: second signal = at once; and still nothing is left."""
    async with muxway(tmp_path, _servers(stubborn=child("ignore"))) as process:
        client = await connected(process, "stubborn")
        pids = (await client.call("stubborn__spawn")).result["pids"]
        signals.send(process.pid, signal.SIGTERM)
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        await process.ended()
        assert time.monotonic() - began < 1.5 + crowding()
        await until(lambda: not alive(pids), 2)


async def test_calls_under_way_are_answered_after_the_client_closes_its_side(tmp_path: Path) -> None:
    """docs/behaviour.md#client-leaves: in-flight calls shorter than the drain window are answered."""
    async with muxway(tmp_path, _servers(up=child())) as process:
        client = await connected(process, "up")
        call = client.start("tools/call", {"name": "up__sleep", "arguments": {"seconds": 1}})
        process.close()
        assert (await client.answer(call)).result["slept"]
        assert await process.ended() == 0


async def test_a_client_that_vanishes_mid_call_ends_the_gateway(tmp_path: Path) -> None:
    """docs/behaviour.md#client-leaves: closes its end mid-call; a broken pipe is no crash."""
    async with muxway(tmp_path, _servers(up=child())) as process:
        client = await connected(process, "up")
        pids = (await client.call("up__spawn")).result["pids"]
        client.start("tools/call", {"name": "up__sleep", "arguments": {"seconds": 2}})
        process.process._transport.close()  # type: ignore[attr-defined]
        await until(lambda: not alive([process.pid, *pids]), 9)


async def test_requests_from_a_file_are_answered_into_a_file(tmp_path: Path) -> None:
    """Ours: `muxway stdio < requests > answers` works, though no loop can wait for a file."""
    (tmp_path / "c.json").write_text(json.dumps(_servers(up=child())))
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "up__echo", "arguments": {"x": 1}}},
    ]
    (tmp_path / "in").write_text("".join(json.dumps(request) + "\n" for request in requests))

    def run() -> int:
        with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as sink:
            command = [sys.executable, "-m", "muxway", "stdio", "--config", str(tmp_path / "c.json")]
            return subprocess.run(
                command, stdin=source, stdout=sink, stderr=subprocess.PIPE, timeout=30, check=False
            ).returncode

    assert await asyncio.to_thread(run) == 0
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [answer["id"] for answer in answers if "id" in answer] == [1, 2]
    assert answers[-1]["result"]["content"][0]["text"] == '{"x": 1}'
