"""What is measured: muxway, its peers from the registry, and the server without a gateway.

Each peer lives in an environment of its own under `.bench/`, made from the hashes in `requirements/bench-<peer>.txt`
the first time it is needed and again when that file changes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.process import Running, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".bench"
HERE = Path(__file__).resolve().parent

Servers = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """One column of the comparison."""

    name: str
    command: Callable[[Path], list[str]]
    """How to start it with this configuration file."""
    shape: Callable[[Servers], dict[str, Any]] = field(default=lambda servers: {"mcpServers": servers})
    """How its configuration file lists servers."""
    peer: bool = False
    """Whether it has an environment of its own to set up."""
    env: dict[str, str] = field(default_factory=dict)
    calls_only: bool = False
    """Whether only its calls compare: it is no gateway."""

    def prepare(self) -> None:
        """Make the peer's environment if it is not there yet."""
        if self.peer:
            install(self.name)

    def start(self, label: str, children: int = 1, *options: str) -> Running:
        """Start it in front of so many echo servers with these options; `label` names its files under `.bench/`."""
        entry = {"command": sys.executable, "args": echo_command(options)[1:]}
        servers = {"echo": entry} if children == 1 else {f"s{n:02}": entry for n in range(children)}
        config, log = (scratch(f"{self.name}-{label}.{suffix}") for suffix in ("json", "log"))
        config.write_text(json.dumps(self.shape(servers), indent=1))
        # What an earlier run left in a cache is not part of what is measured.
        env = {**self.env, "XDG_CACHE_HOME": tempfile.mkdtemp(dir=scratch(""))}
        try:
            return Running(self.name, self.command(config), env, log)
        except OSError as error:
            raise TargetError(f"{self.name} cannot be started: {error}") from None


class Direct:
    """The echo servers with no gateway in front of them."""

    name = "direct"
    calls_only = False

    def prepare(self) -> None:
        """Nothing to set up."""

    def start(self, label: str, _children: int = 1, *options: str) -> Running:
        """Start one echo server with these options; a caller that wants many starts many."""
        return Running(self.name, echo_command(options), {}, scratch(f"direct-{label}.log"))


def echo_command(options: Sequence[str]) -> list[str]:
    """The command line of the echo server; `-I -S` because the less it imports, the less of a start is its own."""
    return [sys.executable, "-I", "-S", str(HERE / "echo_server.py"), *options]


def scratch(name: str) -> Path:
    """A place for one file of a run."""
    folder = WORK / "run"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def install(peer: str) -> None:
    """Create `.bench/<peer>` from its lock file, unless it is already made from the same one."""
    lock, home = ROOT / "requirements" / f"bench-{peer}.txt", WORK / peer
    stamp, digest = home / ".lock", hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    uv = next((str(path) for path in [Path(sys.executable).with_name("uv")] if path.exists()), shutil.which("uv"))
    if not uv:
        raise TargetError("uv is not installed beside this Python: run `make setup`, or use --only muxway,direct")
    print(f"setting up {peer} in {home.relative_to(ROOT)} …", file=sys.stderr)
    for command in (
        ["venv", "--quiet", "--clear", "--python", sys.executable, str(home)],
        ["pip", "install", "--quiet", "--python", str(home), "--require-hashes", "-r", str(lock)],
    ):
        done = subprocess.run([uv, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"setting up {peer} failed: {done.stderr.strip()[-500:]}")
    stamp.write_text(digest)


MUXWAY = Path(sys.executable).with_name("muxway")
"""The command of this environment."""


def muxway_stdio(config: Path, view: str = "", program: Path = MUXWAY) -> list[str]:
    """The command line of muxway over stdio."""
    command = [str(program), "stdio", "--config", str(config)]
    return [*command, "--view", view] if view else command


def before(program: Path) -> Target:
    """Another muxway, to compare this one with."""
    return Target("before", lambda config: muxway_stdio(config, program=program))


TARGETS: tuple[Target | Direct, ...] = (
    Target("muxway", muxway_stdio),
    Target(
        "fastmcp",
        lambda config: [str(WORK / "fastmcp/bin/python"), str(HERE / "peers/fastmcp_proxy.py"), str(config)],
        peer=True,
        env={"FASTMCP_LOG_LEVEL": "ERROR", "FASTMCP_CHECK_FOR_UPDATES": "off"},
    ),
    Target(
        "mcp-gateway",
        lambda config: [str(WORK / "mcp-gateway/bin/mcp-gateway"), "--mcp-json-path", str(config)],
        shape=lambda servers: {"mcpServers": {"mcp-gateway": {"servers": servers}}},
        peer=True,
        env={"LOGLEVEL": "ERROR"},
    ),
    Target("forward", lambda config: [sys.executable, str(HERE / "peers/forward.py"), str(config)], calls_only=True),
    Direct(),
)
