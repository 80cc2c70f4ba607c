"""What a call by `call_tool` costs more than a direct one: `python -m bench.call_tool`.

Prints the time from the dispatcher to the connection, with a server in this process, as a median of rounds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

from muxway import Gateway
from muxway.calls.call import LIBRARY, Call
from muxway.calls.sinks import Nobody
from muxway.config import parse_config
from muxway.testing import ScriptedServer
from muxway.wire import envelopes
from muxway.wire.envelopes import Raw

CALLS = 500
ROUNDS = 15
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "What it is about"},
        "body": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "state": {"enum": ["open", "closed"]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["title"],
    "additionalProperties": False,
}
ARGUMENTS = {"title": "x", "body": "text " * 100, "labels": ["a", "b"], "state": "open", "limit": 5}


async def main() -> None:
    """Print both, and the difference."""
    config = parse_config(
        {"mcpServers": {"off": {"command": "none", "disabled": True}}, "gateway": {"discovery": "search"}}
    )
    server = ScriptedServer(tools={"t": None}, definitions=[{"name": "t", "inputSchema": SCHEMA}], remember=False)
    async with Gateway.open(config) as gateway:
        await gateway.add("up", server=server)
        dispatcher = gateway.runtime.dispatcher()
        inner = {"name": "up__t", "arguments": ARGUMENTS}
        calls = {
            "direct": Call(LIBRARY, "tools/call", {key: Raw(envelopes.encode(one)) for key, one in inner.items()}),
            "call_tool": Call(
                LIBRARY, "tools/call", {"name": Raw(b'"call_tool"'), "arguments": Raw(envelopes.encode(inner))}
            ),
        }
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                began = time.process_time()
                for _ in range(CALLS):
                    dispatcher.handle(call, Nobody())
                taken[name].append((time.process_time() - began) / CALLS)
                await asyncio.sleep(0.05)
        costs = {name: median(rounds) * 1e6 for name, rounds in taken.items()}
        for name, cost in costs.items():
            sys.stdout.write(f"{name:10} {cost:6.1f} µs\n")
        sys.stdout.write(f"{'more':10} {costs['call_tool'] - costs['direct']:6.1f} µs\n")


if __name__ == "__main__":
    asyncio.run(main())
