"""`muxway serve` as its user meets it: a process that listens, says so, and ends when told; and real clients of it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway import demo
from muxway.cli import cli
from muxway.config import parse_config

from .. import signals
from ..interop import peers
from ..pace import PATIENCE, crowding
from .harness import BOTH, Opened, initialize, modern
from .running import Running

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = Path(__file__).with_name("clients.py")


class Served(Running):
    """The command as a process of its own."""

    def __init__(self, folder: Path, *args: str, gateway: dict[str, Any] | None = None, **env: str) -> None:
        config = folder / "servers.json"
        servers = {**demo.config(), "gateway": gateway or {}}
        for server in servers["mcpServers"].values():
            server["args"].append(str(folder))
        config.write_text(json.dumps(servers))
        self.mark = str(folder)
        self.log = folder / "stderr"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "muxway", "serve", "-c", str(config), "--port", "0", *args],
                env={**os.environ, **env},
                stderr=log,
            )
        self.until(r"(\d) of 3 servers up")
        found = self.until(r"muxway listens on http://([\d.]+):(\d+)")
        self.host, self.port = found[1], int(found[2])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        given = {"Accept": BOTH, "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), given)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, json.loads(text) if text else None, {k.lower(): v for k, v in response.getheaders()}

    def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code, and how long it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE), time.monotonic() - began

    def children(self) -> int:
        """How many of its servers run."""
        count = 0
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
            except OSError:
                continue
            count += b"muxway.demo" in command and self.mark.encode() in command
        return count

    def until_children(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.children() != count:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    started: list[Served] = []

    def start(*args: str, **more: Any) -> Served:
        started.append(Served(tmp_path, *args, **more))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()


def test_it_says_where_it_listens_what_is_up_and_how_to_connect(serve: Any) -> None:
    """docs/getting-started.md#over-http."""
    served = serve()
    said = served.said()
    assert f"{served.url('/mcp')}" in said
    assert f"{served.url('/sse')}" in said
    assert '"mcpServers"' in said
    assert "3 of 3 servers up, 8 tools" in said
    assert served.host == "127.0.0.1"
    assert served.ask("GET", "/healthz")[0] == 200
    assert served.ask("GET", "/readyz")[0] == 200
    message, headers = modern("tools/list")
    status, answer, _ = served.ask("POST", "/mcp", message, **{k: str(v) for k, v in headers.items()})
    assert status == 200
    assert len(answer["result"]["tools"]) == 8


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_and_its_servers(number: int, code: int, serve: Any) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: over within 9 s; open streams do not hold it up."""
    served = serve()
    _, _, headers = served.ask("POST", "/mcp", initialize())
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    connection.request("GET", "/mcp", headers={"Mcp-Session-Id": headers["mcp-session-id"], "Accept": BOTH})
    assert connection.getresponse().status == 200
    left, seconds = served.end(number)
    assert left == code
    assert seconds < 9 + crowding()
    assert served.children() == 0
    connection.close()


async def test_a_call_under_way_is_answered_before_the_end(serve: Any) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: calls under way get up to 5 s."""
    served = serve()
    told = {"_meta": {"progressToken": 1}}
    message, headers = modern("tools/call", {"name": "text__read_aloud", "arguments": {"text": "a b c"}, **told})
    body = json.dumps(message).encode()
    lines = {"Host": f"127.0.0.1:{served.port}", "Accept": BOTH, "Content-Type": "application/json", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    opened = await Opened(reader, writer).head()
    assert (await opened.message())["method"] == "notifications/progress"
    served.process.send_signal(signal.SIGTERM)
    while "id" not in (answer := await opened.message()):
        pass
    assert answer["result"]["content"][0]["text"] == "a b c"
    assert await asyncio.to_thread(served.process.wait, PATIENCE) == 0
    writer.close()


def test_a_second_signal_ends_it_at_once(serve: Any) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: a second signal ends it at once."""
    served = serve()
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    told = {"_meta": {"progressToken": 1}}
    message, headers = modern("tools/call", {"name": "text__read_aloud", "arguments": {"text": "a " * 100}, **told})
    usual = {"Accept": BOTH, "Content-Type": "application/json"}
    connection.request("POST", "/mcp", json.dumps(message), {**usual, **{k: str(v) for k, v in headers.items()}})
    answer = connection.getresponse()
    while b"notifications/progress" not in (line := answer.readline()):
        assert line, "it has ended"
    signals.send(served.process.pid, signal.SIGTERM)
    assert served.process.poll() is None
    code, seconds = served.end()
    assert code == 128 + signal.SIGTERM
    assert seconds < 2 + crowding()
    served.until_children(0)
    connection.close()


def test_the_token_may_come_from_the_environment(serve: Any) -> None:
    """docs/service.md#environment: a bearer token by option or environment, told to nobody."""
    served = serve(MUXWAY_TOKEN="s3cr3t-t0ken")
    assert served.ask("POST", "/mcp", initialize())[0] == 401
    assert served.ask("POST", "/mcp", initialize(), Authorization="Bearer s3cr3t-t0ken")[0] == 200
    assert '"Authorization": "Bearer' in served.said()
    served.end()
    assert "s3cr3t" not in served.said()


@pytest.mark.parametrize("keep", [True, False])
def test_servers_rest_after_the_last_sse_client_unless_kept_open(keep: bool, serve: Any) -> None:
    """docs/transports.md#what-a-disconnect-means: KEEP_SERVER_OPEN=1; else they start again for the next client."""
    served = serve(**({"KEEP_SERVER_OPEN": "1"} if keep else {}))

    def visit() -> str:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
        connection.request("GET", "/sse", headers={"Accept": "text/event-stream"})
        response = connection.getresponse()
        assert response.status == 200
        response.readline()
        where = response.readline().decode().removeprefix("data: ").strip()
        response.readline()
        assert served.ask("POST", where, initialize())[0] == 202
        assert served.ask("POST", where, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})[0] == 202
        while "tools" not in (line := response.readline().decode()) or "protocolVersion" in line:
            pass
        response.close()
        connection.close()
        return line

    assert "notes__add" in visit()
    if keep:
        time.sleep(6)
        assert served.children() == 3
        return
    served.until_children(0)
    assert served.process.poll() is None
    assert "notes__add" in visit()
    served.end()


# --- the token ----------------------------------------------------------------------------------

CONFIGURED, OTHER = "token-of-the-config-file", "token-from-elsewhere"


@pytest.mark.parametrize(
    ("args", "env", "token"),
    [
        ([], {"FROM_THE_ENVIRONMENT": CONFIGURED}, CONFIGURED),
        (["--token", OTHER], {"FROM_THE_ENVIRONMENT": CONFIGURED}, OTHER),
        ([], {"FROM_THE_ENVIRONMENT": CONFIGURED, "MUXWAY_TOKEN": OTHER}, OTHER),
    ],
    ids=["config", "option", "variable"],
)
def test_the_token_may_stand_in_the_config_and_the_others_win_over_it(
    args: list[str], env: dict[str, str], token: str, serve: Any
) -> None:
    """docs/service.md#environment: `gateway.token`, with variables; one place counts, not the sum of all."""
    served = serve(
        "--debug", "--insecure", "--host", "0.0.0.0", *args, gateway={"token": "${FROM_THE_ENVIRONMENT}"}, **env
    )

    codes = [
        served.ask("POST", "/mcp", initialize(), Authorization=f"Bearer {known}")[0] for known in (CONFIGURED, OTHER)
    ]
    assert codes == [200 if known == token else 401 for known in (CONFIGURED, OTHER)]
    assert served.ask("POST", "/mcp", initialize())[0] == 401
    assert '"Authorization": "Bearer <the token>"' in served.said()
    assert CONFIGURED not in served.said()
    assert OTHER not in served.said()


def test_the_token_is_in_no_repr_of_the_config() -> None:
    """CONTRIBUTING.md: never show a value of the config; reprs end up in logs and tracebacks."""
    config = parse_config({"mcpServers": {"one": {"command": "none"}}, "gateway": {"token": CONFIGURED}})
    assert config.gateway.token == CONFIGURED
    assert CONFIGURED not in repr(config)


# --- refusing to start ------------------------------------------------------------------------


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command where it is to end by itself, with this `gateway` section in its config."""

    def run(*args: str, gateway: dict[str, Any] | None = None, **env: str) -> tuple[int, str]:
        from click.testing import CliRunner

        config = tmp_path / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"one": {"command": "none"}}, "gateway": gateway or {}}))
        arguments = ["serve", "-c", str(config), *args]
        result = CliRunner(env=env, catch_exceptions=False).invoke(cli, arguments, prog_name="muxway")
        return result.exit_code, result.output

    return run


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])
def test_an_address_others_can_reach_needs_a_token(host: str, run: Run) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: any other address needs a token, or --insecure."""
    code, said = run("--host", host)
    assert code == 2
    assert "MUXWAY_TOKEN" in said
    assert "--insecure" in said
    assert run(HOST=host)[0] == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])
def test_a_token_does_not_travel_in_clear(host: str, run: Run) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: only with a certificate, behind one, or with --insecure."""
    code, said = run("--host", host, MUXWAY_TOKEN=OTHER)
    assert code == 2
    for way in ("--tls-cert", "gateway.publicUrl", "--insecure"):
        assert way in said
    plain = {"publicUrl": "http://mcp.example.com"}
    assert "in clear" in run("--host", host, gateway=plain, MUXWAY_TOKEN=OTHER)[1]
    # These get as far as the certificate, which is not there, so that nothing is served.
    nowhere = ("--host", host, "--tls-cert", "/nowhere/cert.pem")
    for more in ((), ("--insecure",)):
        code, said = run(*nowhere, *more, gateway={"publicUrl": "https://mcp.example.com"}, MUXWAY_TOKEN=OTHER)
        assert (code, "/nowhere/cert.pem: cannot be read" in said) == (3, True)


def test_a_public_address_without_tls_does_not_go_with_a_certificate(run: Run, tmp_path: Path) -> None:
    """docs/service.md#https: clients would be sent to the wrong place, and tokens in clear."""
    plain = {"publicUrl": "HTTP://mcp.example.com"}
    nowhere = str(tmp_path / "cert.pem")
    code, said = run("--tls-cert", nowhere, gateway=plain)
    assert (code, "Write https://" in said) == (2, True)
    in_file = {**plain, "tls": {"cert": nowhere}}
    assert run(gateway=in_file)[0] == 2
    (warning,) = parse_config({"mcpServers": {"one": {"command": "none"}}, "gateway": in_file}).warnings
    assert (warning.path, "write https://" in warning.message) == ("gateway.publicUrl", True)
    # With a plain proxy in front it gets as far as the certificate, which is not there, so that nothing is served.
    assert "cert.pem: cannot be read" in run("--tls-cert", nowhere, "--insecure", gateway=plain)[1]


def test_a_key_needs_its_certificate(run: Run) -> None:
    """docs/cli.md#muxway-serve."""
    code, said = run("--tls-key", "a.key")
    assert code == 2
    assert "--tls-key needs the --tls-cert" in said


@pytest.mark.parametrize("token", ["changeme", "two words", "größe"])
def test_a_token_that_cannot_work_is_refused(token: str, run: Run) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: placeholders, and what fits no header, from anywhere."""
    for code, said in (run("--token", token), run(gateway={"token": token}), run(gateway={"token": "${T}"}, T=token)):
        assert code == 3
        assert token not in said


@pytest.mark.parametrize("token", ["", "${NOT_SET_ANYWHERE}"])
def test_a_token_that_is_configured_but_empty_does_not_open_the_door(token: str, run: Run) -> None:
    """Ours: whoever writes `token` wants one; nothing must not mean no token."""
    code, said = run(gateway={"token": token})
    assert code == 3
    assert "token" in said


def test_a_port_in_use_is_told(run: Run) -> None:
    """Ours: an error says what happened, to whom, and what to do."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = run("--port", str(taken.getsockname()[1]), PORT="1")
        assert code == 1
        assert "in use" in said
        assert "--port" in said


def test_insecure_binds_anywhere(serve: Any) -> None:
    """docs/cli.md#muxway-serve: --insecure; docs/service.md#environment: PORT and HOST are honoured."""
    served = serve("--insecure", HOST="0.0.0.0")
    assert served.ask("POST", "/mcp", initialize())[0] == 200
    # The address to give to others, where the machine has one that leads out.
    shown = re.search(r"From other machines: +http://([\d.]+):(\d+)/mcp\n", served.said())
    if shown is not None:
        assert (shown[1] not in ("0.0.0.0", "127.0.0.1"), int(shown[2])) == (True, served.port)
        assert f'"url": "http://{shown[1]}:{shown[2]}/mcp"' in served.said()


def test_names_and_origins_of_the_config_count_and_follow_a_reload(serve: Any, tmp_path: Path) -> None:
    """docs/reload.md: which names and pages are allowed follows the file, address and port do not."""
    gateway = {"host": "127.0.0.1", "allowedHosts": ["mcp.example"], "allowedOrigins": ["https://app.example"]}
    served = serve(gateway=gateway)

    def statuses() -> list[int]:
        asked = [{"Host": "mcp.example"}, {"Origin": "https://app.example"}, {"Origin": "https://new.example"}]
        return [served.ask("GET", "/healthz", **headers)[0] for headers in asked]

    assert statuses() == [200, 200, 403]
    file = tmp_path / "servers.json"
    changed = {**json.loads(file.read_text()), "gateway": {"allowedOrigins": ["https://new.example"], "port": 1}}
    file.write_text(json.dumps(changed))
    served.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while statuses() != [421, 403, 200]:
        assert time.monotonic() < deadline, served.said()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("args", "env", "why"),
    [
        (
            ["--allow-origin", "localhost:6274"],
            {},
            "'localhost:6274' has no scheme, and browsers send one: write http://",
        ),
        ([], {"MUXWAY_ALLOW_ORIGIN": "https://a.example b.example"}, "'b.example' has no scheme"),
        ([], {"MUXWAY_ALLOW_HOST": "http://a.example"}, "is a URL, and must be the name in it: write a.example"),
        (["--allow-origin", "*"], {}, "lets every web page that is open on this machine call every tool: set a token"),
    ],
)
def test_a_page_or_name_that_could_never_match_is_refused(
    args: list[str], env: dict[str, str], why: str, run: Run
) -> None:
    """Ours: at the start, with what to write."""
    code, said = run(*args, **env)
    assert code == (3 if "*" in args else 2)
    assert why in " ".join(said.replace("│", " ").split())


# --- the official SDKs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "transport", "path", "version"),
    [
        ("mcp1", "http", "/mcp", "2025-11-25"),
        ("mcp1", "sse", "/sse", "2025-11-25"),
        ("mcp2", "legacy", "/mcp", "2025-11-25"),
        ("mcp2", "auto", "/mcp", "2026-07-28"),
        ("mcp2", "2026-07-28", "/mcp", "2026-07-28"),
    ],
)
def test_clients_on_the_official_sdks_list_and_call(
    env: str, transport: str, path: str, version: str, serve: Any
) -> None:
    """docs/behaviour.md#over-http: the Python SDK 1.x and 2.x clients work against `muxway serve`."""
    served = serve()
    done = subprocess.run(
        [peers.python(env), str(CLIENTS), transport, served.url(path)],
        capture_output=True,
        timeout=90,
        env={name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
    )
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["version"] == version
    assert len(report["names"]) == 8
    assert [bool(failed) for failed in report["failed"]] == [False, False]
    assert report["progress"] == [1, 2, 3]
