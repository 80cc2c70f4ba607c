"""Open on loopback means open to whoever runs it, not to every user of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.net.peer_user import owner_of
from muxway.testing import ScriptedServer

from ..serve.harness import a_web, initialize
from ..serve.test_serve import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

ANOTHER = 12345
"""A user who runs nothing."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="netlink is Linux's")


def as_another(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a program as another user, who need not be able to read our Python."""
    become = (
        f"import encodings.idna, http.client, os, sys; os.setgroups([]); os.setgid({ANOTHER}); os.setuid({ANOTHER})\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", become + textwrap.dedent(program), *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd="/",
    )


@contextlib.contextmanager
def connected(host: str = "127.0.0.1", target: str | None = None) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: the accepted one, and that of whoever came."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        there = target or host
        with socket.socket(socket.AF_INET6 if ":" in there else socket.AF_INET) as client:
            client.connect((there, listener.getsockname()[1]))
            accepted, _ = listener.accept()
            with accepted:
                yield accepted, client


def owner(accepted: socket.socket) -> int | None:
    return owner_of(accepted.getpeername()[:2], accepted.getsockname()[:2])


@on_linux
def test_the_end_of_a_process_leaves_no_warning() -> None:
    """Ours: a program with muxway in it, run with warnings as errors, hears nothing of the socket that is kept."""
    code = "from muxway.net.peer_user import can_tell; assert can_tell()"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@on_linux
@pytest.mark.parametrize(("host", "target"), [("127.0.0.1", None), ("127.0.0.1", "::ffff:127.0.0.1"), ("::1", None)])
def test_the_kernel_tells_who_is_there(host: str, target: str | None) -> None:
    """sock_diag(7): over IPv4, over IPv6, and over IPv4 by a socket of IPv6, as many programs do it."""
    with connected(host, target) as (accepted, client):
        assert owner(accepted) == os.geteuid()
        client.shutdown(socket.SHUT_WR)
        assert owner(accepted) == os.geteuid()


@on_linux
def test_a_socket_that_was_closed_is_nobodys() -> None:
    """Ours: the kernel says user 0 of it, so anybody could send a request and leave, and pass for root."""
    with connected() as (accepted, client):
        client.sendall(b"x")
        client.close()
        assert owner(accepted) is None


def test_what_is_no_connection_of_this_machine_is_nobodys() -> None:
    """Ours: whatever goes wrong, nobody is let in for it."""
    for there, here in [
        (("127.0.0.1", 1), ("127.0.0.1", 2)),
        (("192.0.2.1", 1), ("127.0.0.1", 2)),
        (("", 0), ("", 0)),
        (("nonsense", 1), ("127.0.0.1", 1)),
        (("127.0.0.1", 1), ("::1", 1)),
        (("127.0.0.1", 70000), ("127.0.0.1", 1)),
    ]:
        assert owner_of(there, here) is None


@on_linux
@as_root
async def test_another_user_of_the_machine_is_turned_away() -> None:
    """docs/security.md#open-to-you: on every route but health, and told what to do."""
    program = """
        asked = [("POST", "/mcp"), ("GET", "/sse"), ("GET", "/mcp"), ("GET", "/healthz"), ("GET", "/readyz")]
        for method, path in asked:
            connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
            body = sys.argv[2] if method == "POST" else None
            connection.request(method, path, body, {"Content-Type": "application/json", "Accept": "*/*"})
            answer = connection.getresponse()
            print(answer.status, answer.read().decode())
    """
    async with a_web({"up": ScriptedServer()}, guard=Guard(own_user=True)) as web:
        assert (await web.post(initialize())).status == 200
        done = await asyncio.to_thread(as_another, program, str(web.port), json.dumps(initialize()))
        said = done.stdout.splitlines()
        assert [line[:3] for line in said] == ["403", "403", "403", "200", "200"], (said, done.stderr)
        assert "MUXWAY_TOKEN" in said[0]
        assert "notReady" not in said[4]
        assert "notReady" in (await web.ask("GET", "/readyz")).json


@on_linux
@as_root
async def test_with_a_token_it_does_not_matter_whose_program_it_is() -> None:
    """docs/reverse-proxy.md: a proxy that runs as another user passes the token on."""
    program = """
        connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
        headers = {"Content-Type": "application/json", "Accept": "*/*", "Authorization": "Bearer t0ken"}
        connection.request("POST", "/mcp", sys.argv[2], headers)
        print(connection.getresponse().status)
    """
    async with a_web({"up": ScriptedServer()}, guard=Guard(own_user=True, tokens=["t0ken"])) as web:
        done = await asyncio.to_thread(as_another, program, str(web.port), json.dumps(initialize()))
        assert done.stdout.strip() == "200", done.stderr


@on_linux
@as_root
@pytest.mark.parametrize(("args", "status"), [((), "403"), (("--insecure",), "200")])
def test_serve_is_open_to_its_user(args: tuple[str, ...], status: str, tmp_path: Path) -> None:
    """docs/security.md#open-to-you: the command, as it is started."""
    program = """
        connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
        connection.request("POST", "/mcp", sys.argv[2], {"Content-Type": "application/json", "Accept": "*/*"})
        print(connection.getresponse().status)
    """
    served = Served(tmp_path, *args)
    try:
        assert served.ask("POST", "/mcp", initialize())[0] == 200
        assert as_another(program, str(served.port), json.dumps(initialize())).stdout.strip() == status
    finally:
        served.end()


class _Blind(Served):
    """The command where nobody can tell users apart."""

    def __init__(self, folder: Path) -> None:
        (folder / "blind").mkdir(exist_ok=True)
        (folder / "blind" / "sitecustomize.py").write_text(
            "from muxway.net import peer_user\npeer_user.can_tell = lambda: False\n"
        )
        super().__init__(folder, PYTHONPATH=str(folder / "blind"))


def test_where_nobody_can_tell_a_token_is_made_and_shown_once(tmp_path: Path) -> None:
    """docs/security.md#open-to-you: it is in the lines to copy, and in a file for the next start."""
    served = _Blind(tmp_path)
    try:
        token = re.search(r"Bearer ([\w-]{40,})", served.said())
        assert token is not None
        assert served.ask("POST", "/mcp", initialize())[0] == 401
        assert served.ask("POST", "/mcp", initialize(), Authorization=f"Bearer {token[1]}")[0] == 200
    finally:
        served.end()
    again = _Blind(tmp_path)
    try:
        assert token[1] not in again.said()
        found = re.search(r"Token: +in (\S+);", again.said())
        assert found is not None
        assert again.ask("POST", "/mcp", initialize(), Authorization=f"Bearer {_content(found[1])}")[0] == 200
    finally:
        again.end()


def _content(path: str) -> Any:
    file = Path(path)
    assert file.stat().st_mode & 0o077 == 0
    return file.read_text()
