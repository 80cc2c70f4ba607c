"""What callers have belongs to a principal: it outlives the token, and nobody else has any of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.exchange import tasks
from muxway.testing import ScriptedServer

from ..journeys.test_tasks_http import META
from ..remote.scripted import Remote, reply, serving, text
from ..serve.harness import Web, a_web, modern
from ..serve.test_asks import ANSWER, asks, stateless
from .issuing import TestIssuer

if TYPE_CHECKING:
    from aiohttp import web as aiohttp_web


class User:
    """A user with a client, who has a new token for each request."""

    def __init__(self, web: Web, issuer: TestIssuer, **claims: Any) -> None:
        self._web, self._issuer, self._claims = web, issuer, claims
        self._tokens = 0

    @property
    def bearer(self) -> dict[str, str]:
        self._tokens += 1
        return {"Authorization": f"Bearer {self._issuer.token(jti=self._tokens, **self._claims)}"}

    async def post(self, message: dict[str, Any], headers: dict[str, str | None]) -> dict[str, Any]:
        return (await self._web.post(message, {**headers, **self.bearer})).json

    async def call(self, tool: str, **arguments: Any) -> Any:
        """What a tool says, in JSON."""
        told = await self.post(*modern("tools/call", {"name": tool, "arguments": arguments}))
        return json.loads(told["result"]["content"][0]["text"])


async def counting(remote: Remote, request: aiohttp_web.Request, message: dict[str, Any]) -> Any:
    """A tool that counts its calls in each session, and says whose argument it got."""
    session = request.headers.get("Mcp-Session-Id", "")
    remote.count = getattr(remote, "count", {})  # pyright: ignore[reportAttributeAccessIssue]
    remote.count[session] = remote.count.get(session, 0) + 1  # pyright: ignore[reportAttributeAccessIssue]
    told = {"count": remote.count[session], "session": session, "who": message["params"]["arguments"]["who"]}  # pyright: ignore[reportAttributeAccessIssue]
    return reply(message, text(json.dumps(told)))


async def test_a_thousand_tokens_of_one_principal_share_one_session_at_the_server() -> None:
    """docs/identity-team.md#who-somebody-is."""
    issuer, remote = TestIssuer(algorithm="ES256", key=_quick_key()), Remote(calls={"count": counting})
    async with serving(remote) as url, a_web(authenticator=issuer.server()) as web:
        await web.world.gateway.add("up", url=url)
        ann = User(web, issuer)
        for number in range(1, 1001):
            assert (await ann.call("up__count", who="ann"))["count"] == number
    assert remote.opened == 1


@pytest.mark.parametrize("calls", [600, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_two_users_never_meet_at_a_server(calls: int) -> None:
    """docs/security.md: sessions and answers of mixed calls; 0 crossed."""
    issuer, remote = TestIssuer(algorithm="ES256", key=_quick_key()), Remote(calls={"count": counting})
    async with serving(remote) as url, a_web(authenticator=issuer.server()) as web:
        await web.world.gateway.add("up", url=url)
        users = {name: User(web, issuer, sub=name) for name in ("ann", "bob")}
        sessions: dict[str, set[str]] = {"ann": set(), "bob": set()}
        crossed = 0

        async def mixed(share: int) -> None:
            nonlocal crossed
            for number in range(share):
                name = ("ann", "bob")[number % 2]
                told = await users[name].call("up__count", who=name)
                crossed += told["who"] != name
                sessions[name].add(told["session"])

        await asyncio.gather(*(mixed(calls // 10) for _ in range(10)))
    assert crossed == 0
    assert [len(its) for its in sessions.values()] == [1, 1]
    assert not sessions["ann"] & sessions["bob"]


async def test_a_question_is_answered_with_a_newer_token_and_by_nobody_else() -> None:
    """docs/questions.md: a sealed state belongs to whom it was given to."""
    issuer = TestIssuer()
    async with a_web({"up": ScriptedServer(tools={"asks": asks})}, authenticator=issuer.server()) as web:
        ann, bob, other = (User(web, issuer, **who) for who in ({}, {"sub": "bob"}, {"client_id": "other"}))
        state = (await ann.post(*stateless()))["result"]["requestState"]
        for thief in (bob, other):
            stolen = await thief.post(*stateless(inputResponses={"q1": ANSWER}, requestState=state))
            assert stolen["error"]["code"] == -32602
        mine = await ann.post(*stateless(inputResponses={"q1": ANSWER}, requestState=state))
        assert mine["result"]["resultType"] == "complete"


async def test_a_task_lives_on_with_a_newer_token_and_is_unknown_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tasks.md: a task belongs to its principal."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.05)
    go = asyncio.Event()

    async def slow(server: ScriptedServer, request: dict[str, Any]) -> None:
        await go.wait()
        server.reply(request, text("done"))

    issuer = TestIssuer()
    async with a_web({"up": ScriptedServer(tools={"slow": slow})}, authenticator=issuer.server()) as web:
        ann, bob = User(web, issuer), User(web, issuer, sub="bob")
        made = (await ann.post(*modern("tools/call", {"name": "up__slow", "arguments": {}, "_meta": META})))["result"]
        message, headers = modern("tasks/get", {"taskId": made["taskId"], "_meta": META})
        about = (message, {**headers, "Mcp-Name": made["taskId"]})
        assert (await bob.post(*about))["error"]["code"] == -32602
        assert (await ann.post(*about))["result"]["status"] == "working"
        go.set()
        async with asyncio.timeout(30):
            while (shown := (await ann.post(*about))["result"])["status"] == "working":
                await asyncio.sleep(0.01)
        assert shown["result"]["content"] == text("done")["content"]


async def test_a_cached_result_belongs_to_a_principal() -> None:
    """docs/middleware/cache.md: each principal its own, whatever its token is."""
    issuer, remote = TestIssuer(), Remote(calls={"count": counting})
    top = {"middleware": [{"use": "cache", "seconds": 60, "tools": ["*"]}]}
    async with serving(remote) as url, a_web(authenticator=issuer.server(), top=top) as web:
        await web.world.gateway.add("up", url=url)
        ann, bob = User(web, issuer), User(web, issuer, sub="bob")
        first = await ann.call("up__count", who="all")
        assert await ann.call("up__count", who="all") == first
        assert await bob.call("up__count", who="all") != first
        assert len(remote.of("tools/call")) == 2


def _quick_key() -> Any:
    from joserfc.jwk import ECKey

    return ECKey.generate_key("P-256", auto_kid=False)
