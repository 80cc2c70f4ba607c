"""Tokens on the way to a server: renewed in time, by one for all, and kept as long as they are good."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from muxway.identity.credentials import ServerCredentials, login_key
from muxway.net.http_errors import HttpTrouble

from .logging_in import log_in, server

if TYPE_CHECKING:
    from muxway.identity.store import Login, TokenStore

    from .provider import Provider

UNAUTHORIZED = ['Bearer error="invalid_token"']


def aged(store: TokenStore, made: Login, left: float) -> Login:
    """The same login, with so many seconds left."""
    token = msgspec.structs.replace(made.token, expires_at=time.time() + left)
    old = msgspec.structs.replace(made, token=token)
    store.write(old)
    return old


async def ready(credentials: ServerCredentials) -> str | None:
    if credentials.due():
        await credentials.prepare()
    return credentials.header


async def test_a_token_is_renewed_a_minute_before_its_end_once_for_all(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#the-token-store: 60 s early, one request however many wait."""
    config = server(provider)
    made = aged(store, await log_in(config), 59)
    before = provider.count("/token")
    many = [ServerCredentials(config, store) for _ in range(3)]
    headers = await asyncio.gather(*(ready(one) for one in many for _ in range(5)))
    assert len(set(headers)) == 1
    assert headers[0] != f"Bearer {made.token.access}"
    assert provider.count("/token") == before + 1


async def test_a_good_token_costs_no_look_at_the_disk(provider: Provider, store: TokenStore) -> None:
    """Ours: between two requests nothing is read."""
    config = server(provider)
    await log_in(config)
    credentials = ServerCredentials(config, store)
    await ready(credentials)
    assert not credentials.due()


@pytest.mark.parametrize("status", [400, 500, 503, 429])
async def test_a_refresh_that_fails_for_now_keeps_a_token_that_is_good(
    provider: Provider, store: TokenStore, status: int
) -> None:
    """docs/identity.md#the-token-store: some refuse an early refresh, some are down; the token is still good."""
    config = server(provider)
    made = aged(store, await log_in(config), 30)
    provider.failing = [status]
    assert await ready(ServerCredentials(config, store)) == f"Bearer {made.token.access}"
    assert store.read(login_key(config)) == made


async def test_a_refresh_that_fails_for_now_keeps_the_login_when_the_token_has_ended(
    provider: Provider, store: TokenStore
) -> None:
    """docs/identity.md#the-token-store: only `invalid_grant` ends a login."""
    config = server(provider)
    made = aged(store, await log_in(config), -5)
    provider.failing = [503]
    credentials = ServerCredentials(config, store)
    with pytest.raises(HttpTrouble, match="could not be renewed") as told:
        await ready(credentials)
    assert told.value.reason == "lost"
    assert store.read(login_key(config)) == made
    assert await ready(credentials) != f"Bearer {made.token.access}"


async def test_a_login_that_was_ended_elsewhere_asks_for_a_new_one(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#laptop: `login needed`, with what to run."""
    config = server(provider)
    aged(store, await log_in(config), -5)
    provider.revoke_all()
    with pytest.raises(HttpTrouble, match="run `muxway login guarded`") as told:
        await ready(ServerCredentials(config, store))
    assert told.value.reason == "login_needed"
    assert store.read(login_key(config)) is None


@pytest.mark.parametrize("written", [False, True])
async def test_an_authorization_server_that_forgot_us_asks_for_a_new_login(
    provider: Provider, store: TokenStore, written: bool
) -> None:
    """docs/identity.md#the-token-store: one that registered itself can register anew; what is written, people mend."""
    config = server(provider, **({"clientId": "mine"} if written else {}))
    made = aged(store, await log_in(config), -5)
    provider.forgets_clients = True
    said = "look at `oauth.clientId`" if written else "run `muxway login guarded`"
    with pytest.raises(HttpTrouble, match=said):
        await ready(ServerCredentials(config, store))
    assert store.read(login_key(config)) == (made if written else None)
    if not written:
        provider.forgets_clients = False
        again = await log_in(config)
        assert again.registration.client_id != made.registration.client_id


async def test_a_refused_token_is_renewed_once_and_the_request_sent_again(
    provider: Provider, store: TokenStore
) -> None:
    """docs/identity.md#the-token-store: 401 with a token that should be good."""
    config = server(provider)
    await log_in(config)
    credentials = ServerCredentials(config, store)
    sent = await ready(credentials)
    before = provider.count("/token")
    again = await asyncio.gather(*(credentials.refused(401, UNAUTHORIZED, sent) for _ in range(10)))
    assert again == [True] * 10
    assert credentials.header != sent
    assert provider.count("/token") == before + 1


async def test_a_token_that_another_process_renewed_is_taken_over(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#the-token-store: what was refused is compared with what is kept before anything is asked."""
    config = server(provider)
    await log_in(config)
    one, other = ServerCredentials(config, store), ServerCredentials(config, store)
    sent = await ready(one)
    await ready(other)
    assert await other.refused(401, UNAUTHORIZED, sent)
    before = provider.count("/token")
    assert await one.refused(401, UNAUTHORIZED, sent)
    assert one.header == other.header
    assert provider.count("/token") == before


class Later:
    """The clock, so many seconds ahead; the time of day is what it is."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.time = time.time

    def monotonic(self) -> float:
        return time.monotonic() + self._seconds


async def test_scopes_are_asked_for_twice_more_then_no_more(
    provider: Provider, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCP 2025-11-25, basic/authorization: step-up with few retries; docs/identity.md#more-scopes."""
    config = server(provider)
    await log_in(config)
    credentials = ServerCredentials(config, store)
    challenge = ['Bearer error="insufficient_scope", scope="write"']
    said: list[str] = []
    sent = None
    for _ in range(5):
        sent = await ready(credentials)
        with pytest.raises(HttpTrouble) as told:
            await credentials.refused(403, challenge, sent)
        said.append(told.value.what)
    assert ["allows more" in one for one in said] == [True, True, False, False, False]
    # Ten minutes later somebody may have been given more.
    with monkeypatch.context() as later:
        later.setattr("muxway.identity.credentials.time", Later(601))
        with pytest.raises(HttpTrouble, match="allows more"):
            await credentials.refused(403, challenge, sent)
    made = await log_in(config)
    assert made.asked == ("read", "offline_access", "write")
    assert not await ServerCredentials(config, store).refused(403, [], None)


async def test_a_machines_token_is_asked_for_once_for_all(provider: Provider, store: TokenStore) -> None:
    """MCP extension client credentials: no person, Basic; one request however many wait."""
    config = server(provider, grant="client_credentials", clientId="machine", clientSecret="s3cret-of-machine")
    credentials = ServerCredentials(config, store)
    assert await ready(credentials) is None
    again = await asyncio.gather(*(credentials.refused(401, ["Bearer"], None) for _ in range(8)))
    assert again == [True] * 8
    assert provider.count("/token") == 1
    form = dict(provider.asked)["/token"]
    assert (form["grant_type"], form["resource"]) == ("client_credentials", provider.mcp)
    assert "client_secret" not in form
    assert store.read(login_key(config)).registration.client_secret is None


async def test_a_token_is_exchanged_for_one_of_the_server(provider: Provider, store: TokenStore) -> None:
    """RFC 8693 §2.1."""
    config = server(provider, grant="token_exchange", clientId="machine", subjectToken="token-of-ann-elsewhere")
    credentials = ServerCredentials(config, store)
    assert await credentials.refused(401, ["Bearer"], None)
    form = dict(provider.asked)["/token"]
    assert form["grant_type"].endswith("token-exchange")
    assert form["subject_token"] == "token-of-ann-elsewhere"


@pytest.mark.parametrize(("kind", "algorithm"), [("rsa", "RS256"), ("ec", "ES256"), ("ed25519", "Ed25519")])
async def test_a_private_key_shows_who_we_are(provider: Provider, store: TokenStore, kind: str, algorithm: str) -> None:
    """RFC 7523 §3: signed for the issuer, short-lived, never the same twice."""
    from joserfc import jws
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    key = {"rsa": lambda: RSAKey.generate_key(2048), "ec": lambda: ECKey.generate_key("P-256"),
           "ed25519": lambda: OKPKey.generate_key("Ed25519")}[kind]()  # fmt: skip
    pem = key.as_pem(private=True).decode()
    config = server(provider, grant="client_credentials", clientId="machine", privateKey=pem, keyId="k1")
    assert await ServerCredentials(config, store).refused(401, ["Bearer"], None)
    form = dict(provider.asked)["/token"]
    opened = jws.deserialize_compact(form["client_assertion"], key, algorithms=[algorithm])
    claims = json.loads(opened.payload)
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("machine", "machine", provider.url)
    assert opened.headers()["kid"] == "k1"
    assert 0 < claims["exp"] - time.time() <= 120


CALLER = """
import asyncio, json, sys
from muxway.config import parse_server
from muxway.identity.credentials import ServerCredentials
from muxway.identity.store import TokenStore
from muxway.net.http_client import HttpClient
url, at = sys.argv[1], float(sys.argv[2])
async def main():
    import time
    credentials = ServerCredentials(parse_server("guarded", {"url": url}), TokenStore())
    await asyncio.sleep(max(0, at - time.time()))
    if credentials.due():
        await credentials.prepare()
    client = HttpClient(url, {})
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who"}}).encode()
    headers = {"Authorization": credentials.header, "Content-Type": "application/json"}
    async with await client.request("POST", url, headers, body) as response:
        print(response.status, (await response.read(10000)).decode())
    await client.close()
asyncio.run(main())
"""


async def test_twelve_processes_with_one_rotating_token_renew_it_once(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#the-token-store: 12 processes, 1 refresh, 12 good calls."""
    config = server(provider)
    aged(store, await log_in(config), 10)
    before = provider.count("/token")
    at = time.time() + 8
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", CALLER, provider.mcp, str(at), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(12)
    ]
    said = [(await process.communicate())[0].decode() for process in started]
    assert ['200 {"jsonrpc"' in one and '"ann"' in one for one in said] == [True] * 12
    assert provider.count("/token") == before + 1
    assert provider.spent


async def test_a_kill_during_a_refresh_leaves_a_whole_store(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#the-token-store: at 50 points of a refresh; the lock is free and the file whole each time."""
    config = server(provider)
    provider.slow = 0.01
    provider.rotates = False
    made = await log_in(config)
    key = login_key(config)
    code = CALLER.replace("if credentials.due():\n        await", "print(1, flush=True)\n    await")
    for number in range(50):
        aged(store, made, 10)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, provider.mcp, "0", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(number * 0.001)
        process.kill()
        await process.wait()
        kept = store.read(key)
        assert kept is not None
        assert kept.token.refresh == made.token.refresh
    assert (await ready(ServerCredentials(config, store))) is not None


async def test_a_login_elsewhere_is_noticed(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#laptop: no restart."""
    config = server(provider)
    credentials = ServerCredentials(config, store)
    came = asyncio.Event()
    credentials.on_login = came.set
    with pytest.raises(HttpTrouble):
        await credentials.refused(401, UNAUTHORIZED, None)
    await log_in(config)
    async with asyncio.timeout(30):
        await came.wait()
    credentials.close()
