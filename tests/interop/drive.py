"""Runs the foreign clients: each in its own environment, with one plan in and one report out.

A client that hangs is killed with everything it started, and its stderr becomes the failure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from . import peers

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

MODERN = "2026-07-28"
NEWEST_HANDSHAKE = "2025-11-25"

LIST_SECONDS = 40
"""Longest wait for the expected tools to be listed."""
CLIENT_SECONDS = 80
"""Longest run of one client; below pytest's own limit, so that its stderr gets into the report."""


@dataclass(frozen=True)
class Client:
    """A foreign SDK in one of its modes; for Python SDK 1.x a mode may be an older handshake revision."""

    script: str
    mode: str = "legacy"

    @property
    def name(self) -> str:
        return f"{self.script}-{self.mode}"

    @property
    def is_modern(self) -> bool:
        """Whether it speaks 2026-07-28 to a gateway, which serves both eras."""
        return self.mode in ("auto", MODERN)

    @property
    def can_cancel(self) -> bool:
        """Python SDK 1.x has no call for it."""
        return self.script != "python1"

    @property
    def for_direct_use(self) -> Client:
        """Itself, or what comes nearest to it: a pinned client cannot talk to a handshake-only server."""
        return Client(self.script, "auto") if self.is_modern else self

    def command(self, kind: str = "") -> list[str]:
        """What runs it; with the kind `asking_` it also answers the questions of servers."""
        script = str(peers.HERE / "clients" / f"{kind}{self.script}")
        if self.script.startswith("python"):
            return [peers.python(f"mcp{self.script[-1]}"), f"{script}.py"]
        peers.ensure("node")
        return [str(peers.NODE), f"{script}.mjs"]


LEGACY_CLIENTS = [Client("python1"), Client("python2"), Client("typescript1"), Client("typescript2")]
MODERN_CLIENTS = [
    Client("python2", "auto"),
    Client("python2", MODERN),
    Client("typescript2", "auto"),
    Client("typescript2", MODERN),
]
CLIENTS = LEGACY_CLIENTS + MODERN_CLIENTS
PROBE = CLIENTS[0]
"""The client whose direct visits say which tools there are."""


@dataclass(frozen=True)
class Server:
    """A command that speaks MCP on its stdin and stdout."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)

    def tapped(self, directory: Path) -> Server:
        """The same server, with every line of the conversation kept in `directory` (see `tap.py`)."""
        return Server([*peers.PYTHON, str(peers.HERE / "tap.py"), str(directory), *self.command], self.env)


@dataclass(frozen=True)
class Site:
    """A URL at which MCP is spoken."""

    url: str
    transport: str = "http"
    """`http` or `sse`."""
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(frozen=True)
class Line:
    """One message as it crossed a tapped pipe."""

    to_server: bool
    message: dict[str, Any]

    @property
    def method(self) -> str | None:
        return self.message.get("method")


def read_wire(directory: Path) -> list[Line]:
    """Everything the taps in `directory` heard, each process's own conversation in order."""
    return [
        Line(line.startswith(b"> "), json.loads(line[2:]))
        for file in sorted(directory.iterdir())
        for line in file.read_bytes().splitlines()
    ]


@dataclass(frozen=True)
class Call:
    """One step of a plan: call a tool, perhaps listen to its progress, perhaps cancel at the first of it."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    progress: bool = False
    cancel: bool = False

    def under(self, prefix: str) -> Call:
        """The same call to the tool's public name."""
        return replace(self, name=prefix + self.name)


@dataclass(frozen=True)
class Outcome:
    """What the SDK gave its user for one call: exactly one of result, error and cancelled is set."""

    progress: list[dict[str, Any]]
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    cancelled: bool = False

    @property
    def text(self) -> str:
        """The text of the first content block."""
        assert self.result is not None, self
        return self.result["content"][0]["text"]


@dataclass(frozen=True)
class Report:
    """What one client saw of one server."""

    version: str
    tools: list[dict[str, Any]]
    calls: list[Outcome]

    @property
    def names(self) -> list[str]:
        return [tool["name"] for tool in self.tools]


@dataclass(frozen=True)
class Step:
    """One act of a client that answers questions, perhaps repeated until all the expected names are listed,
    perhaps followed by waiting for a notice."""

    act: str
    arguments: dict[str, Any] = field(default_factory=dict)
    expect: list[str] = field(default_factory=list)
    until: str = ""
    seconds: float = 10
    """Longest time for all of it."""

    @property
    def plan(self) -> dict[str, Any]:
        """As the client reads it: without what is empty."""
        return {key: value for key, value in asdict(self).items() if value or key == "arguments"}


@dataclass(frozen=True)
class Taken:
    """What came of a step, and what the client heard in the meantime: questions, logs, progress, notices."""

    heard: list[dict[str, Any]]
    result: Any = None
    error: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of the first content block."""
        assert self.error is None, self.error
        return self.result["content"][0]["text"]

    def of(self, method: str) -> list[dict[str, Any]]:
        """The params of what it heard of this method."""
        return [message.get("params") for message in self.heard if message["method"] == method]


def once_each(visit: Callable[[K], T]) -> Callable[[K], T]:
    """Let each client make the visit once, and remember a failed one too: repeating it costs a timeout every time."""
    made: dict[K, Future[T]] = {}

    def remembered(client: K) -> T:
        if client not in made:
            made[client] = future = Future()
            try:
                future.set_result(visit(client))
            except Exception as error:  # noqa: BLE001 - raised again below, to every test that asks
                future.set_exception(error)
        return made[client].result()

    return remembered


def run(
    client: Client, server: Server | Site, calls: list[Call] | None = None, expect: list[str] | None = None
) -> Report:
    """Connect, list the tools until all the expected ones are there, make the calls one after another."""
    report = json.loads(execute(command(client, server, calls, expect)))
    return Report(report["protocolVersion"], report["tools"], [Outcome(**call) for call in report["calls"]])


def command(
    client: Client, server: Server | Site, calls: list[Call] | None = None, expect: list[str] | None = None
) -> list[str]:
    """The command that runs this client with this plan."""
    plan = place(server) | {
        "mode": client.mode,
        "expect": expect or [],
        "seconds": LIST_SECONDS,
        "calls": [asdict(call) for call in calls or []],
        "modules": str(peers.ENVS / "node"),
    }
    return [*client.command(), json.dumps(plan)]


def place(server: Server | Site) -> dict[str, Any]:
    """Where a plan leads."""
    return asdict(server) | ({"headers": server.headers} if isinstance(server, Site) else {})


def walk(client: Client, server: Server | Site, steps: list[Step], level: str = "info") -> tuple[str, list[Taken]]:
    """Let a client that answers questions take these steps; give the revision it spoke and what came of each."""
    plan = place(server) | {
        "mode": client.mode,
        "level": level,
        "steps": [step.plan for step in steps],
        "modules": str(peers.ENVS / "node"),
    }
    report = json.loads(execute([*client.command("asking_"), json.dumps(plan)]))
    return report["protocolVersion"], [Taken(**step) for step in report["steps"]]


def inspect(server: Server | Site, *arguments: str) -> dict[str, Any]:
    """Run Inspector's command line once against the server and give the JSON it prints."""
    return json.loads(execute(inspector(server, *arguments)))


def inspector(server: Server | Site, *arguments: str) -> list[str]:
    """The command that runs Inspector's command line against the server."""
    start = [*peers.node_script("@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli"]
    if isinstance(server, Site):
        headers = [part for key, value in server.headers.items() for part in ("--header", f"{key}: {value}")]
        return [*start, server.url, "--transport", server.transport, *arguments, *headers]
    settings = [part for key, value in server.env.items() for part in ("-e", f"{key}={value}")]
    return [*start, *settings, *arguments, "--", *server.command]


def execute(command: list[str]) -> str:
    """Run a program to its end and give its stdout; anything but success fails with its stderr."""
    done = finish(command)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def finish(command: list[str], seconds: float = CLIENT_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, however it ends."""
    # Nobody but the server on loopback is to be asked, and nothing is to be left in the user's home.
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with tempfile.TemporaryDirectory() as kept:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environ | {"MCP_STORAGE_DIR": kept},
        )
        with process:
            try:
                stdout, stderr = process.communicate(timeout=seconds)
            except BaseException:
                # Whatever it started and moved to another group ends when its stdin closes.
                os.killpg(process.pid, signal.SIGKILL)
                raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
