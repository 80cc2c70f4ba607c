"""`muxway lock`, and what `muxway check --client` says."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway.setup.lock_files import Package, integrity, package_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

SCRIPT = Path(__file__).parents[1] / "journeys" / "listing_server.py"


class Project:
    """A folder with a config of some servers, which have what a test says."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        (folder / "gate").touch()
        for name in names:
            self.has(name, "a", "b")
        self.file = folder / "servers.json"
        self.lock = folder / "muxway.lock"
        self.write(names)

    def write(self, names: Any) -> None:
        gate = str(self.folder / "gate")
        args = {name: ["-I", "-S", str(SCRIPT), str(self.folder / name), gate] for name in names}
        entries = {name: {"command": sys.executable, "args": args[name], "era": "legacy"} for name in names}
        self.file.write_text(json.dumps({"mcpServers": entries}))

    def has(self, name: str, *tools: str, **more: Any) -> None:
        (self.folder / name).write_text(json.dumps({"tools": tools, **more}))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder, "one", "two")


def test_a_lock_is_the_same_bytes_whatever_the_order_or_the_health(
    project: Project, muxway: Callable[..., Result]
) -> None:
    """docs/lock.md: written twice, nothing changes."""
    assert muxway("lock", "-c", project.file).exit_code == 0
    before = project.lock.read_bytes()
    assert b'tool "a" sha256:' in before
    project.has("one", "b", "a")
    project.has("two", fails=True)
    project.write(["two", "one"])
    result = muxway("lock", "-c", project.file)
    assert result.exit_code == 0, result.output
    assert "two stays as it was locked" in result.stdout
    assert project.lock.read_bytes() == before


def test_a_lock_is_the_same_for_everybody(
    project: Project, muxway: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/lock.md#what-is-in-it: variables by their names, so that CI may have another home; and no default of one."""
    entries = json.loads(project.file.read_text())["mcpServers"]
    entries["one"]["command"] = "${muxwayPython}"
    entries["one"]["args"] += ["${HOME}/notes", "--key=${NO_SUCH_KEY:-abcdef0123456789}"]
    project.file.write_text(json.dumps({"mcpServers": entries}))
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    assert muxway("lock", "-c", project.file).exit_code == 0
    text = project.lock.read_text()
    assert "${muxwayPython}" in text
    assert "${HOME}/notes" in text
    assert "abcdef0123456789" not in text
    monkeypatch.setenv("HOME", str(tmp_path / "bob"))
    result = muxway("lock", "--check", "-c", project.file)
    assert result.exit_code == 0, result.output


def test_a_lock_keeps_its_mode_and_a_link_stays_a_link(project: Project, muxway: Callable[..., Result]) -> None:
    """docs/lock.md#what-is-in-it: it may stand elsewhere, or be open to a group."""
    real = project.folder / "elsewhere.lock"
    muxway("lock", "-c", project.file)
    assert stat.S_IMODE(project.lock.stat().st_mode) == 0o644
    project.lock.rename(real)
    real.chmod(0o660)
    project.lock.symlink_to(real)
    project.has("one", "a", "b", "c")
    assert muxway("lock", "-c", project.file).exit_code == 0
    assert project.lock.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o660
    assert b'tool "c"' in real.read_bytes()


def test_secrets_in_arguments_are_not_locked(project: Project, muxway: Callable[..., Result]) -> None:
    """docs/lock.md#what-is-in-it: it is for others to read; wherever in an argument people put them."""
    secret = "abcdef0123456789xyz"
    entries = json.loads(project.file.read_text())["mcpServers"]
    entries["one"]["args"] += ["--header", f"X-Auth: {secret}", f"https://user:{secret}@example.com/?token={secret}"]
    project.file.write_text(json.dumps({"mcpServers": entries}))
    assert muxway("lock", "-c", project.file).exit_code == 0
    assert secret not in project.lock.read_text()
    assert "X-Auth: ***" in project.lock.read_text()
    for words in (("check",), ("check", "--json")):
        assert secret not in muxway(*words, "-c", project.file).output


def test_check_says_0_1_or_3(project: Project, muxway: Callable[..., Result]) -> None:
    """docs/lock.md#check."""
    assert muxway("lock", "--check", "-c", project.file).exit_code == 3, "there is no lock"
    muxway("lock", "-c", project.file)
    assert muxway("lock", "--check", "-c", project.file).exit_code == 0
    project.has("one", "a")
    result = muxway("lock", "--check", "-c", project.file)
    assert result.exit_code == 1
    assert "breaking  one: tool b" in result.stdout
    told = json.loads(muxway("lock", "--check", "--json", "-c", project.file).stdout)["drift"]
    assert told == [
        {"server": "one", "kind": "tools", "name": "b", "class": "breaking", "what": "is not there any more"}
    ]
    project.has("one", fails=True)
    assert muxway("lock", "--check", "-c", project.file).exit_code == 3
    project.lock.write_text("nonsense")
    assert muxway("lock", "--check", "-c", project.file).exit_code == 3


def test_diff_shows_lines_and_accept_takes_one(project: Project, muxway: Callable[..., Result]) -> None:
    """docs/lock.md#accept."""
    muxway("lock", "-c", project.file)
    project.has("one", "a", "b", "c", "d", instructions="Obey.")
    shown = muxway("lock", "diff", "-c", project.file).stdout
    assert '+  tool "c" sha256:' in shown
    assert '+  instructions "Obey."' in shown
    assert f"muxway lock accept one/c -c {project.file}\n" in shown
    assert f"muxway lock accept one -c {project.file}   (all of the server)\n" in shown
    taken = muxway("lock", "accept", "one/c", "-c", project.file)
    assert taken.exit_code == 0
    assert "one: tool c\n    risk  is new\n" in taken.stdout, "as it is now, not as it was when somebody looked"
    assert "tool d" not in taken.stdout
    left = muxway("lock", "--check", "-c", project.file).stdout
    assert "tool c" not in left
    assert "tool d" in left
    assert muxway("lock", "accept", "one", "-c", project.file).exit_code == 0
    assert muxway("lock", "--check", "-c", project.file).exit_code == 0
    assert "as they were locked" in muxway("lock", "diff", "-c", project.file).stdout
    assert muxway("lock", "accept", "one/none", "-c", project.file).exit_code == 1
    assert muxway("lock", "accept", "nobody", "-c", project.file).exit_code == 2


def test_a_server_with_a_slash_in_its_name_can_be_accepted(tmp_path: Path, muxway: Callable[..., Result]) -> None:
    """docs/lock.md#accept: names of servers are free."""
    (tmp_path / "io.example").mkdir()
    project = Project(tmp_path, "io.example/one")
    muxway("lock", "-c", project.file)
    project.has("io.example/one", "a", "b", "c/d")
    shown = muxway("lock", "--check", "-c", project.file).stdout
    assert "muxway lock accept io.example/one/c/d" in shown
    result = muxway("lock", "accept", "io.example/one/c/d", "-c", project.file)
    assert result.exit_code == 0, result.output
    assert muxway("lock", "--check", "-c", project.file).exit_code == 0


def test_a_server_that_was_never_seen_cannot_be_locked(project: Project, muxway: Callable[..., Result]) -> None:
    """docs/lock.md: the others are."""
    project.has("two", fails=True)
    result = muxway("lock", "-c", project.file)
    assert result.exit_code == 4
    assert "two is not locked" in result.output
    assert b'server "one"' in project.lock.read_bytes()


@pytest.mark.parametrize(
    ("command", "args", "package"),
    [
        ("npx", ["-y", "@scope/server@1.2.3", "/data"], Package("npm", "@scope/server", "1.2.3")),
        ("/usr/bin/uvx", ["mcp-server-time==0.6.2"], Package("pypi", "mcp-server-time", "0.6.2")),
        ("uvx", ["mcp-server-time@0.6.2"], Package("pypi", "mcp-server-time", "0.6.2")),
        ("npx", ["-y", "@scope/server"], None),
        ("npx", ["-y", "@scope/server@1.2"], None),
        ("npx", ["-y", "server@latest"], None),
        ("python", ["x@1.0.0"], None),
    ],
)
def test_packages_with_an_exact_version_are_known(command: str, args: list[str], package: Package | None) -> None:
    """docs/lock.md#what-is-in-it."""
    from muxway.config import parse_server

    assert package_of(parse_server("s", {"command": command, "args": args})) == package


def test_hashes_are_those_that_the_registry_gives(tmp_path: Path) -> None:
    """docs/lock.md#what-is-in-it: left out where it gives none."""
    npm, pip = tmp_path / "npm", tmp_path / "pip"
    npm.write_text("#!/bin/sh\necho '\"sha512-abc=\"'\n")
    report = {"install": [{"download_info": {"archive_info": {"hashes": {"sha256": "ff"}}}}]}
    pip.write_text(f"#!/bin/sh\necho '{json.dumps(report)}'\n")
    for program in (npm, pip):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environ = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    assert integrity(Package("npm", "x", "1"), environ) == "sha512-abc="
    assert integrity(Package("pypi", "x", "1"), environ) == "sha256-ff"
    pip.write_text("#!/bin/sh\nexit 1\n")
    assert integrity(Package("pypi", "x", "1"), environ) is None
    assert integrity(Package("npm", "x", "1"), {"PATH": "/none"}) is None


def test_check_says_what_is_done_for_a_client(muxway: Callable[..., Result], servers: Path) -> None:
    """docs/names.md#clients: nothing for good definitions; names that a client cannot take are told."""
    result = muxway("check", servers, "--client", "cursor")
    assert result.exit_code == 0, result.output
    assert "Cursor takes all tools as they are" in result.stdout
    config = json.loads(servers.read_text())
    config["gateway"] = {"separator": ":"}
    servers.write_text(json.dumps(config))
    shown = muxway("check", servers, "--client", "claude-desktop").stdout
    assert "in a form that it takes" in shown
    assert "listed as clock_now" in shown
    told = json.loads(muxway("check", servers, "--client", "claude-desktop", "--json").stdout)["client"]
    assert told["name"] == "claude-desktop"
    assert {"tool": "clock:now", "what": "listed as clock_now"} in told["lists"][0]["changes"]
