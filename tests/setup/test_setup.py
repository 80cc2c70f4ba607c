"""`muxway setup` on a machine with five clients: everything behind one, each client with the tools of all, and back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
from typing import TYPE_CHECKING, Any

import yaml

from muxway import demo
from muxway.config import load_config
from muxway.config.jsonc import parse_jsonc
from muxway.net.secret_store import SecretStore
from tests.control.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

SERVERS = {name: [sys.executable, "-m", f"muxway.demo.{name}"] for name in demo.SERVERS}
NOTES, CLOCK, TEXT = (SERVERS[name] for name in demo.SERVERS)


def std(words: list[str], **more: object) -> str:
    return json.dumps({"command": words[0], "args": words[1:], **more})


FILES = {
    ".cursor/mcp.json": "\ufeff{\r\n\t// mine\r\n"
    f'\t"mcpServers": {{\r\n\t\t"notes": {std(NOTES)}, // first\r\n\t}},\r\n}}\r\n',
    ".config/Code/User/mcp.json": f'{{"inputs": [], "servers": {{"clock": {std(CLOCK, type="stdio")}, '
    f'"hub": {std(["npx", "hub"], env={"KEY": "${input:hub-key}"})}}}}}',
    ".codex/config.toml": f'model = "o" # best\n\n[mcp_servers.memo]\ncommand = {json.dumps(NOTES[0])}\n'
    f"args = {json.dumps(NOTES[1:])}\n\n[tools]\nweb = true\n",
    ".config/goose/config.yaml": "# goose\nextensions:\n  developer:\n    type: builtin\n    name: developer\n"
    "  text:\n    type: stdio\n    name: text\n"
    f"    cmd: {TEXT[0]}\n    args: {json.dumps(TEXT[1:])}\nGOOSE_MODE: auto\n",
    ".config/zed/settings.json": '{\n  // look\n  "theme": "One Dark",\n  "context_servers": {}\n}\n',
}


def fill(home: Path) -> dict[str, bytes]:
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(text.encode())
    return {name: (home / name).read_bytes() for name in FILES}


def entries(home: Path) -> dict[str, dict[str, Any]]:
    """The entry of muxway in each client, as that client reads its file."""
    texts = {name: (home / name).read_text("utf-8-sig") for name in FILES}
    read: dict[str, Any] = {
        ".cursor/mcp.json": lambda text: parse_jsonc(text).value["mcpServers"],
        ".config/Code/User/mcp.json": lambda text: json.loads(text)["servers"],
        ".codex/config.toml": lambda text: tomllib.loads(text)["mcp_servers"],
        ".config/goose/config.yaml": lambda text: yaml.safe_load(text)["extensions"],
        ".config/zed/settings.json": lambda text: parse_jsonc(text).value["context_servers"],
    }
    return {name: read[name](text) for name, text in texts.items()}


def tools_of(entry: dict[str, Any]) -> set[str]:
    """The tools that a client gets which starts what its entry says."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    command = [entry.get("command") or entry["cmd"], *entry["args"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        running.stdin.flush()
        try:
            for line in running.stdout:
                if json.loads(line).get("id") == 2:
                    return {tool["name"] for tool in json.loads(line)["result"]["tools"]}
        finally:
            running.stdin.close()
            running.wait(30)
    raise AssertionError("it ended without an answer")


def test_five_clients_get_the_tools_of_all_and_their_files_back(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md: under a minute, each server once, nothing lost."""
    before = fill(home)
    began = time.monotonic()
    done = muxway("setup", "--yes")
    assert time.monotonic() - began < 60
    assert done.exit_code == 0, done.output
    config = json.loads((home / ".config/muxway/muxway.json").read_text())
    # `memo` of Codex is `notes` of Cursor; `hub` asks VS Code for its key.
    assert [*config["mcpServers"]] == ["notes", "clock", "hub", "text"]
    assert config["mcpServers"]["hub"]["env"] == {"KEY": "${input:hub-key}"}
    assert "memo  of codex is there already, as notes" in done.output
    assert "hub needs a secret: muxway secret set hub-key" in done.output.splitlines()[-1], "also where it is seen"
    now = entries(home)
    assert {name: [*there] for name, there in now.items()} == {
        ".cursor/mcp.json": ["muxway"],
        ".config/Code/User/mcp.json": ["muxway"],
        ".codex/config.toml": ["muxway"],
        ".config/goose/config.yaml": ["muxway", "developer"],
        ".config/zed/settings.json": ["muxway"],
    }
    for there in now.values():
        prefixes = {name.partition("__")[0] for name in tools_of(there["muxway"])}
        assert prefixes == {"notes", "clock", "text"}
        assert "--watch" in there["muxway"]["args"], "so that what is added later is there, too"
    assert "// mine\r\n" in (home / ".cursor/mcp.json").read_bytes().decode()
    again = muxway("setup", "--yes")
    assert again.exit_code == 0, again.output
    assert again.output.count("is connected already") == 5
    back = muxway("disconnect", "--all")
    assert back.exit_code == 0, back.output
    assert {name: (home / name).read_bytes() for name in FILES} == before
    assert muxway("disconnect", "--all").output == "✓ ok  No client has muxway.\n"


def test_where_nobody_can_be_asked_it_says_what_is_missing(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#step-by-step: nothing is written without an answer."""
    before = fill(home)
    done = muxway("setup")
    assert done.exit_code == 2
    assert "add --yes" in done.stderr
    shown = muxway("setup", "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert re.search(r'^\+.*"muxway": \{', shown.output, re.MULTILINE)
    assert {name: (home / name).read_bytes() for name in FILES} == before
    assert not (home / ".config/muxway").exists()


def test_a_client_that_cannot_be_read_is_left_alone_and_the_others_are_not(
    home: Path, muxway: Callable[..., Result]
) -> None:
    """docs/setup.md#what-is-left-alone: exit 1, and which one."""
    fill(home)
    broken = home / ".config/zed/settings.json"
    broken.write_text("{ broken")
    told = muxway("clients").output
    assert f"cannot be read  {broken}\n" in told
    assert f"✗ error  zed: {broken}: line 1" in told
    done = muxway("setup", "--yes")
    assert done.exit_code == 1
    assert "Zed is left alone" in done.stderr
    assert f"  Zed is left alone: {broken}: line 1" in done.stdout
    assert broken.read_text() == "{ broken"
    assert '"muxway":' in (home / ".cursor/mcp.json").read_text()


def test_servers_may_stay_beside_muxway(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#step-by-step: --keep, and only the clients that are named."""
    fill(home)
    done = muxway("setup", "--yes", "--keep", "--client", "cursor")
    assert done.exit_code == 0, done.output
    assert [*entries(home)[".cursor/mcp.json"]] == ["notes", "muxway"]
    assert (home / ".codex/config.toml").read_text() == FILES[".codex/config.toml"]


def test_no_secret_is_shown(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#secrets: where they stand is told, what they are is not."""
    (home / ".cursor").mkdir()
    secret = {"GITHUB_TOKEN": "ghp_0123456789abcdefghij", "MODE": "x"}
    args = ["hub", "--api-key", "k-55555555", "https://u:pa55word@example.com/?token=t-66666666"]
    entry = {"command": "npx", "args": args, "env": secret}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"hub": entry}, "oauthToken": "o-77777777"}))
    said = ""
    for words in (["clients"], ["import", "--dry-run"], ["setup", "--dry-run"], ["setup", "--yes"]):
        done = muxway(*words)
        assert done.exit_code == 0, done.output
        said += done.output
    said += muxway("disconnect", "cursor").output
    assert "hub has secrets in clear: args.2, args.3, env.GITHUB_TOKEN" in said
    assert "add --secret-store" in said
    for hidden in ("ghp_0123456789abcdefghij", "k-55555555", "pa55word", "t-66666666", "o-77777777"):
        assert hidden not in said
    assert (home / ".config/muxway/muxway.json").stat().st_mode & 0o077 == 0


def test_secrets_can_be_moved_to_files_of_their_own(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#secrets: the config names the file, and the server gets what it had."""
    (home / ".cursor").mkdir()
    entry = {"command": "hub", "env": {"GITHUB_TOKEN": "ghp_0123456789abcdefghij", "MODE": "x"}}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"my hub": entry}}))
    done = muxway("setup", "--yes", "--move-secrets")
    assert done.exit_code == 0, done.output
    folder = home / ".config/muxway"
    config = (folder / "muxway.json").read_text()
    assert "ghp_" not in config + done.output
    assert json.loads(config)["mcpServers"]["my hub"] == {
        "command": "hub",
        "env": {"MODE": "x"},
        "envFile": "my_hub.env",
    }
    assert (folder / "my_hub.env").stat().st_mode & 0o077 == 0
    assert load_config(folder / "muxway.json").servers["my hub"].env == entry["env"]
    assert [*json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]] == ["muxway"]
    muxway("disconnect", "cursor")
    assert "nothing to import" in muxway("import", "cursor").output


def test_on_a_terminal_it_asks(home: Path) -> None:
    """docs/setup.md#step-by-step: no means no, and yes does it; secrets may go elsewhere."""
    (home / ".cursor").mkdir()
    file = home / ".cursor/mcp.json"
    text = json.dumps({"mcpServers": {"hub": {"command": "hub", "env": {"API_TOKEN": "hunter2hunter2"}}}})
    file.write_text(text)
    for answer in ("n", "y"):
        with Terminal([sys.executable, "-m", "muxway", "setup"], columns=200, rows=40) as terminal:
            terminal.until(lambda said: "secret store?" in said)
            terminal.type("y\n")
            terminal.until(lambda said: "connect Cursor?" in said)
            assert file.read_text() == text
            terminal.type(f"{answer}\n")
            assert terminal.end() == 0
            assert ("Nothing was changed" in terminal.said) is (answer == "n")
            assert "hunter2" not in terminal.said
    assert [*json.loads(file.read_text())["mcpServers"]] == ["muxway"]
    assert SecretStore().read("hub.API_TOKEN") == "hunter2hunter2"
    assert "hunter2" not in (home / ".config/muxway/muxway.json").read_text()


def test_import_takes_files_and_keeps_the_config_as_it_is_written(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#step-by-step: comments and order survive; names that are taken get another."""
    config = home / "mine.jsonc"
    config.write_text('{\n  // mine\n  "mcpServers": {\n    "a": {"command": "x"}, // keep\n  },\n}\n')
    (home / "other.toml").write_text('[mcp_servers.a]\ncommand = "y"\n[mcp_servers.b]\ncommand = "x"\n')
    done = muxway("import", "other.toml", "--config", config)
    assert done.exit_code == 0, done.output
    text = config.read_text()
    assert text.startswith('{\n  // mine\n  "mcpServers": {\n    "a": {"command": "x"}, // keep\n')
    assert parse_jsonc(text).value == {"mcpServers": {"a": {"command": "x"}, "a-other": {"command": "y"}}}
    assert "nothing to import" in muxway("import", "other.toml", "--config", config).output
    missing = muxway("import", "othr.toml", "--config", config)
    assert (missing.exit_code, "there is no file othr.toml" in missing.stderr) == (2, True)
    config.write_text("{ broken")
    for words in (["add", "npm:x"], ["remove", "x"], ["import", "other.toml"]):
        assert f"Error: {config}: line 1" in muxway(*words, "--config", config).stderr


def test_clients_are_shown_with_what_they_have(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-clients: for programs, too."""
    assert "No client was found" in muxway("clients").output
    fill(home)
    found = {about["id"]: about for about in json.loads(muxway("clients", "--json").output)}
    assert [*found] == ["cursor", "vscode", "zed", "codex", "goose"]
    assert found["vscode"]["servers"] == ["clock", "hub"]
    assert found["goose"]["servers"] == ["developer", "text"]
    assert not any(about["connected"] for about in found.values())
    assert len(json.loads(muxway("clients", "--all", "--json").output)) >= 18
    assert "not connected  2 servers" in muxway("clients").output


def test_what_a_file_says_cannot_control_the_terminal(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: also not in what is told of a file that is left alone."""
    file = home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"\\u001b]0;x\\u0007": {}, "\\u001b]0;x\\u0007": {}}}')
    (home / "muxway.json").write_text("{}")
    for words in (("connect", "cursor"), ("setup", "--yes"), ("import",), ("import", file), ("clients",)):
        result = muxway(*words)
        assert "\x1b" not in result.output + result.stderr, words
        assert "\x07" not in result.output + result.stderr, words


def test_secrets_in_comments_are_not_shown(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#secrets: what somebody has taken out for now is a secret still."""
    secret = "abcdef0123456789xyz"
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text(
        f'{{ // "GITHUB_TOKEN": "{secret}"\n  "mcpServers": {{ // curl -H "Authorization: Bearer {secret}"\n'
        f'    "a": {{"command": "x", "args": ["plain-words"]}} // --token={secret}\n  }}\n}}\n'
    )
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        f"[mcp_servers.b]\ncommand = 'y' # password: {secret}\n# gh: ghp_{secret}\n"
    )
    for words in (
        ("setup", "--dry-run"),
        ("setup", "--yes"),
        ("connect", "cursor", "--dry-run"),
        ("disconnect", "--all"),
    ):
        result = muxway(*words)
        assert secret not in result.output, words
    assert "plain-words" in result.output


def test_each_server_gets_a_file_of_its_own_for_its_secrets(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#secrets: also if their names differ only in what the name of a file may not have."""
    names = {"a b": "abcdef-1", "a/b": "abcdef-2", "a_b": "abcdef-3", "A_B": "abcdef-4", "../a_b": "abcdef-5"}
    entries = {name: {"command": "x", "env": {"KEY": secret}} for name, secret in names.items()}
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": entries}))
    result = muxway("import", "cursor", "--move-secrets", "-c", home / "made/muxway.json")
    assert result.exit_code == 0, result.output
    servers = load_config(home / "made/muxway.json").servers
    assert {name: server.env["KEY"] for name, server in servers.items()} == names
    assert len([*(home / "made").glob("*.env")]) == len(names)


def test_an_address_with_a_token_is_not_shown(
    home: Path, muxway: Callable[..., Result], programs: Callable[[str, str], Path]
) -> None:
    """docs/setup.md#secrets: neither in the difference nor in the client's own command."""
    programs("codex", "#!/bin/sh\n")
    shown = muxway("connect", "codex", "--dry-run", "--url", "http://127.0.0.1:3006/mcp?token=abcdef0123456789")
    assert "codex mcp add muxway --url" in shown.output
    assert "abcdef0123456789" not in shown.output


def test_secrets_do_not_get_into_what_others_can_read(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#secrets: a file of secrets that was open is closed; of a config that is, the user hears."""
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"a": {"command": "x", "env": {"KEY": "abcdef-1"}}}}')
    config, variables = home / "muxway.json", home / "a.env"
    for file, text in ((config, "{}"), (variables, "OTHER=1\n")):
        file.write_text(text)
        file.chmod(0o644)
    assert f"others can read {config}" in " ".join(muxway("import", "cursor", "-c", config, "--dry-run").output.split())
    result = muxway("import", "cursor", "-c", config, "--move-secrets")
    assert "others can read" not in result.output
    assert "abcdef-1" in variables.read_text()
    assert (variables.stat().st_mode & 0o777, config.stat().st_mode & 0o777) == (0o600, 0o644)
