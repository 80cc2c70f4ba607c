"""Tasks at the processes of a server that runs once for each principal: whose they are, and how long they last."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.servers import pool
from tests.journeys.test_pool import client_of
from tests.journeys.worker import TASKS
from tests.noting import until
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway.config import Config
    from muxway.testing import RawClient

SERVER = str(Path(__file__).with_name("numbering_server.py"))
YES = {"action": "accept", "content": {}}


def a_config(who: str = "", **settings: Any) -> Config:
    servers = {"up": {"command": sys.executable, "args": [SERVER], "env": {"WHO": who}}}
    return parse_config({"mcpServers": servers, "gateway": settings})


@contextlib.asynccontextmanager
async def a_gateway(**settings: Any) -> AsyncIterator[Gateway]:
    async with asyncio.timeout(PATIENCE), Gateway.open(a_config(**settings)) as opened:
        yield opened


async def a_client(gateway: Gateway, principal: bytes) -> RawClient:
    client, _ = await client_of(gateway, principal, "2026-07-28", {"extensions": {TASKS: {}}})
    return client


async def a_task(client: RawClient, **arguments: Any) -> str:
    return (await client.call("up__work", arguments)).result["taskId"]


async def outcome(client: RawClient, task: str) -> dict[str, Any]:
    shown = (await client.ask("tasks/get", {"taskId": task})).result
    return json.loads(shown["result"]["content"][0]["text"])


async def test_tasks_of_one_name_at_two_processes_are_two() -> None:
    """docs/behaviour.md#tasks: a task is its caller's alone, whatever the server calls it."""
    async with a_gateway() as gateway:
        ann, bob = await a_client(gateway, b"ann"), await a_client(gateway, b"bob")
        of_ann = await a_task(ann, secret="ann's")
        of_bob = await a_task(bob, secret="bob's")
        assert (await outcome(ann, of_ann))["secret"] == "ann's"
        assert (await outcome(bob, of_bob))["secret"] == "bob's"
        # The end of one does not count as the end of the other.
        again = await a_task(bob, secret="bob's next")
        assert (await outcome(ann, of_ann))["secret"] == "ann's"
        assert (await outcome(bob, again))["secret"] == "bob's next"


async def test_a_process_with_a_task_under_way_makes_no_room_for_others() -> None:
    """docs/behaviour.md: where a task is under way the server is in use, also between two requests."""
    async with a_gateway(maxInstances=1) as gateway:
        await a_task(await a_client(gateway, b"ann"))
        bob, carol = await a_client(gateway, b"bob"), await a_client(gateway, b"carol")
        task = await a_task(bob, stay=True)
        error = (await carol.call("up__work", {})).error
        assert error["data"]["muxway"]["reason"] == "overloaded"
        assert (await bob.ask("tasks/get", {"taskId": task})).result["status"] == "working"


@pytest.mark.parametrize("change", ["nothing", "reload", "restart"])
async def test_the_answer_to_a_tasks_question_goes_to_the_process_that_asked(change: str) -> None:
    """docs/behaviour.md#reload: calls under way end at the old process; a new one may have a task of that name."""
    async with a_gateway(isolation="shared") as gateway:
        asked, _ = await client_of(gateway, b"ann", "2026-07-28", {"elicitation": {"form": {}}})
        bob = await a_client(gateway, b"bob")
        shown = (await asked.call("up__work", {"ask": True})).result
        if change == "reload":
            await gateway.apply(a_config("new", isolation="shared"))
            await gateway.settled()
        elif change == "restart":
            await gateway.restart("up")
        # In a new process this is its first task, too.
        of_bob = await a_task(bob, stay=True, secret="bob's")
        again = await asked.call(
            "up__work",
            {"ask": True},
            requestState=shown["requestState"],
            inputResponses=dict.fromkeys(shown["inputRequests"], YES),
        )
        if change == "restart":
            assert again.error["data"]["muxway"]["reason"] == "lost"
            assert "make the call again" in again.error["message"]
        else:
            assert json.loads(again.result["content"][0]["text"])["ask"] == "accept"
        assert (await bob.ask("tasks/get", {"taskId": of_bob})).result["status"] == "working"


async def test_a_task_is_gone_with_its_process() -> None:
    """docs/behaviour.md#tasks: a task is its caller's alone, whatever the server calls it."""
    async with a_gateway(isolation="shared") as gateway:
        ann, bob = await a_client(gateway, b"ann"), await a_client(gateway, b"bob")
        of_ann = await a_task(ann, secret="ann's")
        await gateway.restart("up")
        await a_task(bob, secret="bob's")
        assert "Unknown task" in (await ann.ask("tasks/get", {"taskId": of_ann})).error["message"]


async def test_nothing_is_kept_of_a_process_whose_tasks_nobody_asks_after() -> None:
    """Ours: names of tasks are kept for long, processes come and go."""
    async with a_gateway(isolation="shared") as gateway:
        ann = await a_client(gateway, b"ann")
        await a_task(ann)
        link = ref(gateway._servers.by_name["up"].connection)  # type: ignore[arg-type]  # pyright: ignore[reportPrivateUsage]
        await gateway.restart("up")
        await a_task(ann)

        def gone() -> bool:
            gc.collect()
            return link() is None

        await until(gone)


async def test_a_connection_of_its_own_lasts_as_long_as_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that nobody uses is ended; between two looks at a task nothing is under way on it."""
    monkeypatch.setattr(pool, "_SWEEP", 0.1)
    script = str(Path(__file__).with_name("task_server.py"))
    server = {"command": sys.executable, "args": [script], "isolation": "session"}
    config = parse_config({"mcpServers": {"up": server}, "gateway": {"instanceIdle": 0.3}})
    async with Gateway.open(config) as gateway:
        client, _ = await client_of(gateway)
        assert (await client.call("up__slow", {"seconds": 1.5})).result["content"][0]["text"] == "done"
