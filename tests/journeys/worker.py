"""A scripted server that runs its tools as tasks, in the way of its revision."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muxway.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@dataclass(eq=False)
class Job:
    """One task. Its script says how it goes."""

    server: Worker
    id: str
    status: str = "working"
    message: str | None = None
    outcome: dict[str, Any] = field(default_factory=dict[str, Any])
    """`result` or `error`, once it is over."""
    asked: dict[str, Any] = field(default_factory=dict[str, Any])
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def done(self, text: str, *, is_error: bool = False) -> None:
        """It is completed."""
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if is_error:
            result["isError"] = True
        failed = is_error and not self.server.stateless
        await self.end("failed" if failed else "completed", {"result": result})

    async def failed(self, code: int, message: str) -> None:
        """It failed with a JSON-RPC error."""
        await self.end("failed", {"error": {"code": code, "message": message}})

    async def end(self, status: str, outcome: dict[str, Any]) -> None:
        """It is over."""
        async with self.changed:
            self.status, self.outcome = status, outcome
            self.changed.notify_all()

    async def ask(self, key: str, method: str, params: dict[str, Any], *, related: bool = True) -> dict[str, Any]:
        """Ask the caller; returns the answer's result, or the whole answer if that is an error."""
        self.status = "input_required"
        if self.server.stateless:
            self.asked[key] = {"method": method, "params": params}
            async with self.changed:
                await self.changed.wait_for(lambda: key in self.answers)
            answer = self.answers[key]
        else:
            await self.fetched.wait()
            meta = {"_meta": {RELATED: {"taskId": self.id}}} if related else {}
            whole = await self.server.ask(method, {**params, **meta})
            answer = whole.get("result", whole)
        self.status = "working"
        return answer

    def shown(self) -> dict[str, Any]:
        dates = {"createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": "2026-07-28T10:00:00Z"}
        ttl, interval = ("ttlMs", "pollIntervalMs") if self.server.stateless else ("ttl", "pollInterval")
        times = {**dates, ttl: 60000, interval: self.server.interval}
        message = {} if self.message is None else {"statusMessage": self.message}
        return {"taskId": self.id, "status": self.status, **times, **message}


@dataclass
class Worker(ScriptedServer):
    """`work` maps tools to scripts of jobs; other tools are as ever."""

    work: dict[str, Callable[[Job], Awaitable[None]]] = field(default_factory=dict[str, Any])
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    interval: int = 20
    """What it says about how often to ask, in milliseconds."""
    think: float = 0
    """Seconds it takes to answer how a task is."""
    thinking: int = 0
    """How many such answers it owes."""
    create: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless a test wants the making of a task to take time."""
    _numbers: Any = field(default_factory=itertools.count, repr=False)
    _running: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], repr=False)

    def __post_init__(self) -> None:
        self.create.set()
        required = {} if self.stateless else {"execution": {"taskSupport": "required"}}
        self.definitions = [
            *({"name": name, "inputSchema": {"type": "object"}} for name in self.tools),
            *({"name": name, "inputSchema": {"type": "object"}, **required} for name in self.work),
        ]

    @property
    def stateless(self) -> bool:
        return self.revision == "2026-07-28"

    def said(self, method: str) -> list[dict[str, Any]]:
        """The params of every message of this method."""
        return [message.get("params", {}) for message in self.heard if message.get("method") == method]

    async def heard_soon(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        async with asyncio.timeout(30):
            while len(self.said(method)) < count:
                await asyncio.sleep(0.01)
        return self.said(method)

    def stop_jobs(self) -> None:
        for task in self._running:
            task.cancel()

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        method, params = message.get("method", ""), message.get("params", {})
        if method in self.silent:
            return
        if method == "tools/call" and params["name"] in self.work:
            await self.create.wait()
            self._create(message)
        elif method.startswith("tasks/") and "id" in message:
            job = self.jobs.get(params["taskId"])
            if job is None:
                self.fail(message, -32602, f"there is no task {params['taskId']}")
            else:
                await self._about(job, method.removeprefix("tasks/"), message)
        else:
            await super()._handle(message, line)

    def _create(self, message: dict[str, Any]) -> None:
        params = message["params"]
        if not self.stateless and "task" not in params:
            self.fail(message, -32601, "this tool must be run as a task")
            return
        if self.stateless and TASKS not in params["_meta"][_CAPABILITIES].get("extensions", {}):
            needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            self.fail(message, -32021, "this tool must be run as a task", needed)
            return
        job = Job(self, f"native-{next(self._numbers)}")
        self.jobs[job.id] = job
        self.reply(message, {"resultType": "task", **job.shown()} if self.stateless else {"task": job.shown()})
        task = asyncio.ensure_future(self.work[params["name"]](job))
        self._running.add(task)

    async def _about(self, job: Job, verb: str, message: dict[str, Any]) -> None:
        if verb == "get":
            self.thinking += 1
            await asyncio.sleep(self.think)
            self.thinking -= 1
            more = {**job.outcome, **({"inputRequests": job.asked} if job.status == "input_required" else {})}
            self.reply(message, {**job.shown(), **(more if self.stateless else {})})
        elif verb == "cancel":
            job.status = "cancelled"
            self.reply(message, {} if self.stateless else job.shown())
        elif verb == "update" and self.stateless:
            async with job.changed:
                job.answers.update(message["params"]["inputResponses"])
                job.changed.notify_all()
            self.reply(message, {})
        elif verb == "result" and not self.stateless:
            job.fetched.set()
            async with job.changed:
                await job.changed.wait_for(lambda: job.outcome)
            if "error" in job.outcome:
                self.fail(message, job.outcome["error"]["code"], job.outcome["error"]["message"])
            else:
                self.reply(message, {**job.outcome["result"], "_meta": {RELATED: {"taskId": job.id}, "mine": 1}})
        else:
            self.fail(message, -32601, f"no method tasks/{verb}")
