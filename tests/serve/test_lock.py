"""A lock that is enforced holds over every transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muxway.setup import lock_files
from muxway.testing import ScriptedServer

from .harness import initialize, modern, request
from .test_http_sse import opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from .harness import Web

    Webs = Callable[..., AbstractAsyncContextManager[Web]]


async def test_it_holds_for_sessions_stateless_requests_and_sse(web: Webs, tmp_path: Path) -> None:
    """docs/lock.md#enforce: what is new is hidden, what has changed is refused."""
    path = tmp_path / "muxway.lock"
    definition: dict[str, Any] = {"name": "a", "description": "Does it.", "inputSchema": {"type": "object"}}
    server = ScriptedServer(tools={"a": None, "b": None}, definitions=[definition])
    async with web({"s": server}, top={"gateway": {"lock": "enforce", "lockFile": str(path)}}) as http:
        gateway = http.world.gateway
        locked = gateway.locked_now()
        lock_files.write(path, locked)
        server.definitions = [{**definition, "description": "Does more."}, {**definition, "name": "b"}]
        await gateway.restart("s")
        await gateway.relock()
        session = {"Mcp-Session-Id": (await http.post(initialize())).headers["mcp-session-id"]}
        stream, where = await opened(http)
        for name, why in (("s__a", "is not what muxway.lock says"), ("s__b", "Tool not found")):
            call = {"name": name, "arguments": {}}
            message, headers = modern("tools/call", call)
            await http.post(request("tools/call", call, 9), path=where)
            answers = [
                (await http.post(request("tools/call", call), session)).json,
                (await http.post(message, headers)).json,
                await stream.message(),
            ]
            for answer in answers:
                assert why in answer.get("error", {}).get("message", ""), (name, answer)
        assert not any(message.get("method") == "tools/call" for message in server.heard)
