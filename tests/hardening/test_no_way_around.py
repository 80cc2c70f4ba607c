"""What stands around a server, or around a name, stands around every request that leads there.

The matrix is made of every way to reach a server × every place where a middleware may stand × the gateway and a view.
Each way works while the middleware lets it; as soon as it does not, nothing reaches the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from muxway import Gateway, InvalidParams, Middleware
from muxway.clients.session import Session
from muxway.clients.transports.memory import MemoryClientTransport
from muxway.config import parse_config
from muxway.exchange import tasks
from muxway.testing import RawClient, ScriptedServer
from tests.journeys.worker import TASKS, Worker
from tests.noting import NoteServer
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from muxway import Next, Request, Result
    from muxway.calls.server_request import ServerRequest
    from muxway.config.model import Config

HERE = "tests.hardening.test_no_way_around"
ELICIT = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}, "mode": "form"}
ANSWER = {"action": "accept", "content": {}}


class Guard(Middleware):
    """Lets everything pass until it is told not to."""

    closed = False

    plain = True

    async def any_request(self, request: Request, go: Next) -> Result:
        if Guard.closed:
            raise InvalidParams("the guard says no")
        return await go(request)


@pytest.fixture(autouse=True)
def _open_at_first() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    Guard.closed = False
    yield
    Guard.closed = False


async def _slow(self: ScriptedServer, request: dict[str, Any]) -> None:
    del self, request
    await asyncio.Event().wait()


async def _asks(self: ScriptedServer, request: dict[str, Any]) -> None:
    await self.ask("elicitation/create", ELICIT)
    self.reply(request, {"content": [{"type": "text", "text": "asked and done"}]})


def _made(self: ScriptedServer, request: dict[str, Any]) -> None:
    self.reply(request, {"contents": [{"uri": request["params"]["uri"], "text": "made"}]})


def a_server() -> NoteServer:
    return NoteServer(
        tools={"drop": None, "slow": _slow, "asks": _asks},
        prompts={"p": None},
        resources={"db://one": "1"},
        templates={"db://made/{x}": _made},
        completing=lambda self, request: self.reply(request, {"completion": {"values": []}}),
        capabilities={"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}},
    )


GUARD = {"use": f"{HERE}:Guard"}
NAMES = ["db__*", "db://*"]
PLACES: dict[str, dict[str, Any]] = {
    "server": {"server": {"middleware": [GUARD]}},
    "match": {"gateway": {"middleware": [{**GUARD, "match": NAMES}]}},
    "view": {"view": {"middleware": [{**GUARD, "match": NAMES}]}},
}
COMPOUND = {
    "description": "One of them.",
    "subtools": {"db": {"tools": [{"name": t} for t in ("drop", "slow", "asks")]}},
}
COMPOSED = {"description": "All of it.", "steps": [{"name": "s", "tool": "db__drop", "arguments": {}}]}


def a_config(server: NoteServer, place: str = "", **entry: Any) -> Config:
    """A gateway in front of the server, with the guard at this place."""
    where = PLACES.get(place, {})
    config = parse_config(
        {
            "mcpServers": {"db": {"command": "(in process)", **where.get("server", {}), **entry}},
            "gateway": where.get("gateway", {}),
            "tools": {"Box": COMPOUND, "Steps": COMPOSED},
            "views": {"v": where.get("view", {}), "blind": {"servers": [], "tools": []}},
        }
    )
    return replace(config, objects={"db": server})


class _Door(MemoryClientTransport):
    """A door for a client with credentials."""

    def __init__(self, gateway: Gateway, view: str | None) -> None:
        board = gateway.runtime.dispatcher(view)
        super().__init__(board)
        self._endpoint = Session(board, self._say, b"ann")


async def a_client(gateway: Gateway, revision: str, view: str | None) -> RawClient:
    known = {"elicitation": {"form": {}}, **({"extensions": {TASKS: {}}} if revision == "2026-07-28" else {})}
    client = RawClient(_Door(gateway, view), revision=revision, capabilities=known)
    await client.hello()
    return client


@contextlib.asynccontextmanager
async def a_gateway(config: Config) -> AsyncIterator[Gateway]:
    async with asyncio.timeout(PATIENCE), Gateway.open(config) as gateway:
        yield gateway


class Way(NamedTuple):
    """A request that reaches the server."""

    method: str
    params: dict[str, Any]

    def __str__(self) -> str:
        told = self.params.get("name") or self.params.get("uri") or self.params.get("ref", {})
        return f"{self.method} {told}"


def _completing(ref: dict[str, str]) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": "x", "value": ""}}


def plain_ways() -> Iterator[Way]:
    """Every request that one can make at once, in every spelling."""
    for separator in ("__", ":", "."):
        yield Way("tools/call", {"name": f"db{separator}drop", "arguments": {}})
        yield Way("prompts/get", {"name": f"db{separator}p"})
        yield Way("completion/complete", _completing({"type": "ref/prompt", "name": f"db{separator}p"}))
    yield Way("tools/call", {"name": "Box", "arguments": {"server": "db", "tool": "drop", "args": {}}})
    yield Way("tools/call", {"name": "Steps", "arguments": {}})
    for uri in ("db://one", "muxway://db/db%3A%2F%2Fone", "db://made/it"):
        yield Way("resources/read", {"uri": uri})
        yield Way("resources/subscribe", {"uri": uri})
        yield Way("resources/unsubscribe", {"uri": uri})
        yield Way("completion/complete", _completing({"type": "ref/resource", "uri": uri}))
    yield Way("completion/complete", _completing({"type": "ref/resource", "uri": "db://made/{x}"}))


WAYS = [*plain_ways()]
VIEWS = [pytest.param(place, view, id=f"{place}-{view}") for place, view in
         (("server", None), ("server", "v"), ("match", None), ("match", "v"), ("view", "v"))]  # fmt: skip


def said_no(reply: Any) -> bool:
    return "the guard says no" in str(reply.message)


def heard(server: NoteServer) -> int:
    return len([one for one in server.heard if one.get("method") not in ("notifications/cancelled", "ping")])


@pytest.mark.parametrize(("place", "view"), VIEWS)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_no_request_gets_around_a_middleware(place: str, view: str | None, revision: str) -> None:
    """docs/security.md: what stands around a server or a name stands around every request that leads there."""
    server = a_server()
    async with a_gateway(a_config(server, place)) as gateway:
        client = await a_client(gateway, revision, view)
        ways = [way for way in WAYS if revision == "2025-11-25" or "subscribe" not in way.method]
        for way in ways:
            reply = await client.ask(*way)
            assert "result" in reply.message, f"{way} does not work: {reply}"
        Guard.closed = True
        before = heard(server)
        for way in ways:
            reply = await client.ask(*way)
            assert said_no(reply), f"{way} got around: {reply}"
            assert heard(server) == before, f"{way} reached the server"


@pytest.mark.parametrize(("place", "view"), VIEWS)
async def test_no_stream_of_changes_gets_around_a_middleware(place: str, view: str | None) -> None:
    """docs/security.md: each URI of a filter is a subscription like any other."""
    server = a_server()
    async with a_gateway(a_config(server, place)) as gateway:
        client = await a_client(gateway, "2026-07-28", view)
        for closed, honoured in ((False, ["db://one"]), (True, [])):
            Guard.closed = closed
            client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["db://one"]}})
            told = await client.notice("notifications/subscriptions/acknowledged")
            assert told["params"]["notifications"]["resourceSubscriptions"] == honoured


async def test_a_middleware_around_everything_sees_what_a_door_answers_itself() -> None:
    """docs/middleware/writing.md: `any_request` is around every request."""
    config = replace(a_config(a_server()), middleware=(Guard(),))
    async with a_gateway(config) as gateway:
        client = await a_client(gateway, "2025-11-25", None)
        stateless = await a_client(gateway, "2026-07-28", None)
        Guard.closed = True
        for method, params in (
            ("logging/setLevel", {"level": "debug"}),
            ("resources/subscribe", {"uri": "db://one"}),
            ("resources/unsubscribe", {"uri": "db://one"}),
        ):
            assert said_no(await client.ask(method, params)), method
        assert said_no(await stateless.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))


@pytest.mark.parametrize(("place", "view"), VIEWS)
@pytest.mark.parametrize("name", ["db__slow", "db.slow", "Box"])
async def test_no_task_gets_around_a_middleware(
    place: str, view: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md: a request about a task passes what the call of its tool passes."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.1)
    arguments = {"server": "db", "tool": "slow"} if name == "Box" else {}
    async with a_gateway(a_config(a_server(), place)) as gateway:
        client = await a_client(gateway, "2026-07-28", view)
        task = (await client.call(name, arguments)).result["taskId"]
        assert (await client.ask("tasks/get", {"taskId": task})).result["status"] == "working"
        Guard.closed = True
        for verb, more in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
            assert said_no(await client.ask(f"tasks/{verb}", {"taskId": task, **more})), verb


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_is_masked_in_a_call_is_masked_in_its_task(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/middleware/secrets.md: nobody sees the value, whether the task is the gateway's or the server's."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.0)
    leaked = "value hunter2hunter2 AKIAIOSFODNN7EXAMPLE"

    async def late(self: ScriptedServer, request: dict[str, Any]) -> None:
        await asyncio.sleep(0.05)  # Longer than it takes to become a task.
        assert request["params"]["arguments"] == {"p": "hunter2hunter2"}
        self.reply(request, {"content": [{"type": "text", "text": leaked}]})

    own = revision == "2025-11-25"
    server = (
        ScriptedServer(tools={"tell": late}) if own else Worker(revision, work={"tell": lambda job: job.done(leaked)})
    )
    around = [
        {"use": "secrets", "match": ["db__*"], "values": {"PASSWORD": "hunter2hunter2"}},
        {"use": "redact", "match": ["db__*"]},
    ]
    entries = {"mcpServers": {"db": {"command": "(in process)"}}, "gateway": {"middleware": around}}
    async with a_gateway(replace(parse_config(entries), objects={"db": server})) as gateway:
        client = await a_client(gateway, "2026-07-28", None)
        shown = (await client.call("db__tell", {"p": "${PASSWORD}"})).result
        task = shown["taskId"]
        while shown["status"] == "working":
            shown = (await client.ask("tasks/get", {"taskId": task})).result
        assert shown["result"]["content"][0]["text"] == "value ${PASSWORD} [redacted: aws_key]"


@pytest.mark.parametrize(("place", "view"), VIEWS)
@pytest.mark.parametrize("name", ["db__slow", "Box"])
async def test_no_task_of_a_server_that_is_away_gets_around_a_middleware(
    place: str, view: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md: what a server that is down had is still what it was called."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.1)
    server = a_server()
    async with a_gateway(a_config(server, place)) as gateway:
        client, blind = await a_client(gateway, "2026-07-28", view), await a_client(gateway, "2026-07-28", "blind")
        task = (await client.call(name, {"server": "db", "tool": "slow"} if name == "Box" else {})).result["taskId"]
        server.end()
        while gateway.servers()[0].status != "failed":
            await asyncio.sleep(0.01)
        assert (await client.ask("tasks/get", {"taskId": task})).result["status"] == "failed"
        assert "Unknown task" in (await blind.ask("tasks/get", {"taskId": task})).error["message"]
        Guard.closed = True
        assert said_no(await client.ask("tasks/get", {"taskId": task}))


@pytest.mark.parametrize(("place", "view"), VIEWS)
@pytest.mark.parametrize("name", ["db__asks", "db:asks", "Box"])
async def test_no_retry_gets_around_a_middleware(place: str, view: str | None, name: str) -> None:
    """docs/security.md: a call that is made again with answers passes what it passed at first."""
    arguments = {"server": "db", "tool": "asks"} if name == "Box" else {}
    server = a_server()
    async with a_gateway(a_config(server, place)) as gateway:
        client = await a_client(gateway, "2026-07-28", view)
        for closed in (False, True):
            Guard.closed = False
            asked = (await client.call(name, arguments)).result
            Guard.closed = closed
            again = {"inputResponses": dict.fromkeys(asked["inputRequests"], ANSWER)}
            reply = await client.call(name, arguments, requestState=asked["requestState"], **again)
            assert said_no(reply) == closed, reply


class Renaming(Middleware):
    """Offers a tool under another name."""

    plain = True

    async def call_tool(self, request: Request, go: Next) -> Result:
        return await go(request.replace(name="db__drop") if request.name == "tidy" else request)


@pytest.mark.parametrize("place", ["server", "match"])
async def test_a_name_that_a_middleware_changes_is_looked_up_anew(place: str) -> None:
    """docs/middleware/writing.md: what stands around the tool that is called in the end is not passed by."""
    config = replace(a_config(a_server(), place), middleware=(Renaming(),))
    async with a_gateway(config) as gateway:
        client = await a_client(gateway, "2025-11-25", None)
        assert "content" in (await client.call("tidy")).result
        Guard.closed = True
        assert said_no(await client.call("tidy"))


class Watching(Middleware):
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, Any]] = []

    def before(self, request: Request) -> None:
        self.seen.append((request.method, request.name, request.server, dict(request.arguments)))


async def test_a_middleware_sees_the_call_of_a_subtool_as_if_it_came_by_itself() -> None:
    """docs/middleware/README.md: names, server and arguments are those of what is called."""
    watching = Watching()
    server = a_server()
    async with a_gateway(replace(a_config(server, hiddenTools=["drop"]), middleware=(watching,))) as gateway:
        client = await a_client(gateway, "2025-11-25", None)
        reply = await client.call("Box", {"server": "db", "tool": "drop", "args": {"all": True}})
        assert reply.result["structuredContent"] == {"all": True}
        assert watching.seen[-1] == ("tools/call", "db__drop", "db", {"all": True})


@pytest.mark.parametrize("name", ["db__asks", "db.asks", "Box"])
async def test_what_is_hidden_now_cannot_be_gone_on_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/reload.md: what a reload hides is gone from every memory at once: tasks and sealed states."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.1)
    server = a_server()
    config = a_config(server)
    async with a_gateway(config) as gateway:
        client = await a_client(gateway, "2026-07-28", None)
        box = name == "Box"

        def given(tool: str) -> tuple[str, dict[str, Any]]:
            return (name, {"server": "db", "tool": tool}) if box else (name.replace("asks", tool), {})

        asked = (await client.call(*given("asks"))).result
        task = (await client.call(*given("slow"))).result["taskId"]
        again = {"inputResponses": dict.fromkeys(asked["inputRequests"], ANSWER)}
        hidden = replace(config, tools={}) if box else a_config(server, hiddenTools=["asks", "slow"])
        await gateway.apply(hidden)
        fresh = (await client.call(*given("asks"))).error
        retried = (await client.call(*given("asks"), requestState=asked["requestState"], **again)).error
        assert (retried["code"], retried["message"]) == (fresh["code"], fresh["message"])
        assert "Unknown task" in (await client.ask("tasks/get", {"taskId": task})).error["message"]


@pytest.mark.parametrize("view", ["v", "blind"])
async def test_another_view_does_not_go_on_with_what_it_does_not_see(
    view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/views.md: what is not in a view does not exist there, whoever asks."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.1)
    async with a_gateway(a_config(a_server())) as gateway:
        client, other = await a_client(gateway, "2026-07-28", None), await a_client(gateway, "2026-07-28", view)
        asked = (await client.call("db__asks")).result
        task = (await client.call("db__slow")).result["taskId"]
        again = {"inputResponses": dict.fromkeys(asked["inputRequests"], ANSWER)}
        retried = await other.call("db__asks", requestState=asked["requestState"], **again)
        shown = await other.ask("tasks/get", {"taskId": task})
        assert ("result" in retried.message, "result" in shown.message) == (view == "v", view == "v")


async def test_a_name_of_a_server_that_starts_waits_before_it_is_judged() -> None:
    """docs/middleware/approve.md: nobody is asked about a read-only tool because its server is still starting."""
    ready = asyncio.Event()

    async def late(self: ScriptedServer, request: dict[str, Any]) -> None:
        await ready.wait()
        self.reply(request, {"tools": [{"name": "get", "inputSchema": {}, "annotations": {"readOnlyHint": True}}]})

    server = a_server()
    server.tools["get"] = None
    server.silent = frozenset(("tools/list",))
    config = replace(
        parse_config({"mcpServers": {"db": {"command": "(in process)", "middleware": ["approve"]}}}),
        objects={"db": server},
    )
    gateway = Gateway(config)
    async with asyncio.timeout(PATIENCE):
        gateway.start()
        try:
            client = RawClient(gateway.memory_door(), revision="2025-11-25")
            await client.hello()
            id_ = client.start("tools/call", {"name": "db__get", "arguments": {"x": 1}})
            while not any(one.get("method") == "tools/list" for one in server.heard):
                await asyncio.sleep(0)
            request = next(one for one in server.heard if one.get("method") == "tools/list")
            assert client.unread == 0
            ready.set()
            await late(server, request)
            assert (await client.answer(id_)).result["structuredContent"] == {"x": 1}
        finally:
            await gateway.stop()


class Screening(Middleware):
    """Refuses every question of a server."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest | None:
        self.seen.append(request.name)
        if Guard.closed:
            ask.refuse(InvalidParams("the guard says no"))
            return None
        return ask


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("name", ["db__asks", "Box", "Steps"])
@pytest.mark.parametrize("tasked", [False, True])
async def test_no_question_gets_around_a_middleware(
    revision: str, name: str, tasked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/middleware/writing.md: `ask` sees what servers ask, however the caller is asked, and in tasks, too."""
    if tasked:
        monkeypatch.setattr(tasks, "PATIENCE", 0.0)
    screening, server = Screening(), a_server()
    steps = {"description": "Asks.", "steps": [{"name": "s", "tool": "db__asks", "arguments": {}}]}
    config = replace(a_config(server), middleware=(screening,))
    other = parse_config(
        {"mcpServers": {"db": {"command": "(in process)"}}, "tools": {"Box": COMPOUND, "Steps": steps}}
    )
    async with a_gateway(replace(config, tools=other.tools)) as gateway:
        client = await a_client(gateway, revision, None)
        client.answers["elicitation/create"] = lambda _: ANSWER
        arguments = {"server": "db", "tool": "asks"} if name == "Box" else {}

        async def outcome() -> Any:
            result = (await client.call(name, arguments)).result
            while result.get("status") == "working":
                await asyncio.sleep(0.01)
                result = (await client.ask("tasks/get", {"taskId": result["taskId"]})).result
            return result

        shown = await outcome()
        assert screening.seen
        assert ("inputRequests" in shown) == (revision == "2026-07-28")
        Guard.closed = True
        before = len([one for one in server.heard if "error" in one])
        assert "inputRequests" not in await outcome()
        assert len([one for one in server.heard if "error" in one]) > before


class Hides(Middleware):
    """Takes things out of lists."""

    plain = True

    async def list_tools(self, request: Request, go: Next) -> Result:
        result = await go(request)
        if Guard.closed:
            raise InvalidParams("the guard says no")
        return result.replace(tools=[one for one in result.value["tools"] if one["name"] not in ("db__drop", "Box")])

    async def list_resources(self, request: Request, go: Next) -> Result:
        return (await go(request)).replace(resources=[])

    async def list_prompts(self, request: Request, go: Next) -> Result:
        return (await go(request)).replace(prompts=[])


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_a_middleware_takes_out_of_a_list_cannot_be_used(revision: str) -> None:
    """docs/middleware/writing.md: what a hook for a list takes out is answered like what nobody has."""
    server = a_server()
    async with a_gateway(replace(a_config(server), middleware=(Hides(),))) as gateway:
        client = await a_client(gateway, revision, None)
        before = heard(server)
        for way in WAYS:
            told = str(way.params)
            shown = "Steps" in told or "made" in told or (way.method != "resources/read" and "subscribe" in way.method)
            if not shown and (way.method != "completion/complete" or "prompt" in told):
                error = (await client.ask(*way)).error["message"]
                if way.params.get("name") == "Box":
                    nobodys = (await client.call("Pot")).error["message"]
                    assert error == nobodys.replace("Pot", "Box")
                else:
                    assert "not found" in error, way
        assert heard(server) == before
        assert "content" in (await client.call("Steps")).result
        assert [tool.name for tool in await gateway.list_tools()] == ["Steps", "db__slow", "db__asks"]
        Guard.closed = True
        with pytest.raises(InvalidParams):
            await gateway.list_tools()
        other = RawClient(_Door(gateway, "v"), revision=revision)
        await other.hello()
        assert said_no(await other.call("db__slow"))
