"""Logins at a certified OpenID provider (oidc-provider), for servers of the official Python SDK, old and new."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from muxway import Gateway
from muxway.config import load_config
from muxway.identity.credentials import ServerCredentials, login_key
from muxway.identity.sign_in import sign_out
from muxway.identity.store import TokenStore
from muxway.net.http_errors import HttpTrouble
from tests.interop import peers
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = Path(__file__).parent / "peers"
PERSON = f"{sys.executable} {HERE / 'person.py'} %s"


@asynccontextmanager
async def process(*command: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env={**os.environ, **environment}
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def listening(port: int, of: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if of.returncode is not None:
                    assert of.stdout is not None
                    pytest.fail((await of.stdout.read()).decode())
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


@asynccontextmanager
async def world(env: str, tmp_path: Path, **oauth: str) -> AsyncIterator[Path]:
    """A provider, a server that asks it about tokens, and the config of a gateway in front."""
    issuer_port, port = free_port(), free_port()
    modules = str(peers.ensure("node") / "node_modules")
    provider = (str(peers.NODE), str(HERE / "provider.mjs"), modules, str(issuer_port), f"http://127.0.0.1:{port}/mcp")
    server = (peers.python(env), str(HERE / "sdk_server.py"), f"http://127.0.0.1:{issuer_port}", str(port))
    async with process(*provider) as one, process(*server) as other:
        await listening(issuer_port, one)
        await listening(port, other)
        file = tmp_path / "servers.json"
        entry = {"url": f"http://127.0.0.1:{port}/mcp", "oauth": oauth}
        file.write_text(json.dumps({"mcpServers": {"guarded": entry}}))
        yield file


async def command(*words: str) -> tuple[int, str]:
    async with process(sys.executable, "-m", "muxway", *words, BROWSER=PERSON) as started:
        out, _ = await started.communicate()
        return started.returncode or 0, out.decode()


@pytest.mark.parametrize("env", ["mcp1", "mcp2"])
async def test_a_login_works_from_the_command_to_the_call(env: str, tmp_path: Path) -> None:
    """docs/identity.md#laptop: real parts on all sides; the gateway runs before, during and after the login."""
    async with world(env, tmp_path) as file, Gateway.open(file) as gateway:
        assert gateway.servers()[0].status == "login needed"
        code, said = await command("login", "guarded", "--config", str(file))
        assert code == 0, said
        assert "client id: registered" in said
        async with asyncio.timeout(30):
            while gateway.servers()[0].status != "running":
                await asyncio.sleep(0.05)
        assert (await gateway.call("guarded__who")).text not in ("", "nobody")
        made = TokenStore().all()[0]
        assert made.token.refresh is not None
        config = load_config(file).servers["guarded"]
        await rotates_once(config, made)
        assert (await gateway.call("guarded__who")).text not in ("", "nobody")
        kept = TokenStore().read(login_key(config))
        assert await sign_out(kept, TokenStore(), config) is None
        with pytest.raises(Exception, match="muxway login guarded"):
            await gateway.call("guarded__who")


async def rotates_once(config: object, made: object) -> None:
    """Many who find a token at its end get one new one, and the provider, which ends replayed logins, is content."""
    store = TokenStore()
    token = msgspec.structs.replace(made.token, expires_at=time.time() + 5)
    store.write(msgspec.structs.replace(made, token=token))
    many = [ServerCredentials(config, store) for _ in range(8)]
    await asyncio.gather(*(one.prepare() for one in many))
    assert len({one.header for one in many}) == 1
    assert store.read(login_key(config)).token.refresh != made.token.refresh


async def test_a_replayed_refresh_token_ends_the_login_and_is_told(tmp_path: Path) -> None:
    """OAuth 2.1 §4.3.1, as the provider has it: a second use of a refresh token ends everything made from it."""
    async with world("mcp2", tmp_path) as file:
        code, said = await command("login", "guarded", "--config", str(file))
        assert code == 0, said
        store, config = TokenStore(), load_config(file).servers["guarded"]
        made = store.all()[0]
        await rotates_once(config, made)
        expired = msgspec.structs.replace(made.token, expires_at=1.0)
        store.write(msgspec.structs.replace(made, token=expired))
        with pytest.raises(HttpTrouble, match="muxway login guarded"):
            await ServerCredentials(config, store).prepare()
        assert store.all() == []


async def test_a_machine_needs_nobody(tmp_path: Path) -> None:
    """docs/identity.md#machines."""
    secrets = {"grant": "client_credentials", "clientId": "machine", "clientSecret": "machine-secret-of-tests"}
    async with world("mcp2", tmp_path, **secrets) as file, Gateway.open(file) as gateway:
        assert gateway.servers()[0].status == "running", gateway.servers()[0].error
        assert (await gateway.call("guarded__who")).text == "machine"
        code, said = await command("login", "guarded", "--config", str(file))
        assert code == 1
        assert "no login is needed" in said


async def test_two_providers_are_never_mixed_up(tmp_path: Path) -> None:
    """docs/security.md#logins: each login goes back to the provider that gave it, and to its own server."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with world("mcp2", tmp_path / "a") as one, world("mcp2", tmp_path / "b") as other:
        for file in (one, other):
            code, said = await command("login", "guarded", "--config", str(file))
            assert code == 0, said
        logins = TokenStore().all()
        assert len({made.server.issuer for made in logins}) == 2
        # Put in each other's place by somebody, a token is refused by the server, and its refresh goes where it was.
        first, second = (load_config(file).servers["guarded"] for file in (one, other))
        of_second = TokenStore().read(login_key(second))
        TokenStore().write(msgspec.structs.replace(of_second, key=login_key(first)))
        async with Gateway.open(one) as gateway:
            assert gateway.servers()[0].status == "login needed"
