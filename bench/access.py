"""What access rules cost: a call of a caller for whom there are rules, beside one without, and what a class costs once.

    .venv/bin/python -m bench.access

Prints the time from the dispatcher to the connection and back, with a server in this process that answers at once, and
the time to narrow a snapshot for one class of callers.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from statistics import median
from typing import Any

from muxway import Gateway
from muxway.access.rules import Access
from muxway.calls.call import LIBRARY, Call
from muxway.calls.identity import Identity
from muxway.calls.sinks import Nobody
from muxway.config import parse_config
from muxway.routing.snapshot import Snapshot
from muxway.wire.envelopes import Raw

ANN = Identity(issuer="https://login.example.com", subject="1", user="ann", groups=("eng", "all"), client="claude")
CALLS = 2000
ROUNDS = 15


def rules(count: int, *, matching: bool = True) -> list[dict[str, Any]]:
    """So many rules that are for the caller and match none of what it calls, and one that does."""
    users = ["ann"] if matching else ["bob"]
    return [{"users": users, "tools": [f"other__tool_{n}_*"], "do": "deny"} for n in range(count)]


def _nothing(self: object) -> str:
    del self
    return "x"


class Echo:
    """A server in this process."""

    def ping(self) -> str:
        """Answer."""
        return "pong"


async def resolution(count: int) -> float:
    """Microseconds to find what a call is about, with so many rules for its caller."""
    config = parse_config({"mcpServers": {"echo": {"command": "(in-process)"}}, "access": rules(count)})
    async with Gateway.open(replace(config, objects={"echo": Echo()})) as gateway:
        dispatcher = gateway.runtime.dispatcher(None)
        call = Call(
            replace(LIBRARY, identity=ANN), "tools/call", {"name": Raw(b'"echo__ping"'), "arguments": Raw(b"{}")}
        )
        dispatcher.handle(call, Nobody())
        router, times = gateway.runtime.router, list[float]()
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(CALLS):
                visible = dispatcher.seen(call.caller)
                if visible.targets.get(b'"echo__ping"') is None:
                    router.resolve(visible, call)
            times.append((time.perf_counter() - began) / CALLS * 1e6)
        return median(times)


async def narrowing(count: int, tools: int) -> float:
    """Milliseconds to narrow a snapshot of so many tools by so many rules."""
    methods = {f"tool_{n}": _nothing for n in range(tools)}
    many = type("Many", (), methods)()
    config = parse_config({"mcpServers": {"many": {"command": "(in-process)"}}})
    async with Gateway.open(replace(config, objects={"many": many})) as gateway:
        specs = parse_config({"mcpServers": {"many": {"command": "x"}}, "access": rules(count)}).gateway.access
        now, times = gateway.runtime.snapshot, list[float]()
        for _ in range(5):
            settings = replace(now.settings, access=Access(specs))
            snapshot = Snapshot(settings, now.given, now.whole, now.views)
            began = time.perf_counter()
            snapshot.seen(None, ANN)
            times.append((time.perf_counter() - began) * 1e3)
        return median(times)


async def _main() -> None:
    for count in (0, 1, 100, 1000):
        sys.stdout.write(f"{count:5} rules: {await resolution(count):6.2f} µs to find the target of a call\n")
    for count, tools in ((10, 200), (100, 200), (100, 2000)):
        took = await narrowing(count, tools)
        sys.stdout.write(f"{count:5} rules, {tools} tools: {took:7.1f} ms for the first of a class\n")


if __name__ == "__main__":
    asyncio.run(_main())
