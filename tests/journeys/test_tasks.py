"""Tools that run as tasks, and slow tools as tasks, whatever both sides know of them (docs/tasks.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Raw

from muxway.calls.call import Call, Caller
from muxway.clients.session import Session
from muxway.clients.transports.memory import MemoryClientTransport
from muxway.exchange import tasks
from muxway.testing import RawClient, ScriptedServer
from muxway.wire.revisions import NEWEST
from tests.conftest import HANDSHAKE_REVISIONS, REVISIONS, World, a_world
from tests.journeys.worker import RELATED, TASKS, Job, Worker
from tests.noting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.leaping

FORM = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}
ELICIT = {"message": "Who?", "requestedSchema": FORM, "mode": "form"}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Say hi"}}], "maxTokens": 10}
SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
ANN = {"action": "accept", "content": {"name": "Ann"}}
ASKABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
KNOWS_TASKS: dict[str, Any] = {**ASKABLE, "extensions": {TASKS: {}}}
ENDED = ("completed", "failed", "cancelled")


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def quick(job: Job) -> None:
    job.message = "halfway"
    await asyncio.sleep(0.1)
    await job.done("worked")


async def curious(job: Job) -> None:
    who = await job.ask("who", "elicitation/create", ELICIT)
    poem = await job.ask("poem", "sampling/createMessage", SAMPLE)
    await job.done(f"{who['content']['name']} {poem['content']['text']}")


async def endless(job: Job) -> None:
    del job
    await asyncio.Event().wait()


async def wrong(job: Job) -> None:
    await job.done("no luck", is_error=True)


async def broken(job: Job) -> None:
    await job.failed(-32050, "out of paper")


WORK: dict[str, Callable[[Job], Awaitable[None]]] = {
    "quick": quick,
    "curious": curious,
    "endless": endless,
    "wrong": wrong,
    "broken": broken,
}


@contextlib.asynccontextmanager
async def a_worker(revision: str = "2025-11-25", **options: Any) -> AsyncIterator[tuple[World, Worker]]:
    """A gateway before one server whose tools are tasks."""
    server = Worker(revision=revision, work=dict(WORK))
    try:
        async with a_world({"up": server}, **options) as world:
            yield world, server
    finally:
        server.stop_jobs()


class _Door(MemoryClientTransport):
    """A door for a client with credentials."""

    def __init__(self, world: World, principal: bytes) -> None:
        super().__init__(world.gateway.runtime.dispatcher())
        self._endpoint = Session(world.gateway.runtime.dispatcher(), self._say, principal)


async def client_of(
    world: World, revision: str = "2026-07-28", capabilities: dict[str, Any] | None = None, principal: bytes = b""
) -> RawClient:
    """A client that answers what it is asked."""
    declared = KNOWS_TASKS if capabilities is None else capabilities
    client = RawClient(_Door(world, principal), revision=revision, capabilities=declared)
    client.answers["elicitation/create"] = lambda _: ANN
    client.answers["sampling/createMessage"] = lambda _: SAMPLED
    await client.hello()
    return client


async def ask_task(client: RawClient, verb: str, task: str, **params: Any) -> Any:
    return (await client.ask(f"tasks/{verb}", {"taskId": task, **params})).result


async def when(client: RawClient, task: str, *statuses: str) -> dict[str, Any]:
    """The task, as soon as it has one of these statuses."""
    async with asyncio.timeout(5):
        while True:
            shown = await ask_task(client, "get", task)
            if shown["status"] in statuses:
                return shown
            await asyncio.sleep(0.02)


async def error_of(client: RawClient, verb: str, task: Any, **params: Any) -> int:
    return (await client.ask(f"tasks/{verb}", {"taskId": task, **params})).error["code"]


# --- callers that know no tasks ---------------------------------------------------------------


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_tool_that_must_be_a_task_is_a_plain_tool_to_callers_without_tasks(
    revision: str, server_revision: str
) -> None:
    async with a_worker(server_revision) as (world, server):
        client = await client_of(world, revision, ASKABLE)
        reply = await client.call("up__quick", {"x": 1})
        assert text(reply.result) == "worked"
        assert RELATED not in reply.result.get("_meta", {})
        assert "taskId" not in reply.result
        calls = server.said("tools/call")
        assert calls[-1]["arguments"] == {"x": 1}
        assert len(calls) == (2 if server.stateless else 1)
        assert ("task" in calls[-1]) == (not server.stateless)
        assert server.said("tasks/get")[0]["taskId"] == "native-0"
        listed = (await client.ask("tools/list")).result["tools"]
        assert not any("execution" in tool for tool in listed)


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_what_a_task_asks_reaches_the_caller(revision: str, server_revision: str) -> None:
    async with a_worker(server_revision) as (world, server):
        client = await client_of(world, revision, ASKABLE)
        asked: list[dict[str, Any]] = []
        client.answers["elicitation/create"] = lambda params: asked.append(params) or ANN
        reply = await client.complete("tools/call", {"name": "up__curious", "arguments": {"x": 1}})
        assert text(reply.result) == "Ann hi"
        assert [params["message"] for params in asked] == ["[up] Who?"]
        assert RELATED not in asked[0].get("_meta", {})
        assert len(server.jobs) == 1


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_server_may_ask_before_it_makes_the_task(revision: str) -> None:
    """MCP tasks extension (SEP-2663): rounds of questions may precede the task, and their keys are independent."""

    async def then_work(job: Job) -> None:
        who = await job.ask("who", "elicitation/create", ELICIT)
        await job.done(f"and {who['content']['name']}")

    class Asker(Worker):
        def _create(self, message: dict[str, Any]) -> None:
            params = message["params"]
            declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            if TASKS in declared.get("extensions", {}) and "inputResponses" not in params:
                self.need(message, {"who": {"method": "elicitation/create", "params": ELICIT}}, "mine")
                return
            assert params.get("requestState") in (None, "mine")
            super()._create(message)

    server = Asker(revision="2026-07-28", work={"asks": then_work})
    try:
        async with a_world({"up": server}) as world:
            client = await client_of(world, revision, ASKABLE)
            reply = await client.complete("tools/call", {"name": "up__asks", "arguments": {}})
            assert text(reply.result) == "and Ann"
            assert len(server.jobs) == 1
    finally:
        server.stop_jobs()


async def test_a_task_may_not_ask_for_ever() -> None:
    async def nosy(job: Job) -> None:
        for number in range(20):
            await job.ask(f"q{number}", "elicitation/create", ELICIT)

    async with a_worker("2026-07-28") as (world, server):
        server.work["curious"] = nosy
        for number, revision in enumerate(("2025-11-25", "2026-07-28"), 1):
            client = await client_of(world, revision, ASKABLE)
            reply = await client.complete("tools/call", {"name": "up__curious", "arguments": {}})
            assert "still asks" in str(reply.message)
            assert len(await server.heard_soon("tasks/cancel", number)) == number


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_how_a_task_fails_is_how_the_call_fails(revision: str, server_revision: str) -> None:
    async with a_worker(server_revision) as (world, _):
        client = await client_of(world, revision, ASKABLE)
        result = (await client.call("up__wrong")).result
        assert result["isError"]
        assert text(result) == "no luck"
        error = (await client.call("up__broken")).error
        assert (error["code"], error["message"]) == (-32050, "out of paper")


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_what_a_task_says_of_itself_is_progress(server_revision: str) -> None:
    async with a_worker(server_revision) as (world, _):
        client = await client_of(world, "2025-06-18", ASKABLE)
        await client.call("up__quick", _meta={"progressToken": "t"})
        progress = (await client.notice("notifications/progress"))["params"]
        assert progress == {"progressToken": "t", "progress": 1.0, "message": "halfway"}


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_cancelling_the_call_cancels_the_task(server_revision: str) -> None:
    async with a_worker(server_revision) as (world, server):
        client = await client_of(world, "2025-11-25", ASKABLE)
        id_ = client.start("tools/call", {"name": "up__endless", "arguments": {}})
        await server.heard_soon("tasks/get")
        client.tell("notifications/cancelled", {"requestId": id_})
        assert (await server.heard_soon("tasks/cancel"))[0]["taskId"] == "native-0"
        count = len(server.said("tasks/get"))
        await asyncio.sleep(0.2)
        assert len(server.said("tasks/get")) <= count + 1


async def test_cancelling_the_call_while_the_task_is_made_cancels_it_once_it_has_a_name() -> None:
    async with a_worker() as (world, server):
        server.create.clear()
        client = await client_of(world, "2025-11-25", ASKABLE)
        id_ = client.start("tools/call", {"name": "up__endless", "arguments": {}})
        await server.heard_soon("tools/call")
        client.tell("notifications/cancelled", {"requestId": id_})
        server.create.set()
        assert (await server.heard_soon("tasks/cancel"))[0]["taskId"] == "native-0"


async def test_a_caller_that_refuses_a_question_of_a_task_ends_the_task() -> None:
    async with a_worker("2026-07-28") as (world, server):
        client = await client_of(world, "2025-11-25", ASKABLE)
        client.answers["sampling/createMessage"] = lambda _: ValueError("the user said no")
        result = (await client.call("up__curious")).result
        assert result["isError"]
        assert (await server.heard_soon("tasks/cancel"))[0]["taskId"] == "native-0"


async def test_cancelling_a_call_whose_task_asks_cancels_the_task() -> None:
    async with a_worker("2026-07-28") as (world, server):
        client = await client_of(world, "2025-11-25", ASKABLE)
        client.answers.clear()
        id_ = client.start("tools/call", {"name": "up__curious", "arguments": {}})
        await client.notice("elicitation/create")
        client.tell("notifications/cancelled", {"requestId": id_})
        assert (await server.heard_soon("tasks/cancel"))[0]["taskId"] == "native-0"


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_a_task_that_never_ends_is_given_up_in_the_end(server_revision: str) -> None:
    async with a_worker(server_revision, entries={"up": {"callMax": 1}}) as (world, server):
        client = await client_of(world, "2025-11-25", ASKABLE)
        error = (await client.call("up__endless")).error
        assert error["data"]["muxway"]["reason"] == "timeout"
        assert "callMax" in error["message"]
        assert (await server.heard_soon("tasks/cancel"))[0]["taskId"] == "native-0"


async def test_a_server_that_does_not_answer_for_its_task_times_out() -> None:
    async with a_worker(entries={"up": {"callTimeout": 1}}) as (world, server):
        server.silent = frozenset({"tasks/get"})
        client = await client_of(world, "2025-11-25", ASKABLE)
        error = (await client.call("up__endless")).error
        assert error["data"]["muxway"]["reason"] == "timeout"
        assert await server.heard_soon("tasks/cancel")


async def test_a_task_outlives_the_silence_limit_as_long_as_its_server_answers() -> None:
    async def slow(job: Job) -> None:
        await asyncio.sleep(1.6)
        await job.done("at last")

    async with a_worker(entries={"up": {"callTimeout": 1}}) as (world, server):
        server.work["quick"] = slow
        client = await client_of(world, "2025-11-25", ASKABLE)
        assert text((await client.call("up__quick")).result) == "at last"


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_a_server_that_forgets_the_task_fails_the_call(server_revision: str) -> None:
    async with a_worker(server_revision) as (world, server):
        client = await client_of(world, "2025-11-25", ASKABLE)
        id_ = client.start("tools/call", {"name": "up__endless", "arguments": {}})
        await server.heard_soon("tasks/get")
        server.jobs.clear()
        error = (await client.answer(id_)).error
        assert (error["code"], error["data"]["muxway"]["reason"]) == (-32603, "lost")


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_a_lost_server_fails_the_call(server_revision: str) -> None:
    async with a_worker(server_revision) as (world, server):
        client = await client_of(world, "2025-11-25", ASKABLE)
        id_ = client.start("tools/call", {"name": "up__endless", "arguments": {}})
        await server.heard_soon("tasks/get")
        server.end()
        error = (await client.answer(id_)).error
        assert error["data"]["muxway"]["reason"] == "lost"


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_a_lost_server_fails_the_call_at_once_however_seldom_it_wants_to_be_asked(server_revision: str) -> None:
    async with a_worker(server_revision) as (world, server):
        server.interval = 60_000
        client = await client_of(world, "2025-11-25", ASKABLE)
        id_ = client.start("tools/call", {"name": "up__endless", "arguments": {}})
        while not server.jobs:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        server.end()
        async with asyncio.timeout(2):
            assert (await client.answer(id_)).error["data"]["muxway"]["reason"] == "lost"
        assert not server.said("tasks/get")


async def test_a_question_of_a_task_outlives_the_looks_at_it() -> None:
    """A pipe does not say what a question belongs to: to the request for the result, not to one of `tasks/get`."""

    async def asks(job: Job) -> None:
        await job.ask("first", "elicitation/create", ELICIT, related=False)
        while not job.server.thinking:
            await asyncio.sleep(0.005)
        answer = await job.ask("who", "elicitation/create", ELICIT, related=False)
        await job.done(answer["content"]["name"])

    async with a_worker() as (world, server):
        server.work["curious"], server.think = asks, 0.1
        client = await client_of(world, "2025-11-25", ASKABLE)
        client.answers.clear()
        id_ = client.start("tools/call", {"name": "up__curious", "arguments": {}})
        for _ in range(2):
            question = await client.notice("elicitation/create")
            await asyncio.sleep(0.4)
            client.say(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": ANN}).encode())
        assert text((await client.answer(id_)).result) == "Ann"


async def test_the_time_a_caller_takes_to_answer_does_not_count() -> None:
    async with a_worker(entries={"up": {"callMax": 1}}) as (world, _):
        client = await client_of(world, "2025-11-25", ASKABLE)
        del client.answers["elicitation/create"]
        id_ = client.start("tools/call", {"name": "up__curious", "arguments": {}})
        question = await client.notice("elicitation/create")
        await asyncio.sleep(1.5)
        client.say(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": ANN}).encode())
        assert text((await client.answer(id_)).result) == "Ann hi"


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_links_in_the_result_of_a_task_are_those_of_the_gateway(server_revision: str) -> None:
    """Two servers have a resource of the same URI, so that what one of them calls it is ambiguous."""
    uri = "note://same"

    async def links(job: Job) -> None:
        link = {"type": "resource_link", "uri": uri, "name": "n"}
        await job.end("completed", {"result": {"content": [link]}})

    server = Worker(revision=server_revision, work={"links": links}, resources={uri: "mine"})
    other = ScriptedServer(resources={uri: "yours"})
    try:
        async with a_world({"other": other, "up": server}) as world:
            plain = await client_of(world, capabilities=ASKABLE)
            content = (await plain.call("up__links")).result["content"]
            assert content[0]["uri"] != uri
            read = await plain.ask("resources/read", {"uri": content[0]["uri"]})
            assert read.result["contents"][0]["text"] == "mine"
            knows = await client_of(world)
            shown = await when(knows, (await knows.call("up__links")).result["taskId"], *ENDED)
            assert shown["result"]["content"] == content
    finally:
        server.stop_jobs()


async def test_a_compound_tool_may_have_a_subtool_that_must_be_a_task() -> None:
    tool = {"description": "All of it.", "subtools": {"up": {"tools": [{"name": "quick"}]}}}
    off = {"command": "none", "disabled": True}
    async with a_worker(mcpServers={"up": off}, tools={"All": tool}) as (world, _):
        client = await client_of(world, "2025-11-25", {})
        assert text((await client.call("All", {"server": "up", "tool": "quick"})).result) == "worked"


async def test_a_plain_answer_to_a_call_that_was_to_be_a_task_is_its_result() -> None:
    def plain(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, {"content": [{"type": "text", "text": "done already"}]})

    definition = {"name": "plain", "inputSchema": {}, "execution": {"taskSupport": "required"}}
    server = ScriptedServer(tools={"plain": plain}, definitions=[definition])
    async with a_world({"up": server}) as world:
        client = await client_of(world, "2025-11-25", ASKABLE)
        assert text((await client.call("up__plain")).result) == "done already"


@pytest.mark.parametrize("answer", [{"task": {}}, {"task": {"taskId": 7, "status": "working"}}])
async def test_a_task_without_a_name_is_malformed(answer: dict[str, Any]) -> None:
    definition = {"name": "odd", "inputSchema": {}, "execution": {"taskSupport": "required"}}
    script = {"odd": lambda server, request: server.reply(request, answer)}
    async with a_world({"up": ScriptedServer(tools=script, definitions=[definition])}) as world:
        client = await client_of(world, "2025-11-25", ASKABLE)
        assert (await client.call("up__odd")).error["data"]["muxway"]["reason"] == "malformed"


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        ("completed", {}, "malformed"),
        ("completed", {"result": 7}, "malformed"),
        ("failed", {}, "malformed"),
        ("failed", {"error": {"message": "no code"}}, "malformed"),
        ("cancelled", {}, "lost"),
    ],
)
async def test_a_task_that_ends_without_an_outcome_fails_the_call(
    status: str, outcome: dict[str, Any], reason: str
) -> None:
    async def ends(job: Job) -> None:
        await job.end(status, outcome)

    async with a_worker("2026-07-28") as (world, server):
        server.work["quick"] = ends
        for revision in ("2025-11-25", "2026-07-28"):
            client = await client_of(world, revision, ASKABLE)
            assert (await client.call("up__quick")).error["data"]["muxway"]["reason"] == reason


async def test_questions_of_two_tasks_on_one_pipe_reach_each_its_caller() -> None:
    """A plain question on a shared pipe is refused; one that names its task need not be."""
    async with a_worker() as (world, _):
        clients = [await client_of(world, "2025-11-25", ASKABLE) for _ in range(2)]
        for number, client in enumerate(clients):
            client.answers["elicitation/create"] = lambda _, number=number: {
                "action": "accept",
                "content": {"name": f"caller {number}"},
            }
        replies = await asyncio.gather(*(client.call("up__curious") for client in clients))
        assert [text(reply.result) for reply in replies] == ["caller 0 hi", "caller 1 hi"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_task_param_of_the_caller_is_not_passed_on(revision: str) -> None:
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        client = await client_of(world, revision, {})
        reply = await client.call("up__echo", {"a": 1}, task={"ttl": 1000})
        assert "task" not in reply.result
        assert "task" not in server.heard[-1]["params"]


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_handshake_callers_are_offered_no_tasks(revision: str) -> None:
    async with a_worker() as (world, _):
        client = RawClient(world.gateway.memory_door(), revision=revision, capabilities=KNOWS_TASKS)
        greeting = await client.hello()
        assert greeting is not None
        assert not {"tasks", "extensions"} & set(greeting.result["capabilities"])
        for verb in ("get", "update", "cancel", "result", "list"):
            assert await error_of(client, verb, "x") == -32601
        # There the extension means nothing.
        assert text((await client.call("up__quick")).result) == "worked"


# --- tasks of stateless servers, for callers that know them -----------------------------------


class TestPassedOn:
    """A task of a stateless server is passed on under another name."""

    async def test_a_task_goes_its_way_under_our_name(self) -> None:
        async with a_worker("2026-07-28") as (world, server):
            client = await client_of(world)
            made = (await client.call("up__curious")).result
            assert made["resultType"] == "task"
            assert made["status"] == "working"
            assert made["ttlMs"] == 60000
            assert made["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] != "scripted"
            name = made["taskId"]
            assert "native" not in name
            shown = await when(client, name, "input_required")
            assert shown["resultType"] == "complete"
            assert shown["taskId"] == name
            assert shown["inputRequests"]["who"]["params"]["message"] == "[up] Who?"
            ack = await ask_task(client, "update", name, inputResponses={"who": ANN, "nonsense": 1})
            assert ack["resultType"] == "complete"
            assert set(ack) == {"resultType", "_meta"}
            await ask_task(client, "update", name, inputResponses={"poem": SAMPLED})
            shown = await when(client, name, *ENDED)
            assert shown["status"] == "completed"
            assert text(shown["result"]) == "Ann hi"
            assert {call["taskId"] for call in server.said("tasks/get")} == {"native-0"}
            assert "native" not in str(shown)

    async def test_it_is_cancelled_where_it_runs(self) -> None:
        async with a_worker("2026-07-28") as (world, server):
            client = await client_of(world)
            name = (await client.call("up__endless")).result["taskId"]
            assert set(await ask_task(client, "cancel", name)) == {"resultType", "_meta"}
            assert server.jobs["native-0"].status == "cancelled"
            assert (await ask_task(client, "get", name))["status"] == "cancelled"

    async def test_its_failure_is_that_of_the_task(self) -> None:
        async with a_worker("2026-07-28") as (world, _):
            client = await client_of(world)
            shown = await when(client, (await client.call("up__broken")).result["taskId"], *ENDED)
            assert (shown["status"], shown["error"]["code"]) == ("failed", -32050)
            shown = await when(client, (await client.call("up__wrong")).result["taskId"], *ENDED)
            assert (shown["status"], shown["result"]["isError"]) == ("completed", True)

    async def test_forged_foreign_and_forgotten_names_are_unknown(self) -> None:
        async with a_worker("2026-07-28") as (world, server), a_worker("2026-07-28") as (elsewhere, _):
            mine = await client_of(world, principal=b"ann")
            name = (await mine.call("up__endless")).result["taskId"]
            foreign = (await (await client_of(elsewhere, principal=b"ann")).call("up__endless")).result["taskId"]
            bob = await client_of(world, principal=b"bob")
            for verb in ("get", "update", "cancel"):
                more = {"inputResponses": {}} if verb == "update" else {}
                assert await error_of(bob, verb, name, **more) == -32602
                for forged in ("", "native-0", "mw1.", "mw1.AAAA", name + "A", name[:-2], foreign, 7, None, {}):
                    assert await error_of(mine, verb, forged, **more) == -32602, forged
            assert not server.said("tasks/cancel")
            server.jobs.clear()
            for verb in ("get", "cancel"):
                reply = await mine.ask(f"tasks/{verb}", {"taskId": name})
                assert reply.error["code"] == -32602
                assert "native" not in str(reply.error)

    async def test_the_name_of_a_task_is_no_state_and_a_state_no_name(self) -> None:
        async with a_worker("2026-07-28") as (world, _):
            client = await client_of(world)
            name = (await client.call("up__endless")).result["taskId"]
            assert (await client.call("up__endless", requestState=name)).error["code"] == -32602
            poor = await client_of(world, capabilities=ASKABLE)
            state = (await poor.call("up__curious")).result["requestState"]
            assert await error_of(client, "get", state) == -32602

    async def test_questions_the_caller_cannot_answer_are_not_put(self) -> None:
        async with a_worker("2026-07-28") as (world, server):
            client = await client_of(world, capabilities={"extensions": {TASKS: {}}})
            name = (await client.call("up__curious")).result["taskId"]
            while server.jobs["native-0"].status != "input_required":
                await asyncio.sleep(0.01)
            error = (await client.ask("tasks/get", {"taskId": name})).error
            assert error["data"]["muxway"]["reason"] == "unsupported"

    async def test_a_task_made_for_who_knows_none_is_malformed(self) -> None:
        def rash(server: ScriptedServer, request: dict[str, Any]) -> None:
            server.reply(request, {"resultType": "task", "taskId": "x", "status": "working"})

        async with a_world({"up": ScriptedServer(revision="2026-07-28", tools={"rash": rash})}) as world:
            for revision in ("2025-11-25", "2026-07-28"):
                client = await client_of(world, revision, ASKABLE)
                assert (await client.call("up__rash")).error["data"]["muxway"]["reason"] == "malformed"


async def test_a_server_that_is_down_is_said_to_be() -> None:
    async with a_worker("2026-07-28") as (world, server):
        client = await client_of(world)
        name = (await client.call("up__endless")).result["taskId"]
        server.end()
        async with asyncio.timeout(5):
            while world.gateway.servers()[0].status != "failed":
                await asyncio.sleep(0.01)
        assert await error_of(client, "get", name) == -32603
        await world.gateway.remove("up")
        assert await error_of(client, "get", name) == -32603


async def test_tasks_are_only_for_callers_that_declare_them() -> None:
    async with a_worker("2026-07-28") as (world, _):
        knows = await client_of(world)
        name = (await knows.call("up__endless")).result["taskId"]
        client = await client_of(world, capabilities=ASKABLE)
        for verb in ("get", "update", "cancel"):
            error = (await client.ask(f"tasks/{verb}", {"taskId": name})).error
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        for verb in ("result", "list"):
            assert await error_of(knows, verb, name) == -32601
        discovered = (await knows.ask("server/discover")).result
        assert discovered["capabilities"]["extensions"] == {TASKS: {}}


# --- tasks of the gateway's own ---------------------------------------------------------------


class TestOwn:
    """A slow call of an older server becomes a task."""

    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tasks, "PATIENCE", 0.1)

    @staticmethod
    @contextlib.asynccontextmanager
    async def slow(
        script: Callable[[ScriptedServer, dict[str, Any]], Awaitable[None]], revision: str = "2025-06-18", **more: Any
    ) -> AsyncIterator[tuple[World, ScriptedServer]]:
        server = ScriptedServer(revision=revision, tools={"slow": script})
        async with a_world({"up": server}, **more) as world:
            yield world, server

    @pytest.mark.parametrize("server_revision", HANDSHAKE_REVISIONS)
    async def test_a_call_that_takes_long_becomes_a_task(self, server_revision: str) -> None:
        go = asyncio.Event()

        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            server.progress(request, 1, message="halfway")
            await go.wait()
            server.reply(request, {"content": [{"type": "text", "text": "at last"}], "vendor": 1})

        async with self.slow(script, server_revision) as (world, _):
            client = await client_of(world)
            made = (await client.call("up__slow", _meta={"progressToken": "t"})).result
            assert made["resultType"] == "task"
            assert made["status"] == "working"
            assert isinstance(made["ttlMs"], int)
            assert isinstance(made["pollIntervalMs"], int)
            assert made["createdAt"].endswith("Z")
            assert not {"ttl", "pollInterval", "task", "result"} & set(made)
            name = made["taskId"]
            assert len(name) >= 32
            assert (await ask_task(client, "get", name))["status"] == "working"
            go.set()
            shown = await when(client, name, *ENDED)
            assert shown["resultType"] == "complete"
            assert shown["status"] == "completed"
            assert text(shown["result"]) == "at last"
            assert shown["result"]["vendor"] == 1
            assert shown["result"]["resultType"] == "complete"
            # It can be asked for again, and neither an update nor a cancel changes what is over.
            await ask_task(client, "update", name, inputResponses={"q1": ANN})
            await ask_task(client, "cancel", name)
            assert (await ask_task(client, "get", name)) == shown

    async def test_a_quick_call_stays_a_call(self) -> None:
        async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
            client = await client_of(world)
            assert (await client.call("up__echo", {"a": 1})).result["resultType"] == "complete"
            await asyncio.sleep(0.2)
            assert not world.gateway.runtime.tasks

    async def test_callers_that_know_no_tasks_wait(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            await asyncio.sleep(0.3)
            server.reply(request, {"content": []})

        async with self.slow(script) as (world, _):
            for revision in ("2025-11-25", "2026-07-28"):
                client = await client_of(world, revision, ASKABLE)
                assert (await client.call("up__slow")).result["content"] == []

    async def test_a_failure_is_that_of_the_task(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            await asyncio.sleep(0.2)
            if request["params"]["arguments"]:
                server.fail(request, -32050, "out of paper", {"tray": 2})
            else:
                server.reply(request, {"content": [], "isError": True})

        async with self.slow(script) as (world, _):
            client = await client_of(world)
            shown = await when(client, (await client.call("up__slow", {"x": 1})).result["taskId"], *ENDED)
            assert shown["status"] == "failed"
            assert shown["error"] == {"code": -32050, "message": "out of paper", "data": {"tray": 2}}
            assert shown["statusMessage"] == "out of paper"
            shown = await when(client, (await client.call("up__slow")).result["taskId"], *ENDED)
            assert (shown["status"], shown["result"]["isError"]) == ("completed", True)

    async def test_questions_of_the_server_are_those_of_the_task(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            await asyncio.sleep(0.2)
            answers = await asyncio.gather(
                server.ask("elicitation/create", ELICIT), server.ask("sampling/createMessage", SAMPLE)
            )
            name, said = answers[0]["result"]["content"]["name"], answers[1]["result"]["content"]["text"]
            server.reply(request, {"content": [{"type": "text", "text": f"{name} {said}"}]})

        async with self.slow(script) as (world, _):
            client = await client_of(world)
            name = (await client.call("up__slow")).result["taskId"]
            shown = await when(client, name, "input_required")
            asked = shown["inputRequests"]
            assert [entry["method"] for entry in asked.values()] == ["elicitation/create", "sampling/createMessage"]
            assert asked["q1"]["params"]["message"] == "[up] Who?"
            for bad in ({"q1": 7}, {"q1": {"action": "perhaps"}}, {"q1": {"action": "accept", "content": {"name": 7}}}):
                assert await error_of(client, "update", name, inputResponses=bad) == -32602
            assert await error_of(client, "update", name, inputResponses=[]) == -32602
            assert await error_of(client, "update", name) == -32602
            await ask_task(client, "update", name, inputResponses={"q9": ANN, "": 1})
            assert set((await ask_task(client, "get", name))["inputRequests"]) == {"q1", "q2"}
            await ask_task(client, "update", name, inputResponses={"q1": ANN})
            assert set((await ask_task(client, "get", name))["inputRequests"]) == {"q2"}
            # An answer that was given is not given twice.
            await ask_task(client, "update", name, inputResponses={"q1": {"action": "decline"}, "q2": SAMPLED})
            assert text((await when(client, name, *ENDED))["result"]) == "Ann hi"

    async def test_a_question_before_the_task_is_put_as_ever_and_the_rest_becomes_the_task(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            await server.ask("elicitation/create", ELICIT)
            await asyncio.sleep(0.3)
            server.reply(request, {"content": [{"type": "text", "text": "thanks"}]})

        async with self.slow(script) as (world, _):
            client = await client_of(world)
            first = (await client.call("up__slow")).result
            assert first["resultType"] == "input_required"
            await asyncio.sleep(0.2)
            again = {"inputResponses": {"q1": ANN}, "requestState": first["requestState"]}
            second = (await client.call("up__slow", **again)).result
            assert second["resultType"] == "task"
            assert text((await when(client, second["taskId"], *ENDED))["result"]) == "thanks"

    async def test_a_call_that_went_on_with_answers_and_is_over_becomes_no_task(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ours: a call has one outcome, and counts until then (docs/behaviour.md#tasks)."""
        monkeypatch.setattr(tasks, "PATIENCE", 0.4)

        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            for _ in range(request["params"]["arguments"]["rounds"]):
                await server.ask("elicitation/create", ELICIT)
            server.reply(request, {"content": [{"type": "text", "text": "thanks"}]})

        async with self.slow(script) as (world, _):
            client = await client_of(world)
            for rounds in (1, 2):
                result = (await client.call("up__slow", {"rounds": rounds})).result
                while result["resultType"] == "input_required":
                    answers = dict.fromkeys(result["inputRequests"], ANN)
                    again = {"inputResponses": answers, "requestState": result["requestState"]}
                    result = (await client.call("up__slow", {"rounds": rounds}, **again)).result
                assert text(result) == "thanks"
            await asyncio.sleep(0.6)
            assert not world.gateway.runtime.tasks

    async def test_a_page_to_visit_first_is_a_question_of_the_task(self) -> None:
        visits = 0

        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            nonlocal visits
            visits += 1
            await asyncio.sleep(0.2)
            if visits == 1:
                page = {"mode": "url", "message": "Sign in", "elicitationId": "e1"}
                pages = [{**page, "url": f"https://x.test/{number}"} for number in (1, 2)]
                server.fail(request, -32042, "sign in first", {"elicitations": pages})
            else:
                server.reply(request, {"content": [{"type": "text", "text": "in"}]})

        async with self.slow(script, "2025-11-25") as (world, _):
            client = await client_of(world)
            for one, other in (("accept", "accept"), ("decline", "accept"), ("accept", "cancel")):
                visits = 0
                name = (await client.call("up__slow")).result["taskId"]
                asked = (await when(client, name, "input_required"))["inputRequests"]
                assert [entry["params"]["url"] for entry in asked.values()] == ["https://x.test/1", "https://x.test/2"]
                answers = dict(zip(asked, ({"action": one}, {"action": other}), strict=True))
                await ask_task(client, "update", name, inputResponses=answers)
                shown = await when(client, name, *ENDED)
                if other == one:
                    assert text(shown["result"]) == "in"
                    assert visits == 2
                else:
                    assert (shown["status"], shown["error"]["code"]) == ("failed", -32602)
                    assert visits == 1

    async def test_cancelling_the_task_cancels_the_call(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            del request
            await asyncio.sleep(0.2)
            await server.ask("elicitation/create", ELICIT)

        async with self.slow(script) as (world, server):
            client = await client_of(world)
            name = (await client.call("up__slow")).result["taskId"]
            await when(client, name, "input_required")
            await ask_task(client, "cancel", name)
            shown = await ask_task(client, "get", name)
            assert shown["status"] == "cancelled"
            assert not {"inputRequests", "result", "error"} & set(shown)
            call = next(message for message in server.heard if message.get("method") == "tools/call")

            def told() -> list[dict[str, Any]]:
                return [message for message in server.heard if message.get("method") == "notifications/cancelled"]

            await until(told)  # the server is told while the client is answered
            assert [message["params"]["requestId"] for message in told()] == [call["id"]]
            await ask_task(client, "update", name, inputResponses={"q1": ANN})
            await ask_task(client, "cancel", name)
            assert (await ask_task(client, "get", name))["status"] == "cancelled"

    async def test_a_task_is_its_callers_alone(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            await asyncio.sleep(0.3)
            server.reply(request, {"content": [{"type": "text", "text": request["params"]["arguments"]["who"]}]})

        async with self.slow(script) as (world, _):
            ann, bob = await client_of(world, principal=b"ann"), await client_of(world, principal=b"bob")
            made = await asyncio.gather(ann.call("up__slow", {"who": "ann"}), bob.call("up__slow", {"who": "bob"}))
            hers, his = (reply.result["taskId"] for reply in made)
            for client, name in ((ann, his), (bob, hers)):
                for verb in ("get", "cancel"):
                    assert await error_of(client, verb, name) == -32602
                assert await error_of(client, "update", name, inputResponses={}) == -32602
            assert text((await when(ann, hers, *ENDED))["result"]) == "ann"
            assert text((await when(bob, his, *ENDED))["result"]) == "bob"

    async def test_a_server_that_dies_fails_its_tasks(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            del server, request
            await asyncio.Event().wait()

        async with self.slow(script) as (world, server):
            client = await client_of(world)
            name = (await client.call("up__slow")).result["taskId"]
            server.end()
            shown = await when(client, name, *ENDED)
            assert (shown["status"], shown["error"]["data"]["muxway"]["reason"]) == ("failed", "lost")

    async def test_a_call_that_never_ends_is_given_up_in_the_end(self) -> None:
        async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
            del server, request
            await asyncio.Event().wait()

        async with self.slow(script, entries={"up": {"callTimeout": 1}}) as (world, _):
            client = await client_of(world)
            shown = await when(client, (await client.call("up__slow")).result["taskId"], *ENDED)
            assert (shown["status"], shown["error"]["data"]["muxway"]["reason"]) == ("failed", "timeout")


@pytest.mark.parametrize("tool", ["quick", "wrong", "broken", "curious"])
async def test_a_task_of_2025_is_shown_as_one_of_2026(tool: str) -> None:
    async with a_worker() as (world, server):
        client = await client_of(world)
        made = (await client.call(f"up__{tool}")).result
        assert made["resultType"] == "task"
        name = made["taskId"]
        assert "native" not in name
        if tool == "curious":
            shown = await when(client, name, "input_required")
            assert RELATED not in str(shown)
            assert shown["inputRequests"]["q1"]["params"]["message"] == "[up] Who?"
            await ask_task(client, "update", name, inputResponses={"q1": ANN})
            shown = await when(client, name, "input_required")
            await ask_task(client, "update", name, inputResponses=dict.fromkeys(shown["inputRequests"], SAMPLED))
        shown = await when(client, name, *ENDED)
        assert {"taskId", "ttlMs", "pollIntervalMs"} <= set(shown)
        assert not {"ttl", "pollInterval"} & set(shown)
        if tool == "broken":
            assert (shown["status"], shown["error"]["code"]) == ("failed", -32050)
        else:
            # A tool's own failure fails a task of 2025-11-25, but not one of 2026-07-28.
            assert shown["status"] == "completed"
            assert shown["result"].get("isError", False) == (tool == "wrong")
            assert RELATED not in shown["result"]["_meta"]
            assert shown["result"]["_meta"]["mine"] == 1
        if tool == "quick":
            assert shown["statusMessage"] == "halfway"
        assert len(server.jobs) == 1


async def test_cancelling_a_task_of_2025_cancels_it_there() -> None:
    async with a_worker() as (world, server):
        client = await client_of(world)
        name = (await client.call("up__endless")).result["taskId"]
        await ask_task(client, "cancel", name)
        assert (await server.heard_soon("tasks/cancel"))[0]["taskId"] == "native-0"
        assert (await ask_task(client, "get", name))["status"] == "cancelled"


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_a_middleware_learns_which_server_a_task_is_of(server_revision: str) -> None:
    async with a_worker(server_revision) as (world, _):
        name = (await (await client_of(world, principal=b"ann")).call("up__endless")).result["taskId"]
        tools = {"up": "up__endless", "": None}
        for who, task, server in ((b"ann", name, "up"), (b"bob", name, ""), (b"ann", "x", ""), (b"ann", 7, "")):
            caller = Caller(revision=NEWEST, principal=who)
            call = Call(caller, "tasks/get", {"taskId": Raw(json.dumps(task).encode())})
            target = world.gateway.runtime.dispatcher().target(call)
            assert (target.server, target.definition.get("name")) == (server, tools[server])


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_the_gateway_stops_with_tasks_open(server_revision: str) -> None:
    async with asyncio.timeout(10):
        async with a_worker(server_revision) as (world, server):
            knows, plain = await client_of(world), await client_of(world, "2025-11-25", ASKABLE)
            await knows.call("up__endless")
            id_ = plain.start("tools/call", {"name": "up__endless", "arguments": {}})
            await server.heard_soon("tasks/get")
        assert (await plain.answer(id_)).error["data"]["muxway"]["reason"] == "lost"
