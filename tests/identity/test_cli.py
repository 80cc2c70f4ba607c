"""The commands, as people type them: no display, a browser of our own, a pipe to paste into."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway.identity.store import TokenStore

from .provider import agree, visit

if TYPE_CHECKING:
    from .provider import Provider

BROWSER = Path(__file__).parents[1] / "conformance" / "browser.py"


def a_config(provider: Provider, tmp_path: Path, **oauth: Any) -> Path:
    file = tmp_path / "servers.json"
    file.write_text(
        json.dumps({"mcpServers": {"guarded": {"url": provider.mcp, **({"oauth": oauth} if oauth else {})}}})
    )
    return file


async def started(*words: str, **environment: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muxway", *words), stdin=pipe, stdout=pipe, stderr=pipe, env=inherited | environment
    )


async def run(*words: str, **environment: str) -> tuple[int, str]:
    process = await started(*words, **environment)
    out, err = await process.communicate()
    return process.returncode or 0, (out + err).decode()


async def link_of(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode():
        if found := re.search(r"http://\S+/authorize\S+", line):
            return found[0]
    raise AssertionError("no link was shown")


async def test_login_status_and_logout(provider: Provider, tmp_path: Path) -> None:
    """docs/identity.md#laptop: the three commands, one after the other."""
    file = str(a_config(provider, tmp_path))
    code, said = await run("login", "guarded", "--config", file, BROWSER=f"{sys.executable} {BROWSER} %s")
    assert code == 0, said
    assert f"to guarded at {provider.url}" in said
    assert "client id: registered" in said
    code, said = await run("auth", "status", "--json", "--config", file)
    (login,) = json.loads(said)["logins"]
    assert (login["server"], login["authorizationServer"], login["renewable"]) == ("guarded", provider.url, True)
    kept = TokenStore().all()[0]
    code, shown = await run("auth", "--config", file)
    assert "logged in" in shown
    assert kept.token.access not in said + shown
    code, said = await run("check", file, "--connect")
    assert code == 0, said
    assert f"renewed automatically; at {provider.url}; client id: registered; scopes: read offline_access" in said
    code, said = await run("call", "guarded__who", "--config", file)
    assert (code, "ann" in said) == (0, True)
    code, said = await run("logout", "guarded", "--config", file)
    assert (code, said) == (0, "guarded: taken back and forgotten\n")
    assert provider.count("/revoke") == 2
    code, said = await run("logout", "--all")
    assert (code, said) == (0, "There is no login.\n")


async def test_a_server_that_wants_a_login_can_be_added_before_it(provider: Provider, tmp_path: Path) -> None:
    """docs/identity.md#laptop: `add` writes it, and says what to run; nobody can log in to what is in no config."""
    file = tmp_path / "added.json"
    code, said = await run("add", provider.mcp, "--name", "guarded", "--config", str(file))
    assert code == 0, said
    assert f"muxway login guarded -c {file}" in said
    assert json.loads(file.read_text()) == {"mcpServers": {"guarded": {"url": provider.mcp}}}
    code, said = await run("login", "guarded", "-c", str(file), BROWSER=f"{sys.executable} {BROWSER} %s")
    assert code == 0, said


async def test_login_over_ssh_by_a_pasted_address(provider: Provider, tmp_path: Path) -> None:
    """docs/identity.md#over-ssh: no display; the address is printed, and the one that the browser ends at pasted."""
    process = await started("login", "guarded", "--no-browser", "--config", str(a_config(provider, tmp_path)))
    ended = await agree(await link_of(process))
    assert process.stdin is not None
    process.stdin.write(f"nonsense\n{ended}\n".encode())
    out, err = await process.communicate()
    assert process.returncode == 0, err
    assert b"logged in" in out
    assert err.count(b"not the address that this login ends at") == 1
    assert len(TokenStore().all()) == 1


async def test_a_login_that_waits_for_an_answer_says_so(tmp_path: Path) -> None:
    """docs/identity.md#laptop: a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "servers.json"
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        file.write_text(json.dumps({"mcpServers": {"guarded": {"url": url}}}))
        process = await started("login", "guarded", "--no-browser", "--config", str(file))
        assert process.stderr is not None
        assert b"slow to answer" in await process.stderr.readline()
        process.kill()
        await process.communicate()


async def test_login_by_code_on_another_device(provider: Provider, tmp_path: Path) -> None:
    """docs/identity.md#over-ssh: RFC 8628, without a display."""
    process = await started("login", "guarded", "--device", "--config", str(a_config(provider, tmp_path)))
    assert process.stderr is not None
    while b"WDJB-MJHT" not in (line := await process.stderr.readline()):
        assert line
    provider.activate()
    await process.communicate()
    assert process.returncode == 0
    assert len(TokenStore().all()) == 1


async def test_no_browser_is_opened_without_a_display_and_the_login_works_all_the_same(
    provider: Provider, tmp_path: Path
) -> None:
    """docs/identity.md#over-ssh: whoever has no screen is told at once what to do."""
    process = await started("login", "guarded", "--config", str(a_config(provider, tmp_path)))
    assert await visit(await agree(await link_of(process))) == 200
    _, err = await process.communicate()
    assert process.returncode == 0
    assert b"paste the address" in err


async def test_what_needs_a_login_is_told_by_every_command(provider: Provider, tmp_path: Path) -> None:
    """docs/identity.md#laptop: `login needed` in `list`, `check`, `tools`; with what to run."""
    file = str(a_config(provider, tmp_path))
    command = f"muxway login guarded --config {file}"
    code, said = await run("list", file)
    assert code == 0
    assert "login needed" in said
    assert command in said
    code, said = await run("check", file, "--connect")
    assert code == 4
    assert f"no login; at {provider.url}; client id: registered; scopes: read offline_access" in said
    code, said = await run("check", file, "--connect", "--json")
    assert json.loads(said)["servers"][0]["login"]["authorizationServer"] == provider.url
    assert json.loads(said)["servers"][0]["status"] == "login needed"
    code, said = await run("tools", "--config", file)
    assert command in said
    code, said = await run("call", "guarded__who", "--config", file)
    assert code != 0
    assert command in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("login", "gurded"), 'no server is called "gurded"'),
        (("login", "guarded", "--device", "--no-browser"), "--device needs no browser"),
        (("logout",), "name a server, or say --all"),
        (("logout", "guarded"), "has no login"),
    ],
)
async def test_wrong_commands_are_told(provider: Provider, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """Ours: an error says what to do."""
    code, text = await run(*words, "--config", str(a_config(provider, tmp_path)))
    assert code != 0
    assert said in text


async def test_a_login_that_fails_leaves_nothing_and_shows_no_secret(provider: Provider, tmp_path: Path) -> None:
    """docs/security.md#logins."""
    provider.failing = [400]
    file = str(a_config(provider, tmp_path, clientId="me", clientSecret="canary-client-secret"))
    code, said = await run("login", "guarded", "--config", file, BROWSER=f"{sys.executable} {BROWSER} %s")
    assert code == 1
    assert 'server "guarded": its authorization server refuses: early' in said
    assert "canary" not in said
    assert TokenStore().all() == []


async def test_a_store_that_others_may_read_is_refused_by_each_command(provider: Provider, tmp_path: Path) -> None:
    """docs/identity.md#the-token-store."""
    file = str(a_config(provider, tmp_path))
    await run("login", "guarded", "--config", file, BROWSER=f"{sys.executable} {BROWSER} %s")
    TokenStore().folder.chmod(0o755)
    for words in (("auth",), ("logout", "guarded"), ("logout", "--all"), ("login", "guarded")):
        code, said = await run(*words, *(() if "--all" in words else ("--config", file)))
        assert code == 1, words
        assert "is open to other users, so it may be known to them: `chmod 700` it" in said
    code, said = await run("list", file)
    assert "is open to other users" in said
