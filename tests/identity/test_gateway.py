"""A gateway in front of a server that wants a login: it starts, says so, sends people there, and goes on by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import ClientSession, CookieJar

from muxway import Gateway
from muxway.calls.call import LIBRARY, Call, Caller
from muxway.calls.ports import Waiter
from muxway.config import parse_config
from muxway.errors import UpstreamError
from muxway.identity import pages
from muxway.testing import RawClient

from ..pace import crowding
from .logging_in import log_in, server
from .provider import visit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .provider import Provider

ASKS = {"elicitation": {"form": {}, "url": {}}}


@contextlib.asynccontextmanager
async def gateway_for(provider: Provider, **more: Any) -> AsyncIterator[Gateway]:
    config = parse_config({"mcpServers": {"guarded": {"url": provider.mcp}, **more}})
    async with Gateway.open(config) as gateway:
        yield gateway


async def client_of(gateway: Gateway, revision: str, capabilities: dict[str, Any] | None = None) -> RawClient:
    client = RawClient(gateway.memory_door(), revision=revision, capabilities=capabilities or {})
    await client.hello()
    return client


async def until_running(gateway: Gateway) -> None:
    async with asyncio.timeout(30):
        while gateway.servers()[0].status != "running":
            await asyncio.sleep(0.01)


async def browse(link: str) -> list[int]:
    """What somebody sees who opens a link in one browser and agrees to everything."""
    seen: list[int] = []
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
        for _ in range(5):
            async with session.get(link, allow_redirects=False) as answer:
                seen.append(answer.status)
                if "Location" not in answer.headers:
                    break
                link = answer.headers["Location"]
    return seen


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-11-25", "2026-07-28"])
async def test_it_starts_without_a_login_and_a_call_says_what_to_run(provider: Provider, revision: str) -> None:
    """docs/identity.md#laptop: `login needed`, others unaffected; a call is answered at once, with the command."""
    began = time.monotonic()
    async with gateway_for(provider, notes={"command": sys.executable, "args": ["-m", "muxway.demo.notes"]}) as gateway:
        assert time.monotonic() - began < 10
        found = {one.name: one for one in gateway.servers()}
        assert found["guarded"].status == "login needed"
        assert found["notes"].status == "running"
        client = await client_of(gateway, revision)
        began = time.monotonic()
        result = (await client.call("guarded__who", {})).result
        assert time.monotonic() - began < 0.5 + crowding()
        assert result["isError"] is True
        assert result["content"][0]["text"] == 'server "guarded" needs a login: run `muxway login guarded`'
        refused = (await client.ask("prompts/get", {"name": "guarded__x"})).message["error"]
        assert refused["data"]["muxway"]["reason"] == "login_needed"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_login_made_elsewhere_wakes_the_server(provider: Provider, revision: str) -> None:
    """docs/identity.md#laptop: another process logs in; no restart, and one change of the list is told."""
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, revision)
        await log_in(server(provider))
        await until_running(gateway)
        await gateway.settled()
        names = [tool["name"] for tool in (await client.ask("tools/list")).result["tools"]]
        assert names == ["guarded__who", "guarded__write"]
        if revision == "2025-11-25":
            told = [note["method"] for note in client.notices]
            assert told == ["notifications/tools/list_changed"]
        assert (await client.call(names[0], {})).result["content"][0]["text"] == "ann"


async def test_a_login_is_there_before_the_gateway(provider: Provider) -> None:
    """docs/identity.md#laptop: logged in once, every gateway of the user can use it."""
    await log_in(server(provider))
    before = provider.count("/token")
    async with gateway_for(provider) as gateway:
        assert gateway.servers()[0].status == "running"
        assert (await gateway.call("guarded__who")).text == "ann"
    assert provider.count("/token") == before


async def test_a_token_that_ends_while_it_runs_is_renewed_unseen(provider: Provider) -> None:
    """docs/identity.md#the-token-store: 401 in the middle: one refresh, one repetition, no error."""
    await log_in(server(provider))
    async with gateway_for(provider) as gateway:
        provider.expire_access()
        before = provider.count("/token")
        answers = await asyncio.gather(*(gateway.call("guarded__who") for _ in range(20)))
        assert {answer.text for answer in answers} == {"ann"}
        assert provider.count("/token") == before + 1


async def test_a_login_that_ends_while_it_runs_is_asked_for_and_the_tools_stay_listed(provider: Provider) -> None:
    """docs/identity.md#laptop: from running to `login needed` and back, without a restart."""
    await log_in(server(provider))
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, "2025-11-25")
        provider.revoke_all()
        result = (await client.call("guarded__who", {})).result
        assert "muxway login guarded" in result["content"][0]["text"]
        async with asyncio.timeout(30):
            while gateway.servers()[0].status != "login needed":
                await asyncio.sleep(0.01)
        listed = (await client.ask("tools/list")).result["tools"]
        assert [tool["name"] for tool in listed] == ["guarded__who", "guarded__write"]
        await log_in(server(provider))
        await until_running(gateway)
        assert (await client.call("guarded__who", {})).result["content"][0]["text"] == "ann"


async def test_a_handshake_client_that_can_visit_pages_gets_our_link(provider: Provider) -> None:
    """MCP 2025-11-25, client/elicitation: URL mode, -32042; told when the login is done, and then the call works."""
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, "2025-11-25", ASKS)
        error = (await client.call("guarded__who", {})).message["error"]
        assert error["code"] == -32042
        (page,) = error["data"]["elicitations"]
        assert page["mode"] == "url"
        assert page["url"].startswith("http://127.0.0.1:")
        assert provider.url not in page["url"]
        again = (await client.call("guarded__who", {})).message["error"]["data"]["elicitations"][0]
        assert again == page
        # Opened and left: the same link leads there again.
        assert await visit(page["url"]) == 302
        assert await browse(page["url"]) == [302, 302, 200]
        told = await client.notice("notifications/elicitation/complete")
        assert told["params"] == {"elicitationId": page["elicitationId"]}
        assert (await client.call("guarded__who", {})).result["content"][0]["text"] == "ann"
        assert await browse(page["url"]) == [404]


async def test_a_stateless_client_that_can_visit_pages_gets_our_link(provider: Provider) -> None:
    """MCP 2026-07-28, client/elicitation: `input_required`; the call that comes again waits for the login."""
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, "2026-07-28", ASKS)
        result = (await client.call("guarded__who", {})).result
        assert result["resultType"] == "input_required"
        ((key, asked),) = result["inputRequests"].items()
        assert asked["params"]["mode"] == "url"
        waiting = asyncio.ensure_future(client.call("guarded__who", {}, inputResponses={key: {"action": "accept"}}))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        assert await browse(asked["params"]["url"]) == [302, 302, 200]
        async with asyncio.timeout(30):
            assert (await waiting).result["content"][0]["text"] == "ann"


async def test_a_declined_login_is_an_error_that_says_what_to_run(provider: Provider) -> None:
    """Ours: nobody is asked twice."""
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, "2026-07-28", ASKS)
        ((key, _),) = (await client.call("guarded__who", {})).result["inputRequests"].items()
        result = (await client.call("guarded__who", {}, inputResponses={key: {"action": "decline"}})).result
        assert result["isError"] is True
        assert "muxway login guarded" in result["content"][0]["text"]


async def test_an_answer_in_another_browser_is_refused(provider: Provider) -> None:
    """docs/security.md#logins: what a page of ours began comes back to the browser that opened it."""
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, "2025-11-25", ASKS)
        page = (await client.call("guarded__who", {})).message["error"]["data"]["elicitations"][0]
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as one, ClientSession() as other:
            async with one.get(page["url"], allow_redirects=False) as answer:
                login = answer.headers["Location"]
            async with one.get(login, allow_redirects=False) as answer:
                back = answer.headers["Location"]
            async with other.get(back) as answer:
                assert answer.status == 400
            assert provider.count("/token") == 0
            async with one.get(back) as answer:
                assert answer.status == 200
        await until_running(gateway)


async def test_a_call_that_needs_more_scopes_asks_for_the_union(provider: Provider) -> None:
    """MCP 2026-07-28, basic/authorization: what was asked for and what is asked for now; the server stays up."""
    await log_in(server(provider))
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, "2025-11-25")
        text = (await client.call("guarded__write", {})).result["content"][0]["text"]
        assert "allows more: run `muxway login guarded`" in text
        assert gateway.servers()[0].status == "running"
        made = await log_in(server(provider))
        assert made.asked == ("read", "offline_access", "write")
        assert (await client.call("guarded__write", {})).result["content"][0]["text"] == "ann"


async def test_what_a_client_sends_as_authorization_never_goes_on(provider: Provider, tmp_path: Path) -> None:
    """docs/security.md#logins: the header is built from the store, from nothing else."""
    del tmp_path
    made = await log_in(server(provider))
    async with gateway_for(provider) as gateway:
        assert (await gateway.call("guarded__who")).text == "ann"
    assert set(provider.authorizations) <= {None, f"Bearer {made.token.access}"}


async def test_no_secret_is_shown_anywhere(
    provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """docs/security.md#logins: tokens, codes, secrets, verifiers: in no log, error, result, audit, output or child."""
    caplog.set_level(logging.DEBUG)
    config = server(provider, clientId="me", clientSecret="canary-client-secret")
    made = await log_in(config)
    shown: list[str] = []
    oauth = {"clientId": "me", "clientSecret": "canary-client-secret"}
    audit = tmp_path / "audit.jsonl"
    child = {"command": sys.executable, "args": ["-m", "muxway.demo.notes"], "inheritEnv": True}
    loaded = parse_config(
        {
            "mcpServers": {"guarded": {"url": provider.mcp, "oauth": oauth}, "notes": child},
            "middleware": [{"use": "audit", "path": str(audit)}, "log"],
        }
    )
    async with Gateway.open(loaded) as gateway:
        client = await client_of(gateway, "2025-11-25", ASKS)
        shown.append(str((await client.call("guarded__who", {})).message))
        provider.failing = [500]
        provider.expire_access()
        shown.append(str((await client.call("guarded__who", {})).message))
        provider.revoke_all()
        shown.append(str((await client.call("guarded__who", {})).message))
        shown.append(str(gateway.servers()))
        shown.append(repr(gateway.config))
        pids = [pid for one in gateway.servers() for pid in one.pids]
        assert pids
        shown += [Path(f"/proc/{pid}/{what}").read_text() for pid in pids for what in ("environ", "cmdline")]
    shown.append(audit.read_text())
    out, err = capfd.readouterr()
    everything = "\n".join([*shown, caplog.text, out, err])
    codes = [form.get(name, "") for _, form in provider.asked for name in ("code", "code_verifier", "refresh_token")]
    secrets = {made.token.access, made.token.refresh or "", "canary-client-secret", *codes} - {""}
    assert len(secrets) >= 5
    assert [secret for secret in secrets if secret in everything] == []


@pytest.mark.parametrize("shared", [False, True])
async def test_a_caller_with_a_token_of_its_own_does_not_use_the_login_of_who_runs_it(
    provider: Provider, shared: bool
) -> None:
    """docs/security.md#what-is-not-there-yet: nobody is somebody else, unless that is written down."""
    await log_in(server(provider))
    entry = {"url": provider.mcp, "oauth": {"shared": shared}}
    async with Gateway.open(parse_config({"mcpServers": {"guarded": entry}})) as gateway:
        mine, theirs = Caller(revision=LIBRARY.revision), Caller(revision=LIBRARY.revision, principal=b"theirs")
        for caller, may in ((mine, True), (theirs, shared), (mine, True), (theirs, shared)):
            waiter = Waiter()
            call = Call(caller, "tools/call", {"name": msgspec.Raw(b'"guarded__who"')})
            running = gateway.runtime.dispatcher().handle(call, waiter)
            if may:
                assert b"ann" in await waiter.outcome(running)
            else:
                with pytest.raises(UpstreamError, match=r"oauth\.shared") as told:
                    await waiter.outcome(running)
                assert told.value.reason == "login_needed"


@pytest.mark.parametrize("isolation", ["shared", "principal"])
@pytest.mark.parametrize("shared", [False, True])
async def test_a_caller_with_a_token_of_its_own_hears_nothing_of_what_is_somebody_elses(
    provider: Provider, shared: bool, isolation: str
) -> None:
    """docs/subscriptions.md: it would subscribe with the login of who runs muxway, and hear of their changes."""
    await log_in(server(provider))
    entry = {"url": provider.mcp, "isolation": isolation, "oauth": {"shared": shared}}
    async with Gateway.open(parse_config({"mcpServers": {"guarded": entry}})) as gateway:
        await until_running(gateway)
        feed = gateway.runtime.subscriptions._feeds["guarded"]
        assert feed.is_anothers(Caller(revision=LIBRARY.revision, principal=b"theirs")) is not shared
        if not shared:
            assert not feed.is_anothers(Caller(revision=LIBRARY.revision))


async def test_a_new_token_for_each_call_is_one_session(provider: Provider) -> None:
    """docs/identity.md#the-token-store: 300 tokens of one login, one session at the server."""
    await log_in(server(provider))
    async with gateway_for(provider) as gateway:
        provider.lifetime = 60
        provider.expire_access()
        greeted, before = provider.greeted, provider.count("/token")
        for _ in range(300):
            assert (await gateway.call("guarded__who")).text == "ann"
        assert provider.count("/token") >= before + 300
        assert provider.greeted == greeted
    assert len(set(provider.authorizations)) >= 300


async def test_the_link_of_a_server_whose_metadata_cannot_be_had_says_so(provider: Provider) -> None:
    """Ours: a page that says what to look at, and a log line with the reason."""
    async with gateway_for(provider) as gateway:
        client = await client_of(gateway, "2025-11-25", ASKS)
        page = (await client.call("guarded__who", {})).message["error"]["data"]["elicitations"][0]
        provider.registration = False
        assert await visit(page["url"]) == 502
        assert await visit(page["url"].replace("/login/", "/login/x")) == 404


def test_another_user_of_the_machine_is_told_from_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """docs/security.md#logins: the page is for the user who runs the gateway; the kernel knows whose a socket is."""
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        "   0: 0100007F:{port} 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  {uid} 0 {inode}\n"
    )
    file = tmp_path / "tcp"
    monkeypatch.setattr(pages, "_SOCKETS", str(file))
    for uid, own in ((os.geteuid(), True), (0, True), (os.geteuid() + 4711, False)):
        file.write_text(table.format(port="C350", uid=uid, inode=1))
        assert pages._is_own(("127.0.0.1", 50000), ("127.0.0.1", 8080)) is own
    # Closed already, or not there at all: it may be anybody's.
    for port, inode in (("C350", 0), ("C351", 1)):
        file.write_text(table.format(port=port, uid=0, inode=inode))
        assert not pages._is_own(("127.0.0.1", 50000), ("127.0.0.1", 8080))
    file.unlink()
    assert pages._is_own(("127.0.0.1", 50000), ("127.0.0.1", 8080))


@pytest.mark.parametrize("challenge", [None, 'Bearer realm="x"', 'Basic realm="x"'])
async def test_a_server_that_wants_a_token_of_another_kind_is_not_said_to_have_logins(
    provider: Provider, challenge: str | None
) -> None:
    """docs/identity.md#laptop: `login needed` is for servers that say where; the others say what to write."""
    provider.challenge = challenge
    provider.has_metadata = False
    async with gateway_for(provider) as gateway:
        found = gateway.servers()[0]
        assert found.status in ("failed", "restarting")
        assert "HTTP status 401 (it wants other credentials: set or renew `headers`" in (found.error or "")
    provider.has_metadata = True
    async with gateway_for(provider) as gateway:
        assert gateway.servers()[0].status == "login needed"
