"""Running the command: inside this process for what it prints, as a real process for how it lives and dies."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from muxway import demo
from muxway.cli import cli
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from click.testing import Result


_OURS = ("MUXWAY_CONFIG", "MCP_PROXY_", "NO_COLOR", "FORCE_COLOR", "_MUXWAY_COMPLETE")


@pytest.fixture(autouse=True)
def untouched_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No variable or file of the developer's machine plays a part, and the log is left as it was found."""
    for name in os.environ:
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(home)
    logger = logging.getLogger("muxway")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
    logger.setLevel(before[1])


@pytest.fixture
def muxway() -> Callable[..., Result]:
    """Run the command in this process."""

    def run(*args: str | Path, env: Mapping[str, str] | None = None) -> Result:
        runner = CliRunner(env=env, catch_exceptions=False)
        return runner.invoke(cli, [str(arg) for arg in args], prog_name="muxway")

    return run


class Launched:
    """The command as a process of its own, with pipes."""

    def __init__(self, *args: str | Path, env: Mapping[str, str] | None = None, **keys: Any) -> None:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "muxway", *map(str, args)], env={**os.environ, **(env or {})}, **{**pipes, **keys}
        )

    def say(self, **message: object) -> None:
        """Send one JSON-RPC message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next message it sends."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, id_: int, method: str, **params: object) -> dict[str, Any]:
        """Send a request and wait for its answer; notices in between are dropped."""
        self.say(id=id_, method=method, params=params)
        while (message := self.hear()).get("id") != id_:
            pass
        return message

    def hello(self) -> dict[str, Any]:
        """Introduce a client of revision 2025-11-25; returns who answered."""
        client = {"name": "test", "version": "1"}
        answer = self.ask(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        self.say(method="notifications/initialized")
        return answer["result"]

    def tools(self, count: int) -> list[dict[str, Any]]:
        """The tools, once there are this many."""
        id_ = 1000
        while len(tools := self.ask(id_, "tools/list")["result"]["tools"]) < count:
            id_ += 1
            while self.hear().get("method") != "notifications/tools/list_changed":
                pass
        return tools

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; the exit code, and what it still said on stdout and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (out or b"").decode(), (err or b"").decode()


@pytest.fixture
def launch() -> Iterator[Callable[..., Launched]]:
    """Start the command as a process; whatever still runs at the end of the test is ended."""
    with contextlib.ExitStack() as stack:

        def start(*args: str | Path, env: Mapping[str, str] | None = None, **keys: Any) -> Launched:
            launched = Launched(*args, env=env, **keys)
            stack.enter_context(launched.process)
            stack.callback(launched.process.kill)
            return launched

        yield start


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a config file."""

    def write(content: object, name: str = "servers.json") -> Path:
        file = tmp_path / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return write


@pytest.fixture
def servers(write: Callable[..., Path], tmp_path: Path) -> Path:
    """A config with the three demo servers, whose processes can be found by the name of this test's folder."""
    config = demo.config()
    for server in config["mcpServers"].values():
        server["args"].append(str(tmp_path))
    return write(config)


@pytest.fixture
def mixed(write: Callable[..., Path]) -> Path:
    """A config with a good server, one that dies with a complaint, one that does not exist and one that is off."""
    dying = "import sys; print('no database, \\x1b[31mred', file=sys.stderr); sys.exit(3)"
    return write(
        {
            "mcpServers": {
                "notes": demo.config()["mcpServers"]["notes"],
                "dies": {"command": sys.executable, "args": ["-c", dying]},
                "missing": {"command": "no-such-program"},
                "off": {"command": "whatever", "disabled": True},
            }
        }
    )


def processes_with(mark: str | Path) -> list[int]:
    """The processes that have this text on their command line, ourselves and the dead excepted."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if entry.name.isdecimal() and str(mark).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def until(condition: Callable[[], bool]) -> None:
    """Wait for the condition; fail when it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
