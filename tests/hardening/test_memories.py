"""What the gateway remembers of one server, user or configuration never serves another one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, Middleware
from muxway.clients.session import Session
from muxway.clients.transports.memory import MemoryClientTransport
from muxway.config import parse_config
from muxway.exchange import tasks
from muxway.testing import RawClient, ScriptedServer
from tests.journeys.worker import TASKS, Job, Worker
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway import Next, Request, Result
    from muxway.config.model import Config

READING = [{"name": "get", "inputSchema": {}, "annotations": {"readOnlyHint": True}}]


class _Door(MemoryClientTransport):
    """A door for a client with credentials."""

    def __init__(self, gateway: Gateway, principal: bytes, view: str | None) -> None:
        board = gateway.runtime.dispatcher(view)
        super().__init__(board)
        self._endpoint = Session(board, self._say, principal)


async def a_client(
    gateway: Gateway, revision: str = "2025-11-25", principal: bytes = b"", view: str | None = None, **known: Any
) -> RawClient:
    client = RawClient(_Door(gateway, principal, view), revision=revision, capabilities=known)
    await client.hello()
    return client


def a_config(servers: dict[str, ScriptedServer], entries: dict[str, Any] | None = None, **top: Any) -> Config:
    listed = {name: {"command": "(in process)", **(entries or {}).get(name, {})} for name in servers}
    return replace(parse_config({"mcpServers": listed, **top}), objects=servers)


@contextlib.asynccontextmanager
async def a_gateway(config: Config) -> AsyncIterator[Gateway]:
    async with asyncio.timeout(PATIENCE), Gateway.open(config) as gateway:
        yield gateway


async def silence(*clients: RawClient) -> None:
    """Nothing is on its way any more: each has its answer, and before it what was said earlier."""
    for client in clients:
        await client.ask("ping" if not client.stateless else "server/discover")


# --- log messages outside of calls ------------------------------------------------------------------

LOGGED = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "alert", "data": "of the last call"}}


def logs(client: RawClient) -> list[Any]:
    return [one for one in client.notices if one["method"] == "notifications/message"]


@pytest.mark.parametrize(
    ("listener", "caller", "view", "hears"),
    [
        pytest.param(b"", b"", None, True, id="the only one, without credentials"),
        pytest.param(b"ann", b"ann", None, True, id="all calls were its own"),
        pytest.param(b"ann", b"bob", None, False, id="another one called"),
        pytest.param(b"", b"bob", None, False, id="another one with credentials called"),
        pytest.param(b"ann", b"ann", "guest", False, id="its view has not that server"),
        pytest.param(b"", b"", "guest", False, id="nor has its, without credentials"),
    ],
)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_a_server_logs_outside_calls_is_for_who_used_it_alone(
    listener: bytes, caller: bytes, view: str | None, hears: bool, revision: str
) -> None:
    """docs/subscriptions.md: told to who made every call over that connection, if its view has the server."""
    hr = ScriptedServer(tools={"echo": None})
    config = a_config({"hr": hr, "pub": ScriptedServer(tools={"echo": None})}, views={"guest": {"servers": ["pub"]}})
    async with a_gateway(config) as gateway:
        listening = await a_client(gateway, principal=listener, view=view)
        # Without credentials only the session itself is known to be the same.
        calling = listening if caller == listener == b"" and view is None else await a_client(gateway, revision, caller)
        await calling.call("hr__echo")
        hr.say(LOGGED)
        while not (logs(listening) or logs(calling) or gateway.runtime.sessions.dropped):
            await asyncio.sleep(0)
            await silence(listening, calling)
        assert bool(logs(listening)) == hears


async def test_what_a_server_logs_outside_calls_is_masked() -> None:
    """docs/middleware/redact.md: log messages are masked, also those that belong to no call, whatever `match` says."""
    server = ScriptedServer(tools={"echo": None})
    redact = {"use": "redact", "match": ["up__echo"]}
    async with a_gateway(a_config({"up": server}, gateway={"middleware": [redact]})) as gateway:
        client = await a_client(gateway)
        server.say({**LOGGED, "params": {"level": "alert", "data": "the key is AKIAIOSFODNN7EXAMPLE"}})
        notice = await client.notice("notifications/message")
        assert "AKIA" not in notice["params"]["data"]


async def test_a_visit_that_is_over_is_told_to_who_was_sent_there_by_that_server() -> None:
    """docs/questions.md: told to the client that was sent there, and to nobody else. Ids are each server's own."""
    page = {"mode": "url", "message": "Visit", "url": "https://example.org/", "elicitationId": "visit-1"}

    async def visit(self: ScriptedServer, request: dict[str, Any]) -> None:
        await self.ask("elicitation/create", page)
        self.reply(request, {"content": []})

    servers = {name: ScriptedServer(tools={"visit": visit}) for name in ("good", "evil")}
    async with a_gateway(a_config(servers)) as gateway:
        clients = [await a_client(gateway, elicitation={"url": {}}) for _ in range(2)]
        for client, name in zip(clients, servers, strict=True):
            client.answers["elicitation/create"] = lambda _: {"action": "accept"}
            await client.call(f"{name}__visit")
        done = {"jsonrpc": "2.0", "method": "notifications/elicitation/complete"}
        servers["good"].say({**done, "params": {"elicitationId": "visit-1"}})
        assert (await clients[0].notice(done["method"]))["params"] == {"elicitationId": "visit-1"}
        servers["good"].say({**done, "params": {"elicitationId": "visit-1"}})
        await clients[1].call("good__visit")
        assert not [one for one in clients[1].notices if one["method"] == done["method"]]


# --- cache ------------------------------------------------------------------------------------------


def counting(word: str) -> ScriptedServer:
    """A server that never says the same twice."""
    count = 0

    def said() -> str:
        nonlocal count
        count += 1
        return f"{word} {count}"

    return ScriptedServer(
        tools={"get": lambda self, request: self.reply(request, {"content": [{"type": "text", "text": said()}]})},
        definitions=READING,
        resources={
            "s://a": lambda self, request: self.reply(request, {"contents": [{"uri": "s://a", "text": said()}]})
        },
        prompts={"p": lambda self, request: self.reply(request, {"messages": [], "description": said()})},
    )


WAYS = [
    ("tools/call", {"name": "s__get", "arguments": {}}),
    ("resources/read", {"uri": "s://a"}),
    ("prompts/get", {"name": "s__p"}),
]
CACHE = {"gateway": {"middleware": [{"use": "cache", "seconds": 600}]}}


@pytest.mark.parametrize("change", ["swap", "hide", "remove", "restart", "list_changed", "view", "nothing"])
async def test_nothing_comes_out_of_the_cache_that_a_change_took_away(change: str) -> None:
    """docs/middleware/cache.md: what came from a server is forgotten when that, or what it shows, is another."""
    server = counting("old")
    views: dict[str, Any] = {"v": {}}
    config = a_config({"s": server}, **CACHE, views=views)
    async with a_gateway(config) as gateway:
        client = await a_client(gateway, view="v")
        before = [(await client.ask(*way)).message["result"] for way in WAYS]
        assert before == [(await client.ask(*way)).message["result"] for way in WAYS]
        match change:
            case "swap":
                await gateway.apply(a_config({"s": counting("new")}, **CACHE, views=views))
                await gateway.settled()
            case "hide":
                hidden = {"hiddenTools": ["*"], "hiddenResources": ["*"], "hiddenPrompts": ["*"]}
                await gateway.apply(a_config({"s": server}, {"s": hidden}, **CACHE, views=views))
            case "remove":
                await gateway.remove("s")
            case "restart":
                await gateway.restart("s")
            case "list_changed":
                server.definitions = [*READING, {"name": "more", "inputSchema": {}}]
                server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                await client.notice("notifications/tools/list_changed")
            case "view":
                blind = {"v": {"servers": [], "tools": []}}
                await gateway.apply(a_config({"s": server}, **CACHE, views=blind))
            case _:
                pass
        after = [(await client.ask(*way)).message.get("result") for way in WAYS]
        assert (after == before) == (change == "nothing")
        if change in ("hide", "remove", "view"):
            assert after == [None] * len(WAYS)
        elif change != "nothing":
            assert not [one for one in after if one in before]


async def test_what_was_asked_for_before_a_change_is_not_kept_after_it() -> None:
    """docs/middleware/cache.md: an answer of the old server that comes late does not become the new one's."""
    going, asked = asyncio.Event(), asyncio.Event()
    server = counting("late")
    answer = server.tools["get"]

    async def slow(self: ScriptedServer, request: dict[str, Any]) -> None:
        asked.set()
        await going.wait()
        answer(self, request)  # type: ignore[misc]

    server.tools["get"] = slow
    config = a_config({"s": server}, **CACHE)
    async with a_gateway(config) as gateway:
        client = await a_client(gateway)
        id_ = client.start(*WAYS[0])
        await asked.wait()
        await gateway.apply(replace(config, views={}))
        going.set()
        first = (await client.answer(id_)).result
        assert (await client.ask(*WAYS[0])).result != first


CUT = re.compile(r"muxway://truncated/[^ ]+")


@pytest.mark.parametrize("change", ["swap", "hide", "remove", "other", "nothing"])
async def test_nothing_can_be_read_of_what_was_cut_out_before_a_change(change: str) -> None:
    """docs/middleware/truncate.md: what was taken out is gone when its server is another, or shows something else."""

    def a_server(word: str) -> ScriptedServer:
        long = {"content": [{"type": "text", "text": word * 1000}]}
        return ScriptedServer(tools={"get": lambda self, request: self.reply(request, long)}, definitions=READING)

    server, other = a_server("old"), a_server("other")
    around = {"gateway": {"middleware": [{"use": "truncate", "bytes": 1000}]}}
    async with a_gateway(a_config({"s": server, "o": other}, **around)) as gateway:
        client = await a_client(gateway)
        said = (await client.call("s__get")).result["content"][0]["text"]
        found = CUT.search(said)
        assert found is not None
        read = {"uri": found[0]}
        assert "result" in (await client.ask("resources/read", read)).message
        match change:
            case "swap":
                await gateway.apply(a_config({"s": a_server("new"), "o": other}, **around))
            case "hide":
                await gateway.apply(a_config({"s": server, "o": other}, {"s": {"hiddenTools": ["*"]}}, **around))
            case "remove":
                await gateway.remove("s")
            case "other":
                await gateway.restart("o")
            case _:
                pass
        kept = "result" in (await client.ask("resources/read", read)).message
        assert kept == (change in ("other", "nothing"))


@pytest.mark.parametrize("size", [2_000, 300_000])
@pytest.mark.parametrize("change", ["s", "o", "all"])
async def test_nothing_is_kept_of_what_is_cut_out_after_a_change_during_the_call(size: int, change: str) -> None:
    """docs/middleware/truncate.md: what the old server answers late does not become the new one's; others' stays."""
    going, asked = asyncio.Event(), asyncio.Event()

    async def slow(self: ScriptedServer, request: dict[str, Any]) -> None:
        asked.set()
        await going.wait()
        self.reply(request, {"content": [{"type": "text", "text": "x" * size}]})

    servers = {"s": ScriptedServer(tools={"get": slow}), "o": counting("other")}
    config = a_config(servers, gateway={"middleware": [{"use": "truncate", "bytes": 1000}]})
    async with a_gateway(config) as gateway:
        client = await a_client(gateway)
        id_ = client.start("tools/call", {"name": "s__get", "arguments": {}})
        await asked.wait()
        if change == "all":
            await gateway.apply(config)
        else:
            servers[change].definitions = [*READING, {"name": "more", "inputSchema": {}}]
            servers[change].say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await client.notice("notifications/tools/list_changed")
        going.set()
        found = CUT.search((await client.answer(id_)).result["content"][0]["text"])
        assert found is not None
        kept = "result" in (await client.ask("resources/read", {"uri": found[0]})).message
        assert kept == (change == "o")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("changes", [True, False])
async def test_a_yes_that_was_asked_for_before_a_change_is_not_remembered_after_it(
    revision: str, changes: bool
) -> None:
    """docs/middleware/approve.md: a yes is for the tool that there was when the user was asked."""
    config = a_config({"s": counting("x")}, gateway={"middleware": [{"use": "approve", "remember": 60}]})
    config = replace(config, objects={"s": ScriptedServer(tools={"drop": None})})
    yes = {"action": "accept", "content": {}}
    async with a_gateway(config) as gateway:
        client = await a_client(gateway, revision, b"ann", elicitation={"form": {}})
        params: dict[str, Any] = {"name": "s__drop", "arguments": {}}
        asked: list[dict[str, Any]] = []

        async def call() -> None:
            id_ = client.start("tools/call", params)
            if revision == "2025-11-25":
                question = await client.notice("elicitation/create")
            else:
                shown = (await client.answer(id_)).result
            asked.append({})
            if changes and len(asked) == 1:
                await gateway.apply(config)
            if revision == "2025-11-25":
                client.say(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": yes}).encode())
                reply = await client.answer(id_)
            else:
                answers = dict.fromkeys(shown["inputRequests"], yes)
                state = {"inputResponses": answers, "requestState": shown["requestState"]}
                reply = await client.ask("tools/call", {**params, **state})
            assert "isError" not in reply.result

        await call()
        if changes:
            await call()
        assert "content" in (await client.ask("tools/call", params)).result
        assert len(asked) == 1 + changes


async def test_what_is_hidden_is_judged_by_the_list_that_there_is() -> None:
    """docs/middleware/writing.md: what a hook for a list takes out cannot be used, and nothing else."""
    going, asked = asyncio.Event(), asyncio.Event()
    going.set()

    class Slow(Middleware):
        async def list_tools(self, request: Request, go: Next) -> Result:
            result = await go(request)
            asked.set()
            await going.wait()
            return result

    server = ScriptedServer(tools={"get": None, "more": None}, definitions=READING)
    async with a_gateway(replace(a_config({"s": server}), middleware=(Slow(),))) as gateway:
        client = await a_client(gateway)
        going.clear()
        asked.clear()
        first = client.start("tools/call", {"name": "s__get", "arguments": {}})
        await asked.wait()
        server.definitions = [*READING, {"name": "more", "inputSchema": {}}]
        server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await client.notice("notifications/tools/list_changed")
        going.set()
        assert "result" in (await client.answer(first)).message
        assert "result" in (await client.call("s__more")).message


# --- limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_call_that_became_a_task_counts_until_the_task_is_over(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/middleware/limit.md: a call that became a task runs until the task is over."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.01)
    go_on = asyncio.Event()

    async def work(job: Job) -> None:
        await go_on.wait()
        await job.done("worked")

    server = Worker(revision=revision, work={"slow": work})
    limit = {"use": "limit", "concurrent": 1, "match": ["s__*"], "per": "all"}
    async with a_gateway(a_config({"s": server}, gateway={"middleware": [limit]})) as gateway:
        client = await a_client(gateway, "2026-07-28", extensions={TASKS: {}})
        task = (await client.call("s__slow")).result["taskId"]
        assert "too many calls" in (await client.call("s__slow")).error["message"]
        go_on.set()
        while (await client.ask("tasks/get", {"taskId": task})).result["status"] == "working":
            await asyncio.sleep(0.01)
        assert "result" in (await client.call("s__slow")).message
        server.stop_jobs()


async def test_a_task_that_nobody_asks_after_is_counted_out_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/middleware/limit.md: a task of the gateway's own counts until it ends."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.01)
    go_on = asyncio.Event()

    async def slow(self: ScriptedServer, request: dict[str, Any]) -> None:
        await go_on.wait()
        self.reply(request, {"content": []})

    limit = {"use": "limit", "concurrent": 1, "per": "all"}
    config = a_config({"s": ScriptedServer(tools={"slow": slow})}, gateway={"middleware": [limit]})
    async with a_gateway(config) as gateway:
        client = await a_client(gateway, "2026-07-28", extensions={TASKS: {}})
        assert (await client.call("s__slow")).result["resultType"] == "task"
        go_on.set()
        while "error" in (await client.call("s__slow")).message:
            await asyncio.sleep(0.01)


# --- what stands twice ------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ['{"cmd":"rm","cmd":"ls"}', '{"a":[{"cmd":"rm", "cmd":"ls"}]}', '{"cmd":"ls"}'])
@pytest.mark.parametrize("padding", [0, 200_000])
async def test_a_server_gets_what_a_middleware_saw(arguments: str, padding: int) -> None:
    """docs/middleware/approve.md: what the user is asked about is what the server gets."""
    server = ScriptedServer(tools={"run": None})
    asked: list[str] = []
    twice = arguments.count("cmd") > 1
    if padding:
        arguments = f'{arguments[:-1]},"z":"{"z" * padding}"}}'
    async with a_gateway(a_config({"s": server}, gateway={"middleware": ["approve"]})) as gateway:
        client = await a_client(gateway, elicitation={"form": {}})

        def agree(params: dict[str, Any]) -> dict[str, Any]:
            asked.append(params["message"])
            return {"action": "accept", "content": {}}

        client.answers["elicitation/create"] = agree
        params = f'{{"name":"s__run","arguments":{arguments}}}'
        client.say(f'{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{params}}}'.encode())
        reply = await client.answer(77)
        if twice and not padding:
            assert reply.error["code"] == -32602
            assert not asked
        else:
            assert "ls" in asked[0]
            assert b'"rm"' not in server.lines[-1]
