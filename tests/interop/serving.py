"""Processes that listen: servers of the official SDKs over HTTP, and `muxway serve` in front of them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

from . import peers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

START_SECONDS = 40
HTTP_SERVERS = peers.HERE.parent / "remote" / "servers"


@contextlib.contextmanager
def http_server(sdk: str, kind: str) -> Iterator[str]:
    """The URL of a small server on the Python SDK (`sdk1`, `sdk2`); `kind` says how it serves."""
    command = [peers.python(f"mcp{sdk[-1]}"), str(HTTP_SERVERS / f"{sdk}_http.py"), kind]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)) as process:
        assert process.stdout is not None
        # Empty when it has ended instead. The port is open before the server reads from it.
        port = process.stdout.readline().strip()
        assert port.isdecimal(), command
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"


@contextlib.contextmanager
def serve(
    directory: Path, servers: dict[str, Any], *flags: str, program: Sequence[str] = ("-m", "muxway")
) -> Iterator[str]:
    """The base URL of `muxway serve` in front of these entries of a configuration, once all of them are up."""
    config, log = directory / "serve.json", directory / "serve.log"
    config.write_text(json.dumps({"mcpServers": servers}))
    command = [*peers.PYTHON, *program, "serve", "--config", str(config), "--port", "0", *flags]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr)
    with ended(process):
        deadline = time.monotonic() + START_SECONDS
        while f"{len(servers)} of {len(servers)} servers up" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        listening = re.search(r"listens on (\S+)", log.read_text())
        assert listening is not None, log.read_text()
        yield listening[1]


@contextlib.contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """See to it that it is gone afterwards."""
    with process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
