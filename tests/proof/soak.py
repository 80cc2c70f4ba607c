"""`python -m tests.proof.soak SECONDS`: muxway under a steady load while a nemesis hurts its servers and clients.

Six servers on pipes and two by URL, twenty clients of both eras, twenty calls a second. Half of the servers are never
touched: their calls must all succeed. At the end it prints what happened, and exits with 1 if a bar is broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..process.conftest import open_fds
from ..reload.harness import serve
from ..remote.scripted import Remote, reply, serving
from ..serve.harness import MODERN, modern
from .processes import entry, marked, swept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from ..reload.harness import Served
    from ..serve.harness import Client, Opened

CHILDREN = {
    **{f"kept{number}": ("2025-11-25", MODERN, "2024-11-05")[number] for number in range(3)},
    **{f"hurt{number}": ("2025-11-25", MODERN, "2025-06-18")[number] for number in range(3)},
}
REMOTES = {"keptfar": "handshake", "hurtfar": "stateless"}
CLIENTS = 20
RATE = 20.0
PATIENCE = 90.0
"""Longer than any time-out of the gateway: who waits so long has been forgotten."""
TURN = 0.05
"""Seconds of processor time that a turn of the loop may take."""
SLOPE = 1.0
"""MiB an hour that memory may grow after the first quarter of half an hour or more."""
GROWTH = 24.0
"""MiB that it may grow in a shorter run, in which 5 MB results are still finding the high-water mark."""
JUDGED_SLOPE = 1800
EXIT = 9.0
MIB = 1 << 20


class FarServer(Remote):
    """A server by URL that can be dropped: connections break off, and new ones too, for as long as `down`."""

    down = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.clear()
        if self.down and request.transport is not None:
            request.transport.abort()
        return await super().handle(request)


async def _work(_: Remote, __: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    arguments = message["params"]["arguments"]
    await asyncio.sleep(arguments.get("ms", 0) / 1000)
    padding = [{"type": "text", "text": "x" * arguments["size"]}] if "size" in arguments else []
    return reply(message, {"content": [{"type": "text", "text": arguments["token"]}, *padding]})


@dataclass
class Caller:
    """A client: a session, or nothing but a name for stateless requests. One call at a time."""

    served: Served
    client: Client | None
    opened: Opened | None = None
    leaving: bool = False

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The whole answer to a call, however it comes."""
        params = {"name": name, "arguments": arguments}
        if self.client is None:
            self.opened = await self.served.web.open_post(*modern("tools/call", params))
        else:
            self.opened = await self.client.start("tools/call", params)
        try:
            if self.opened.headers.get("content-type") != "text/event-stream":
                return json.loads(await self.opened.rest())
            while "id" not in (message := await self.opened.message()):
                pass
            return message
        finally:
            self.opened.writer.close()
            self.opened = None


@dataclass
class Sample:
    """The gateway at one moment."""

    at: float
    rss: float
    fds: int
    threads: int
    children: int


@dataclass
class Soak:
    """The load, the nemesis and what came of it."""

    served: Served
    mark: str
    config: dict[str, Any]
    far: dict[str, FarServer]
    seconds: float
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _servers()})
    wrong: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    _idle: list[Caller] = field(default_factory=list)
    _calls: set[asyncio.Task[None]] = field(default_factory=set)
    _dice: random.Random = field(default_factory=lambda: random.Random(6))
    _number: int = 0

    async def run(self) -> None:
        self.callers = [await self._join(number) for number in range(CLIENTS)]
        self._idle = list(self.callers)
        end = time.monotonic() + self.seconds
        nemesis = asyncio.create_task(self._nemesis())
        watching = asyncio.create_task(self._watch())
        try:
            while time.monotonic() < end:
                if nemesis.done() or watching.done():
                    break
                if self._idle:
                    self._start(self._dice.choice(list(self.outcomes)), "work", ms=self._dice.choice([0, 5, 50, 200]))
                await asyncio.sleep(1 / RATE)
        finally:
            nemesis.cancel()
            watching.cancel()
            ended = await asyncio.gather(nemesis, watching, return_exceptions=True)
            self.wrong += [f"the nemesis broke: {error!r}" for error in ended if isinstance(error, Exception)]
            await asyncio.gather(*self._calls)

    async def _join(self, number: int) -> Caller:
        return Caller(self.served, await self.served.web.session() if number % 2 else None)

    def _start(self, server: str, tool: str, **arguments: Any) -> None:
        call = asyncio.create_task(self._call(self._idle.pop(0), server, tool, arguments))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, caller: Caller, server: str, tool: str, arguments: dict[str, Any]) -> None:
        self._number += 1
        token = f"{self._number} for {server}"
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await caller.call(f"{server}__{tool}", {"token": token, **arguments})
        except TimeoutError:
            self.outcomes[server]["unanswered"] += 1
        except (OSError, asyncio.IncompleteReadError, AssertionError, ValueError) as error:
            if not caller.leaving:
                self.outcomes[server][f"broken off: {error!r}"] += 1
        else:
            self.outcomes[server][self._judged(token, answer)] += 1
        if caller.leaving:
            caller.leaving = False
            if caller.client is not None:
                caller.client = await self.served.web.session()
        self._idle.append(caller)

    def _judged(self, token: str, answer: dict[str, Any]) -> str:
        if "error" in answer:
            return str((answer["error"].get("data") or {}).get("muxway", {}).get("reason", answer["error"]["message"]))
        said = answer["result"]["content"][0]["text"]
        if said != token:
            self.wrong.append(f"crossed: {said!r} for {token!r}")
            return "crossed"
        return "ok"

    # --- the nemesis --------------------------------------------------------------------------

    async def _nemesis(self) -> None:
        """Something bad every 2 to 30 seconds; in a short run more often, so that all of it happens."""
        acts = [self._kill, self._freeze, self._drop, self._leave, self._reload, self._big, self._burst]
        longest = min(30.0, max(3.0, self.seconds / 20))
        while True:
            self._dice.shuffle(acts)
            for act in acts:
                await asyncio.sleep(self._dice.uniform(2, longest))
                await act()
                self.done[act.__name__[1:]] += 1

    def _victim(self) -> int | None:
        pids = marked(f"{self.mark}-hurt")
        return self._dice.choice(pids) if pids else None

    async def _kill(self) -> None:
        if (pid := self._victim()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _freeze(self) -> None:
        if (pid := self._victim()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(self._dice.uniform(0.2, 5))
                os.kill(pid, signal.SIGCONT)

    async def _drop(self) -> None:
        self.far["hurtfar"].down = True
        await asyncio.sleep(self._dice.uniform(0.2, 5))
        self.far["hurtfar"].down = False

    async def _leave(self) -> None:
        """A client breaks off in the middle of a call, to a server that is not to suffer."""
        if self._idle:
            leaver = self._idle[0]
            self._start("kept0", "work", ms=2000)
            await asyncio.sleep(0.3)
            if leaver.opened is not None:
                leaver.leaving = True
                leaver.opened.drop()

    async def _reload(self) -> None:
        """One of the servers is started with other arguments, the rest stay as they are."""
        self.config["mcpServers"]["hurt2"]["args"].append(f"version{self._number}")
        self.served.write(self.config)
        self.served.hang_up()

    async def _big(self) -> None:
        if self._idle:
            self._start(self._dice.choice(["kept1", "keptfar", "hurt0"]), "big", size=5_000_000)

    async def _burst(self) -> None:
        if self._idle:
            self._start(self._dice.choice(["kept2", "hurt1"]), "burst", count=2000)

    # --- what it costs ------------------------------------------------------------------------

    async def _watch(self) -> None:
        began = time.monotonic()
        while True:
            self.samples.append(self.sample(time.monotonic() - began))
            await asyncio.sleep(1)

    def sample(self, at: float = 0.0) -> Sample:
        """The gateway now."""
        pid = self.served.process.pid
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return Sample(
            at,
            rss=int(status["VmRSS"].split()[0]) * 1024 / MIB,
            fds=open_fds(pid),
            threads=int(status["Threads"]),
            children=len(marked(f"{self.mark}-kept")) + len(marked(f"{self.mark}-hurt")),
        )

    def slope(self) -> float:
        """MiB an hour, after the first quarter."""
        later = [sample for sample in self.samples if sample.at >= self.seconds / 4]
        return statistics.linear_regression([one.at for one in later], [one.rss for one in later]).slope * 3600

    def growth(self) -> float:
        """MiB between the second quarter's and the last quarter's middle."""

        def middle(first: float, last: float) -> float:
            part = [one.rss for one in self.samples if first <= one.at / self.seconds <= last]
            return statistics.median(part)

        return middle(0.75, 1.1) - middle(0.25, 0.5)


def _servers() -> Iterator[str]:
    yield from CHILDREN
    yield from REMOTES


def _kind(name: str) -> str:
    return "hurt" if name.startswith("hurt") else "kept"


async def soak(seconds: float, folder: Path) -> int:
    """Run it. Returns the exit code."""
    mark = folder.name
    far = {name: FarServer(era=era, calls={"work": _work, "big": _work}) for name, era in REMOTES.items()}
    with swept(f"{mark}-kept"), swept(f"{mark}-hurt"):
        async with contextlib.AsyncExitStack() as stack:
            urls = {name: {"url": await stack.enter_async_context(serving(remote))} for name, remote in far.items()}
            # The untidy ones double answers and say junk; that is to harm nobody.
            children = {name: entry(f"{mark}-{_kind(name)}", revision, "untidy") for name, revision in CHILDREN.items()}
            config = {"mcpServers": {**children, **urls}}
            served = await stack.enter_async_context(serve(folder, config))
            storm = Soak(served, mark, config, far, seconds)
            before = storm.sample()
            await storm.run()
            served.web.close()
            after = await _quiet(storm, before)
            turn = await _longest_turn(served.process.pid, folder)
            began = time.monotonic()
            served.process.terminate()
            await asyncio.wait_for(served.process.wait(), PATIENCE)
            took = time.monotonic() - began
            left = [*marked(f"{mark}-kept"), *marked(f"{mark}-hurt")]
            return report(storm, before, after, took, left, turn)


async def _longest_turn(pid: int, folder: Path) -> float:
    """Seconds of processor time for which the event loop of the gateway was busy without a break."""
    command = (sys.executable, "-m", "muxway", "status", "--json", "--pid", str(pid))
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "run")}
    status = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
    said, _ = await asyncio.wait_for(status.communicate(), PATIENCE)
    return json.loads(said)["longestTurn"]


async def _quiet(storm: Soak, before: Sample) -> Sample:
    """How it is once nobody calls any more, and servers that were hurt have had the time to come back."""
    end = time.monotonic() + PATIENCE
    while True:
        await asyncio.sleep(1)
        now = storm.sample()
        if (now.children >= before.children and now.fds <= before.fds + 5) or time.monotonic() > end:
            return now


def report(storm: Soak, before: Sample, after: Sample, took: float, left: list[int], turn: float) -> int:
    """Print what happened; 1 if a bar is broken."""
    total = {kind: Counter[str]() for kind in ("kept", "hurt")}
    for name, outcomes in storm.outcomes.items():
        total[_kind(name)] += outcomes
    restarts = storm.served.times("server ready") - len(storm.outcomes)
    print(
        f"{storm.seconds:.0f} s, {sum(count.total() for count in total.values())} calls; done to it: {dict(storm.done)}"
    )
    for kind, word in (("kept", "untouched"), ("hurt", "touched")):
        count = total[kind]
        print(
            f"  {word} servers: {count['ok']} of {count.total()} ok ({count['ok'] / count.total():.2%}) {dict(count)}"
        )
    print(f"  started again, by itself or by a reload: {restarts}")
    print(f"  memory: {before.rss:.1f} MiB at first, {after.rss:.1f} at last, slope {storm.slope():+.1f} MiB/h")
    for what in ("fds", "threads", "children"):
        print(f"  {what}: {getattr(before, what)} at first, {getattr(after, what)} at last")
    print(f"  longest turn of the loop: {turn * 1000:.1f} ms")
    print(f"  ended {took:.1f} s after SIGTERM, {len(left)} processes left")
    broken = [*storm.wrong[:10]]
    if total["kept"]["ok"] != total["kept"].total():
        broken.append("calls to untouched servers failed")
    if any(count["unanswered"] or count["crossed"] for count in total.values()):
        broken.append("calls were crossed or never answered")
    if storm.seconds >= JUDGED_SLOPE and storm.slope() > SLOPE:
        broken.append(f"memory grows by more than {SLOPE} MiB/h")
    if storm.seconds < JUDGED_SLOPE and storm.growth() > GROWTH:
        broken.append(f"memory has grown by {storm.growth():.1f} MiB, more than {GROWTH}")
    if abs(after.fds - before.fds) > 5:
        broken.append("file descriptors are not what they were")
    if after.children != before.children:
        broken.append("children are not what they were")
    if turn > TURN:
        broken.append(f"a turn of the loop took {turn * 1000:.1f} ms, more than {TURN * 1000:g}")
    if took > EXIT or left:
        broken.append("it did not end well")
    for what in broken:
        print(f"BROKEN: {what}")
    return 1 if broken else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="muxway-soak-") as scratch:
        code = asyncio.run(soak(float(sys.argv[1]), Path(scratch)))
        if code:
            print((Path(scratch) / "stderr.log").read_text(errors="replace")[-4000:], file=sys.stderr)
    sys.exit(code)
