"""`audit`: a line for everything, whatever happens to the file, and never at the cost of a call."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Raw

from muxway import Gateway
from muxway.calls.call import Call, Caller
from muxway.calls.ports import Waiter
from muxway.config import load_config
from muxway.errors import ConfigError
from muxway.middleware.builtin import audit
from muxway.middleware.builtin.audit import Audit
from muxway.testing import ScriptedServer
from muxway.wire.revisions import NEWEST

from ..conftest import a_world
from .chained import chained

if TYPE_CHECKING:
    from collections.abc import Callable


def written(path: Path) -> list[dict[str, Any]]:
    """Every line, each of which must be JSON."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text.endswith("\n") or not text
    return [json.loads(line) for line in text.split("\n")[:-1]]


def calls(path: Path) -> list[dict[str, Any]]:
    return [line for line in written(path) if line.get("method") == "tools/call"]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "muxway.audit"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries again soon, and does not wait long for the end."""
    monkeypatch.setattr(audit, "_AGAIN", 0.05)
    monkeypatch.setattr(audit, "_PATIENCE", 0.3)


async def test_a_call_is_written_down_with_a_digest_of_its_arguments(tmp_path: Path) -> None:
    """docs/middleware/audit.md: who, tool, server, arguments' hash, outcome, duration."""
    path = tmp_path / "audit.jsonl"
    options = {"use": "audit", "path": str(path)}
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, middleware=[options]) as world:
        client = await world.client()
        reply = await client.call("up__echo", {"b": [1, "x"], "a": "s3cr3t"})
    assert "s3cr3t" not in path.read_text()
    [line] = written(path)
    expected = hashlib.sha256(b'{"a":"s3cr3t","b":[1,"x"]}').hexdigest()
    assert line.pop("time").endswith("Z")
    assert 0 < line.pop("ms") < 10_000
    assert line == {
        "principal": None,
        "client": "raw",
        "clientVersion": "1",
        "revision": "2025-11-25",
        "method": "tools/call",
        "name": "up__echo",
        "server": "up",
        "arguments": f"sha256:{expected}",
        "outcome": "ok",
        "code": None,
        "bytesIn": len(json.dumps({"b": [1, "x"], "a": "s3cr3t"})),
        "bytesOut": len(reply.line) - len(b'{"jsonrpc":"2.0","id":2,"result":}'),
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_digest_does_not_depend_on_how_the_arguments_are_written() -> None:
    """Ours: the same call has the same digest, whoever made it."""
    one = audit.digest(Raw(b'{"b": {"z":1,"a":2}, "a": "\\u00e9"}'))
    other = audit.digest(Raw('{"a":"é","b":{"a":2,"z":1}}'.encode()))
    assert one == other
    assert audit.digest(Raw(b'{"n":1e999}')).startswith("sha256:")


@pytest.mark.parametrize("spelled", ["audit.jsonl", "./audit.jsonl", "~/audit.jsonl", "{}/audit.jsonl"])
async def test_a_relative_path_begins_at_the_config_file(
    spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/middleware/audit.md: a client starts muxway in any folder."""
    elsewhere, home = tmp_path / "elsewhere", tmp_path / "home"
    for folder in (elsewhere, home):
        folder.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(home))
    file = tmp_path / "servers.json"
    around = {"middleware": [{"use": "audit", "path": spelled.format(tmp_path)}]}
    file.write_text(json.dumps({"mcpServers": {"up": {"command": "(in process)"}}, "gateway": around}))
    config = replace(load_config(file), objects={"up": ScriptedServer(tools={"echo": None})})
    async with Gateway.open(config) as gateway:
        await gateway.call("up__echo", {})
    assert ((home if "~" in spelled else tmp_path) / "audit.jsonl").read_text().count("tools/call") == 1
    assert [*elsewhere.iterdir()] == []


async def test_a_line_is_one_line_to_every_reader(tmp_path: Path) -> None:
    """docs/middleware/audit.md: one JSON object a line, also to readers that know more ends of a line than \\n."""
    path = tmp_path / "audit.jsonl"
    ends = "".join(map(chr, (0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029)))
    async with chained({"up": ScriptedServer(tools={"t": None})}, Audit(path=str(path))) as world:
        client = await world.client()
        await client.ask("tools/call", {"name": f"up__{ends}é", "arguments": {}})
    lines = path.read_text(encoding="utf-8").splitlines()
    assert f"up__{ends}é" in [json.loads(line)["name"] for line in lines]


async def test_whoever_came_with_a_token_is_told_by_its_digest(tmp_path: Path) -> None:
    """Ours: enough of it to tell callers apart, not enough to be of use."""
    path = tmp_path / "audit.jsonl"
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
        call = Call(Caller(revision=NEWEST, principal=b"\xab" * 32), "tools/list", {})
        waiter = Waiter()
        await waiter.outcome(world.gateway.runtime.dispatcher().handle(call, waiter))
    [line] = written(path)
    assert (line["principal"], line["client"], line["arguments"]) == ("ab" * 6, None, None)


async def test_every_kind_of_end_is_written_down(tmp_path: Path) -> None:
    """Ours: also what was given up."""

    def fail(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.fail(request, -32050, "no")

    def say_error(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, {"content": [], "isError": True})

    path = tmp_path / "audit.jsonl"
    server = ScriptedServer(tools={"fail": fail, "say_error": say_error, "hang": lambda _server, _request: None})
    async with chained({"up": server}, Audit(path=str(path))) as world:
        client = await world.client()
        await client.call("up__fail")
        await client.call("up__say_error")
        await client.call("up__unknown")
        id_ = client.start("tools/call", {"name": "up__hang", "arguments": {}})
        await client.tools()
        client.tell("notifications/cancelled", {"requestId": id_})
        await client.tools()
    assert [(line["name"], line["outcome"], line["code"]) for line in calls(path)] == [
        ("up__fail", "error", -32050),
        ("up__say_error", "isError", None),
        ("up__unknown", "error", -32601),
        ("up__hang", "cancelled", None),
    ]


async def test_a_thousand_calls_at_once_are_a_thousand_lines(tmp_path: Path) -> None:
    """Ours: all of them are written before the gateway has ended."""
    path = tmp_path / "audit.jsonl"
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
        client = await world.client()
        ids = [client.start("tools/call", {"name": "up__echo", "arguments": {"n": n}}) for n in range(1000)]
        for id_ in ids:
            await client.answer(id_)
    assert len({line["arguments"] for line in calls(path)}) == 1000
    assert not any(thread.name == "muxway audit" for thread in threading.enumerate())


async def test_large_arguments_are_digested_elsewhere_and_alike(tmp_path: Path) -> None:
    """Ours: a megabyte is not hashed while others wait."""
    path = tmp_path / "audit.jsonl"
    arguments = {"text": "x" * 1_000_000}
    async with chained({"up": ScriptedServer(tools={"size": _say_nothing})}, Audit(path=str(path))) as world:
        client = await world.client()
        await client.call("up__size", arguments)
        await client.call("up__size", {"text": "small"})
    large, small = calls(path)
    canonical = json.dumps(arguments, separators=(",", ":")).encode()
    assert large["arguments"] == f"sha256:{hashlib.sha256(canonical).hexdigest()}"
    assert large["bytesIn"] > 1_000_000
    assert small["bytesIn"] < 100


def _say_nothing(server: ScriptedServer, request: dict[str, Any]) -> None:
    server.reply(request, {"content": []})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.usefixtures("impatient")
async def test_a_full_disk_is_a_warning_and_calls_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """docs/middleware/audit.md: survives a full disk with a warning, never blocks."""
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path="/dev/full")) as world:
        client = await world.client()
        for n in range(20):
            assert (await client.call("up__echo", {"n": n})).result["structuredContent"] == {"n": n}
        await until(lambda: warnings(caplog))
        for n in range(20):
            assert (await client.call("up__echo", {"n": n})).result["structuredContent"] == {"n": n}
    assert warnings(caplog) == [
        'audit cannot be written; calls go on path=/dev/full why="No space left on device"',
        "audit lines lost path=/dev/full lines=40",
    ]


@pytest.mark.usefixtures("impatient")
async def test_nothing_is_lost_while_a_folder_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ours: what cannot be written waits."""
    path = tmp_path / "not yet" / "audit.jsonl"
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
        client = await world.client()
        await client.call("up__echo", {"n": 1})
        await until(lambda: warnings(caplog))
        await client.call("up__echo", {"n": 2})
        path.parent.mkdir()
        await until(lambda: len(calls(path)) == 2)
    assert [line.partition(" path=")[0] for line in warnings(caplog)] == [
        "audit cannot be written; calls go on",
        "audit is written again",
    ]


@pytest.mark.usefixtures("impatient")
async def test_lines_that_are_lost_are_counted_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/middleware/audit.md: a hole in the file is seen in the file; and memory is bounded."""
    monkeypatch.setattr(audit, "_MOST_WAITING", 2000)
    path = tmp_path / "not yet" / "audit.jsonl"
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
        client = await world.client()
        for n in range(50):
            await client.call("up__echo", {"n": n})
        await until(lambda: warnings(caplog))
        path.parent.mkdir()
        await until(lambda: any("lost" in line for line in written(path)))
        await client.call("up__echo", {"n": 50})
    lines = written(path)
    lost = sum(line.get("lost", 0) for line in lines)
    assert 40 < lost < 51
    assert lost + len(calls(path)) == 51
    assert "lost" not in lines[0]
    assert any("audit lines lost" in line for line in warnings(caplog))


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.usefixtures("impatient")
async def test_a_disk_that_is_full_in_the_middle_of_a_line_spoils_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, moved: bool
) -> None:
    """Ours: a line that was begun is ended, or, if the file was moved away meanwhile, begun again in the new one."""
    path = tmp_path / "audit.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
        client = await world.client()
        # No file of this process may grow beyond this: the kernel writes a part and then refuses, as a full disk does.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            for n in range(10):
                await client.call("up__echo", {"n": n})
            await until(lambda: warnings(caplog))
            assert path.stat().st_size == 1000
            if moved:
                path.rename(tmp_path / "old")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    whole = (tmp_path / "old").read_text().count("\n") if moved else 0
    assert len(calls(path)) + whole == 10


async def test_a_file_that_ends_in_half_a_line_is_continued_on_a_new_one(tmp_path: Path) -> None:
    """Ours: what a crash cut off spoils one line, not two."""
    path = tmp_path / "audit.jsonl"
    path.write_text('{"method":"tools/ca')
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
        await (await world.client()).call("up__echo")
    half, whole, end = path.read_text().split("\n")
    assert (half, json.loads(whole)["name"], end) == ('{"method":"tools/ca', "up__echo", "")


@pytest.mark.parametrize("away", ["moved", "deleted"])
async def test_a_rotated_file_is_begun_anew(tmp_path: Path, away: str) -> None:
    """docs/middleware/audit.md: survives rotation."""
    path = tmp_path / "audit.jsonl"
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
        client = await world.client()
        await client.call("up__echo", {"n": 1})
        await until(lambda: calls(path))
        if away == "moved":
            path.rename(tmp_path / "audit.1.jsonl")
        else:
            path.unlink()
        await client.call("up__echo", {"n": 2})
    assert len(calls(path)) == 1
    assert away == "deleted" or len(calls(tmp_path / "audit.1.jsonl")) == 1


@pytest.mark.usefixtures("impatient")
async def test_a_file_that_blocks_holds_up_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """docs/middleware/audit.md: never blocks, not even the end."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    async with asyncio.timeout(30):
        async with chained({"up": ScriptedServer(tools={"echo": None})}, Audit(path=str(path))) as world:
            client = await world.client()
            for n in range(500):  # more than a pipe holds
                await client.call("up__echo", {"n": n})
    assert [line.partition(" path=")[0] for line in warnings(caplog)] == ["audit lines lost"]
    [writer] = [thread for thread in threading.enumerate() if thread.name == "muxway audit"]
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    while writer.is_alive():
        try:
            os.read(reader, 65536)
        except BlockingIOError:
            writer.join(0.01)
    os.close(reader)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the option `path`"),
        ({"path": " "}, "must be the path of a file"),
        ({"path": 7}, "`path` has the wrong type"),
        ({"path": "x", "file": "y"}, "has no option `file`"),
    ],
)
async def test_wrong_options_are_told(options: dict[str, Any], words: str) -> None:
    """docs/middleware/audit.md: the options, and no others."""
    with pytest.raises(ConfigError, match=words):
        async with a_world({}, middleware=[{"use": "audit", **options}]):
            pass
