"""A server that writes to stderr what it is told to, and dies when it is told to. Greets on stderr at its start."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from muxway.demo.serving import DemoServer, DemoTool, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINES = {"lines": {"type": "array", "items": {"type": "string"}}}


def _write(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


def _say(arguments: Mapping[str, Any], _: Run) -> str:
    _write(arguments["lines"])
    return "said"


def _count(arguments: Mapping[str, Any], _: Run) -> str:
    _write([f"{arguments['word']} {number}" for number in range(arguments["up_to"])])
    return "counted"


def _die(arguments: Mapping[str, Any], _: Run) -> str:
    _write(arguments["lines"])
    os._exit(3)


def _wait(_: Mapping[str, Any], run: Run) -> str:
    run.cancelled.wait(60)
    return "waited"


TOOLS = {
    "say": DemoTool("Write lines to stderr.", _LINES, ("lines",), _say),
    "count": DemoTool("Write many lines to stderr.", {"word": {}, "up_to": {}}, ("word", "up_to"), _count),
    "die": DemoTool("Write lines to stderr and exit with status 3.", _LINES, ("lines",), _die),
    "wait": DemoTool("Take a minute.", {}, (), _wait),
}

if __name__ == "__main__":
    if "--refuse" in sys.argv:
        _write(["no database \x1b[31mhere"])
        sys.exit(3)
    if "--with-child" in sys.argv:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], stdin=subprocess.DEVNULL)
    _write([f"talker is up, {os.environ.get('API_TOKEN', 'without a token')}"])
    DemoServer("talker", "2025-06-18", TOOLS).serve()
