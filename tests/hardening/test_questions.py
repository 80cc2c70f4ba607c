"""Whatever a server asks, in whatever way, passes the `ask` hooks of the middleware around it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from muxway import Gateway, InvalidParams, Middleware, chain
from muxway.config import parse_config
from muxway.exchange import tasks
from muxway.testing import RawClient, ScriptedServer
from tests.journeys.test_roots import ROOTS, Folders, a_config, piped, seen
from tests.journeys.worker import TASKS, Job, Worker
from tests.noting import until
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from muxway import Request
    from muxway.calls.server_request import ServerRequest

FORM = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}, "mode": "form"}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "say"}}], "maxTokens": 9}
YES = {"action": "accept", "content": {}}
KNOWN = {"elicitation": {"form": {}}, "sampling": {}}
QUESTIONS = {
    "sure": {"method": "elicitation/create", "params": FORM},
    "poem": {"method": "sampling/createMessage", "params": SAMPLE},
}


class Judge(Middleware):
    """Does with questions what it is told to."""

    def __init__(self, **verdicts: str) -> None:
        self.verdicts = verdicts
        self.held: list[ServerRequest] = []
        self.seen: list[tuple[str, str]] = []

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest | None:
        self.seen.append((request.server, ask.method))
        verdict = self.verdicts.get(ask.method.partition("/")[0], "pass")
        if verdict == "refuse":
            raise InvalidParams("the judge says no")
        if verdict == "fail":
            raise RuntimeError
        if verdict in ("answer", "agree"):
            ask.answer(b'{"action":"%b"}' % (b"accept" if verdict == "agree" else b"decline"))
            return None
        if verdict == "later":
            self.held.append(ask)
            return None
        return ask


def asking_server(questions: dict[str, Any]) -> ScriptedServer:
    """A stateless server whose tool ends with questions until it has as many answers, and says those then."""

    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        answers = request["params"].get("inputResponses", {})
        if len(answers) == len(questions):
            said = {key: answer.get("action", "said") for key, answer in answers.items()}
            server.reply(request, {"content": [], "structuredContent": said})
        else:
            server.reply(
                request, {"resultType": "input_required", "inputRequests": questions, "requestState": "theirs"}
            )

    return ScriptedServer("2026-07-28", tools={"asks": tool})


@pytest.mark.parametrize(
    ("verdicts", "asked", "outcome"),
    [
        ({}, {"sure", "poem"}, {"sure": "accept", "poem": "said"}),
        ({"elicitation": "refuse"}, {"poem"}, {"sure": "cancel", "poem": "said"}),
        ({"elicitation": "fail"}, {"poem"}, {"sure": "cancel", "poem": "said"}),
        ({"elicitation": "answer"}, {"poem"}, {"sure": "decline", "poem": "said"}),
        ({"elicitation": "later"}, {"poem"}, {"sure": "decline", "poem": "said"}),
        ({"elicitation": "answer", "sampling": "answer"}, None, {"sure": "decline", "poem": "decline"}),
        ({"sampling": "refuse"}, None, None),
    ],
)
async def test_questions_of_a_stateless_server_to_a_stateless_caller_are_judged(
    verdicts: dict[str, str], asked: set[str] | None, outcome: dict[str, str] | None
) -> None:
    """docs/middleware/writing.md: `ask` sees what servers ask, and what is refused or answered there is nobody's."""
    judge = Judge(**verdicts)
    gateway_of = chain(judge).then(up=asking_server(QUESTIONS))
    async with asyncio.timeout(PATIENCE), gateway_of.open() as gateway:
        client = RawClient(gateway.memory_door(), revision="2026-07-28", capabilities=KNOWN)
        id_ = client.start("tools/call", {"name": "up__asks", "arguments": {}})
        if "later" in verdicts.values():
            while not judge.held:
                await asyncio.sleep(0)
            judge.held.pop().answer(b'{"action":"decline"}')
        reply = await client.answer(id_)
        assert ("up", "elicitation/create") in judge.seen
        if asked is not None:
            assert set(reply.result["inputRequests"]) == asked
            # Whoever was not asked does not answer.
            answers = {"sure": YES, "poem": {"role": "assistant", "model": "m", "content": []}}
            state = reply.result["requestState"]
            reply = await client.call("up__asks", {}, inputResponses=answers, requestState=state)
        if outcome is None:
            assert "the judge says no" in reply.error["message"]
        else:
            assert reply.result["structuredContent"] == outcome


ERAS = ("2025-11-25", "2026-07-28")
CELLS = [
    (client, server, kind)
    for client in ERAS
    for server in ERAS
    for kind in ("a call", "a task", "a task that its client knows", "a call that becomes a task", "a client away")
    if kind in ("a call", "a task")
    or (client == "2026-07-28" and (kind == "a task that its client knows" or server == "2025-11-25"))
]
"""Every way in which a server's question may come to its client."""
POEM = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}


class Asker:
    """A server whose tool asks one thing, in the way of its revision and kind, and notes how it was answered."""

    def __init__(self, revision: str, kind: str) -> None:
        self.answered: list[str] = []
        self.away = asyncio.Event() if kind == "a client away" else None
        """Set when the client was told of a first question, and has yet to come back."""
        self.server: ScriptedServer
        if "a task" in kind and "becomes" not in kind:
            self.server = Worker(revision, work={"asks": self._works})
        else:
            stateless = revision == "2026-07-28"
            self.server = ScriptedServer(revision, tools={"asks": self._ends if stateless else self._asks})

    async def _works(self, job: Job) -> None:
        self.answered.append((await job.ask("sure", "elicitation/create", FORM)).get("action", "error"))
        await job.done("done")

    async def _asks(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        if self.away is not None:
            first = asyncio.ensure_future(server.ask("sampling/createMessage", SAMPLE))
            await self.away.wait()
            answer = await server.ask("elicitation/create", FORM)
            await first
        else:
            await asyncio.sleep(0.01)  # Longer than it takes to become a task.
            answer = await server.ask("elicitation/create", FORM)
        self.answered.append(answer.get("result", {}).get("action", "error"))
        server.reply(request, {"content": []})

    def _ends(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        answers = request["params"].get("inputResponses")
        if answers is None:
            server.need(request, {"sure": QUESTIONS["sure"]}, "theirs")
        else:
            self.answered.append(answers["sure"]["action"])
            server.reply(request, {"content": []})


async def _see_through(gateway: Gateway, client: RawClient, away: asyncio.Event | None) -> None:
    """Make the call, and answer what is asked, however it is asked."""
    client.answers["elicitation/create"] = lambda _: YES
    client.answers["sampling/createMessage"] = lambda _: POEM
    params: dict[str, Any] = {"name": "up__asks", "arguments": {}}
    if away is not None:
        shown = (await client.ask("tools/call", params)).result
        away.set()
        parked = gateway.runtime.forwarder.services.parked
        await until(lambda: any(one.asks is not None and one.asks.late for one in parked))
        params |= {"inputResponses": dict.fromkeys(shown["inputRequests"], POEM), "requestState": shown["requestState"]}
    result = (await client.complete("tools/call", params)).result
    while "taskId" in result and result["status"] not in ("completed", "failed", "cancelled"):
        if result.get("inputRequests"):
            answers = dict.fromkeys(result["inputRequests"], YES)
            await client.ask("tasks/update", {"taskId": result["taskId"], "inputResponses": answers})
        await asyncio.sleep(0.01)
        result = (await client.ask("tasks/get", {"taskId": result["taskId"]})).result


@pytest.mark.parametrize("verdict", ["pass", "refuse", "answer", "later"])
@pytest.mark.parametrize(("revision", "server_revision", "kind"), CELLS)
async def test_a_question_is_judged_in_every_cell(
    revision: str, server_revision: str, kind: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/middleware/writing.md: `ask` sees what servers ask, whichever way, and however their client is asked."""
    if "becomes" in kind:
        monkeypatch.setattr(tasks, "PATIENCE", 0.0)
    judge, asker = Judge(elicitation=verdict), Asker(server_revision, kind)
    known = {**KNOWN, "extensions": {TASKS: {}}} if "knows" in kind or "becomes" in kind else KNOWN
    async with asyncio.timeout(PATIENCE), chain(judge).then(up=asker.server).open() as gateway:
        client = RawClient(gateway.memory_door(), revision=revision, capabilities=known)
        await client.hello()
        seen = asyncio.ensure_future(_see_through(gateway, client, asker.away))
        if verdict == "later":
            while not judge.held:
                await asyncio.sleep(0.01)
            judge.held.pop().answer(b'{"action":"decline"}')
        await seen
    refused = "cancel" if server_revision == "2026-07-28" else "error"
    assert asker.answered == [{"pass": "accept", "refuse": refused}.get(verdict, "decline")]
    assert ("up", "elicitation/create") in judge.seen
    if isinstance(asker.server, Worker):
        asker.server.stop_jobs()


@pytest.mark.parametrize("verdict", ["pass", "refuse", "answer"])
async def test_questions_of_a_servers_own_task_are_judged(verdict: str) -> None:
    """docs/middleware/writing.md: `ask` sees what servers ask in tasks, too."""
    got: list[dict[str, Any]] = []

    async def works(job: Job) -> None:
        got.append(await job.ask("sure", "elicitation/create", FORM))
        await job.done("done")

    judge = Judge(elicitation=verdict)
    worker = Worker("2026-07-28", work={"works": works})
    async with asyncio.timeout(PATIENCE), chain(judge).then(up=worker).open() as gateway:
        known = {**KNOWN, "extensions": {TASKS: {}}}
        client = RawClient(gateway.memory_door(), revision="2026-07-28", capabilities=known)
        task = (await client.call("up__works")).result["taskId"]
        shown: dict[str, Any] = {"status": "working"}
        while shown["status"] == "working":
            shown = (await client.ask("tasks/get", {"taskId": task})).result
        assert ("up", "elicitation/create") in judge.seen
        if verdict == "pass":
            assert shown["inputRequests"]["sure"]["params"]["message"] == "[up] Sure?"
        else:
            assert shown["status"] == "completed"
            assert got == [{"action": "cancel" if verdict == "refuse" else "decline"}]


@pytest.mark.parametrize("tasked", [False, True])
@pytest.mark.parametrize("verdict", ["pass", "refuse", "fail", "answer", "agree"])
async def test_pages_that_a_server_wants_visited_first_are_judged(
    verdict: str, tasked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/middleware/writing.md: `ask` sees what servers ask, also pages that stand in an error (-32042)."""
    calls = 0

    async def gated(server: ScriptedServer, request: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if tasked:
            await asyncio.sleep(0.05)  # Longer than it takes to become a task.
        if calls == 1:
            pages = [
                {"mode": "url", "message": "Sign in", "url": f"https://x.test/{n}", "elicitationId": f"e{n}"}
                for n in range(2)
            ]
            server.fail(request, -32042, "sign in first", {"elicitations": pages})
        else:
            server.reply(request, {"content": [], "structuredContent": {"calls": calls}})

    judge = Judge(elicitation=verdict)
    if tasked:
        monkeypatch.setattr(tasks, "PATIENCE", 0.0)
    gateway_of = chain(judge).then(up=ScriptedServer(tools={"gated": gated}))
    async with asyncio.timeout(PATIENCE), gateway_of.open() as gateway:
        known = {"elicitation": {"url": {}}, **({"extensions": {TASKS: {}}} if tasked else {})}
        client = RawClient(gateway.memory_door(), revision="2026-07-28", capabilities=known)
        reply = await client.call("up__gated", {})
        task = reply.result["taskId"] if tasked else None
        while task is not None and reply.result["status"] == "working":
            reply = await client.ask("tasks/get", {"taskId": task})
        assert judge.seen == [("up", "elicitation/create")] * 2
        if verdict == "pass":
            assert [one["params"]["message"] for one in reply.result["inputRequests"].values()] == ["[up] Sign in"] * 2
            assert calls == 1
            return
        outcome = reply.message if task is None else reply.result
        if verdict == "agree":
            assert outcome["result"]["structuredContent"] == {"calls": 2}
        else:
            assert "who declined" in outcome["error"]["message"]
            assert calls == 1


@pytest.mark.parametrize("verdict", ["pass", "refuse"])
async def test_what_a_server_asks_outside_any_call_is_judged(verdict: str) -> None:
    """docs/questions.md: on a pipe a server may ask the only client at any time; middleware around it sees that."""
    judge, other = Judge(roots=verdict), Judge()
    config = replace(a_config(), middleware=(judge, other))
    async with asyncio.timeout(PATIENCE), piped(config) as (_, wire):
        client = RawClient(wire, revision="2025-11-25", capabilities=ROOTS)
        folders = Folders(client, "file:///one")
        await client.hello()
        assert (await seen(client))["roots"] == (["file:///one"] if verdict == "pass" else [])
        assert judge.seen == other.seen == [("fs", "roots/list")]
        assert folders.asked == (verdict == "pass")


async def test_middleware_of_another_server_judges_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/middleware/README.md: what stands around one server stands around that one."""
    monkeypatch.setattr(Elsewhere, "seen", [])
    entry = {"use": "tests.hardening.test_questions:Elsewhere"}
    servers = {"up": {"command": "x"}, "other": {"command": "x", "middleware": [entry]}}
    objects: dict[str, object] = {"up": asking_server(QUESTIONS), "other": ScriptedServer(tools={"t": None})}
    config = replace(parse_config({"mcpServers": servers}), objects=objects)
    async with asyncio.timeout(PATIENCE), Gateway.open(config) as gateway:
        client = RawClient(gateway.memory_door(), revision="2026-07-28", capabilities=KNOWN)
        assert set((await client.call("up__asks")).result["inputRequests"]) == {"sure", "poem"}
        assert Elsewhere.seen == []


class Elsewhere(Middleware):
    """Notes the questions that it sees."""

    seen: ClassVar[list[str]] = []

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest | None:
        Elsewhere.seen.append(f"{request.server} {ask.method}")
        return ask
