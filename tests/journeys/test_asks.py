"""Servers that want something of their caller, in all four combinations of the two eras."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from pathlib import Path
from typing import Any, ClassVar

import pytest

from muxway.exchange import holding
from muxway.servers.connection import Connection
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import HANDSHAKE_REVISIONS, REVISIONS, World, a_world
from tests.noting import until

pytestmark = pytest.mark.leaping

FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "sure": {"type": "boolean"}},
    "required": ["name"],
}
ELICIT = {"message": "Who?", "requestedSchema": FORM}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Say hi"}}], "maxTokens": 10}
SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}, "stopReason": "endTurn"}
EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def curious(server: ScriptedServer, request: dict[str, Any]) -> None:
    """Elicits, samples and lists roots, in the way of its revision, and says what it got."""
    if server.revision != "2026-07-28":
        who = await server.ask("elicitation/create", ELICIT)
        poem = await server.ask("sampling/createMessage", SAMPLE)
        roots = await server.ask("roots/list")
        _tell(server, request, who["result"], poem["result"], roots["result"])
        return
    params = request["params"]
    given = params.get("inputResponses", {})
    if "poem" in given:
        assert params["requestState"] == "second"
        who = {"action": "accept", "content": {"name": "Ann"}}
        _tell(server, request, who, given["poem"], given["roots"])
    elif "who" in given:
        assert params["requestState"] == "first"
        assert given["who"]["content"] == {"name": "Ann"}
        asked = {"poem": {"method": "sampling/createMessage", "params": SAMPLE}, "roots": {"method": "roots/list"}}
        server.need(request, asked, "second")
    else:
        assert "requestState" not in params
        server.need(request, {"who": {"method": "elicitation/create", "params": ELICIT}}, "first")


def _tell(server: ScriptedServer, request: dict[str, Any], who: Any, poem: Any, roots: Any) -> None:
    words = f"{who['content']['name']} {poem['content']['text']} {roots['roots'][0]['uri']}"
    server.reply(request, {"content": [{"type": "text", "text": words}]})


async def client_of(
    world: World, revision: str, capabilities: dict[str, Any] | None = None
) -> tuple[RawClient, list[tuple[str, dict[str, Any]]]]:
    """A client that answers everything, and what it was asked."""
    client = RawClient(
        world.gateway.memory_door(),
        revision=revision,
        capabilities=EVERYTHING if capabilities is None else capabilities,
    )
    asked: list[tuple[str, dict[str, Any]]] = []

    def answering(method: str, result: dict[str, Any]) -> None:
        def answer(params: dict[str, Any]) -> dict[str, Any]:
            asked.append((method, params))
            return result

        client.answers[method] = answer

    answering("elicitation/create", {"action": "accept", "content": {"name": "Ann"}})
    answering("sampling/createMessage", SAMPLED)
    answering("roots/list", {"roots": [{"uri": "file:///w"}]})
    await client.hello()
    return client, asked


@pytest.mark.parametrize("server_revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_server_gets_its_answers_whatever_the_two_revisions(revision: str, server_revision: str) -> None:
    server = ScriptedServer(revision=server_revision, tools={"curious": curious})
    async with a_world({"up": server}) as world:
        client, asked = await client_of(world, revision)
        reply = await client.complete("tools/call", {"name": "up__curious", "arguments": {"a": 1}})
        assert text(reply.result) == "Ann hi file:///w"
        assert [method for method, _ in asked] == ["elicitation/create", "sampling/createMessage", "roots/list"]
        assert asked[0][1]["message"] == "[up] Who?"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_stateless_server_is_told_what_nobody_here_has_heard_of(revision: str) -> None:
    """2026-07-28, schema: capabilities are an open set, and each request carries its caller's."""
    unknown = {"experimental": {"x": {"a": 1}}, "extensions": {"com.example/x": {"b": 2}}, "vendor": [1]}
    server = ScriptedServer(revision="2026-07-28", tools={"echo": None})
    async with a_world({"up": server}) as world:
        client, _ = await client_of(world, revision, {**unknown, "roots": {"listChanged": True}, "tasks": {}})
        await client.call("up__echo")
        meta = server.heard[-1]["params"]["_meta"]
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {**unknown, "roots": {}}


@pytest.mark.parametrize("server_revision", HANDSHAKE_REVISIONS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_caller_that_declared_nothing_is_asked_nothing(revision: str, server_revision: str) -> None:
    """docs/behaviour.md#questions-of-servers: -32601 for a capability that was not declared."""
    seen: list[dict[str, Any]] = []

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        for method, params in (
            ("elicitation/create", ELICIT),
            ("sampling/createMessage", SAMPLE),
            ("roots/list", None),
        ):
            seen.append(await server.ask(method, params))
        server.reply(request, {"content": [{"type": "text", "text": "went on"}]})

    async with a_world({"up": ScriptedServer(revision=server_revision, tools={"asks": asks})}) as world:
        client, asked = await client_of(world, revision, {})
        assert text((await client.call("up__asks")).result) == "went on"
        assert [answer["error"]["code"] for answer in seen] == [-32601, -32601, -32601]
        assert not asked


async def test_a_stateless_caller_learns_which_capability_it_would_have_needed() -> None:
    async def insists(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", ELICIT)
        server.fail(request, -32603, f"I need an answer, not {answer['error']['code']}")

    async with a_world({"up": ScriptedServer(tools={"insists": insists})}) as world:
        client, _ = await client_of(world, "2026-07-28", {})
        error = (await client.call("up__insists")).error
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_a_page_to_visit_is_only_for_callers_that_can_open_one() -> None:
    codes: list[int] = []

    async def sends(server: ScriptedServer, request: dict[str, Any]) -> None:
        params = {"mode": "url", "message": "Sign in", "url": "https://x.test/1", "elicitationId": "e1"}
        answer = await server.ask("elicitation/create", params)
        codes.append(answer["error"]["code"] if "error" in answer else 0)
        server.reply(request, {"content": [{"type": "text", "text": "done"}]})

    async with a_world({"up": ScriptedServer(tools={"sends": sends})}) as world:
        for revision, capabilities in (
            ("2025-06-18", {"elicitation": {}}),
            ("2025-11-25", {"elicitation": {}}),
            ("2026-07-28", {"elicitation": {"form": {}}}),
            ("2025-11-25", {"elicitation": {"url": {}}}),
            ("2026-07-28", {"elicitation": {"url": {}}}),
        ):
            client, asked = await client_of(world, revision, capabilities)
            client.answers["elicitation/create"] = lambda params, asked=asked: (
                asked.append(("", params)) or {"action": "accept"}
            )
            await client.complete("tools/call", {"name": "up__sends", "arguments": {}})
            if asked:
                assert asked[0][1]["url"] == "https://x.test/1"
                assert ("elicitationId" in asked[0][1]) == (revision == "2025-11-25")
    assert codes == [-32602, -32602, -32602, 0, 0]


async def test_the_pages_a_2025_server_wants_visited_first_become_questions() -> None:
    """-32042 exists only in 2025-11-25: a stateless caller is asked, and the call is made anew."""
    visits = 0

    def gated(server: ScriptedServer, request: dict[str, Any]) -> None:
        nonlocal visits
        visits += 1
        if visits == 1:
            page = {"mode": "url", "message": "Sign in", "url": "https://x.test/1", "elicitationId": "e1"}
            server.fail(request, -32042, "sign in first", {"elicitations": [page]})
        else:
            server.reply(request, {"content": [{"type": "text", "text": "in"}]})

    async with a_world({"up": ScriptedServer(tools={"gated": gated})}) as world:
        client, asked = await client_of(world, "2026-07-28")
        client.answers["elicitation/create"] = lambda params: asked.append(("", params)) or {"action": "accept"}
        reply = await client.complete("tools/call", {"name": "up__gated", "arguments": {}})
        assert text(reply.result) == "in"
        assert asked[0][1] == {"mode": "url", "message": "[up] Sign in", "url": "https://x.test/1"}

        visits = 0
        client.answers["elicitation/create"] = lambda _: {"action": "decline"}
        refused = await client.complete("tools/call", {"name": "up__gated", "arguments": {}})
        assert refused.error["code"] == -32602

        visits = 0
        poor, _ = await client_of(world, "2026-07-28", {"elicitation": {"form": {}}})
        error = (await poor.call("up__gated")).error
        assert (error["code"], error["data"]["requiredCapabilities"]) == (-32021, {"elicitation": {"url": {}}})


async def test_that_a_visit_is_over_is_told_to_the_client_that_was_sent_there_and_to_nobody_else() -> None:
    page = {"mode": "url", "message": "Sign in", "url": "https://x.test/1"}

    async def sends(server: ScriptedServer, request: dict[str, Any]) -> None:
        await server.ask("elicitation/create", {**page, "elicitationId": "e1"})
        server.reply(request, {"content": []})

    def gated(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.fail(request, -32042, "sign in first", {"elicitations": [{**page, "elicitationId": "e2"}]})

    server = ScriptedServer(tools={"sends": sends, "gated": gated})
    async with a_world({"up": server}) as world:
        one, _ = await client_of(world, "2025-11-25")
        other, _ = await client_of(world, "2025-11-25")
        one.answers["elicitation/create"] = lambda _: {"action": "accept"}
        await one.call("up__sends")
        assert (await one.call("up__gated")).error["code"] == -32042
        for id_ in ("e1", "e1", "e2", "unknown"):
            params = {"elicitationId": id_}
            server.say({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params})
        told = [(await one.notice("notifications/elicitation/complete"))["params"] for _ in range(2)]
        assert told == [{"elicitationId": "e1"}, {"elicitationId": "e2"}]
        await one.ask("ping")
        await other.ask("ping")
        assert not one.notices
        assert not other.notices


async def test_questions_asked_at_once_are_put_at_once() -> None:
    async def asks_two(server: ScriptedServer, request: dict[str, Any]) -> None:
        answers = await asyncio.gather(
            server.ask("elicitation/create", ELICIT), server.ask("sampling/createMessage", SAMPLE)
        )
        assert all("result" in answer for answer in answers)
        server.reply(request, {"content": [{"type": "text", "text": "both"}]})

    async with a_world({"up": ScriptedServer(tools={"two": asks_two})}) as world:
        client, _ = await client_of(world, "2026-07-28")
        first = await client.call("up__two")
        assert set(first.result["inputRequests"]) == {"q1", "q2"}
        assert "jsonrpc" not in first.result["inputRequests"]["q1"]
        # Only one answer: the other question is put again, under its own key.
        given = {"q1": {"action": "accept", "content": {"name": "Ann"}}, "unknown": {"x": 1}}
        second = await client.call("up__two", inputResponses=given, requestState=first.result["requestState"])
        assert set(second.result["inputRequests"]) == {"q2"}
        third = await client.call("up__two", inputResponses={"q2": SAMPLED}, requestState=second.result["requestState"])
        assert text(third.result) == "both"


async def test_a_question_that_comes_while_the_client_is_away_is_put_when_it_comes_back() -> None:
    """Ours: a stateless client answers one round after the other (docs/questions.md)."""
    go = asyncio.Event()

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        first = asyncio.ensure_future(server.ask("elicitation/create", ELICIT))
        await go.wait()
        second = await server.ask("roots/list")
        server.reply(request, {"content": [], "got": [(await first)["result"], second["result"]]})

    async with a_world({"up": ScriptedServer(tools={"asks": asks})}) as world:
        client, _ = await client_of(world, "2026-07-28")
        shown = (await client.call("up__asks")).result
        assert [one["method"] for one in shown["inputRequests"].values()] == ["elicitation/create"]
        go.set()
        link = world.gateway.runtime.servers["up"].connection
        assert isinstance(link, Connection)
        await until(lambda: len(link.questions.open) == 2)
        ann = {"action": "accept", "content": {"name": "Ann"}}
        answers = dict.fromkeys(shown["inputRequests"], ann)
        shown = (await client.call("up__asks", inputResponses=answers, requestState=shown["requestState"])).result
        assert [one["method"] for one in shown["inputRequests"].values()] == ["roots/list"]
        answers = {key: {"roots": []} for key in shown["inputRequests"]}
        shown = (await client.call("up__asks", inputResponses=answers, requestState=shown["requestState"])).result
        assert shown["got"] == [ann, {"roots": []}]


async def test_an_answer_that_does_not_fit_the_form_is_asked_for_again() -> None:
    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", ELICIT)
        server.reply(request, {"content": [{"type": "text", "text": str(answer.get("result") or answer["error"])}]})

    async with a_world({"up": ScriptedServer(tools={"asks": asks})}) as world:
        client, _ = await client_of(world, "2026-07-28")
        first = await client.call("up__asks")
        bad = {"q1": {"action": "accept", "content": {"name": "A"}}}
        second = await client.call("up__asks", inputResponses=bad, requestState=first.result["requestState"])
        assert second.result["resultType"] == "input_required"
        good = {"q1": {"action": "accept", "content": {"name": "Ann"}}}
        third = await client.call("up__asks", inputResponses=good, requestState=second.result["requestState"])
        assert "Ann" in text(third.result)

        old, _ = await client_of(world, "2025-11-25")
        old.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"name": 7}}
        assert "-32602" in text((await old.call("up__asks")).result)
        for wrong in ({}, {"action": "perhaps"}, {"action": "accept", "content": []}):
            old.answers["elicitation/create"] = lambda _, wrong=wrong: wrong
            assert "-32602" in text((await old.call("up__asks")).result)


class TestSealedState:
    """What a caller is given to keep is good for its own call, once, and for nothing else."""

    @staticmethod
    async def asked(client: RawClient, **arguments: Any) -> str:
        return (await client.call("up__asks", arguments)).result["requestState"]

    @staticmethod
    def server() -> ScriptedServer:
        async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
            await server.ask("elicitation/create", ELICIT)
            server.reply(request, {"content": [{"type": "text", "text": str(request["params"]["arguments"])}]})

        return ScriptedServer(tools={"asks": asks, "other": asks})

    ANSWER: ClassVar[dict[str, Any]] = {"q1": {"action": "decline"}}

    async def test_it_is_good_once(self) -> None:
        async with a_world({"up": self.server()}) as world:
            client, _ = await client_of(world, "2026-07-28")
            state = await self.asked(client, x=1)
            reply = await client.call("up__asks", {"x": 1.0}, inputResponses=self.ANSWER, requestState=state)
            assert reply.result["resultType"] == "complete"
            replayed = await client.call("up__asks", {"x": 1}, inputResponses=self.ANSWER, requestState=state)
            assert replayed.error["code"] == -32602

    async def test_it_is_good_for_its_own_call_only(self) -> None:
        async with a_world({"up": self.server()}) as world:
            client, _ = await client_of(world, "2026-07-28")
            state = await self.asked(client, x=1)
            for tool, arguments in (("up__asks", {"x": 2}), ("up__other", {"x": 1}), ("up__asks", {"x": 1, "y": 0})):
                error = (await client.call(tool, arguments, inputResponses=self.ANSWER, requestState=state)).error
                assert error == {
                    "code": -32602,
                    "message": "Invalid or expired requestState: make the call again without it",
                }
            reply = await client.call("up__asks", {"x": 1}, inputResponses=self.ANSWER, requestState=state)
            assert reply.result["resultType"] == "complete"

    async def test_forged_states_are_refused(self) -> None:
        async with a_world({"up": self.server()}) as world, a_world({"up": self.server()}) as elsewhere:
            client, _ = await client_of(world, "2026-07-28")
            stranger, _ = await client_of(elsewhere, "2026-07-28")
            state = await self.asked(client, x=1)
            foreign = await self.asked(stranger, x=1)
            broken = state[:-3] + ("AAA" if state[-3:] != "AAA" else "BBB")
            huge = "mw1." + "A" * 40_000
            for forged in ("", "x", "mw1.", "mw1.!!!", "mw1.AAAA", broken, foreign, state + "A", huge, 7):
                error = (await client.call("up__asks", {"x": 1}, inputResponses=self.ANSWER, requestState=forged)).error
                assert error["code"] == -32602, forged

    async def test_answers_of_the_wrong_shape_are_refused_and_nothing_is_lost(self) -> None:
        async with a_world({"up": self.server()}) as world:
            client, _ = await client_of(world, "2026-07-28")
            state = await self.asked(client)
            for wrong in ([], "x", {"q1": 7}):
                error = (await client.call("up__asks", {}, inputResponses=wrong, requestState=state)).error
                assert error["code"] == -32602
            reply = await client.call("up__asks", {}, inputResponses=self.ANSWER, requestState=state)
            assert reply.result["resultType"] == "complete"


async def test_a_call_that_ends_while_it_is_parked_is_answered_when_the_caller_comes_back() -> None:
    async def gives_up(server: ScriptedServer, request: dict[str, Any]) -> None:
        asking = asyncio.ensure_future(server.ask("elicitation/create", ELICIT))
        await asyncio.sleep(0.1)
        server.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "ask-1"}})
        server.reply(request, {"content": [{"type": "text", "text": "without you"}]})
        asking.cancel()

    async with a_world({"up": ScriptedServer(tools={"gives_up": gives_up})}) as world:
        client, _ = await client_of(world, "2026-07-28")
        first = await client.call("up__gives_up")
        await asyncio.sleep(0.2)
        answer = {"q1": {"action": "decline"}}
        second = await client.call("up__gives_up", inputResponses=answer, requestState=first.result["requestState"])
        assert text(second.result) == "without you"


async def test_a_question_the_server_withdraws_is_withdrawn_at_the_client() -> None:
    async def withdraws(server: ScriptedServer, request: dict[str, Any]) -> None:
        asking = asyncio.ensure_future(server.ask("elicitation/create", ELICIT))
        await asyncio.sleep(0.05)
        server.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "ask-1"}})
        server.reply(request, {"content": [{"type": "text", "text": "never mind"}]})
        asking.cancel()

    async with a_world({"up": ScriptedServer(tools={"withdraws": withdraws})}) as world:
        client, _ = await client_of(world, "2025-11-25")
        client.answers.clear()
        reply = await client.call("up__withdraws")
        assert text(reply.result) == "never mind"
        question = await client.notice("elicitation/create")
        withdrawn = await client.notice("notifications/cancelled")
        assert withdrawn["params"]["requestId"] == question["id"]
        # An answer that comes all the same is dropped.
        client.say(b'{"jsonrpc":"2.0","id":%d,"result":{"action":"decline"}}' % question["id"])
        assert (await client.ask("ping")).result == {}


async def test_a_pipe_shared_by_two_parties_gives_a_question_to_neither() -> None:
    """A pipe does not say for which call a server asks: rather than guess, the gateway refuses."""
    seen: list[Any] = []
    release = asyncio.Event()

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", ELICIT)
        seen.append(answer)
        server.reply(request, {"content": []})

    async def waits(server: ScriptedServer, request: dict[str, Any]) -> None:
        await release.wait()
        server.reply(request, {"content": []})

    up = ScriptedServer(tools={"asks": asks, "waits": waits})
    async with a_world({"up": up}) as world:
        one, asked_one = await client_of(world, "2025-11-25")
        two, asked_two = await client_of(world, "2026-07-28")
        waiting = two.start("tools/call", {"name": "up__waits", "arguments": {}})
        await asyncio.sleep(0.05)
        await one.call("up__asks")
        assert seen[0]["error"]["code"] == -32602
        assert "for which call" in seen[0]["error"]["message"]
        assert not asked_one
        assert not asked_two
        release.set()
        await two.answer(waiting)
        await one.call("up__asks")
        assert "result" in seen[1]
        assert len(asked_one) == 1
        assert (await up.ask("roots/list"))["error"]["message"].endswith("nobody calls now, so nobody is asked")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("end", ["result", "cancel"])
async def test_a_question_outlasts_the_wrong_one_of_two_calls_of_a_client(revision: str, end: str) -> None:
    """docs/questions.md: a pipe does not say which of a client's calls is meant; it is asked in one that goes on."""
    asks_now, ends_now = asyncio.Event(), asyncio.Event()

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        await asks_now.wait()
        answer = await server.ask("elicitation/create", ELICIT)
        server.reply(request, {"content": [], "got": answer["result"]["content"]})

    async def waits(server: ScriptedServer, request: dict[str, Any]) -> None:
        asks_now.set()
        await ends_now.wait()
        server.reply(request, {"content": []})

    tools = {"asks": asks, "waits": waits}
    ann = {"action": "accept", "content": {"name": "Ann"}}
    async with asyncio.timeout(10), a_world({"up": ScriptedServer(tools=tools)}) as world:
        client = RawClient(world.gateway.memory_door(), revision=revision, capabilities=EVERYTHING)
        await client.hello()
        first = client.start("tools/call", {"name": "up__asks", "arguments": {}})
        second = client.start("tools/call", {"name": "up__waits", "arguments": {}})
        stateless = revision == "2026-07-28"
        if stateless:
            assert "inputRequests" in (await client.answer(second)).result
        else:
            await client.notice("elicitation/create")
        if end == "result":
            ends_now.set()
        elif stateless:
            for parked in world.gateway.runtime.forwarder.services.parked:
                parked.cancel(None)
        else:
            client.tell("notifications/cancelled", {"requestId": second})
        if stateless:
            shown = (await client.answer(first)).result
            answers = dict.fromkeys(shown["inputRequests"], ann)
            reply = await client.call("up__asks", inputResponses=answers, requestState=shown["requestState"])
        else:
            await client.notice("notifications/cancelled")
            asked = await client.notice("elicitation/create")
            client.say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": ann}).encode())
            reply = await client.answer(first)
        assert reply.result["got"] == {"name": "Ann"}


async def test_what_a_cancelled_call_still_asks_is_asked_of_nobody_else() -> None:
    """The server may not have heard of the cancellation: its question is about somebody who is gone."""
    answers: list[dict[str, Any]] = []
    cancelled, release = asyncio.Event(), asyncio.Event()

    async def asks_late(server: ScriptedServer, request: dict[str, Any]) -> None:
        await cancelled.wait()
        answers.append(await server.ask("elicitation/create", ELICIT))
        server.reply(request, {"content": []})
        release.set()

    async def waits(server: ScriptedServer, request: dict[str, Any]) -> None:
        await release.wait()
        answers.append(await server.ask("elicitation/create", ELICIT))
        server.reply(request, {"content": []})

    server = ScriptedServer(tools={"late": asks_late, "waits": waits})
    async with a_world({"up": server}) as world:
        ann, _ = await client_of(world, "2025-11-25")
        bob, asked_bob = await client_of(world, "2025-11-25")
        late = ann.start("tools/call", {"name": "up__late", "arguments": {}})
        waiting = bob.start("tools/call", {"name": "up__waits", "arguments": {}})
        ann.tell("notifications/cancelled", {"requestId": late})
        cancelled.set()
        await bob.answer(waiting)
        assert answers[0]["error"]["code"] == -32602
        # Its late answer shows that the server is done with it: from then on bob is the only one it can mean.
        assert "result" in answers[1]
        assert len(asked_bob) == 1


async def test_a_call_whose_question_the_server_takes_back_times_out_like_any_other() -> None:
    async def changes_its_mind(server: ScriptedServer, _: dict[str, Any]) -> None:
        server.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": ELICIT})
        server.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})

    entries = {"up": {"callTimeout": 0.3}}
    async with a_world({"up": ScriptedServer(tools={"wavers": changes_its_mind})}, entries=entries) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=EVERYTHING)
        await client.hello()
        error = (await client.call("up__wavers")).error
        assert error["data"]["muxway"]["reason"] == "timeout"
        assert [notice["method"] for notice in client.notices] == ["elicitation/create", "notifications/cancelled"]


@pytest.mark.parametrize("revision", REVISIONS[2:])
async def test_a_call_may_have_so_many_questions_open_and_no_more(revision: str) -> None:
    """Ours: 32; a server that asks on is told so at once (docs/behaviour.md#size-limits)."""
    refused: list[dict[str, Any]] = []

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        waiting = [asyncio.create_task(server.ask("elicitation/create", ELICIT)) for _ in range(100)]
        done, still = await asyncio.wait(waiting, timeout=0.5)
        refused.extend(task.result() for task in done)
        for task in still:
            task.cancel()
        server.reply(request, {"content": []})

    async with a_world({"up": ScriptedServer(tools={"asks": asks})}) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=EVERYTHING, revision=revision)
        await client.hello()
        client.start("tools/call", {"name": "up__asks", "arguments": {}})
        async with asyncio.timeout(5):
            while not refused:
                await asyncio.sleep(0.02)
        assert len(refused) == 68
        assert all("at most 32 questions" in answer["error"]["message"] for answer in refused)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_stateless_server_that_asks_too_much_at_once_fails_its_call(revision: str) -> None:
    """Ours: 32 questions (docs/behaviour.md#size-limits)."""

    def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.need(request, {f"q{n}": {"method": "elicitation/create", "params": ELICIT} for n in range(33)}, "s")

    async with a_world({"up": ScriptedServer("2026-07-28", tools={"asks": asks})}) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=EVERYTHING, revision=revision)
        await client.hello()
        assert "more than 32 questions at once" in str((await client.call("up__asks")).message)


async def test_parked_calls_are_counted_by_their_bytes() -> None:
    """Ours: 64 MiB of a principal's (docs/behaviour.md#size-limits)."""

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", ELICIT)
        said = answer["error"]["message"] if "error" in answer else "answered"
        server.reply(request, {"content": [{"type": "text", "text": said}]})

    async with a_world({"up": ScriptedServer(tools={"asks": asks})}) as world:
        client, _ = await client_of(world, "2026-07-28")
        large = {"text": "x" * 15_000_000}
        for _ in range(4):
            assert (await client.call("up__asks", large)).result["resultType"] == "input_required"
        assert "too many calls wait" in text((await client.call("up__asks", large)).result)


@pytest.mark.parametrize("outcome", ["result", "error", "question"])
async def test_what_comes_for_a_parked_call_is_counted(outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: 64 MiB of a principal's (docs/behaviour.md#size-limits), whenever they come; here 10,000 bytes."""
    monkeypatch.setattr(holding, "MOST_BYTES_EACH", 10_000)
    go, answers = asyncio.Event(), list[Any]()
    large = "x" * 6000

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        asked = asyncio.ensure_future(server.ask("elicitation/create", ELICIT))
        await go.wait()
        if outcome == "question":
            answers.append(await server.ask("elicitation/create", {**ELICIT, "message": large}))
        if outcome == "error":
            server.fail(request, -32000, large)
        else:
            server.reply(request, {"content": [{"type": "text", "text": "short" if outcome == "question" else large}]})
        asked.cancel()

    async with a_world({"up": ScriptedServer(tools={"asks": asks})}) as world:
        client, _ = await client_of(world, "2026-07-28")
        states = [(await client.call("up__asks")).result["requestState"] for _ in range(2)]
        parked = world.gateway.runtime.forwarder.services.parked
        kept = parked._holding  # pyright: ignore[reportPrivateUsage]
        go.set()
        if outcome == "question":
            # The first is put to the client when it comes back, for the second there is no room.
            await until(lambda: bool(answers))
            assert answers[0]["error"]["message"].startswith("too many calls wait")
            assert not kept.is_over(b"")
        else:
            await until(lambda: all(exchange.outcome is not None for exchange in parked))
        replies = [await client.call("up__asks", requestState=state, inputResponses={}) for state in states]
        if outcome != "question":
            assert large in str(replies[0].message)
            error = replies[1].error
            assert error["data"]["muxway"]["reason"] == "too_large"
            assert "the call has run" in error["message"]
            assert kept._of == {}  # pyright: ignore[reportPrivateUsage]
            assert kept._all == (0, 0)  # pyright: ignore[reportPrivateUsage]


async def test_nothing_is_kept_of_questions_that_nobody_need_answer_any_more() -> None:
    def hasty(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say({"jsonrpc": "2.0", "id": f"q{request['id']}", "method": "elicitation/create", "params": ELICIT})
        server.reply(request, {"content": []})

    async with a_world({"up": ScriptedServer(tools={"hasty": hasty})}) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=EVERYTHING)
        await client.hello()
        for _ in range(20):
            await client.call("up__hasty")
        link = world.gateway.runtime.servers["up"].connection
        assert isinstance(link, Connection)
        assert not link.questions.open
        withdrawn = [notice for notice in client.notices if notice["method"] == "notifications/cancelled"]
        assert len(withdrawn) == 20


@pytest.mark.parametrize("arguments", ['{"x":1e999}', '{"x":' + "[" * 900 + "]" * 900 + "}"], ids=["huge", "deep"])
async def test_a_call_with_what_python_cannot_hold_can_be_asked_and_answered(arguments: str) -> None:
    """Arguments pass as bytes; only the seal on the call must tell it from others."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": EVERYTHING,
    }

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("roots/list")
        server.reply(request, {"content": [{"type": "text", "text": answer["result"]["roots"][0]["uri"]}]})

    async with a_world({"up": ScriptedServer(tools={"asks": asks})}) as world:
        client, _ = await client_of(world, "2026-07-28")

        async def call(id_: int, **more: Any) -> dict[str, Any]:
            params = json.dumps({"name": "up__asks", "_meta": meta, **more})[:-1] + f', "arguments": {arguments}}}'
            client.say(f'{{"jsonrpc":"2.0","id":{id_},"method":"tools/call","params":{params}}}'.encode())
            return (await client.answer(id_)).result

        asked = await call(901)
        given = {key: {"roots": [{"uri": "file:///w"}]} for key in asked["inputRequests"]}
        assert text(await call(902, inputResponses=given, requestState=asked["requestState"])) == "file:///w"


async def test_a_handshake_caller_that_refuses_ends_the_call_of_a_stateless_server() -> None:
    async with a_world({"up": ScriptedServer(revision="2026-07-28", tools={"curious": curious})}) as world:
        client, _ = await client_of(world, "2025-11-25")
        client.answers["sampling/createMessage"] = lambda _: ValueError("the user said no")
        result = (await client.call("up__curious")).result
        assert result["isError"]
        assert "the user said no" in text(result)


async def test_a_stateless_server_may_not_ask_for_ever() -> None:
    rounds = 0

    def endless(server: ScriptedServer, request: dict[str, Any]) -> None:
        nonlocal rounds
        rounds += 1
        server.need(request, {"who": {"method": "elicitation/create", "params": ELICIT}}, str(rounds))

    async with a_world({"up": ScriptedServer(revision="2026-07-28", tools={"endless": endless})}) as world:
        old, _ = await client_of(world, "2025-11-25")
        assert (await old.call("up__endless")).result["isError"]
        assert rounds == 11
        new, _ = await client_of(world, "2026-07-28")
        reply = await new.complete("tools/call", {"name": "up__endless", "arguments": {}})
        assert reply.error["code"] == -32603


async def test_what_a_caller_can_do_is_told_to_a_stateless_server_with_each_call() -> None:
    server = ScriptedServer(revision="2026-07-28", tools={"echo": None})
    async with a_world({"up": server}) as world:
        for revision, capabilities, told in (
            (
                "2025-06-18",
                {"elicitation": {}, "roots": {"listChanged": True}},
                {"elicitation": {"form": {}}, "roots": {}},
            ),
            ("2025-11-25", {"elicitation": {"url": {}}, "tasks": {}}, {"elicitation": {"url": {}}}),
            ("2024-11-05", {"elicitation": {}, "sampling": {"tools": {}}}, {"sampling": {}}),
            ("2026-07-28", {"sampling": {"tools": {}}}, {"sampling": {"tools": {}}}),
        ):
            client, _ = await client_of(world, revision, capabilities)
            await client.call("up__echo", {})
            meta = server.heard[-1]["params"]["_meta"]
            assert meta["io.modelcontextprotocol/clientCapabilities"] == told, revision


async def test_a_server_that_asks_for_input_without_a_question_is_called_again() -> None:
    tries = 0

    def busy(server: ScriptedServer, request: dict[str, Any]) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            server.need(request, {}, f"s{tries}")
        else:
            assert request["params"]["requestState"] == "s2"
            assert "inputResponses" not in request["params"]
            server.reply(request, {"content": [{"type": "text", "text": "now"}]})

    async with a_world({"up": ScriptedServer(revision="2026-07-28", tools={"busy": busy})}) as world:
        client, _ = await client_of(world, "2025-11-25")
        assert text((await client.call("up__busy")).result) == "now"


async def test_cancelling_a_call_withdraws_its_question() -> None:
    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        await server.ask("elicitation/create", ELICIT)
        server.reply(request, {"content": []})

    server = ScriptedServer(tools={"asks": asks})
    async with a_world({"up": server}) as world:
        client, _ = await client_of(world, "2025-11-25")
        client.answers.clear()
        id_ = client.start("tools/call", {"name": "up__asks", "arguments": {}})
        question = await client.notice("elicitation/create")
        client.tell("notifications/cancelled", {"requestId": id_})
        withdrawn = await client.notice("notifications/cancelled")
        assert withdrawn["params"]["requestId"] == question["id"]
        await asyncio.sleep(0.05)
        assert server.heard[-1]["method"] == "notifications/cancelled"


async def test_a_thousand_parked_calls_hold_in_little_memory_and_are_all_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/behaviour.md#questions-of-servers: under 50 MB."""
    monkeypatch.setattr("muxway.exchange.parking._GATHERING", 0.001)

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", ELICIT)
        outcome = answer["result"]["action"] if "result" in answer else answer["error"]["message"]
        said = f"{request['params']['arguments']['n']} {outcome}"
        server.reply(request, {"content": [{"type": "text", "text": said}]})

    async with a_world({"up": ScriptedServer(tools={"asks": asks})}) as world:
        client, _ = await client_of(world, "2026-07-28")
        before = _resident()
        states: list[str] = []
        for number in range(1000):
            result = (await client.call("up__asks", {"n": number})).result
            states.append(result["requestState"])
        assert _resident() - before < 50_000_000
        # One more is too many: the server is told so, and nothing else suffers.
        refused = await client.call("up__asks", {"n": 1000})
        assert text(refused.result) == "1000 too many calls wait for answers; try again later"
        answer = {"q1": {"action": "decline"}}
        for number, state in enumerate(states):
            reply = await client.call("up__asks", {"n": number}, inputResponses=answer, requestState=state)
            assert text(reply.result) == f"{number} decline"


def _resident() -> int:
    """Bytes of memory this process has, on any Unix that has /proc; elsewhere its highest so far."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
