"""What is under way at a server though no request is: nobody ends the server as idle, and calls wait for a place."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, UpstreamError
from muxway.config import parse_config
from muxway.exchange import tasks
from muxway.exchange.parking import give_up
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import World, a_world
from tests.journeys.worker import TASKS, Job, Worker
from tests.noting import until
from tests.stdio.harness import child

if TYPE_CHECKING:
    from collections.abc import Callable

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ELICIT = {"message": "Who?", "requestedSchema": FORM, "mode": "form"}
ANN = {"action": "accept", "content": {"name": "Ann"}}
CAN: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {TASKS: {}}}
TASK_SERVER = str(Path(__file__).with_name("task_server.py"))


def _needs(server: ScriptedServer, request: dict[str, Any]) -> None:
    """A tool of a stateless server that wants to know a name first."""
    if "inputResponses" not in request["params"]:
        server.need(request, {"who": {"method": "elicitation/create", "params": ELICIT}}, "state")
    else:
        server.reply(request, {"content": [], "ok": 1})


async def _asks(server: ScriptedServer, request: dict[str, Any]) -> None:
    """The same of a server with a handshake."""
    await server.ask("elicitation/create", ELICIT)
    server.reply(request, {"content": [], "ok": 1})


async def _works(job: Job) -> None:
    async with job.changed:
        await job.changed.wait_for(lambda: job.answers)
    await job.done("worked")


async def _finish(server: Worker) -> None:
    for job in server.jobs.values():
        async with job.changed:
            job.answers["go"] = 1
            job.changed.notify_all()


class Case:
    """A call that is under way, and how it ends."""

    def __init__(self, server: ScriptedServer, tool: str, revision: str) -> None:
        self.server, self.tool, self.revision = server, tool, revision

    async def begin(self, client: RawClient) -> None:
        self.id = client.start("tools/call", {"name": f"up__{self.tool}", "arguments": {}})
        if isinstance(self.server, Worker):
            self.shown = (await client.answer(self.id)).result if self.revision == "2026-07-28" else None
            await self.server.heard_soon("tasks/get" if self.shown is None else "tools/call")
        elif self.revision == "2026-07-28":
            self.shown = (await client.answer(self.id)).result
        else:
            self.question = await client.notice("elicitation/create")

    async def end(self, client: RawClient) -> None:
        if isinstance(self.server, Worker):
            await _finish(self.server)
            if self.shown is None:
                assert (await client.answer(self.id)).result["content"][0]["text"] == "worked"
                return
            async with asyncio.timeout(30):
                while (await client.ask("tasks/get", {"taskId": self.shown["taskId"]})).result["status"] == "working":
                    await asyncio.sleep(0.02)
        elif self.revision == "2026-07-28":
            answers = dict.fromkeys(self.shown["inputRequests"], ANN)
            params = {"name": f"up__{self.tool}", "arguments": {}, "inputResponses": answers}
            again = await client.ask("tools/call", {**params, "requestState": self.shown["requestState"]})
            assert again.result["ok"] == 1
        else:
            client.say(json.dumps({"jsonrpc": "2.0", "id": self.question["id"], "result": ANN}).encode())
            assert (await client.answer(self.id)).result["ok"] == 1


CASES: dict[str, Callable[[], Case]] = {
    "a user who thinks, stateless server": lambda: Case(
        ScriptedServer(revision="2026-07-28", tools={"needs": _needs}), "needs", "2025-11-25"
    ),
    "a user who thinks, handshake server": lambda: Case(ScriptedServer(tools={"asks": _asks}), "asks", "2025-11-25"),
    "a parked call": lambda: Case(ScriptedServer(tools={"asks": _asks}), "asks", "2026-07-28"),
    "a task of 2025, polled": lambda: Case(Worker(work={"work": _works}), "work", "2025-11-25"),
    "a task of 2025, as one of ours": lambda: Case(Worker(work={"work": _works}), "work", "2026-07-28"),
    "a task of 2026, polled": lambda: Case(Worker(revision="2026-07-28", work={"work": _works}), "work", "2025-11-25"),
    "a task of 2026, passed on": lambda: Case(
        Worker(revision="2026-07-28", work={"work": _works}), "work", "2026-07-28"
    ),
}


async def _begun(world: World, case: Case) -> RawClient:
    client = RawClient(world.gateway.memory_door(), revision=case.revision, capabilities=CAN)
    await client.hello()
    async with asyncio.timeout(30):
        await case.begin(client)
    return client


def _busy(world: World) -> bool:
    return world.gateway._servers.by_name["up"].instance.busy  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("name", CASES)
async def test_a_server_is_busy_for_as_long_as_something_is_under_way_at_it(name: str) -> None:
    """Ours: one count for calls, tasks, questions and parked calls (docs/behaviour.md#reload)."""
    case = CASES[name]()
    async with a_world({"up": case.server}, entries={"up": {"era": "auto"}}) as world:
        assert not _busy(world)
        client = await _begun(world, case)
        for _ in range(20):  # Also between two looks at a task.
            assert _busy(world)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            await case.end(client)
        await until(lambda: not _busy(world))
    if isinstance(case.server, Worker):
        case.server.stop_jobs()


@pytest.mark.parametrize("name", CASES)
async def test_a_call_that_is_cancelled_gives_the_server_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: no lease outlives what it is for, but for the moment that a server may still be at a cancelled call."""
    monkeypatch.setattr("muxway.servers.attribution._LINGERS", 0.1)
    case = CASES[name]()
    async with a_world({"up": case.server}) as world:
        client = await _begun(world, case)
        if case.revision == "2025-11-25":
            client.tell("notifications/cancelled", {"requestId": case.id})
        elif "taskId" in case.shown:
            await client.ask("tasks/cancel", {"taskId": case.shown["taskId"]})
            await client.ask("tasks/get", {"taskId": case.shown["taskId"]})
        else:
            for parked in world.gateway.runtime.forwarder.services.parked:
                give_up(parked, "nobody comes")
        await until(lambda: not _busy(world))
    if isinstance(case.server, Worker):
        case.server.stop_jobs()


async def test_calls_that_run_as_tasks_end_at_the_old_process_after_a_reload() -> None:
    """Ours: calls under way end at the old one (docs/behaviour.md#reload)."""

    def config(who: str) -> Any:
        entry = {"command": sys.executable, "args": [TASK_SERVER], "env": {"WHO": who}}
        return parse_config({"mcpServers": {"up": entry}})

    async with Gateway.open(config("old")) as gateway:
        client = await World(gateway, {}).client()
        slow = client.start("tools/call", {"name": "up__slow", "arguments": {"seconds": 1.0}})
        await asyncio.sleep(0.3)
        await gateway.apply(config("new"))
        await gateway.settled()
        assert (await client.answer(slow)).result["content"][0]["text"] == "done"


async def test_a_task_is_not_put_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: idleStop counts from the end of what is under way (docs/configuration.md)."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.1)
    entry = {"command": sys.executable, "args": [TASK_SERVER], "idleStop": 0.2}
    async with Gateway.open(parse_config({"mcpServers": {"up": entry}})) as gateway:
        client = await World(gateway, {}).client()
        assert (await client.call("up__slow", {"seconds": 1.0})).result["content"][0]["text"] == "done"
        await until(lambda: str(gateway.servers()[0].status) == "sleeping")


# --- a full house -------------------------------------------------------------------------------


def _house(servers: int, **gateway: Any) -> Any:
    entries = {f"s{n}": child(start="lazy") for n in range(servers)}
    return parse_config({"mcpServers": entries, "gateway": gateway})


async def test_calls_of_more_servers_than_may_run_wait_for_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: no room is no failure; first come, first served (docs/behaviour.md#too-much-at-once)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with Gateway.open(_house(5)):
        pass  # So that each is known, and sleeps.
    async with Gateway.open(_house(5, maxProcesses=2, queueWait=30)) as gateway:
        await until(lambda: sum(server.pid is not None for server in gateway.servers()) == 0)
        results = await asyncio.gather(*(gateway.call(f"s{n}.echo", {"n": n}) for n in range(5)))
        assert [json.loads(result.text) for result in results] == [{"n": n} for n in range(5)]
        assert sum(server.pid is not None for server in gateway.servers()) <= 2


async def test_a_full_house_is_said_and_uses_up_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: refused while all are in use, with the reason; taken as soon as one is idle, however often it was tried."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with Gateway.open(_house(2)):
        pass
    async with Gateway.open(_house(2, maxProcesses=1, queueWait=0.1)) as gateway:
        slow = asyncio.ensure_future(gateway.call("s0.sleep", {"seconds": 2.0}))
        await until(lambda: gateway.servers()[0].pid is not None)
        await until(lambda: gateway.servers()[0].in_flight)
        refused: list[UpstreamError] = []
        while not slow.done():
            try:
                await gateway.call("s1.echo", {"n": 1})
            except UpstreamError as error:
                refused.append(error)
            await asyncio.sleep(0.02)
        assert len(refused) > 5
        assert {error.reason for error in refused} == {"not_running"}
        assert all("maxProcesses" in str(error) for error in refused)
        assert not any("within a minute" in str(error) for error in refused)
        assert all((error.retry_after or 0) <= 1.0 for error in refused)
        assert (await slow).raw["slept"] is True
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await gateway.call("s1.echo", {"n": 1})).text == json.dumps({"n": 1})
                    break
                except UpstreamError:
                    await asyncio.sleep(0.05)
