"""Finding the program and choosing its environment, without starting anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from muxway.errors import SpawnError
from muxway.servers.transports.command import child_environment, resolve

if TYPE_CHECKING:
    from pathlib import Path


def program(file: Path, mode: int = 0o755) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(mode)
    return file


def complaint(command: str, *, path: str | None = "", cwd: str | None = None) -> str:
    with pytest.raises(SpawnError) as caught:
        resolve(command, path=path, cwd=cwd)
    return str(caught.value)


def test_a_name_is_looked_up_on_the_childs_own_path_in_order(tmp_path: Path) -> None:
    first, second = program(tmp_path / "a" / "tool"), program(tmp_path / "b" / "tool")
    assert resolve("tool", path=f"{tmp_path}/none:{first.parent}:{second.parent}", cwd=None) == str(first)


def test_without_a_path_the_systems_default_is_searched() -> None:
    assert resolve("sh", path=None, cwd=None) in ("/bin/sh", "/usr/bin/sh")


def test_a_path_is_taken_relative_to_the_working_folder(tmp_path: Path) -> None:
    file = program(tmp_path / "bin" / "tool")
    assert resolve("./bin/tool", path="", cwd=str(tmp_path)) == str(file)
    assert resolve(str(file), path="", cwd="/") == str(file)


def test_a_relative_path_entry_is_relative_to_the_working_folder(tmp_path: Path) -> None:
    file = program(tmp_path / "bin" / "tool")
    assert resolve("tool", path="bin", cwd=str(tmp_path)) == str(file)


def test_an_unusable_file_does_not_hide_a_usable_one(tmp_path: Path) -> None:
    program(tmp_path / "a" / "tool", 0o644)
    (tmp_path / "b" / "tool").mkdir(parents=True)
    good = program(tmp_path / "c" / "tool")
    assert resolve("tool", path=f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c", cwd=None) == str(good)


def test_the_current_folder_is_never_searched_by_accident(tmp_path: Path) -> None:
    program(tmp_path / "tool")
    assert "set `command` to ./tool" in complaint("tool", path=":/none:", cwd=str(tmp_path))


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("npx", "Install Node.js (https://nodejs.org), or set `command` to the full path"),
        ("node", "Install Node.js"),
        ("npm", "Install Node.js"),
        ("uv", "Install uv"),
        ("uvx", "Install uv"),
        ("python", "Install Python"),
        ("python3", "Install Python"),
        ("docker", "Install Docker"),
        ("bun", "Install Bun"),
        ("bunx", "Install Bun"),
        ("deno", "Install Deno"),
        ("pipx", "Install pipx"),
        ("go", "Install Go"),
        ("java", "Install Java"),
        ("my-server", "Install it, or set `command` to the full path"),
    ],
)
def test_a_missing_command_says_what_to_install(command: str, remedy: str) -> None:
    """docs/behaviour.md#start: an error that says what to install."""
    said = complaint(command, path="/none:/nowhere")
    assert said.startswith(f"{command}: command not found on PATH. ")
    assert remedy in said


def test_python_that_is_only_there_as_python3_is_a_hint(tmp_path: Path) -> None:
    program(tmp_path / "python3")
    assert "set `command` to python3" in complaint("python", path=str(tmp_path))


def test_a_whole_command_line_is_recognised() -> None:
    said = complaint("npx -y some-server", path="/none")
    assert "set `command` to npx and move `-y some-server` to `args`" in said
    assert "set `command` to ./run and move `--fast` to `args`" in complaint("./run --fast", cwd="/")


def test_a_file_that_is_not_executable_says_chmod(tmp_path: Path) -> None:
    file = program(tmp_path / "tool", 0o644)
    assert f"chmod +x {file}" in complaint(str(file))
    assert f"chmod +x {file}" in complaint("tool", path=str(tmp_path))


def test_a_directory_is_called_one(tmp_path: Path) -> None:
    assert complaint(str(tmp_path)) == f"{tmp_path} is a directory, not a program"
    (tmp_path / "tool").mkdir()
    assert f"{tmp_path / 'tool'} is a directory" in complaint("tool", path="/none", cwd=str(tmp_path))


def test_a_missing_file_is_shown_with_where_it_was_sought(tmp_path: Path) -> None:
    assert complaint("./tool", cwd=str(tmp_path)).startswith(f"./tool ({tmp_path}/tool) does not exist.")


@pytest.mark.parametrize("command", ["", "a\0b", "/bin/a\0b"])
def test_what_cannot_be_a_command_is_refused(command: str) -> None:
    assert re.search("empty|NUL", complaint(command))


OURS = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LC_TIME": "C",
    "XDG_CACHE_HOME": "/cache",
    "https_proxy": "http://proxy:8080",
    "NO_PROXY": "localhost",
    "npm_config_registry": "https://npm.example",
    "UV_CACHE_DIR": "/uv",
    "PIP_INDEX_URL": "https://pypi.example/simple",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
}
THEIRS = {
    "AWS_SECRET_ACCESS_KEY": "a",
    "GITHUB_TOKEN": "b",
    "LD_PRELOAD": "/evil.so",
    "NODE_OPTIONS": "--require evil",
    "PYTHONPATH": "/src",
    "npm_config__authToken": "c",
    "NPM_CONFIG_//npm.example/:_password": "d",
    "UV_PUBLISH_TOKEN": "e",
    "UV_INDEX_MINE_PASSWORD": "f",
    "PIP_CLIENT_CERT_KEY": "g",
    "PIP_EXTRA_INDEX_URL": "https://me:secret@pypi.example/simple",
    "HTTP_PROXY": "http://me:secret@proxy:8080",
    "MUXWAY_CHILD": "outer:1",
    "BASH_FUNC_ls%%": "() { rm -rf /; }",
    "LC_EVIL": "() { :; }; echo hello",
}


def test_a_child_gets_the_allow_list_and_what_is_configured() -> None:
    """docs/configuration.md#environment-of-a-child: the child sees only allow-listed and configured variables."""
    child = child_environment({"API_KEY": "mine", "HOME": "/other"}, inherit=False, environ=OURS | THEIRS)
    assert child == OURS | {"API_KEY": "mine", "HOME": "/other"}


def test_names_to_inherit_are_added_even_if_they_look_secret() -> None:
    child = child_environment({}, inherit=("GITHUB_TOKEN", "HTTP_PROXY", "ABSENT"), environ=OURS | THEIRS)
    assert child == OURS | {name: THEIRS[name] for name in ("GITHUB_TOKEN", "HTTP_PROXY")}


def test_everything_is_inherited_but_functions_our_mark_and_what_loads_code() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: the last of them make programs load code."""
    child = child_environment({"A": "1"}, inherit=True, environ=OURS | THEIRS)
    kept = {"MUXWAY_CHILD", "LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH"}
    assert child == {k: v for k, v in (OURS | THEIRS | {"A": "1"}).items() if "()" not in v and k not in kept}


def test_the_gateways_own_token_is_inherited_only_by_name() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: a server that has it could call all the others."""
    ours = {"MUXWAY_TOKEN": "t0ken"}
    assert child_environment({}, inherit=True, environ=ours) == {}
    assert child_environment({}, inherit=False, environ=ours) == {}
    assert child_environment({}, inherit=("MUXWAY_TOKEN",), environ=ours) == ours


def test_what_loads_code_is_passed_where_it_is_configured() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: the operator may."""
    child = child_environment({"PYTHONPATH": "/mine"}, inherit=("PYTHONPATH",), environ=OURS | THEIRS)
    assert child == OURS | {"PYTHONPATH": "/mine"}


def test_a_path_with_a_blank_gets_no_advice_about_arguments() -> None:
    """Ours: `./run me.sh` is a file with a blank in its name more often than a command line."""
    said = complaint("./run me.sh", cwd="/")
    assert said.endswith("does not exist. Check the path in `command`")
