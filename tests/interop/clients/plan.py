"""What every Python client here shares: the plan it is given and the report it prints.

The plan is one JSON document in the first argument (see `run` in `drive.py`); the report is one
JSON document on stdout. Standard library only, because two environments import it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.1


def read_plan() -> dict[str, Any]:
    return json.loads(sys.argv[1])


def print_report(report: dict[str, Any]) -> None:
    json.dump(report, sys.stdout)


async def list_until(
    expected: list[str], seconds: float, list_once: Callable[[], Awaitable[list[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    """List the tools until all the expected ones are there: a gateway lists each server when it is ready."""
    deadline = time.monotonic() + seconds
    while True:
        tools = await list_once()
        missing = set(expected) - {tool["name"] for tool in tools}
        if not missing:
            return tools
        if time.monotonic() > deadline:
            raise TimeoutError(f"not listed after {seconds} s: {sorted(missing)}")
        await asyncio.sleep(POLL_SECONDS)
