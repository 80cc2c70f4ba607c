"""`${user:NAME}`: each user's own key for a server, in nobody's process or headers but that user's."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.errors import ConfigError, UpstreamError
from muxway.identity.keys import KeyFile, KeyHolders
from muxway.identity.store import TokenStore
from muxway.identity.user_values import values_key

from ..remote.scripted import Remote, reply, serving, text
from ..serve.harness import a_web, modern
from .company import Browser
from .team import Team, team_at
from .test_cli import BROWSER, run, started

if TYPE_CHECKING:
    from aiohttp import web

    from .provider import Provider

PROGRAM = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "x", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "key", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        said = json.dumps([os.environ.get("KEY"), os.getpid()])
        result = {"content": [{"type": "text", "text": said}]}
    else:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
SECRETS = {"ann": "ann-s3cr3t-key", "bob": "bob-s3cr3t-key"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def entry(program: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(program)], "env": {"KEY": "<${user:TRACKER_KEY}>"}}


async def give(team: Team, browser: Browser, value: str, server: str = "tracker") -> Any:
    page = await browser.get(team.page)
    form = {"csrf": page.field("csrf"), "server": server, "do": "save", "value-TRACKER_KEY": value}
    return await browser.post(team.page, form)


async def test_each_user_has_a_process_with_an_own_key(
    provider: Provider, program: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/identity-team.md#keys-of-users: without one, the link and no process; nothing of it is shown anywhere."""
    caplog.set_level("DEBUG", "muxway")
    async with team_at(provider) as team, Browser("ann") as hers, Browser("bob") as his:
        await team.gateway.add("tracker", **entry(program))
        refused = await team.call("ann", "tracker__key")
        assert refused["content"][0]["text"].endswith(f"needs TRACKER_KEY of yours: open {team.page}?server=tracker")
        assert team.gateway.servers()[1].pid is None
        assert (await give(team, hers, SECRETS["ann"])).status == 200
        assert "tracker__key" in await team.tools("ann")
        assert "tracker__key" not in await team.tools("bob")
        await give(team, his, SECRETS["bob"])
        told = {user: json.loads(await team.says(user, "tracker__key")) for user in SECRETS}
        assert {user: key for user, (key, _) in told.items()} == {user: f"<{key}>" for user, key in SECRETS.items()}
        assert told["ann"][1] != told["bob"][1]
        page = await hers.get(team.page)
        assert not [secret for secret in SECRETS.values() if secret in page.text]
        assert Path(sys.executable).name in page.text
        assert sys.executable not in page.text
        form = {"csrf": page.field("csrf"), "server": "tracker", "do": "remove"}
        await hers.post(team.page, form)
        assert (await team.call("ann", "tracker__key"))["isError"] is True
        assert json.loads(await team.says("bob", "tracker__key"))[0] == f"<{SECRETS['bob']}>"
        for odd in ("a\nb", "x" * 9000, "\x00"):
            assert (await give(team, hers, odd)).status == 400
        assert team.gateway.masked(f"it is {SECRETS['bob']}") == "it is ***"
    assert not [secret for secret in SECRETS.values() if secret in caplog.text]


async def test_a_key_in_a_header_is_sent_for_its_user_alone(provider: Provider) -> None:
    """docs/identity-team.md#keys-of-users: by URL."""

    async def whose(_: Remote, request: web.Request, message: dict[str, Any]) -> Any:
        return reply(message, text(request.headers.get("X-Key", "none")))

    remote = Remote(calls={"whose": whose})
    async with (
        serving(remote) as url,
        team_at(provider) as team,
        Browser("ann") as hers,
        Browser("bob") as his,
    ):
        await team.gateway.add("tracker", url=url, headers={"X-Key": "${user:TRACKER_KEY}"})
        assert remote.seen == []
        await give(team, hers, SECRETS["ann"])
        await give(team, his, SECRETS["bob"])
        for user in ("ann", "bob", "ann"):
            assert await team.says(user, "tracker__whose") == SECRETS[user]
        sent = {seen.headers.get("X-Key") for seen in remote.seen}
        assert sent == set(SECRETS.values())


async def typed(*words: str, said: str = "") -> tuple[int, str]:
    process = await started(*words)
    out, err = await process.communicate(said.encode())
    return process.returncode or 0, (out + err).decode()


async def test_the_user_who_runs_it_gives_keys_by_a_command(program: Path, tmp_path: Path) -> None:
    """docs/identity.md#keys: from stdin, never from the command line; a gateway that runs goes on by itself."""
    file = tmp_path / "muxway.json"
    file.write_text(json.dumps({"mcpServers": {"tracker": entry(program)}}), encoding="utf-8")
    config = ("--config", str(file))
    async with Gateway.open(str(file)) as gateway:
        assert gateway.servers()[0].status == "login needed"
        with pytest.raises(UpstreamError, match="run `muxway login tracker"):
            await gateway.call("tracker__key")
        refused, unknown, blind = await asyncio.gather(
            typed("login", "tracker", "--set", "TRACKER_KEY=s3cr3t", *config),
            typed("login", "tracker", "--set", "OTHER=-", *config, said="x\n"),
            typed("login", "tracker", *config),
        )
        assert (refused[0], unknown[0], blind[0]) == (2, 1, 1)
        assert "no terminal" in blind[1]
        given = await typed("login", "tracker", "--set", "TRACKER_KEY=-", *config, said="local-s3cr3t\n")
        assert given[0] == 0, given
        assert "s3cr3t" not in given[1]
        async with asyncio.timeout(30):
            while gateway.servers()[0].status != "running":
                await asyncio.sleep(0.02)
        assert json.loads((await gateway.call("tracker__key")).text)[0] == "<local-s3cr3t>"
    kept, listed = await asyncio.gather(typed("auth", *config), typed("list", *config))
    for shown in (kept, listed):
        assert "local-s3cr3t" not in shown[1]
    assert "TRACKER_KEY is kept" in kept[1]
    gone = await typed("logout", "tracker", *config)
    assert gone[0] == 0, gone
    assert "needs TRACKER_KEY" in (await typed("auth", *config))[1]
    assert (await typed("logout", "tracker", *config))[0] == 1


async def test_logout_of_everything_forgets_keys_too(program: Path) -> None:
    """docs/identity.md: all of what `login` kept, by whichever config and whichever user of a gateway."""
    servers = parse_config({"mcpServers": {"tracker": entry(program), "hub": entry(program)}}).servers
    store = TokenStore()
    keys = [values_key(servers["tracker"]), values_key(servers["hub"], ("https://issuer.example", "ann"))]
    for key in keys:
        store.keep_values(key, {"TRACKER_KEY": "s3cr3t"})
    assert await typed("logout", "--all") == (0, "TRACKER_KEY: forgotten\nTRACKER_KEY: forgotten\n")
    assert [store.values(key) for key in keys] == [{}, {}]


@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "args": ["${user:KEY}"]},
        {"command": "x", "env": {"LD_PRELOAD": "${user:KEY}"}},
        {"command": "x", "env": {"KEY": "${user:not a name}"}},
        {"url": "https://x.example.com/${user:KEY}"},
        {"command": "x", "cwd": "${user:KEY}"},
    ],
)
def test_it_stands_in_env_and_headers_and_nowhere_else(server: dict[str, Any]) -> None:
    """docs/configuration.md#variables: not in arguments, which others can read, and never code."""
    with pytest.raises(ConfigError):
        parse_config({"mcpServers": {"tracker": server}})
    found = parse_config({"mcpServers": {"tracker": {"command": "x", "env": {"A": "$${user:KEY}"}}}})
    assert found.servers["tracker"].env == {"A": "${user:KEY}"}
    assert found.servers["tracker"].user_values == ()


@pytest.mark.timeout(120)
async def test_a_machine_with_an_api_key_has_what_a_command_gave_for_it(
    provider: Provider, program: Path, tmp_path: Path
) -> None:
    """docs/identity-team.md#machines: by `--key`; nobody else has any of it, and it ends with the key."""
    file, keys = tmp_path / "muxway.json", KeyFile(tmp_path / "keys.json")
    servers = {"tracker": entry(program), "guarded": {"url": provider.mcp}}
    file.write_text(json.dumps({"mcpServers": servers, "gateway": {"keys": str(keys.path)}}))
    config = ("--config", str(file))
    made = {name: keys.create(name) for name in ("ci", "other")}
    keys.read()
    async with a_web() as web:
        web.door.admit((), {}, KeyHolders(keys, demands=True))
        gateway = web.world.gateway
        await gateway.add("tracker", **entry(program))
        await gateway.add("guarded", url=provider.mcp)

        async def said(tool: str, key: str = "ci") -> str:
            message, headers = modern("tools/call", {"name": tool, "arguments": {}})
            answer = await web.post(message, {**headers, "Authorization": f"Bearer {made[key]}"})
            return answer.outcome["result"]["content"][0]["text"]

        async def until(tool: str, wanted: str) -> None:
            async with asyncio.timeout(30):
                while not (await said(tool)).startswith(wanted):
                    await asyncio.sleep(0.05)

        needed = "of yours: ask who runs muxway for it (`muxway login tracker --key ci`)"
        assert (await said("tracker__key")).endswith(needed)
        assert "(`muxway login guarded --key ci`)" in await said("guarded__who")
        given = ("login", "tracker", "--set", "TRACKER_KEY=-", "--key")
        assert (await typed(*given, "nobody", *config, said="x\n"))[0] == 1
        assert (await typed(*given, "ci", *config, said="ci-s3cr3t\n"))[0] == 0
        await until("tracker__key", '["<ci-s3cr3t>"')
        opens = f"{sys.executable} {BROWSER} %s"
        code, told = await run("login", "guarded", "--key", "ci", *config, BROWSER=opens)
        assert code == 0, told
        await until("guarded__who", "ann")
        assert "guarded (key ci)" in (await typed("auth", *config))[1]
        # Neither another key nor whoever runs it has any of that.
        assert "needs TRACKER_KEY" in await said("tracker__key", "other")
        assert "needs your login" in await said("guarded__who", "other")
        assert {server.status for server in gateway.servers()} == {"login needed"}
    code, told = await typed("key", "revoke", "ci", *config)
    assert (code, told) == (0, "ci is revoked.\nguarded: taken back and forgotten\n")
    assert TokenStore().all() == []
    assert [*TokenStore().folder.glob("*-values*")] == []
