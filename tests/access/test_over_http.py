"""Rules by who a caller is, with real credentials over HTTP, in both eras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muxway.identity.keys import KeyFile, KeyHolders
from muxway.testing import ScriptedServer
from tests.serve.harness import a_web, initialize, modern, request

if TYPE_CHECKING:
    from pathlib import Path

RULES = [{"keys": ["ci"], "tools": ["up__echo"], "do": "allow"}, {"servers": ["up"], "do": "deny"}]


async def test_two_keys_see_and_call_different_things(tmp_path: Path) -> None:
    """docs/access.md: the same gateway, and each caller its own lists, by session and by single request."""
    file = KeyFile(tmp_path / "keys.json")
    keys = {name: file.create(name) for name in ("ci", "other")}
    file.read()
    call: dict[str, Any] = {"name": "up__echo", "arguments": {}}
    async with a_web({"up": ScriptedServer(tools={"echo": None, "drop": None})}, top={"access": RULES}) as web:
        web.door.admit((), {}, KeyHolders(file, demands=True))
        for name, key in keys.items():
            bearer = {"Authorization": f"Bearer {key}"}
            opened = await web.post(initialize(), bearer)
            assert "instructions" not in opened.outcome["result"]
            session = {**bearer, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
            listing, calling = modern("tools/list"), modern("tools/call", call)
            replies = [
                (await web.post(request("tools/list"), session), await web.post(request("tools/call", call), session)),
                (
                    await web.post(listing[0], {**bearer, **listing[1]}),
                    await web.post(calling[0], {**bearer, **calling[1]}),
                ),
            ]
            for listed, called in replies:
                tools = [tool["name"] for tool in listed.outcome["result"]["tools"]]
                assert tools == (["up__echo"] if name == "ci" else [])
                assert ("result" in called.outcome) == (name == "ci")
                if name == "other":
                    assert called.outcome["error"]["message"] == "Tool not found: up__echo"
            assert replies[1][0].outcome["result"]["cacheScope"] == "private"
