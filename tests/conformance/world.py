"""What the suite judges: the reference server, and muxway in front of it, once or twice.

Beside the reference server, whose names stay as they are, each muxway has a second server under a prefix:
one server alone would be a proxy, not a gateway.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop import peers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
START_SECONDS = 30.0
END_SECONDS = 10.0

WAYS = ("direct", "through", "twice")
"""To the reference server; through one muxway; through two in a row."""

CLIENT = [*peers.PYTHON, str(HERE / "client.py")]
"""What the suite starts to see muxway as a client."""


@contextmanager
def opened(way: str, folder: Path) -> Iterator[str]:
    """The URL of everything this way needs, running."""
    with ExitStack() as stack:
        url = stack.enter_context(reference_server(folder))
        for number in range(WAYS.index(way)):
            url = stack.enter_context(gateway(folder / f"muxway{number + 1}", url))
        yield url


@contextmanager
def reference_server(folder: Path) -> Iterator[str]:
    command = [peers.python("mcp2"), str(HERE / "reference_server.py")]
    with running(command, folder / "reference.log", r"(http://\S+/mcp)") as url:
        yield url


@contextmanager
def gateway(folder: Path, url: str) -> Iterator[str]:
    """`muxway serve` in front of this server and of one of its own demo servers."""
    folder.mkdir()
    config: dict[str, Any] = {
        "mcpServers": {
            "under_test": {"url": url, "prefix": ""},
            "notes": {"command": sys.executable, "args": ["-m", "muxway.demo.notes"]},
        }
    }
    file = folder / "servers.json"
    file.write_text(json.dumps(config))
    command = [*peers.PYTHON, "-m", "muxway", "serve", "--config", str(file), "--port", "0"]
    with running(command, folder / "muxway.log", r"muxway listens on (http://\S+)[\s\S]*2 of 2 servers up") as root:
        yield f"{root}/mcp"


@contextmanager
def running(command: Sequence[str], log: Path, ready: str) -> Iterator[str]:
    """A process that says it is ready, ended afterwards. Gives the first group of what it said."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while (found := re.search(ready, log.read_text())) is None:
            assert process.poll() is None, f"{command} ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{command} was not ready in time:\n{log.read_text()}"
            time.sleep(0.05)
        yield found[1]
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
