"""`muxway stdio`: how it starts, serves and ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from muxway import demo
from tests import signals
from tests.cli.conftest import processes_with, until
from tests.pace import crowding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Launched


@pytest.mark.parametrize("verb", [["stdio"], []], ids=["stdio", "no verb"])
def test_it_serves_and_ends_with_its_input(
    verb: list[str], launch: Callable[..., Launched], servers: Path, tmp_path: Path
) -> None:
    """docs/cli.md#muxway-stdio: MCP on stdin and stdout, logs on stderr only; end of input is a normal end."""
    gateway = launch(*verb, "--config", servers)
    assert gateway.hello()["serverInfo"]["name"] == "muxway"
    assert len(gateway.tools(8)) == 8
    answer = gateway.ask(5, "tools/call", name="text__count", arguments={"text": "a b"})
    assert answer["result"]["structuredContent"]["words"] == 2
    code, out, err = gateway.end()
    assert (code, out) == (0, "")
    assert "server ready upstream=notes" in err
    until(lambda: not processes_with(tmp_path))


def test_what_python_of_the_users_prints_is_no_message(
    launch: Callable[..., Launched], write: Callable[..., Path]
) -> None:
    """docs/middleware/writing.md: `print` goes to stderr, when the module is loaded, at a call, and from C."""
    write(
        "import os\n"
        "from muxway import Middleware\n"
        "print('loaded')\n"
        "class Chatty(Middleware):\n"
        "    def before(self, request):\n"
        "        print('before', request.method)\n"
        "        os.write(1, b'from below\\n')\n",
        "chatty.py",
    )
    config = write({**demo.config(), "middleware": [{"use": "chatty:Chatty"}]})
    gateway = launch("stdio", "--config", config)
    gateway.hello()
    assert len(gateway.tools(8)) == 8
    gateway.say(id=5, method="tools/call", params={"name": "text__count", "arguments": {"text": "a b"}})
    assert gateway.hear()["id"] == 5
    code, out, err = gateway.end()
    assert (code, out) == (0, "")
    assert {"loaded", "before tools/call", "from below"} <= set(err.splitlines())


def test_it_answers_before_any_server_is_ready(launch: Callable[..., Launched], write: Callable[..., Path]) -> None:
    """docs/behaviour.md#start: the gateway answers `initialize` and `tools/list` at once with what is ready."""
    slow = {"command": "sleep", "args": ["60"], "startTimeout": 2}
    gateway = launch("stdio", "--config", write({"mcpServers": {"slow": slow}}))
    gateway.hello()
    assert gateway.ask(1, "tools/list")["result"]["tools"] == []
    assert gateway.end()[0] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=str)
def test_a_signal_ends_it_and_its_children(
    number: signal.Signals, code: int, launch: Callable[..., Launched], servers: Path, tmp_path: Path
) -> None:
    """Ours: drain, end the children in parallel, exit within 9 s."""
    gateway = launch("stdio", "--config", servers)
    gateway.hello()
    gateway.tools(8)
    began = time.monotonic()
    gateway.process.send_signal(number)
    assert gateway.process.wait(timeout=30) == code
    assert time.monotonic() - began < 9 + crowding()
    until(lambda: not processes_with(tmp_path))


def test_a_call_under_way_may_end_after_sigterm(launch: Callable[..., Launched], servers: Path) -> None:
    """Ours: what runs is finished, within bounds, before the children are ended."""
    gateway = launch("stdio", "--config", servers)
    gateway.hello()
    gateway.tools(8)
    params = {
        "name": "text__read_aloud",
        "arguments": {"text": "a b c", "pause_ms": 100},
        "_meta": {"progressToken": 1},
    }
    gateway.say(id=7, method="tools/call", params=params)
    assert gateway.hear()["method"] == "notifications/progress"
    gateway.process.send_signal(signal.SIGTERM)
    while (message := gateway.hear()).get("id") != 7:
        pass
    assert message["result"]["content"][0]["text"] == "a b c"
    assert gateway.end()[0] == 0


def test_an_endless_call_does_not_hold_it_up(launch: Callable[..., Launched], servers: Path, tmp_path: Path) -> None:
    """Ours: exit within 9 s of SIGTERM, whatever runs."""
    gateway = launch("stdio", "--config", servers)
    gateway.hello()
    gateway.tools(8)
    arguments = {"text": "a", "pause_ms": 600_000}
    gateway.say(id=7, method="tools/call", params={"name": "text__read_aloud", "arguments": arguments})
    gateway.ask(8, "tools/list")
    began = time.monotonic()
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(timeout=30) == 0
    assert time.monotonic() - began < 9 + crowding()
    until(lambda: not processes_with(tmp_path))


def test_a_second_signal_ends_it_at_once(launch: Callable[..., Launched], servers: Path, tmp_path: Path) -> None:
    """Ours: an impatient owner gets his terminal back; the reaper ends the children."""
    gateway = launch("stdio", "--config", servers)
    gateway.hello()
    gateway.tools(8)
    arguments = {"text": "a", "pause_ms": 600_000}
    gateway.say(id=7, method="tools/call", params={"name": "text__read_aloud", "arguments": arguments})
    gateway.ask(8, "tools/list")
    signals.send(gateway.process.pid, signal.SIGINT)
    began = time.monotonic()
    gateway.process.send_signal(signal.SIGINT)
    assert gateway.process.wait(timeout=30) == 130
    assert time.monotonic() - began < 2 + crowding()
    until(lambda: not processes_with(tmp_path))


def test_options_win_over_the_config(launch: Callable[..., Launched], servers: Path) -> None:
    """docs/cli.md#muxway-stdio: `--name`, `--server-version`, `--separator`, `--page-size`."""
    gateway = launch(
        "stdio", "--config", servers, "--name", "hub", "--server-version", "9", "--separator", ":", "--page-size", "3"
    )
    assert gateway.hello()["serverInfo"] == {"name": "hub", "version": "9"}
    until(lambda: "result" in gateway.ask(1, "tools/call", name="notes:list"))
    page = gateway.ask(2, "tools/list")["result"]
    assert page["tools"][0]["name"] == "notes:add"
    assert len(page["tools"]) == 3
    assert "nextCursor" in page
    assert gateway.end()[0] == 0


def test_the_call_timeout_is_an_option(launch: Callable[..., Launched], servers: Path) -> None:
    """docs/cli.md#muxway-stdio: `--call-timeout SECONDS`."""
    gateway = launch("stdio", "--config", servers, "--call-timeout", "0.3")
    gateway.hello()
    gateway.tools(8)
    answer = gateway.ask(5, "tools/call", name="text__read_aloud", arguments={"text": "a", "pause_ms": 60_000})
    assert answer["error"]["data"]["muxway"]["reason"] == "timeout"
    assert gateway.end()[0] == 0


@pytest.mark.parametrize(
    "flags", [["--separator", "/"], ["--call-timeout", "0"], ["--page-size", "-1"], ["--nonsense"]]
)
def test_wrong_options_are_refused(flags: list[str], launch: Callable[..., Launched], servers: Path) -> None:
    """Ours: exit 2 on wrong usage, naming the option; nothing on stdout, which belongs to the protocol."""
    code, out, err = launch("stdio", "--config", servers, *flags).end()
    assert (code, out) == (2, "")
    assert flags[0] in err


def test_the_log_can_go_to_a_folder(launch: Callable[..., Launched], servers: Path, tmp_path: Path) -> None:
    """docs/configuration.md#variables-that-muxway-itself-reads.

    MCP_PROXY_LOG_DIRECTORY_PATH and MCP_PROXY_LOG_LEVEL are honoured.
    """
    folder = tmp_path / "logs" / "deep"
    env = {"MCP_PROXY_LOG_DIRECTORY_PATH": str(folder), "MCP_PROXY_LOG_LEVEL": "debug"}
    gateway = launch("stdio", "--config", servers, env=env)
    gateway.hello()
    gateway.tools(8)
    assert gateway.end()[0] == 0
    written = (folder / "muxway.log").read_text()
    assert "server ready upstream=clock" in written
    assert " debug " in written


def test_a_wrong_log_level_is_told(launch: Callable[..., Launched], servers: Path) -> None:
    """Ours: a wrong value is a clear error, not a silent default."""
    code, _, err = launch("stdio", "--config", servers, env={"MCP_PROXY_LOG_LEVEL": "loud"}).end()
    assert code == 3
    assert "MCP_PROXY_LOG_LEVEL is 'loud': set it to debug, info, warn" in err


def test_a_log_folder_that_cannot_be_written_is_told(launch: Callable[..., Launched], servers: Path) -> None:
    """Ours: what, where, why."""
    code, _, err = launch("stdio", "--config", servers, env={"MCP_PROXY_LOG_DIRECTORY_PATH": str(servers)}).end()
    assert code == 3
    assert "MCP_PROXY_LOG_DIRECTORY_PATH cannot be written to" in err
    assert "Traceback" not in err


def test_warnings_of_the_config_are_logged(launch: Callable[..., Launched], write: Callable[..., Path]) -> None:
    """Ours: the owner of the config hears of doubtful things without running `check`."""
    file = write({"mcpServers": {"a": {"command": "no-such-program", "hiddenTolls": []}}})
    _, _, err = launch("stdio", "--config", file).end()
    assert "warning config problem=" in err
    assert "hiddenTolls" in err


def test_on_a_terminal_it_says_what_it_is_for(launch: Callable[..., Launched], servers: Path) -> None:
    """Ours: someone who runs it by hand learns that it is for clients, and how to see the tools."""
    control, terminal = pty.openpty()
    try:
        gateway = launch("stdio", "--config", servers, stdin=terminal)
        os.close(terminal)
        assert gateway.process.stderr is not None
        assert b"run `muxway tools`" in gateway.process.stderr.readline()
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.end()[0] == 130
    finally:
        os.close(control)


def test_a_config_named_by_variable_is_served(launch: Callable[..., Launched], servers: Path) -> None:
    """docs/configuration.md#which-file-is-read: no arguments, the config named by MCP_PROXY_CONFIG_PATH."""
    gateway = launch(env={"MCP_PROXY_CONFIG_PATH": str(servers)})
    gateway.hello()
    assert gateway.end()[0] == 0


def test_requests_may_come_from_a_file(launch: Callable[..., Launched], servers: Path, tmp_path: Path) -> None:
    """Ours: `muxway --config servers.json < requests.jsonl`."""
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    with requests.open() as file:
        code, out, _ = launch("--config", servers, stdin=file).end()
    assert (code, out) == (0, '{"jsonrpc":"2.0","id":1,"result":{}}\n')


@pytest.mark.parametrize("closed", ["<&-", "</dev/null >&-", "</dev/null 2>&-", "<&- >&- 2>&-"])
def test_it_can_be_started_with_closed_descriptors(closed: str, servers: Path, tmp_path: Path) -> None:
    """Ours: a careless launcher gets a normal end, as no input can come, instead of a crash or a process that stays."""
    line = f'exec "$0" -m muxway --config "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, str(servers)], timeout=30, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    until(lambda: not processes_with(tmp_path))
