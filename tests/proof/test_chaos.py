"""Many calls of many clients to real processes that are killed, stopped, and talk nonsense: none crossed, none lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import parse_config

from ..conftest import REVISIONS
from ..process.conftest import open_fds
from ..stdio.harness import until
from .processes import entry, none_left, swept

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from muxway.clients.transports.memory import MemoryClientTransport

TOUCHED = {name: REVISIONS[number % 5] for number, name in enumerate("abcdefgh")}
UNTOUCHED = {"x": "2025-11-25", "y": "2026-07-28"}
CLIENTS = 10
IN_FLIGHT = 4
"""Calls that each client has under way at a time."""
MODERN = "2026-07-28"
PATIENCE = 30.0


class Caller:
    """A client that judges whatever it gets. Its ids count from 1, as those of all others do."""

    def __init__(self, door: MemoryClientTransport, revision: str, wrong: list[str]) -> None:
        self.revision, self.wrong = revision, wrong
        self._door = door
        self._last = 0
        self._open: dict[int, tuple[str, asyncio.Future[str]]] = {}

    async def hear(self) -> None:
        """Take every line there is: an outcome for a call that is open here, with its own token, or it is wrong."""
        while True:
            message = json.loads(await self._door.receive())
            if message.get("method") == "notifications/progress":
                if message["params"]["progressToken"] not in self._open:
                    self.wrong.append(f"progress of nothing: {message}")
            elif "method" not in message:
                self._outcome(message)

    def _outcome(self, message: dict[str, Any]) -> None:
        token, outcome = self._open.pop(message["id"], ("", None))
        if outcome is None:
            self.wrong.append(f"an outcome of nothing: {message}")
        elif "error" in message:
            outcome.set_result(message["error"]["data"]["muxway"]["reason"] if _ours(message) else "error")
        elif message["id"] and message["result"].get("content", [{}])[0].get("text") not in (token, None):
            self.wrong.append(f"crossed: {message} for {token}")
            outcome.set_result("crossed")
        else:
            outcome.set_result("ok")

    async def ask(self, method: str, params: dict[str, Any], token: str = "") -> str:
        """One request; what came of it in a word. What gets no outcome at all is `unanswered`."""
        self._last += 1
        id_ = self._last
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[id_] = (token, outcome)
        meta: dict[str, Any] = {"progressToken": id_} if token else {}
        if self.revision == MODERN:
            meta["io.modelcontextprotocol/protocolVersion"] = MODERN
            meta["io.modelcontextprotocol/clientCapabilities"] = {}
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, "_meta": meta}}
        self._door.send(json.dumps(message).encode())
        try:
            return await asyncio.wait_for(outcome, PATIENCE)
        except TimeoutError:
            return "unanswered"

    async def hello(self) -> None:
        if self.revision != MODERN:
            info = {"name": "caller", "version": "1"}
            greeting = {"protocolVersion": self.revision, "capabilities": {}, "clientInfo": info}
            assert await self.ask("initialize", greeting) == "ok"
            self._door.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def leave(self) -> None:
        await self._door.close(0)


def _ours(message: dict[str, Any]) -> bool:
    return "muxway" in (message["error"].get("data") or {})


class Chaos:
    """A gateway in front of real processes, its clients, and somebody who hurts the processes."""

    def __init__(self, gateway: Gateway, mark: str) -> None:
        self.gateway, self.mark = gateway, mark
        self.wrong: list[str] = []
        self.outcomes: dict[str, Counter[str]] = {name: Counter() for name in (*TOUCHED, *UNTOUCHED)}
        self.hurt: Counter[str] = Counter()
        self._dice = random.Random(6)
        self._left = 0

    async def call(self, calls: int, pace: float) -> None:
        """Make so many calls, spread over clients and servers; every `pace` seconds or so a server is hurt."""
        self._left = calls
        callers = [Caller(self.gateway.memory_door(), REVISIONS[n % 5], self.wrong) for n in range(CLIENTS)]
        hearing = [asyncio.create_task(caller.hear()) for caller in callers]
        nemesis = asyncio.create_task(self._nemesis(pace))
        try:
            for caller in callers:
                await caller.hello()
            await asyncio.gather(*(self._work(caller) for caller in callers for _ in range(IN_FLIGHT)))
        finally:
            for caller in callers:
                await caller.leave()
            for task in (nemesis, *hearing):
                task.cancel()
            await asyncio.gather(nemesis, *hearing, return_exceptions=True)
        assert all(task.cancelled() for task in (nemesis, *hearing)), "a client or the nemesis broke"

    async def _work(self, caller: Caller) -> None:
        while self._left > 0:
            self._left -= 1
            name = self._dice.choice(list(self.outcomes))
            arguments = {"token": f"{self._left} of {name}", "ms": self._dice.choice([0, 1, 5, 20, 50, 100])}
            params = {"name": f"{name}__work", "arguments": arguments}
            outcome = await caller.ask("tools/call", params, arguments["token"])
            self.outcomes[name][outcome] += 1
            if outcome != "ok":
                # Calls to a server that is down fail at once; without a pause they would be most of all calls.
                await asyncio.sleep(0.05)

    async def _nemesis(self, pace: float) -> None:
        for kill in itertools.cycle((True, False)):
            await asyncio.sleep(self._dice.uniform(0.2, 1.8) * pace)
            victims = [server.pid for server in self.gateway.servers() if server.name in TOUCHED and server.pid]
            if not victims:
                continue
            pid = self._dice.choice(victims)
            with contextlib.suppress(ProcessLookupError):
                if kill:
                    os.kill(pid, signal.SIGKILL)
                    self.hurt["killed"] += 1
                else:
                    os.kill(pid, signal.SIGSTOP)
                    self.hurt["stopped"] += 1
                    await asyncio.sleep(self._dice.uniform(0.05, 0.3))
                    os.kill(pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def chaos(mark: str) -> AsyncIterator[Chaos]:
    servers = {name: entry(mark, revision, "untidy") for name, revision in {**TOUCHED, **UNTOUCHED}.items()}
    with swept(mark):
        async with Gateway.open(parse_config({"mcpServers": servers})) as gateway:
            await gateway.settled()
            yield Chaos(gateway, mark)
        await none_left(mark, 2.0)


@pytest.mark.parametrize(
    ("calls", "pace"),
    [(5_000, 0.25), pytest.param(100_000, 1.5, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
async def test_calls_under_chaos_are_neither_crossed_nor_lost(calls: int, pace: float, tmp_path: Path) -> None:
    """docs/behaviour.md#under-all-of-it.

    10^5 calls under chaos, 0 crossed, 0 lost; one bad server is one bad server.
    """
    began = time.monotonic()
    async with chaos(str(tmp_path)) as storm:
        tasks, files = len(asyncio.all_tasks()), open_fds()
        await storm.call(calls, pace)
        # Servers that are being started again have a few more for a while.
        await until(lambda: len(asyncio.all_tasks()) <= tasks and open_fds() <= files, PATIENCE)
    total = sum(storm.outcomes.values(), Counter())
    print(f"{calls} calls in {time.monotonic() - began:.1f} s: {dict(total)}; {dict(storm.hurt)}")  # noqa: T201
    assert storm.wrong == []
    assert total.total() == calls
    assert total["unanswered"] == total["crossed"] == 0
    assert {name: set(storm.outcomes[name]) for name in UNTOUCHED} == {name: {"ok"} for name in UNTOUCHED}
    assert all(storm.outcomes[name]["ok"] for name in TOUCHED)
    assert storm.hurt["killed"]
    assert storm.hurt["stopped"]
