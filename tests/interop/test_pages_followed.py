"""Whoever follows the first pages gets there: their commands are run and their configs used, as they are written.

Only what names the reader's machine is replaced: paths, and the ports, because others may have them. `uvx` and `npx`
start the same servers from the environments of these tests, so nothing is downloaded. A command that is neither run nor
listed in `NOT_RUN` fails the test.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.certificates import Authority
from tests.docs.pages import ROOT, Block, blocks
from tests.interop import peers
from tests.pace import PATIENCE
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = ("README.md", "docs/getting-started.md", "docs/service.md", "docs/reverse-proxy.md", "examples/README.md",
         "docs/setup.md")  # fmt: skip

_CLIENT = "needs Claude Code, which is no part of the tests; that muxway understands the command is tested elsewhere"
_SYSTEM = "changes the machine: users, services, /opt"
_DOCKER = "needs Docker, and downloads an image"
NOT_RUN = {
    "muxway setup": "asks, and nobody is there to answer; the same without questions is run",
    "make test": "it is what runs this test",
    "pip install .": "downloads the build's requirements; `make` installs the same package in the same way",
    "claude mcp add --transport http muxway http://127.0.0.1:3006/mcp": _CLIENT,
    "claude mcp add --scope user muxway -- /path/to/clone/.venv/bin/muxway --config /path/to/servers.json": _CLIENT,
    "python3 -m venv /opt/muxway && /opt/muxway/bin/pip install /path/to/clone": _SYSTEM,
    "systemctl enable --now muxway": _SYSTEM,
    "journalctl -u muxway -f": _SYSTEM,
    "docker build -t muxway .": _DOCKER,
    "docker run --init -p 127.0.0.1:3006:3006 -e MUXWAY_TOKEN "
    "-v ./servers.json:/etc/muxway/servers.json:ro muxway": _DOCKER,
}
"""Commands on the pages that are not run, and why."""


def of_pages(*languages: str) -> list[Block]:
    return [block for block in blocks(*languages) if block.page in PAGES]


def commands() -> list[tuple[str, str]]:
    """(Page, command) for each line of each shell block, without its comment."""
    found: list[tuple[str, str]] = []
    for block in of_pages("sh", "bash", "console"):
        for line in block.text.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#\s.*$", "", line).strip()
            if command:
                found.append((block.page, command))
    return found


RUN = [(page, command) for page, command in commands() if command not in NOT_RUN]
SERVING = [(page, command) for page, command in RUN if " serve " in command]
OTHERS = [
    (page, command) for page, command in RUN if (page, command) not in SERVING and not command.startswith("curl ")
]


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A reader's machine."""
    return Desk(tmp_path_factory.mktemp("desk"))


class Desk:
    """A folder with what the pages assume: the programs, and the config of the getting-started page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs, self.home = folder / "bin", folder / "home"
        programs.mkdir()
        (self.home / "notes").mkdir(parents=True)
        self.muxway = programs / "muxway"
        _script(self.muxway, f'exec {shlex.quote(sys.executable)} -m muxway "$@"')
        server = shlex.join(peers.node_script("@modelcontextprotocol/server-filesystem/dist/index.js"))
        _script(
            programs / "npx",
            f'test "$1 $2" = "-y @modelcontextprotocol/server-filesystem" && shift 2 && exec {server} "$@"',
        )
        time_server = shlex.quote(peers.python("servers"))
        _script(programs / "uvx", f'test "$1" = mcp-server-time && shift && exec {time_server} -m mcp_server_time "$@"')
        (config,) = [
            block.text
            for block in of_pages("json")
            if block.page.endswith("getting-started.md") and '"uvx"' in block.text
        ]
        (self.home / ".cursor").mkdir()
        (self.home / ".cursor" / "mcp.json").write_text(config)
        self.config = folder / "servers.json"
        self.config.write_text(config)
        Authority(folder).issue("mcp")
        self.env = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "NO_COLOR": "1",
            "PORT": "0",
            "XDG_RUNTIME_DIR": str(folder),
        }

    def fitting(self, text: str) -> str:
        """The text with this machine's paths."""
        for written, real in (
            ("/path/to/clone/.venv/bin/muxway", str(self.muxway)),
            ("/opt/muxway/bin/muxway", str(self.muxway)),
            ("/etc/muxway/servers.json", str(self.config)),
            ("/path/to/servers.json", str(self.config)),
        ):
            text = text.replace(written, real)
        return text

    def place(self, page: str) -> Path:
        """Where the reader of a page is: in the clone for the examples, else in a folder of theirs."""
        return ROOT if page == "examples/README.md" else self.folder

    @contextlib.contextmanager
    def serving(self, page: str, command: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
        """Run a command that serves until it is ended; gives its port."""
        log = self.folder / "serve.log"
        with log.open("w") as stderr:
            running = subprocess.Popen(
                ["bash", "-c", f"{'' if '=' in command.split()[0] else 'exec '}{command}"],
                cwd=self.place(page), env=self.env, stderr=stderr, text=True, start_new_session=True,
            )  # fmt: skip
        try:
            found = _until(lambda: re.search(r"listens on https?://127.0.0.1:(\d+)\n", log.read_text()), running, log)
            _until(lambda: re.search(r"(\d+) of \1 servers up", log.read_text()), running, log)
            yield int(found[1]), running
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGTERM)
            running.wait(PATIENCE)


def _until(look: Any, running: subprocess.Popen[str], log: Path) -> re.Match[str]:
    deadline = time.monotonic() + PATIENCE
    while (found := look()) is None:
        assert running.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return found


def test_every_command_is_run_or_has_a_reason_not_to_be() -> None:
    """Ours: a command that is new on a page is run from then on; one that is gone needs no reason any more."""
    written = {command for _, command in commands()}
    assert set(NOT_RUN) - written == set()
    assert {page for page, _ in RUN} == set(PAGES)
    assert len(SERVING) >= 4
    assert len(OTHERS) >= 10


@pytest.mark.parametrize(("page", "command"), OTHERS)
def test_a_command_does_what_the_page_says(page: str, command: str, desk: Desk) -> None:
    """Ours: as written, where the reader of the page is."""
    if command.startswith("make run"):
        # Set up already; the environment of whoever runs the tests is not set up anew in the middle of them.
        place, given = (
            ROOT,
            f"make --silent --old-file={Path(sys.prefix).name}/run.stamp VENV={Path(sys.prefix).name} run",
        )
    else:
        place, given = desk.place(page), re.sub(r"(^|\s)\.venv/bin/python\b", rf"\1{sys.executable}", command)
        given = re.sub(r"(^|\s)\.venv/bin/muxway\b", rf"\1{desk.muxway}", given)
    done = subprocess.run(
        ["bash", "-c", given], cwd=place, env=desk.env, capture_output=True, text=True, timeout=PATIENCE,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{given}\n{done.stdout}\n{done.stderr}"
    assert done.stdout


@pytest.mark.parametrize(("page", "command"), SERVING)
def test_a_command_that_serves_serves(page: str, command: str, desk: Desk) -> None:
    """Ours: as written; and so do the commands that ask it."""
    with desk.serving(page, command) as (port, _):
        asking = [asked for where, asked in RUN if asked.startswith("curl ") and where == page]
        over_tls = "--tls-cert" in command
        for asked in asking or ["curl -sS http://127.0.0.1:3006/readyz"]:
            if over_tls:
                asked = asked.replace("http://", "-k https://")
            done = subprocess.run(
                ["bash", "-c", asked.replace(":3006", f":{port}")], env=desk.env, capture_output=True, text=True,
                timeout=PATIENCE, check=False,
            )  # fmt: skip
            assert json.loads(done.stdout)["status"] == "ready", done.stderr


LAUNCHES = [
    block for block in of_pages("json") if "muxway" in block.text and re.search(r'"command": "\S*muxway"', block.text)
]


@pytest.mark.parametrize("block", LAUNCHES, ids=str)
def test_what_a_client_is_told_to_launch_answers(block: Block, desk: Desk) -> None:
    """Ours: the entry of the page, launched as a client does it."""
    given = json.loads(desk.fitting(block.text))
    (entry,) = (given.get("mcpServers") or given["servers"]).values()
    _says_its_tools([entry["command"], *entry["args"]], desk)


def test_the_launch_agent_of_macos_starts(desk: Desk) -> None:
    """Ours: what it starts is a command like any other."""
    import plistlib

    (block,) = of_pages("xml")
    arguments = plistlib.loads(desk.fitting(block.text).encode())["ProgramArguments"]
    with desk.serving("docs/service.md", shlex.join(arguments)) as (port, _):
        assert port


def _says_its_tools(command: list[str], desk: Desk) -> None:
    program = shutil.which(command[0], path=desk.env["PATH"])
    assert program is not None
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "reader", "version": "1"}}
    lines: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with subprocess.Popen(
        [program, *command[1:]], cwd=desk.folder, env=desk.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as running:  # fmt: skip
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        running.stdin.flush()
        for line in running.stdout:
            if json.loads(line).get("id") == 2:
                names = [tool["name"] for tool in json.loads(line)["result"]["tools"]]
                break
        else:
            pytest.fail("it ended without an answer")
        running.stdin.close()
        assert running.wait(PATIENCE) == 0
    assert "time__get_current_time" in names


@pytest.mark.parametrize(
    "block", [block for block in of_pages("json", "jsonc") if '"uvx"' in block.text], ids=str
)  # fmt: skip
def test_a_config_of_a_page_starts_its_servers(block: Block, desk: Desk, tmp_path: Path) -> None:
    """Ours: `muxway check --connect` of every config that a page shows."""
    file = tmp_path / f"servers.{block.language}"
    file.write_text(block.text)
    done = subprocess.run(
        [str(desk.muxway), "check", str(file), "--connect"], env=desk.env, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


# --- service files ----------------------------------------------------------------------------


def _program(name: str, package: str) -> str:
    """A program of the system; where it must not be missing, its absence is a failure."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        what = f"{name} is not installed: apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(what)
        pytest.skip(what)
    return found


def test_systemd_accepts_the_unit(desk: Desk, tmp_path: Path) -> None:
    """Ours: `systemd-analyze verify` has nothing to say about it."""
    (block,) = of_pages("ini")
    unit = tmp_path / "muxway.service"
    unit.write_text(desk.fitting(block.text))
    done = subprocess.run(
        [_program("systemd-analyze", "systemd"), "verify", "--man=no", str(unit)], capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    said = [line for line in (done.stdout + done.stderr).splitlines() if "muxway.service" in line]
    assert (done.returncode, said) == (0, [])


def test_nginx_with_the_settings_of_the_page_leads_to_muxway(desk: Desk, tmp_path: Path) -> None:
    """docs/reverse-proxy.md: nginx of Debian loads them, and a client gets through with name and token."""
    nginx, openssl = _program("nginx", "nginx-light"), _program("openssl", "openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mcp.example.com"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=PATIENCE)
    site, replaced = (block.text for block in of_pages("nginx"))
    command = next(command for page, command in SERVING if page == "docs/reverse-proxy.md" and "TOKEN" in command)
    token = re.match(r"MUXWAY_TOKEN=(\S+)", command)
    assert token is not None
    outside = free_port()
    with desk.serving("docs/reverse-proxy.md", command) as (port, _):
        own_log_in = replaced.replace("the-token-of-muxway", token[1])
        for text in (
            site,
            site.replace("proxy_buffering off;", f"proxy_buffering off;\n{own_log_in}"),
        ):
            given = {":3006": f":{port}", "listen 443": f"listen 127.0.0.1:{outside}"}
            given |= {"/etc/ssl/mcp.example.com.pem": str(certificate), "/etc/ssl/mcp.example.com.key": str(key)}
            for written, real in given.items():
                assert written in text
                text = text.replace(written, real)
            settings = tmp_path / "nginx.conf"
            temporary = "".join(
                f"{kind}_temp_path {tmp_path}/{kind};\n"
                for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            settings.write_text(
                f"daemon off;\npid {tmp_path}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
                f"http {{\naccess_log off;\n{temporary}{text}\n}}\n"
            )
            tested = subprocess.run(
                [nginx, "-t", "-c", settings], capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            assert tested.returncode == 0, tested.stderr
            running = subprocess.Popen([nginx, "-c", settings], stderr=subprocess.PIPE, text=True)
            try:
                authorization = {} if "Authorization" in text else {"Authorization": f"Bearer {token[1]}"}
                assert _through(outside, authorization) == 200
                if authorization:
                    assert _through(outside, {}) == 401
            finally:
                running.terminate()
                running.communicate(timeout=PATIENCE)


def _through(port: int, headers: dict[str, str]) -> int:
    """The status of an `initialize` that comes in by TLS."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "reader", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client})
    given = {
        "Host": "mcp.example.com",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    deadline = time.monotonic() + PATIENCE
    while True:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=trusting)
        try:
            connection.request("POST", "/mcp", body, {**given, **headers})
            return connection.getresponse().status
        except ConnectionRefusedError:  # nginx is not there yet
            assert time.monotonic() < deadline
            time.sleep(0.05)
        finally:
            connection.close()
