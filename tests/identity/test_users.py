"""Each user of a gateway has an own login at a server: nobody's token, list, session or answer is another one's."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from muxway.calls.identity import Identity
from muxway.identity.connect import ConnectPages
from muxway.identity.sealed_cookies import SealedCookies
from muxway.identity.store import TokenStore
from muxway.servers.lock import Lock
from muxway.testing import ScriptedServer

from ..reload.harness import config, serve
from ..remote.scripted import Remote, serving
from ..serve.harness import a_web, request
from .company import Browser
from .logging_in import log_in, server
from .team import URL_ELICITATION, team_at

if TYPE_CHECKING:
    from pathlib import Path

    from .provider import Provider


async def test_each_user_logs_in_and_calls_in_an_own_name(provider: Provider) -> None:
    """docs/identity-team.md#logins-of-users: no login, the link; a login, the call; no restart."""
    async with team_at(provider) as team, Browser("ann") as hers, Browser("bob") as his:
        for user in ("ann", "bob"):
            refused = await team.call(user)
            assert refused["isError"] is True
            assert refused["content"][0]["text"].endswith(f"needs your login: open {team.page}?server=guarded")
        assert (await team.log_in(hers)).status == 200
        assert await team.says("ann") == "ann"
        assert (await team.call("bob"))["isError"] is True
        await team.log_in(his)
        assert [await team.says(user) for user in ("bob", "ann", "bob")] == ["bob", "ann", "bob"]
        # Another client of hers: the same login, and another session at the server.
        greeted = provider.greeted
        told = await team.web.post(*_with(team.bearer("ann", client_id="other"), *_call("guarded__who")))
        assert told.outcome["result"]["content"][0]["text"] == "ann"
        assert provider.greeted == greeted + 1


def _call(tool: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from ..serve.harness import modern

    return modern("tools/call", {"name": tool, "arguments": {}})


def _with(more: dict[str, str], message: dict[str, Any], headers: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return message, {**headers, **more}


async def test_what_a_login_lists_is_for_its_user_alone(provider: Provider) -> None:
    """docs/identity-team.md#logins-of-users: lists differ by user, and changes are told to those whom they concern."""
    provider.own_tools = True
    open_to_all = ScriptedServer(tools={"plain": {}})
    async with team_at(provider, {"notes": open_to_all}) as team, Browser("ann") as hers, Browser("bob") as his:
        # Whoever runs the gateway has a login of his own: it shows to nobody else.
        await log_in(server(provider))
        async with asyncio.timeout(30):
            while "guarded__who" not in [tool.name for tool in team.gateway.tools()]:
                await asyncio.sleep(0.01)
        assert await team.tools("ann") == ["notes__plain"]
        listens = await team.web.open("GET", "/mcp", {**await team.session("bob"), "Accept": "text/event-stream"})
        await team.log_in(hers)
        assert await team.tools("ann") == ["notes__plain", "guarded__who", "guarded__write", "guarded__of-ann"]
        assert await team.tools("bob") == ["notes__plain"]
        await team.log_in(his)
        assert await team.tools("bob") == ["notes__plain", "guarded__who", "guarded__write", "guarded__of-bob"]
        assert "guarded__of-ann" in await team.tools("ann")
        assert (await listens.message())["method"] == "notifications/tools/list_changed"
        refused = await team.ask("bob", "tools/call", {"name": "guarded__of-ann", "arguments": {}})
        assert refused["error"]["code"] == -32602
        # The operator is called ann there, too.
        assert "guarded__of-ann" in [tool.name for tool in team.gateway.tools()]


async def test_a_client_half_way_through_a_list_of_its_user_goes_on_in_it(provider: Provider) -> None:
    """docs/configuration.md#gateway: `pageSize`; a cursor of one user leads no other user anywhere."""
    provider.own_tools = True
    notes = ScriptedServer(tools={"a": {}, "b": {}, "c": {}})
    top = {"gateway": {"pageSize": 2}}
    async with team_at(provider, {"notes": notes}, top) as team, Browser("ann") as hers, Browser("bob") as his:
        await team.log_in(hers)
        await team.log_in(his)

        async def page(user: str, cursor: str | None) -> tuple[list[str], str | None]:
            listed = (await team.ask(user, "tools/list", {"cursor": cursor}))["result"]
            return [tool["name"] for tool in listed["tools"]], listed.get("nextCursor")

        names, cursor = await page("ann", None)
        assert names == ["notes__a", "notes__b"]
        for number in range(4):
            await team.gateway.add(f"more{number}", server=ScriptedServer(tools={"x": {}}))
        await page("ann", "")  # Another client of hers begins with the new list.
        names, cursor = await page("ann", cursor)
        assert names == ["notes__c", "guarded__who"]
        assert "error" in await team.ask("bob", "tools/list", {"cursor": cursor})
        await team.gateway.add("more4", server=ScriptedServer(tools={"x": {}}))
        assert await page("ann", cursor) == (["guarded__write", "guarded__of-ann"], None)
        assert len(await team.tools("ann")) == 2


async def test_a_user_finds_what_a_login_lists_and_nobody_elses(provider: Provider) -> None:
    """docs/discovery.md#who-sees-what: also by the first search, before anything was listed or called."""
    provider.own_tools = True
    top = {"gateway": {"discovery": "search"}}
    async with team_at(provider, top=top) as team, Browser("ann") as hers:

        async def found(user: str) -> str:
            asked = {"name": "search_tools", "arguments": {"query": "of-ann"}}
            return (await team.ask(user, "tools/call", asked))["result"]["content"][0]["text"]

        await team.log_in(hers)
        assert (await found("ann")).startswith("guarded__of-ann(")
        assert "guarded (0)" in await found("bob")


async def test_a_lock_that_is_enforced_holds_for_what_a_login_lists(provider: Provider) -> None:
    """docs/lock.md: what is not locked is neither listed nor called, in whose name ever it was listed."""
    provider.own_tools = True
    async with team_at(provider) as team, Browser("ann") as hers:
        team.gateway._servers.sources.lock = Lock({}, enforced=True)
        await team.log_in(hers)
        assert await team.tools("ann") == []
        refused = await team.ask("ann", "tools/call", {"name": "guarded__of-ann", "arguments": {}})
        assert refused["error"]["code"] == -32602


@pytest.mark.parametrize("calls", [600, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_mixed_calls_of_two_users_never_cross(provider: Provider, calls: int) -> None:
    """docs/security.md: the token of one user is never sent for another, also while tokens are renewed."""
    async with team_at(provider) as team, Browser("ann") as hers, Browser("bob") as his:
        await team.log_in(hers)
        await team.log_in(his)
        sessions = {user: await team.session(user) for user in ("ann", "bob")}
        said: Counter[tuple[str, str]] = Counter()

        ids = itertools.count(10)

        async def mixed(share: int) -> None:
            for number in range(share):
                user = ("ann", "bob")[number % 2]
                if number % 3:
                    said[user, await team.says(user)] += 1
                else:
                    message = request("tools/call", {"name": "guarded__who", "arguments": {}}, next(ids))
                    told = await team.web.post(message, sessions[user])
                    said[user, told.outcome["result"]["content"][0]["text"]] += 1
                if said.total() == calls // 2:
                    provider.expire_access()

        await asyncio.gather(*(mixed(calls // 10) for _ in range(10)))
    assert {pair: number for pair, number in said.items() if pair[0] != pair[1]} == {}
    assert said.total() == calls // 10 * 10


async def test_a_call_is_answered_at_once_with_a_link_for_its_user_alone(provider: Provider) -> None:
    """docs/identity-team.md#logins-of-users: URL elicitation, and 403 for whoever else opens the link."""
    async with team_at(provider) as team, Browser("ann") as hers, Browser("bob") as his:
        asked = provider.asked.copy()
        message = request("tools/call", {"name": "guarded__who", "arguments": {}})
        session = await team.session("ann", URL_ELICITATION)
        refused = (await team.web.post(message, session)).outcome["error"]
        assert refused["code"] == -32042
        link = refused["data"]["elicitations"][0]["url"]
        assert link.startswith(f"{team.page}?page=")
        assert provider.asked == asked
        assert (await his.get(link)).status == 403
        page = await hers.get(link)
        assert page.status == 200
        listens = await team.web.open("GET", "/mcp", {**session, "Accept": "text/event-stream"})
        await hers.post(team.page, {"csrf": page.field("csrf"), "server": "guarded", "do": "connect"})
        told = [await listens.message() for _ in range(2)]
        assert {one["method"] for one in told} == {
            "notifications/elicitation/complete",
            "notifications/tools/list_changed",
        }
        assert (await hers.get(link)).status == 404
        answer = (await team.web.post(message, session)).outcome
        assert answer["result"]["content"][0]["text"] == "ann"


async def test_a_finished_login_wakes_the_call_that_waits_and_no_other(provider: Provider) -> None:
    """docs/identity-team.md#logins-of-users: 2026-07-28, `input_required`, and the retry waits for the login."""
    async with team_at(provider) as team, Browser("ann") as hers:
        agreed = {"inputResponses": {"muxway-login": {"action": "accept"}}}
        asked = (await team.ask("ann", "tools/call", {"name": "guarded__who", "arguments": {}}, can=URL_ELICITATION))[
            "result"
        ]
        assert asked["resultType"] == "input_required"
        link = asked["inputRequests"]["muxway-login"]["params"]["url"]
        waiting = {
            user: asyncio.create_task(
                team.ask(user, "tools/call", {"name": "guarded__who", "arguments": {}, **agreed}, can=URL_ELICITATION)
            )
            for user in ("ann", "bob")
        }
        page = await hers.get(link)
        await hers.post(team.page, {"csrf": page.field("csrf"), "server": "guarded", "do": "connect"})
        began = time.monotonic()
        told = await asyncio.wait_for(waiting["ann"], 5)
        assert told["result"]["content"][0]["text"] == "ann"
        assert time.monotonic() - began < 5
        assert not waiting["bob"].done()
        waiting["bob"].cancel()
        await asyncio.wait([waiting["bob"]])


async def test_a_login_that_is_taken_back_ends_for_its_user_alone(provider: Provider) -> None:
    """docs/identity-team.md#logins-of-users: disconnect revokes, and what it listed goes."""
    async with team_at(provider) as team, Browser("ann") as hers, Browser("bob") as his:
        await team.log_in(hers)
        await team.log_in(his)
        assert await team.says("ann") == "ann"
        page = await hers.get(team.page)
        page = await hers.post(team.page, {"csrf": page.field("csrf"), "server": "guarded", "do": "disconnect"})
        assert "not connected" in page.text
        assert provider.count("/revoke") == 2
        assert (await team.call("ann"))["isError"] is True
        assert await team.tools("ann") == []
        assert await team.says("bob") == "bob"
        provider.revoke_all()
        assert "needs your login" in (await team.call("bob"))["content"][0]["text"]


async def test_a_login_that_cannot_be_opened_any_more_is_made_again_on_the_page(provider: Provider) -> None:
    """docs/identity-team.md#logins-of-users: a user can do nothing about the gateway's files, but can connect."""
    async with team_at(provider) as team, Browser("ann") as hers:
        await team.log_in(hers)
        for file in TokenStore().folder.glob("*.sealed"):
            file.write_bytes(b"torn")
        page = await hers.get(team.page)
        assert "what was kept cannot be read any more: connect it again" in page.text
        provider.expire_access()
        said = (await team.call("ann"))["content"][0]["text"]
        assert "needs your login" in said
        assert str(TokenStore().folder) not in said
        await team.log_in(hers)
        assert await team.says("ann") == "ann"


async def test_a_shared_login_is_everybodys(provider: Provider) -> None:
    """docs/configuration.md: `oauth.shared`."""
    await log_in(server(provider))
    async with team_at(provider, shared=True) as team:
        assert await team.says("ann") == "ann"
        assert await team.says("bob") == "ann"
        assert await team.tools("bob") == ["guarded__who", "guarded__write"]


async def test_a_machine_without_a_user_is_told_what_it_can_have(provider: Provider) -> None:
    """docs/identity-team.md#logins-of-users: a token without `sub` belongs to a client, which signs on nowhere."""
    async with team_at(provider) as team:
        message, headers = _call("guarded__who")
        told = await team.web.post(message, {**headers, **team.bearer("", sub=None, client_id="job")})
        assert told.outcome["result"]["content"][0]["text"].endswith("(`oauth.shared`), or for an API key")


async def test_a_subject_may_look_like_anything(provider: Provider) -> None:
    """docs/security.md: separators in a subject make it nobody else."""
    async with team_at(provider) as team, Browser("ann") as hers:
        await team.log_in(hers)
        for odd in ("ann ", " ann", "ann\x00", "ANN", "ann/guarded", "../ann", "ann|bob", f"{team.company.url} ann"):
            assert (await team.call(odd))["isError"] is True, odd
        assert await team.says("ann") == "ann"


def test_owners_are_one_only_if_they_are() -> None:
    """docs/security.md: a key, a client and a user of one name are three."""
    owners = [
        Identity(issuer="https://a.example", subject="x").owner,
        Identity(issuer="https://b.example", subject="x").owner,
        Identity(issuer="https://a.example", client="x").owner,
        Identity(issuer="https://b.example", client="x").owner,
        Identity(key="x", subject="1").owner,
        Identity(key="x", subject="2").owner,
    ]
    assert len(set(owners)) == len(owners)
    assert Identity(issuer="i", subject="s", client="a").owner == Identity(issuer="i", subject="s", client="b").owner


async def test_somebody_elses_callback_state_or_cookie_logs_nobody_in(provider: Provider) -> None:
    """docs/security.md: another user, another browser, a second use."""
    async with team_at(provider) as team, Browser("ann") as hers, Browser("bob") as his, Browser("ann") as other:
        page = await hers.get(team.page)
        form = {"csrf": page.field("csrf"), "server": "guarded", "do": "connect"}
        await team.call("ann")
        for stranger in (his, other):
            await stranger.get(team.page)
            assert (await stranger.post(team.page, form)).status == 403
        begun = await hers.post(team.page, form, follow=False)
        back = (await hers.get(begun.headers["Location"], follow=False)).headers["Location"]
        assert back.startswith(f"{team.page}/callback?")
        for stranger in (his, other):
            assert (await stranger.get(back)).status == 403
        async with Browser("ann") as unknown:
            assert (await unknown.get(back)).status == 400
        assert provider.count("/token") == 0
        assert (await hers.get(back)).status == 200
        assert provider.count("/token") == 1
        assert (await hers.get(back)).status == 400
        assert provider.count("/token") == 1
        for forged in ("state=x&code=y", "code=y", "", back.partition("?")[2] + "&state=z"):
            assert (await hers.get(f"{team.page}/callback?{forged}")).status == 400
        assert await team.says("ann") == "ann"


async def test_a_login_that_its_user_breaks_off_is_told_and_can_be_tried_again(provider: Provider) -> None:
    """docs/identity-team.md#the-page-connect: no fault of anybody; a refusal of another kind is one of the server's."""
    async with team_at(provider) as team, Browser("ann") as hers:
        await team.call("ann")
        provider.refusal = {"error": "access_denied", "error_description": "<b>cancelled</b>"}
        page = await team.log_in(hers)
        assert page.status == 200
        assert "guarded: the login was refused: access_denied (&lt;b&gt;cancelled&lt;/b&gt;)" in page.text
        assert "Nothing has changed; connect it below to try again" in page.text
        assert "not connected" in page.text
        provider.refusal = {"error": "server_error"}
        assert (await team.log_in(hers)).status == 502
        # What the page has is enough to try again.
        provider.refusal = {}
        form = {"csrf": page.field("csrf"), "server": "guarded", "do": "connect"}
        assert "Disconnect" in (await hers.post(team.page, form)).text
        provider.refusal = {"error": "access_denied"}
        assert "Disconnect" in (await hers.post(team.page, form)).text
        assert await team.says("ann") == "ann"


async def test_on_a_laptop_the_page_is_of_whoever_runs_the_gateway(provider: Provider) -> None:
    """docs/identity-team.md#the-page-connect: no sign-on; a form of another page counts no more there."""
    async with a_web() as web, Browser() as mine, Browser() as other:
        gateway = web.world.gateway
        pages = ConnectPages(f"http://{web.host}", lambda: gateway.logins, SealedCookies())
        web.door.pages.pages = pages.handlers
        await gateway.add("guarded", url=provider.mcp)
        url = f"http://{web.host}/connect"
        form = {"csrf": (await mine.get(url)).field("csrf"), "server": "guarded", "do": "connect"}
        assert (await other.post(url, form)).status == 403
        assert (await mine.post(url, {**form, "csrf": "x"})).status == 403
        assert (await mine.post(url, form, headers={"Origin": "https://evil.example.com"})).status == 403
        assert "Disconnect" in (await mine.post(url, form)).text
        async with asyncio.timeout(30):
            while gateway.servers()[0].status != "running":
                await asyncio.sleep(0.01)
        assert (await gateway.call("guarded__who")).text == "ann"
        # Called by another name of this machine, it sends the browser to the one that its cookies belong to.
        moved = await mine.get(url.replace("127.0.0.1", "localhost"), follow=False)
        assert (moved.status, moved.headers["Location"]) == (303, url)
        web.door.admit(["a-token-of-the-config"], {})
        assert (await other.get(url)).status == 404


@pytest.mark.parametrize("action", ["show", "save", "remove", "disconnect"])
async def test_a_store_that_cannot_be_used_is_told_on_the_page(action: str, provider: Provider) -> None:
    """docs/identity.md#the-token-store: what is open to others is refused; on the page, too, with where to look."""
    async with a_web() as web, Browser() as browser:
        gateway = web.world.gateway
        web.door.pages.pages = ConnectPages(f"http://{web.host}", lambda: gateway.logins, SealedCookies()).handlers
        wants = {"headers": {"X-Key": "${user:KEY}"}} if action in ("save", "remove") else {}
        await gateway.add("guarded", url=provider.mcp, **wants)
        url = f"http://{web.host}/connect"
        form = {"csrf": (await browser.get(url)).field("csrf"), "server": "guarded", "do": action, "value-KEY": "k"}
        folder = TokenStore().folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o755)
        page = await (browser.get(url) if action == "show" else browser.post(url, form))
        assert (page.status, "log says why" in page.text) == (503, True)


async def test_a_login_that_has_begun_outlasts_a_reload(provider: Provider, tmp_path: Path) -> None:
    """docs/reload.md#reloading-the-config: nothing else stops, nor a login that somebody has begun."""
    servers: dict[str, Any] = {"guarded": {"url": provider.mcp}}
    async with serve(tmp_path, config(servers)) as served, Browser() as browser:
        url = f"http://{served.web.host}/connect"
        form = {"csrf": (await browser.get(url)).field("csrf"), "server": "guarded", "do": "connect"}
        sent = await browser.post(url, form, follow=False)
        await served.reload(config({**servers, "more": {"command": "none", "disabled": True}}))
        assert "Disconnect" in (await browser.get(sent.headers["Location"])).text


async def test_there_are_only_so_many_users_of_a_server_at_a_time(provider: Provider) -> None:
    """docs/configuration.md: `maxInstances`; lists do not fail for it, and who is idle makes room."""
    top = {"gateway": {"maxInstances": 1}}
    async with team_at(provider, top=top) as team, Browser("ann") as hers, Browser("bob") as his:
        await team.log_in(hers)
        assert await team.says("ann") == "ann"
        await team.log_in(his)
        assert [await team.says(user) for user in ("bob", "ann", "bob")] == ["bob", "ann", "bob"]
        assert await team.tools("ann") == ["guarded__who", "guarded__write"]


async def test_an_open_server_that_ends_stays_listed_for_users(provider: Provider) -> None:
    """docs/behaviour.md: what a server had listed stays until a start fails, for users, too."""
    remote = Remote()
    async with serving(remote) as url, team_at(provider) as team:
        await team.gateway.add("open", url=url)
        assert await team.tools("ann") == ["open__echo"]
        first = team.gateway.runtime.servers["open"].first  # type: ignore[attr-defined]
        first.lost("has ended")
        assert await team.tools("ann") == ["open__echo"]
        assert (await team.call("ann", "open__echo"))["content"][0]["text"] == "{}"
