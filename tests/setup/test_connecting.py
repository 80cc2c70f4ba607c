"""muxway in a client's file and out of it again: what is written, what comes back, what is left alone."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from muxway.setup import files
from muxway.setup.clients import CLIENTS, NAME, file_of, places, stdio_entry, url_entry
from muxway.setup.connecting import NotConnected, apply, connect, disconnect, is_connected
from muxway.setup.files import FileRefused
from muxway.setup.importing import servers_in
from muxway.setup.splicing import entries_in, with_entry
from tests.setup.making import Maker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from muxway.setup.clients import KnownClient

PROGRAM, ARGS = "/opt/bin/muxway", ["stdio", "--keep-going", "/home/user/muxway.json"]


def made(client: KnownClient, seed: int) -> str:
    maker, container = Maker(seed), client.container[0]
    match client.kind:
        case "TOML":
            return maker.toml(container)
        case "YAML":
            return maker.yaml(container, listed=client.shape == "listed")
        case _:
            return maker.json(container)


def put(client: KnownClient, text: str) -> Path:
    file = file_of(client, os.environ)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file


def connected(client: KnownClient) -> None:
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert change is not None
    apply(change, os.environ)


def disconnected(client: KnownClient) -> None:
    change = disconnect(client, os.environ)
    assert change is not None
    apply(change, os.environ)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.id)
def test_every_client_gets_its_bytes_back(client: KnownClient) -> None:
    """docs/setup.md#the-way-back: comments, BOM, CRLF, tabs and an end without a line break included."""
    for seed in range(8):
        text = made(client, seed)
        file = put(client, text)
        file.chmod(0o640)
        connected(client)
        assert is_connected(client, os.environ)
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ) is None  # there already
        disconnected(client)
        assert file.read_bytes() == text.encode()
        assert disconnect(client, os.environ) is None


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.id)
def test_a_client_without_a_file_gets_one_and_loses_it_again(client: KnownClient) -> None:
    """docs/setup.md#the-way-back: a file that muxway made goes."""
    file = file_of(client, os.environ)
    connected(client)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    entry = entries_in(file.read_text(), client.kind, client.container)[NAME]
    assert PROGRAM in json.dumps(entry)
    disconnected(client)
    assert not file.exists()


LINUX = """
claude-desktop .config/Claude/claude_desktop_config.json
claude-code .claude.json
cursor .cursor/mcp.json
vscode .config/Code/User/mcp.json
vscode-insiders .config/Code - Insiders/User/mcp.json
copilot-jetbrains .config/github-copilot/intellij/mcp.json
copilot-cli .copilot/mcp-config.json
windsurf .codeium/windsurf/mcp_config.json
antigravity .gemini/antigravity/mcp_config.json
zed .config/zed/settings.json
codex .codex/config.toml
gemini .gemini/settings.json
goose .config/goose/config.yaml
opencode .config/opencode/opencode.json
cline .config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json
roo .config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json
continue .continue/config.yaml
lm-studio .lmstudio/mcp.json
kiro .kiro/settings/mcp.json
junie .junie/mcp/mcp.json
factory .factory/mcp.json
amazon-q .aws/amazonq/mcp.json
trae .config/Trae/User/mcp.json
amp .config/amp/settings.json
"""
"""Where clients keep the servers of their user on Linux, by their documentation."""
APPLICATION_SUPPORT = ("claude-desktop", "vscode", "vscode-insiders", "cline", "roo", "trae")
"""Those that have another place on macOS."""


def test_places_follow_the_system_and_its_variables() -> None:
    """docs/setup.md#clients: Linux and macOS keep them apart, and some clients have variables for it."""
    user = {"HOME": "/h"}
    expected = dict(line.split(" ", 1) for line in LINUX.strip().splitlines())
    on = {
        system: {name: str(file_of(client, user, system)) for name, client in CLIENTS.items()}
        for system in ("linux", "darwin")
    }
    assert on["linux"] == {name: f"/h/{file}" for name, file in expected.items()}
    moved = {name: file.replace(".config", "Library/Application Support") for name, file in expected.items()}
    assert on["darwin"] == {
        name: f"/h/{moved[name] if name in APPLICATION_SUPPORT else file}" for name, file in expected.items()
    }
    assert places({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "linux")["config"] == "/x"
    assert str(file_of(CLIENTS["codex"], {"HOME": "/h", "CODEX_HOME": "/c"})) == "/c/config.toml"
    assert str(file_of(CLIENTS["claude-code"], {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c"})) == "/c/.claude.json"


def test_every_client_can_be_shown_what_would_change(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#step-by-step: --dry-run, for each of them."""
    (home / "servers.json").write_text('{"mcpServers": {"b": {"command": "y"}}}')
    for client in CLIENTS.values():
        done = muxway("connect", client.id, "--config", "servers.json", "--dry-run")
        assert done.exit_code == 0, done.output
        assert f"+++ {file_of(client, os.environ)}" in done.output
        assert not file_of(client, os.environ).exists()


def test_a_url_is_written_in_each_clients_words() -> None:
    """docs/setup.md#clients: each has a word of its own for it."""
    url = "http://127.0.0.1:3006/mcp"
    written = {name: url_entry(client, url) for name, client in CLIENTS.items()}
    assert written["windsurf"] == {"serverUrl": url}
    assert written["gemini"] == {"httpUrl": url}
    assert written["goose"]["uri"] == url
    assert written["vscode"] == {"type": "http", "url": url}
    assert written["codex"] == {"url": url}


def test_a_file_written_since_loses_only_the_entry(home: Path) -> None:
    """docs/setup.md#the-way-back: what others wrote meanwhile stays, what muxway replaced comes back."""
    client = CLIENTS["cursor"]
    file = put(client, '{\n  "mcpServers": {\n    "a": {"command": "x"},\n    "b": {"command": "y"}\n  }\n}\n')
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ, ["a"])
    assert change is not None
    apply(change, os.environ)
    assert [*json.loads(file.read_text())["mcpServers"]] == ["b", NAME]
    file.write_text(file.read_text().replace('"y"', '"z"'))
    disconnected(client)
    assert json.loads(file.read_text()) == {"mcpServers": {"b": {"command": "z"}, "a": {"command": "x"}}}


def test_who_connects_again_still_gets_everything_back() -> None:
    """docs/setup.md#the-way-back: with another config, after the client wrote its file anew."""
    client = CLIENTS["cursor"]
    file = put(client, '{"mcpServers": {"a": {"command": "x"}}}')
    first = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ, ["a"])
    assert first is not None
    apply(first, os.environ)
    file.write_text(json.dumps(json.loads(file.read_text()), indent=4))
    second = connect(client, stdio_entry(client, PROGRAM, ["stdio", "other.json"]), os.environ)
    assert second is not None
    apply(second, os.environ)
    disconnected(client)
    assert json.loads(file.read_text()) == {"mcpServers": {"a": {"command": "x"}}}


def test_what_was_noted_of_another_file_is_not_put_into_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: a client's own variable may name another folder than when it was connected."""
    client = CLIENTS["codex"]
    put(client, '[mcp_servers.a]\ncommand = "x"\n')
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ, ["a"])
    assert change is not None
    apply(change, os.environ)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    put(client, "model = 'o'\n")
    assert disconnect(client, os.environ) is None


def test_who_is_killed_leaves_the_old_file_or_the_new_one(home: Path) -> None:
    """docs/setup.md#what-is-changed-in-a-file: replaced at once, or not at all."""
    client = CLIENTS["cursor"]
    text = '{"mcpServers": {"a": {"command": "x"}}}'
    file = put(client, text)
    program = (
        "import os\n"
        "from muxway.setup.clients import CLIENTS, stdio_entry\n"
        "from muxway.setup.connecting import *\n"
        "client = CLIENTS['cursor']\n"
        "print(flush=True)\n"
        "while True:\n"
        "    apply(connect(client, stdio_entry(client, 'm', []), os.environ), os.environ)\n"
        "    apply(disconnect(client, os.environ), os.environ)\n"
    )
    for number in range(6):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            running.stdout.readline()
            time.sleep(0.02 * number)
            running.kill()
        assert {**json.loads(file.read_text())["mcpServers"], NAME: None} == {"a": {"command": "x"}, NAME: None}
        change = disconnect(client, os.environ)
        if change is not None:
            apply(change, os.environ)
        assert file.read_text() == text


@pytest.mark.parametrize(
    "text", ["{", '{"mcpServers": 3}', "\x00", '{"mcpServers": {}, "mcpServers": {}}', '{"a": 1} trailing']
)
def test_a_file_that_cannot_be_read_is_left_alone(text: str) -> None:
    """docs/setup.md#what-is-left-alone: with the reason, and the entry to put in by hand."""
    client = CLIENTS["cursor"]
    file = put(client, text)
    with pytest.raises(NotConnected, match="is left alone") as refusal:
        connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert PROGRAM in str(refusal.value)
    assert ": it: " not in str(refusal.value)
    assert file.read_text() == text


def test_a_file_in_another_encoding_is_left_alone() -> None:
    """docs/setup.md#what-is-left-alone."""
    client = CLIENTS["cursor"]
    file = put(client, "")
    file.write_bytes('{"größe": 1}'.encode("utf-16"))
    with pytest.raises(FileRefused, match="not UTF-8"):
        connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)


def test_a_file_changed_meanwhile_is_left_alone() -> None:
    """docs/setup.md#what-is-left-alone: between showing and writing, somebody else wrote."""
    client = CLIENTS["cursor"]
    file = put(client, "{}")
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert change is not None
    file.write_text('{"new": 1}')
    with pytest.raises(FileRefused, match="changed meanwhile"):
        apply(change, os.environ)
    assert file.read_text() == '{"new": 1}'
    assert disconnect(client, os.environ) is None
    assert not [*file.parent.glob(".mcp.json.*")]


def test_who_comes_too_late_leaves_the_note_of_whoever_was_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/setup.md#the-way-back: of two `setup` at once, one connects, and what it took out comes back."""
    client = CLIENTS["cursor"]
    entry = stdio_entry(client, PROGRAM, ARGS)
    text = '{"mcpServers": {"a": {"command": "x"}}}'
    file = put(client, text)
    late, quick = (connect(client, entry, os.environ, ["a"]) for _ in range(2))
    assert late is not None
    assert quick is not None
    replace = files.replace

    def replaced(snapshot: files.ReadFile, data: bytes | None) -> files.ReadFile:
        if snapshot is late.before:
            apply(quick, os.environ)
        return replace(snapshot, data)

    monkeypatch.setattr(files, "replace", replaced)
    with pytest.raises(FileRefused, match="changed meanwhile"):
        apply(late, os.environ)
    file.write_text(file.read_text() + "\n")
    disconnected(client)
    assert json.loads(file.read_text()) == json.loads(text)


def test_a_locked_or_read_only_file_is_left_alone() -> None:
    """docs/setup.md#what-is-left-alone."""
    client = CLIENTS["cursor"]
    file = put(client, "{}")
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert change is not None
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with pytest.raises(FileRefused, match="locked"):
            apply(change, os.environ)
    file.chmod(0o400)
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert change is not None
    with pytest.raises(FileRefused, match="read-only"):
        apply(change, os.environ)
    assert file.read_text() == "{}"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """docs/setup.md#what-is-changed-in-a-file: dotfile managers link files; what they lead to is written."""
    client = CLIENTS["cursor"]
    file = put(client, "")
    real = tmp_path / "dotfiles.json"
    real.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    file.unlink()
    file.symlink_to(real)
    connected(client)
    assert file.is_symlink()
    assert NAME in json.loads(real.read_text())["mcpServers"]
    disconnected(client)
    assert real.read_text() == '{"mcpServers": {"a": {"command": "x"}}}'


def test_links_that_lead_nowhere_folders_and_other_names_are_left_alone(tmp_path: Path) -> None:
    """docs/setup.md#what-is-left-alone."""
    file = tmp_path / "mcp.json"
    file.symlink_to(tmp_path / "gone")
    with pytest.raises(FileRefused, match="leads nowhere"):
        files.read(file)
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(FileRefused, match="a link to itself"):
        files.read(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(FileRefused):
        files.read(file)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileRefused, match="no plain file"):
        files.read(tmp_path / "pipe")  # and it is not waited for whoever may write to it
    (tmp_path / "a").write_text("{}")
    os.link(tmp_path / "a", tmp_path / "b")
    with pytest.raises(FileRefused, match="hard links"):
        files.read(tmp_path / "b")


def test_a_link_that_leads_elsewhere_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """docs/setup.md#what-is-left-alone: what it led to is nobody's file any more."""
    client = CLIENTS["cursor"]
    file = put(client, "")
    file.unlink()
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text("{}")
    file.symlink_to(tmp_path / "one.json")
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert change is not None
    file.unlink()
    file.symlink_to(tmp_path / "two.json")
    with pytest.raises(FileRefused, match="changed meanwhile"):
        apply(change, os.environ)
    assert {(tmp_path / name).read_text() for name in ("one.json", "two.json")} == {"{}"}


def test_a_folder_that_is_closed_to_us_costs_only_its_client(
    home: Path, muxway: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/setup.md#what-is-left-alone: macOS closes folders of programs to other programs."""
    put(CLIENTS["cursor"], "{}")
    put(CLIENTS["windsurf"], '{"mcpServers": {"a": {"command": "x"}}}')
    stat_of = os.stat

    def closed(path: os.PathLike[str] | str | int, **more: object) -> os.stat_result:
        if not isinstance(path, int) and os.fspath(path).startswith(f"{home}/.cursor/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat_of(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", closed)
    result = muxway("clients")
    assert result.exit_code == 0
    assert "cursor: " in result.output
    result = muxway("setup", "--yes")
    assert (result.exit_code, "Windsurf has muxway" in result.output) == (1, True)
    assert "Cursor is left alone" in result.stderr


def test_a_file_of_a_group_that_we_cannot_give_is_open_to_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: the group of the file that is made is another one, which its owner did not mean."""
    client = CLIENTS["cursor"]
    file = put(client, "{}")
    file.chmod(0o660)

    def refused(*_: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refused)
    connected(client)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_files_and_links_of_another_user_are_left_alone(tmp_path: Path) -> None:
    """docs/setup.md#what-is-left-alone."""
    file, link = tmp_path / "mcp.json", tmp_path / "link"
    file.write_text("{}")
    link.symlink_to(file)
    os.chown(link, 12345, -1, follow_symlinks=False)
    with pytest.raises(FileRefused, match="link of another user"):
        files.read(link)
    os.chown(file, 12345, -1)
    with pytest.raises(FileRefused, match="belongs to another user"):
        files.read(file)


def test_the_newest_backups_are_kept() -> None:
    """docs/setup.md#the-way-back: ten of each file."""
    client = CLIENTS["cursor"]
    for number in range(14):
        put(client, f'{{"n": {number}}}')
        connected(client)
    kept = [*(files.state_folder(os.environ) / "clients" / "cursor").glob("*-mcp.json")]
    assert len(kept) == files.KEPT_BACKUPS
    assert {json.loads(path.read_text())["n"] for path in kept} == {*range(4, 14)}
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


def test_backups_of_one_file_are_not_counted_for_another(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#the-way-back: ten of each file, whatever others are called."""
    texts = {home / "one/muxway.json": "{}", home / "two/muxway.json": "[]", home / "one/my-muxway.json": "1"}
    folder = home / "kept"
    for number in range(12):
        for file, text in texts.items():
            if number == 0 or file.parent.name == "one":
                file.parent.mkdir(exist_ok=True)
                file.write_text(text + " " * number)
                files.back_up(files.read(file), folder)
    kept = sorted(path.read_text().strip() for path in folder.iterdir())
    assert kept == ["1"] * 10 + ["[]"] + ["{}"] * 10


def test_each_file_of_a_client_gets_its_own_servers_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/setup.md#the-way-back: its variables may name one folder today and another tomorrow."""
    client = CLIENTS["codex"]
    entry = stdio_entry(client, PROGRAM, ARGS)
    for folder in ("one", "two"):
        monkeypatch.setenv("CODEX_HOME", str(tmp_path / folder))
        put(client, f"[mcp_servers.{folder}]\ncommand = 'x'\n")
        change = connect(client, entry, os.environ, [folder])
        assert change is not None
        apply(change, os.environ)
    for folder in ("one", "two"):
        monkeypatch.setenv("CODEX_HOME", str(tmp_path / folder))
        file = file_of(client, os.environ)
        file.write_text(file.read_text() + "\n[more]\n")
        disconnected(client)
        assert [*entries_in(file.read_text(), "TOML", client.container)] == [folder]


@pytest.mark.parametrize("spoiled", ["backup", "created", "replaced", "after"])
def test_a_note_that_cannot_be_used_is_none(spoiled: str) -> None:
    """Ours: whoever edits it gets what somebody gets who has none."""
    client = CLIENTS["cursor"]
    file = put(client, '{"mcpServers": {"a": {"command": "x"}}}')
    connected(client)
    (note,) = (files.state_folder(os.environ) / "clients/cursor").glob("connected-*.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), spoiled: 5}))
    disconnected(client)
    assert json.loads(file.read_text()) == {"mcpServers": {"a": {"command": "x"}}}


def test_claude_desktop_is_left_alone_while_it_runs(programs: Callable[[str, str], Path]) -> None:
    """docs/setup.md#what-is-left-alone: it would write its file anew from memory."""
    programs("ps", "#!/bin/sh\necho /Applications/Claude.app/Contents/MacOS/Claude\n")
    put(CLIENTS["claude-desktop"], "{}")
    with pytest.raises(NotConnected, match="is running"):
        connect(CLIENTS["claude-desktop"], stdio_entry(CLIENTS["claude-desktop"], PROGRAM, ARGS), os.environ)


CLAUDE = f"""#!{sys.executable}
import json, os, pathlib, sys
assert sys.argv[1:6] == ["mcp", "add-json", "--scope", "user", "muxway"], sys.argv
file = pathlib.Path(os.environ["HOME"]) / ".claude.json"
data = json.loads(file.read_text())
data.setdefault("mcpServers", {{}})["muxway"] = json.loads(sys.argv[6])
file.write_text(json.dumps(data))
"""


def test_a_clients_own_command_is_used(programs: Callable[[str, str], Path], muxway: Callable[..., Result]) -> None:
    """docs/setup.md#what-is-changed-in-a-file: Claude Code writes its file all the time, and does this itself."""
    programs("claude", CLAUDE)
    client = CLIENTS["claude-code"]
    file = put(client, '{"numStartups": 7}')
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert change is not None
    assert change.command[1:3] == ("mcp", "add-json")
    apply(change, os.environ)
    assert json.loads(file.read_text())["mcpServers"][NAME]["command"] == PROGRAM
    disconnected(client)
    assert file.read_text() == '{"numStartups": 7}'


def test_an_own_command_that_fails_is_told(programs: Callable[[str, str], Path]) -> None:
    """Ours: nothing is noted as connected that is not."""
    programs("claude", "#!/bin/sh\necho no such scope >&2\nexit 1\n")
    client = CLIENTS["claude-code"]
    put(client, "{}")
    change = connect(client, stdio_entry(client, PROGRAM, ARGS), os.environ)
    assert change is not None
    with pytest.raises(NotConnected, match="no such scope"):
        apply(change, os.environ)
    assert disconnect(client, os.environ) is None


def test_a_dry_run_shows_the_difference_and_changes_nothing(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#step-by-step: what would be written, without secrets."""
    text = '{\n  "mcpServers": {\n    "a": {"command": "x", "env": {"API_TOKEN": "hunter2hunter2"}}\n  }\n}\n'
    file = put(CLIENTS["cursor"], text)
    (home / "servers.json").write_text('{"mcpServers": {"b": {"command": "y"}}}')
    done = muxway("connect", "cursor", "--config", "servers.json", "--dry-run")
    assert done.exit_code == 0, done.output
    assert '+    "muxway": {' in done.output
    assert '"***"' in done.output
    assert "hunter2" not in done.output
    assert file.read_text() == text


def test_who_has_a_server_twice_is_told(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#step-by-step: the same server in the client and behind muxway, unless `--replace` takes it out."""
    put(CLIENTS["cursor"], '{"mcpServers": {"a": {"command": "x"}, "mine": {"command": "z"}}}')
    (home / "servers.json").write_text('{"mcpServers": {"b": {"command": "x"}}}')
    done = muxway("connect", "cursor", "--config", "servers.json")
    assert "Now there twice, as muxway has them, too: a. `--replace` takes them out of Cursor." in done.output
    done = muxway("connect", "cursor", "--config", "servers.json", "--replace")
    assert done.exit_code == 0, done.output
    assert "there twice" not in done.output
    muxway("disconnect", "cursor")
    (home / "servers.json").write_text("broken")
    assert muxway("connect", "cursor", "--config", "servers.json").exit_code == 0


def test_who_names_no_client_is_told_which_there_are(muxway: Callable[..., Result]) -> None:
    """Ours: a slip gets a suggestion."""
    done = muxway("connect", "cursr")
    assert done.exit_code == 2
    assert "Did you mean cursor?" in done.stderr
    assert "name one client" in muxway("disconnect").stderr
    assert muxway("connect", "claude-desktop", "--url", "http://127.0.0.1:1/mcp").exit_code == 2


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.id)
def test_what_a_client_says_is_imported_as_the_same_server(client: KnownClient) -> None:
    """docs/setup.md#what-is-imported: whatever words a client has for it, one program is one server."""
    file = file_of(client, os.environ)
    for entry, wanted in (
        (stdio_entry(client, "npx", ["-y", "hub"]), {"command": "npx", "args": ["-y", "hub"]}),
        (url_entry(client, "https://hub.example/mcp"), {"url": "https://hub.example/mcp"}),
    ):
        text = with_entry("", client.kind, client.container, ("hub", {"name": "hub", **entry}))
        (found,) = servers_in(text, client.kind, file, client.id, os.environ)
        (plain,) = servers_in(json.dumps({"mcpServers": {"x": wanted}}), "JSON", file, "plain", os.environ)
        assert found.problem == ""
        assert found.identity == plain.identity
        assert not found.is_muxway
    ours = stdio_entry(client, PROGRAM, ARGS)
    text = with_entry("", client.kind, client.container, (NAME, ours))
    assert [server.is_muxway for server in servers_in(text, client.kind, file, client.id, os.environ)] == [True]
