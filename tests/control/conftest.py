"""Gateways that really run, each test with a folder of its own for their sockets, and the command to ask them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from muxway.cli import cli
from muxway.control.client import RunningGateway, find
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result

TALKER = Path(__file__).parent / "talker.py"


def talker(*arguments: str, **entry: Any) -> dict[str, Any]:
    """A server that says what it is told to."""
    return {"command": sys.executable, "args": [str(TALKER), *arguments], **entry}


def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait for the condition; fail when it takes too long."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the sockets' folder is made in. Short: the path of a socket must not be long."""
    folder = Path(tempfile.mkdtemp(prefix="mw-"))
    (folder / "tmp").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    for name in ("MUXWAY_CONFIG", "MCP_PROXY_CONFIG_PATH", "NO_COLOR", "FORCE_COLOR", "PORT", "HOST"):
        monkeypatch.delenv(name, raising=False)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def muxway(runtime: Path) -> Callable[..., Result]:
    """Run the command in this process."""

    def run(*args: str | Path) -> Result:
        return CliRunner(catch_exceptions=False).invoke(cli, [str(arg) for arg in args], prog_name="muxway")

    return run


class Gateway:
    """`muxway serve` or `muxway stdio` as a process."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, log: Path) -> None:
        self.process, self.file, self._log = process, file, log
        self.pid = process.pid

    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(errors="replace")

    def running(self) -> RunningGateway:
        """The gateway as the control socket shows it, once it does."""
        while True:
            known = [one for one in find().gateways if one.pid == self.pid]
            if known:
                return known[0]
            assert self.process.poll() is None, self.log()
            time.sleep(0.02)

    def settled(self) -> RunningGateway:
        """The same, once every server is up or has failed."""
        running = self.running()
        until(lambda: all(server["status"] != "initializing" for server in self._servers(running)), "the start")
        return running

    def server(self, name: str) -> dict[str, Any]:
        """How a server is."""
        return next(server for server in self._servers(self.running()) if server["name"] == name)

    @staticmethod
    def _servers(running: RunningGateway) -> list[dict[str, Any]]:
        return running.ask("status")["servers"]

    def call(self, tool: str, *, wait: bool = True, **arguments: object) -> None:
        """Call a tool as its client on stdin."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        for id_, method, params in (
            (1, "initialize", client),
            (2, "tools/call", {"name": tool, "arguments": arguments}),
        ):
            request = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        while wait and json.loads(self.process.stdout.readline()).get("id") != 2:
            pass


@pytest.fixture
def launch(runtime: Path, tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Start gateways; whatever still runs at the end of the test is ended."""
    with contextlib.ExitStack() as stack:

        def start(config: object, *args: str, verb: str = "stdio", name: str = "servers.json") -> Gateway:
            file, log = tmp_path / name, tmp_path / f"{name}.log"
            file.write_text(config if isinstance(config, str) else json.dumps(config, indent=2))
            words = ["serve", "--port", "0"] if verb == "serve" else ["stdio"]
            process = subprocess.Popen(
                [sys.executable, "-m", "muxway", *words, "--config", str(file), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("wb")),
                env={**os.environ},
            )
            stack.enter_context(process)
            stack.callback(_end, process)
            return Gateway(process, file, log)

        yield start


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
