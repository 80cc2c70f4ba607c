"""`muxway demo`: it shows what it claims."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import pty
import re
import select
import shlex
import socket
import termios
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import processes_with, until
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Launched


def test_the_demo_shows_servers_tools_calls_and_what_to_do_next(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """docs/cli.md#muxway-demo: servers, tools, a few real calls with their times; no config, no network, no Node."""
    code, out, err = launch("demo", env={"TMPDIR": str(tmp_path)}).end()
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    for name, revision in (("notes", "2025-06-18"), ("clock", "2024-11-05"), ("text", "2026-07-28")):
        assert re.search(rf"✓ running +{name} +\d tools +\d+ ms +{revision}", out)
    assert "A client of revision 2025-11-25" in out
    assert "A client of revision 2026-07-28" in out
    assert out.count(" ms, 8 tools") == 2
    assert re.search(r"✓ ok +[\d.]+ ms +notes__add .*\n +\{\"id\": 1", out)
    assert "09:30 in UTC is 18:30" in out
    assert "(after 3 progress notices)" in out
    assert re.search(r"✗ error +[\d.]+ ms +notes__delete id=99\n +there is no note 99", out)
    assert "-32601 Tool not found: notes__ad" in out
    assert re.search(r"100 calls of clock__now, one after another: median [\d.]+ ms", out)
    assert '"args": ["--config", "/path/to/servers.json"]' in out
    assert processes_with(tmp_path) == []
    assert not list(tmp_path.glob("muxway-demo-*"))


def test_the_demo_names_itself_so_that_it_can_be_found(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """docs/getting-started.md: clients need the full path, and after `make run` so does the shell."""
    code, out, _ = launch("demo", env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}).end()
    assert code == 0
    told = re.findall(r"Without HTTP +(\{.+\})", out)[0]
    program = json.loads(told)["mcpServers"]["muxway"]["command"]
    assert os.access(program, os.X_OK)
    assert f"{shlex.quote(program)} check servers.json --connect" in out


def test_the_demo_ends_in_a_served_endpoint_that_has_answered(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """docs/cli.md#muxway-demo: an endpoint with its URL; without a terminal it is proven with a call, and not kept."""
    code, out, err = launch("demo", env={"TMPDIR": str(tmp_path)}).end()
    assert (code, err) == (0, "")
    url = re.findall(r"^Served at (http://127\.0\.0\.1:\d+/mcp)  \(stopped .*--keep", out, re.MULTILINE)[0]
    assert re.search(rf"posts a call to {url}\n  ✓ ok +[\d.]+ ms  clock__now\n +\d{{4}}-\d\d-\d\dT", out)
    with pytest.raises(ConnectionError):
        socket.create_connection(_place(url))


def test_on_a_terminal_the_demo_serves_until_an_interrupt(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """docs/cli.md#muxway-demo: the URL stands there, the lines below it work, and Ctrl-C ends it well."""
    with _Terminal(launch, env={"TMPDIR": str(tmp_path), "NO_COLOR": "1"}) as terminal:
        url = terminal.until(r"Served at (\S+)  \(Ctrl-C stops it\)")[1]
        assert f"claude mcp add --transport http muxway {url}" in terminal.seen
        snippet = terminal.until(r"Over HTTP +(\{.+\})")[1]
        assert json.loads(snippet) == {"mcpServers": {"muxway": {"type": "http", "url": url}}}
        status, answer = _do(terminal.until(r"By hand +(curl .+)")[1].strip())
        assert status == 200
        assert re.match(r"\d{4}-\d\d-\d\dT", answer["result"]["content"][0]["text"])
        terminal.press("\x03")
        assert terminal.demo.process.wait(timeout=PATIENCE) == 0
        terminal.until("Stopped")
    assert processes_with(tmp_path) == []
    assert not list(tmp_path.glob("muxway-demo-*"))


def test_the_demo_serves_on_without_a_terminal_if_told_to(launch: Callable[..., Launched]) -> None:
    """Ours: `--keep`, for a container or a script that stops it itself."""
    demo = launch("demo", "--keep")
    assert demo.process.stdout is not None
    said = b""
    while b"Served at" not in said:
        line = demo.process.stdout.readline()
        assert line, said
        said += line
    assert demo.process.poll() is None
    demo.process.terminate()
    assert demo.end()[0] == 0


def test_the_demo_ends_quietly_when_nobody_reads_on(launch: Callable[..., Launched]) -> None:
    """Ours: `muxway demo | head`."""
    demo = launch("demo")
    assert demo.process.stdout is not None
    assert demo.process.stdout.readline().startswith(b"muxway")
    demo.process.stdout.close()
    demo.process.stdout = None
    assert demo.end() == (1, "", "")


def test_the_demo_takes_another_port_if_its_own_is_taken(launch: Callable[..., Launched]) -> None:
    """Ours: somebody else may serve there, and is told."""
    with _held(3006):
        code, out, _ = launch("demo").end()
    assert code == 0
    assert "port 3006 is not available (address already in use): using another one" in out
    assert "Served at http://127.0.0.1:3006/" not in out


def test_the_demo_is_coloured_on_a_terminal_unless_asked_not_to(launch: Callable[..., Launched]) -> None:
    """no-color.org: NO_COLOR wins over the terminal; words and glyphs stay."""
    for env, coloured in (({"NO_COLOR": "1", "TERM": "xterm"}, False), ({"TERM": "xterm"}, True)):
        with _Terminal(launch, "--no-keep", env=env) as terminal:
            terminal.until("Served at")
            assert terminal.demo.process.wait(timeout=PATIENCE) == 0
        # Not any escape: the line that tells what is waited for wipes itself away with one.
        assert bool(re.search(r"\x1b\[[\d;]*m", terminal.seen)) is coloured
        assert ("\x1b[32m✓ ok" in terminal.seen) is coloured
        assert "✓ ok" in terminal.seen


class _Terminal:
    """The demo in a terminal of its own, with somebody at the keyboard."""

    def __init__(self, launch: Callable[..., Launched], *args: str, env: dict[str, str]) -> None:
        self._control, terminal = pty.openpty()
        self.seen = ""
        # A session of its own makes it the terminal that Ctrl-C comes from.
        keys = {"stdin": terminal, "stdout": terminal, "stderr": terminal, "start_new_session": True}
        self.demo = launch("demo", *args, env=env, preexec_fn=_take_terminal, **keys)
        os.close(terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._control)

    def press(self, key: str) -> None:
        os.write(self._control, key.encode())

    def until(self, pattern: str) -> re.Match[str]:
        """Read on until this stands there."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.seen)) is None:
            assert select.select([self._control], [], [], deadline - time.monotonic())[0], self.seen
            self.seen += os.read(self._control, 65536).decode().replace("\r\n", "\n")
        return found


@contextlib.contextmanager
def _held(port: int) -> Iterator[None]:
    """Listen there, as soon as nobody else on this machine does."""
    with contextlib.ExitStack() as stack:

        def take() -> bool:
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                return False
            return True

        until(take)
        yield


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def _do(line: str) -> tuple[int, Any]:
    """Do what curl would do."""
    curl, silent, url, *words = shlex.split(line)
    assert (curl, silent) == ("curl", "-s")
    given = list(zip(words[::2], words[1::2], strict=True))
    headers = dict(value.split(": ", 1) for option, value in given if option == "-H")
    bodies = [value for option, value in given if option == "-d"]
    connection = http.client.HTTPConnection(*_place(url), timeout=PATIENCE)
    connection.request("POST", urlsplit(url).path, bodies[0], {"Accept": "*/*", **headers})
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer
