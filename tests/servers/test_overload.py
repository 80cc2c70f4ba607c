"""More calls than a server may have at a time, through a whole gateway."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

import muxway
from muxway.testing import ScriptedServer
from tests.conftest import a_world
from tests.remote.scripted import Remote, serving, until

LIMITS = {"maxConcurrency": 2, "maxQueue": 3}


async def test_what_is_over_the_limits_is_refused_quickly_and_the_rest_answered() -> None:
    """docs/behaviour.md#too-much-at-once.

    Queues with deadlines; everything over the limit is answered quickly with a time to retry.
    """
    running: list[dict[str, Any]] = []
    server = ScriptedServer(tools={"slow": lambda _, request: running.append(request), "echo": None})
    other = ScriptedServer(tools={"echo": None})
    async with asyncio.timeout(10), a_world({"up": server, "other": other}, entries={"up": LIMITS}) as world:
        client = await world.client()
        ids = [client.start("tools/call", {"name": "up__slow", "arguments": {"n": n}}) for n in range(7)]
        refused = [(await client.answer(id_)).error for id_ in ids[5:]]
        for error in refused:
            assert error["data"]["muxway"] == {"reason": "overloaded", "upstream": "up", "retryAfterMs": 1000}
            assert "try again later" in error["message"]
        await until(lambda: len(running) == 2)
        assert (await client.call("other__echo", {"a": 1})).result
        client.tell("notifications/cancelled", {"requestId": ids[2]})
        for n in (0, 1, 3, 4):
            while not (waiting := [request for request in running if request["params"]["arguments"]["n"] == n]):
                await asyncio.sleep(0)
            server.reply(waiting[0], {"content": [], "n": n})
        for n in (0, 1, 3, 4):
            assert (await client.answer(ids[n])).result["n"] == n
        assert [request["params"]["arguments"]["n"] for request in running] == [0, 1, 3, 4]
        assert (await client.call("up__echo", {"a": 1})).result


async def test_a_remote_server_that_asks_to_come_back_later_is_tried_again() -> None:
    """Ours: `retry` repeats what did not run, also what a remote server refused over HTTP."""
    refusals = 0

    async def busy(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.Response | None:
        nonlocal refusals
        refusals += 1
        return web.Response(status=429, headers={"Retry-After": "0"}) if refusals == 1 else None

    async with asyncio.timeout(20), serving(Remote("stateless", calls={"busy": busy})) as url:
        config = {"mcpServers": {"up": {"url": url}}, "middleware": [{"use": "retry", "pause": 0.01}]}
        async with muxway.Gateway.open(config) as up:
            assert (await up.call("up.busy", {"a": 1})).text == '{"a": 1}'
    assert refusals == 2
