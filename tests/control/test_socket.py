"""The socket itself: who may use it, and what becomes of those who misuse it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muxway import Gateway as LibraryGateway
from muxway.config import parse_config
from muxway.control import folders, serving
from muxway.control.answering import Answering
from muxway.control.client import ControlError, find
from muxway.control.serving import ControlSocket
from muxway.control.watching import Reloader, WatchedConfig
from tests.control.conftest import Gateway, talker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from click.testing import Result

    from muxway.config import Config
    from muxway.config.plan import Plan


@contextlib.contextmanager
def connected(gateway: Gateway) -> Iterator[socket.socket]:
    """A connection to a gateway's socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(gateway.running().path))
        yield connection


def everything(connection: socket.socket) -> bytes:
    """What is said until the connection is closed."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            said += part
    return said


# --- whose it is --------------------------------------------------------------------------------


def test_only_the_owner_may_use_it(launch: Callable[..., Gateway], runtime: Path) -> None:
    """docs/operating.md#where-the-socket-is.

    Owner-only rights, of the folder and of the socket; the name holds the pid.
    """
    gateway = launch({"mcpServers": {"talker": talker()}})
    path = gateway.running().path
    assert path.parent == runtime / "muxway"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.name.partition("-")[0] == str(gateway.pid)


def test_without_a_runtime_folder_it_is_in_the_temporary_one(
    launch: Callable[..., Gateway], runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/operating.md#where-the-socket-is: a folder named after the user, created 0700."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "not-there"))
    path = launch({"mcpServers": {"talker": talker()}}).running().path
    assert path.parent == runtime / "tmp" / f"muxway-{os.geteuid()}"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    # Whoever asks need not have the same variable.
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert [one.path for one in find().gateways] == [path]


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_a_folder_that_others_could_have_made_is_refused(
    launch: Callable[..., Gateway], muxway: Callable[..., Result], runtime: Path, kind: str
) -> None:
    """docs/operating.md#where-the-socket-is: refused if others may enter. The gateway says why, and goes on."""
    for folder in folders.folders():
        if kind == "open to others":
            folder.mkdir(mode=0o755)
            folder.chmod(0o755)
        elif kind == "a link":
            target = runtime / f"elsewhere-{folder.parent.name}"
            target.mkdir(mode=0o700)
            folder.symlink_to(target)
        else:
            folder.write_text("")
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.call("talker__say", lines=["still here"])
    assert "no control socket" in gateway.log()
    result = muxway("status")
    assert result.exit_code == 4
    assert "Not looked into" in result.stderr


def test_a_folder_of_another_user_is_refused(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/operating.md#where-the-socket-is: refused if it is not ours."""
    folder = runtime / "muxway"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        folders.check_folder(folder)


@pytest.fixture
async def library(runtime: Path) -> AsyncIterator[ControlSocket]:
    """A socket in this process, of a gateway without servers."""
    async with LibraryGateway.open() as gateway:
        control = ControlSocket(lambda: gateway, "here")
        await control.start()
        yield control
        await control.stop()


async def test_another_user_is_not_answered(library: ControlSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/operating.md#where-the-socket-is: peer credentials are checked, whatever the rights of the file say."""
    assert len((await asyncio.to_thread(find)).gateways) == 1
    monkeypatch.setattr(serving, "whose", lambda _: os.geteuid() + 1)
    found = await asyncio.to_thread(find)
    assert found.gateways == []


async def test_a_socket_of_another_user_is_not_asked(library: ControlSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: nor is somebody else's answer believed."""
    monkeypatch.setattr("muxway.control.client.whose", lambda _: os.geteuid() + 1)
    assert (await asyncio.to_thread(find)).gateways == []


def test_the_user_at_the_other_end_is_known() -> None:
    """Linux tells; elsewhere the folder alone keeps others out."""
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert folders.whose(one) == (os.geteuid() if sys.platform == "linux" else None)


# --- what was left behind -----------------------------------------------------------------------


def test_what_the_dead_left_is_swept_and_the_rest_is_not(runtime: Path) -> None:
    """Ours: stale ones are swept by whoever sees them; nothing else is touched."""
    folder = runtime / "muxway"
    folder.mkdir(mode=0o700)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kept = {folder / "notes.txt", folder / f"{gone.pid}-abc.txt", folder / "no-number.sock", folder / "77-file.sock"}
    for file in kept:
        file.write_text("")
    left, ours, foreign = (folder / f"{pid}-abc.sock" for pid in (gone.pid, os.getpid(), f"{gone.pid}-x"))
    with contextlib.ExitStack() as stack:
        for path, listens in ((left, False), (ours, False), (foreign, True)):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            if listens:  # as one in another container would, whose process has no number here
                listener.listen()
        assert [path for _, path in folders.sockets(folder)] == sorted([ours, foreign])
    assert {*folder.iterdir()} == {*kept, ours, foreign}


def test_a_gateway_that_starts_sweeps(launch: Callable[..., Gateway], runtime: Path) -> None:
    """Ours: stale sockets are swept by whoever sees them."""
    first = launch({"mcpServers": {"talker": talker()}}, name="first.json")
    left = first.running().path
    first.process.kill()
    first.process.wait()
    assert left.exists()
    launch({"mcpServers": {"talker": talker()}}, name="second.json").running()
    assert not left.exists()


def test_what_is_no_gateway_is_not_taken_for_one(runtime: Path, muxway: Callable[..., Result]) -> None:
    """Ours: whatever listens there and says something else is named as silent, and nothing hangs."""
    folder = runtime / "muxway"
    folder.mkdir(mode=0o700)
    program = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True)\n"
        "while True: c, _ = s.accept(); c.recv(100); c.sendall(sys.argv[2].encode()); c.close()\n"
    )
    for answer in ("hello\n", "[]\n", '{"result": {}}\n', '{"result": 5}\n', '{"error": 1}\n', '{"error": {}}\n', "\n"):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(folder / f"{os.getpid()}-x.sock"), answer], stdout=subprocess.PIPE
        ) as listener:
            assert listener.stdout is not None
            listener.stdout.readline()
            result = muxway("status")
            listener.kill()
        (folder / f"{os.getpid()}-x.sock").unlink()
        assert result.exit_code == 4
        assert f"the gateway with pid {os.getpid()} does not answer" in result.stderr


# --- misuse -------------------------------------------------------------------------------------


NONSENSE = [
    b"\n",
    b"hello\n",
    b"[]\n",
    b"{}\n",
    b'{"ask": 1}\n',
    b'{"ask": "everything"}\n',
    b'{"ask": "logs"}\n',
    b'{"ask": "logs", "server": [], "last": "x", "follow": 1}\n',
    b'{"ask": "restart", "server": null}\n',
    b"\xff\xfe\x00\n",
    b"[" * 50_000 + b"\n",
    b'{"ask": "who"',
]


def test_nonsense_is_refused(launch: Callable[..., Gateway]) -> None:
    """Ours: garbage gets an error and the connection is closed; the gateway goes on."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    codes: dict[bytes, str] = {}
    for line in NONSENSE:
        with connected(gateway) as connection:
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            codes[line] = json.loads(everything(connection))["error"]["code"]
    assert codes == dict.fromkeys(NONSENSE, "bad_request")
    gateway.call("talker__say", lines=["still here"])


def test_an_endless_line_is_cut_off(launch: Callable[..., Gateway]) -> None:
    """Ours: a line has a limit, and is not kept beyond it."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    with connected(gateway) as connection:
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 64 << 20:
                sent += connection.send(b"x" * 65536)
        assert sent < 4 << 20
    gateway.call("talker__say", lines=["still here"])


async def test_whoever_says_nothing_is_cut_off(library: ControlSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a request has a time limit."""
    monkeypatch.setattr(serving, "_REQUEST_WAIT", 0.2)
    reader, writer = await connected_here()
    writer.write(b'{"ask": ')
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()


async def test_whoever_does_not_read_is_cut_off(library: ControlSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: what is written for somebody who does not read is bounded, in bytes and in time."""
    parts = 0

    async def endless(*_: object) -> AsyncIterator[dict[str, object]]:
        nonlocal parts
        while True:
            parts += 1
            yield {"lines": ["x" * 100_000]}

    monkeypatch.setattr(serving, "_READER_WAIT", 0.2)
    monkeypatch.setattr(Answering, "answer", endless)
    reader, writer = await connected_here()
    writer.write(b'{"ask": "anything"}\n')
    # It notices only when it has read what is left of it, which is little.
    async with asyncio.timeout(30):
        before = -1
        while parts == 0 or parts != before:
            before = parts
            await asyncio.sleep(0.5)
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(1 << 20):
                pass
    assert parts == before < 20
    writer.close()


async def connected_here() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the socket of this process, which reads only what it must."""
    (path,) = Path(os.environ["XDG_RUNTIME_DIR"], "muxway").iterdir()
    return await asyncio.open_unix_connection(str(path), limit=1024)


def test_a_hundred_connections_do_no_harm(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: at most a few are served; the others are told so; calls go on meanwhile."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    path = str(gateway.settled().path)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(100)]
        for connection in connections:
            connection.settimeout(20)
            connection.connect(path)
        began = time.monotonic()
        gateway.call("talker__say", lines=["still here"])
        assert time.monotonic() - began < 5
        said = [everything(connection) for connection in connections]
    refused = [json.loads(answer)["error"]["code"] for answer in said if answer]
    assert refused.count("busy") >= 80
    assert muxway("status").exit_code == 0


def test_random_bytes_do_no_harm(launch: Callable[..., Gateway]) -> None:
    """Ours: bytes of any kind, cut anywhere, and connections that are gone before they are answered."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    chance = random.Random(6)
    whole = b'{"ask": "logs", "server": "talker", "last": null, "follow": true}\n{"ask": "status"}\n'
    for _ in range(200):
        with connected_now() as connection:
            data = chance.randbytes(chance.randrange(200)) if chance.random() < 0.5 else whole
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(data[: chance.randrange(len(data) + 1)])
    until(lambda: gateway.running().ask("status")["servers"][0]["status"] == "running")
    gateway.call("talker__say", lines=["still here"])
    assert "error" not in gateway.log()


@contextlib.contextmanager
def connected_now() -> Iterator[socket.socket]:
    """A connection, without asking first."""
    (path,) = Path(os.environ["XDG_RUNTIME_DIR"], "muxway").iterdir()
    with socket.socket(socket.AF_UNIX) as connection:
        # Blocking: it waits if there is no room just now.
        connection.connect(str(path))
        yield connection


async def test_a_question_that_breaks_us_is_answered_all_the_same(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: whoever asked must not take a mistake of ours for the gateway's end."""

    class Broken:
        """A gateway that cannot even be looked at."""

        config = LibraryGateway.__new__(LibraryGateway)

        def servers(self) -> list[object]:
            raise ZeroDivisionError("by zero")

    broken = Broken()
    broken.config = type("Config", (), {"source": None})()  # pyright: ignore[reportAttributeAccessIssue]
    control = ControlSocket(lambda: broken, "here")  # pyright: ignore[reportArgumentType]
    await control.start()
    (running,) = (await asyncio.to_thread(find)).gateways
    with pytest.raises(ControlError, match="it could not be done: ZeroDivisionError: by zero"):
        await asyncio.to_thread(running.ask, "status")
    await control.stop()


async def test_without_a_gateway_it_says_that_the_servers_rest(runtime: Path) -> None:
    """`muxway serve` stops its servers when the last client of /sse has left, and starts a new gateway later."""
    control = ControlSocket(lambda: None, "here")
    await control.start()
    (running,) = (await asyncio.to_thread(find)).gateways
    status = await asyncio.to_thread(running.ask, "status")
    assert (status["resting"], status["servers"]) == (True, [])
    with pytest.raises(ControlError, match="until the next client comes"):
        await asyncio.to_thread(running.ask, "restart", server="x")
    await control.stop()


async def test_what_a_reload_would_change_is_not_told_while_the_servers_rest(runtime: Path, tmp_path: Path) -> None:
    """docs/cli.md#muxway-check: `--plan` compares with what runs, and says why it cannot."""
    config = parse_config({"mcpServers": {"x": {"command": "x"}}})

    async def never(_: Config) -> Plan:
        raise AssertionError("nothing is to be applied")

    reloader = Reloader(WatchedConfig(tmp_path / "muxway.json", lambda: config), config, never)
    control = ControlSocket(lambda: None, "here", reloader)
    await control.start()
    (running,) = (await asyncio.to_thread(find)).gateways
    with pytest.raises(ControlError, match="until the next client comes"):
        await asyncio.to_thread(running.ask, "plan")
    await control.stop()
