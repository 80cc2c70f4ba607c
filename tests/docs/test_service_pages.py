"""The pages on serving: commands and service files are understood by what they are for, and figures are the code's."""

from __future__ import annotations

import configparser
import json
import plistlib
import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from muxway.cli import cli
from muxway.clients.transports import http_sessions
from muxway.clients.transports.http_gateway import HttpSettings
from muxway.clients.transports.http_server import Limits
from tests.docs.pages import ROOT, Block, blocks, name_of, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELL = ("sh", "bash", "console")
_CODE_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


# --- commands ---------------------------------------------------------------------------------


def in_shell(text: str) -> Iterator[list[str]]:
    """Every command of a shell script."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.commenters = "#"
        command: list[str] = []
        for word in [*words, ";"]:
            if set(word) <= set("();<>|&"):
                yield command
                command = []
            elif command or not re.match(r"\w+=", word):  # variables may be set in front
                command.append(word)


def muxway_commands() -> list[tuple[str, list[str]]]:
    """(Where, arguments) of every call of muxway on a page, in whatever kind of file."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks(*SHELL):
        found += [(str(block), command) for command in in_shell(block.text)]
    for block in blocks("ini"):
        found += [(str(block), shlex.split(line)) for line in re.findall(r"^ExecStart=(.+)$", block.text, re.MULTILINE)]
    for block in blocks("dockerfile"):
        found += [(str(block), json.loads(line)) for line in re.findall(r"CMD (\[.+\])$", block.text, re.MULTILINE)]
    for block in blocks("xml"):
        found.append((str(block), plistlib.loads(block.text.encode())["ProgramArguments"]))
    # A client may be told to launch it: `claude mcp add muxway -- muxway --config FILE`.
    found = [(where, words[words.index("--") + 1 :] if "--" in words else words) for where, words in found]
    return [(where, words[1:]) for where, words in found if words and PurePath(words[0]).name == "muxway"]


@pytest.mark.parametrize(
    ("where", "arguments"), muxway_commands(), ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_a_command_on_a_page_is_understood(where: str, arguments: list[str]) -> None:
    """Ours: every verb and flag exists. `--help` behind it has them parsed, and nothing run."""
    result = CliRunner().invoke(cli, [*arguments, "--help"], prog_name="muxway")
    assert result.exit_code == 0, result.output


def test_commands_are_found_in_every_kind_of_file() -> None:
    """Ours: a rule that finds nothing must be shown to be able to."""
    serving = {where.partition(":")[0] for where, arguments in muxway_commands() if "serve" in arguments}
    assert {"README.md", "docs/service.md", "docs/reverse-proxy.md", "docs/security.md"} <= serving
    assert len([where for where, _ in muxway_commands() if where.startswith("docs/service.md")]) == 4
    assert list(in_shell("A=b muxway serve --port 1 2>log | less  # --no-such\nx && muxway tools")) == [
        ["muxway", "serve", "--port", "1", "2"],
        ["log"],
        ["less"],
        ["x"],
        ["muxway", "tools"],
    ]


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_flag_on_a_page_exists(page: object) -> None:
    """Ours: also in the middle of a sentence."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))  # pyright: ignore[reportAttributeAccessIssue]
    spans = [span for span in _CODE_SPAN.findall(text) if span.startswith(("--", "muxway "))]
    assert {flag for span in spans for flag in _FLAG.findall(span)} - _flags(cli) == set()


def _flags(command: click.Command) -> set[str]:
    own = {"--help", "--version"} | {
        name for param in command.params for name in (*param.opts, *param.secondary_opts) if name.startswith("--")
    }
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = (command.get_command(context, verb) for verb in command.list_commands(context))
        own = own.union(*(_flags(verb) for verb in below if verb is not None))
    return own


# --- service files ----------------------------------------------------------------------------


def test_the_unit_lets_muxway_end_its_servers() -> None:
    """behaviour.md, shutdown: over within 9 s, if nobody shoots at the children meanwhile."""
    (block,) = blocks("ini")
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string(block.text)
    service = unit["Service"]
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > 9
    assert service["ExecReload"].endswith("-HUP $MAINPID")


def test_the_launch_agent_is_a_property_list() -> None:
    """Ours: a typing mistake there gives no error message, only a service that is not there."""
    (block,) = blocks("xml")
    agent = plistlib.loads(block.text.encode())
    assert agent["RunAtLoad"] is True
    assert agent["ExitTimeOut"] > 9


@pytest.mark.parametrize("block", blocks("nginx"), ids=str)
def test_the_nginx_settings_are_whole(block: Block) -> None:
    """Ours: every directive ends, every brace is closed, and what the page insists on is there."""
    lines = [line.strip() for line in block.text.splitlines() if line.strip()]
    assert [line for line in lines if not line.endswith((";", "{", "}"))] == []
    assert block.text.count("{") == block.text.count("}")
    if "proxy_pass" in block.text:
        assert {"proxy_buffering off;", "proxy_http_version 1.1;", "proxy_set_header Host $host;"} <= {*lines}


def test_every_variable_of_the_service_page_is_read() -> None:
    """Ours: the table of variables, against the source."""
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    table = page.partition("## Environment")[2].partition("\n\nServers do not")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in _CODE_SPAN.findall(row)]
    assert len(names) == 11
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    assert [name for name in names if f'"{name}"' not in source] == []


# --- figures ----------------------------------------------------------------------------------


def test_the_figures_on_the_pages_are_those_of_the_code() -> None:
    """Ours: a limit is a promise."""
    door, limits = HttpSettings(), Limits()
    said = {
        "security.md": [
            f"bodies of {door.max_body_bytes >> 20} MiB",
            f"headers of {limits.header_bytes >> 10} KiB and {limits.header_count} lines",
            f"{limits.header_seconds:g} s for a header, {limits.body_seconds:g} s for a body",
            f"{limits.stall_seconds:g} s without reading",
            f"{door.max_sessions:,} sessions, {door.max_sessions_each} a token",
            f"idle ones end after {door.session_idle / 60:g} minutes",
            f"idle connections after {Limits().idle_seconds:g} s",
        ],
        "reverse-proxy.md": [
            f"an idle one for {Limits().idle_seconds:g} s",
            f"A comment every {door.keep_alive:g} s",
            f"gives a body {limits.body_seconds:g} s to arrive",
            f"client_max_body_size {door.max_body_bytes >> 20}m;",
        ],
        "transports.md": [
            f"for a while: {door.commit_after:g} s",
            f"after {door.session_idle / 60:g} minutes",
            f"{door.max_sessions:,} may be open, {door.max_sessions_each} for each token",
            f"are stopped {door.sse_linger:g} seconds later",
            f"the last {http_sessions._MOST_EVENTS} events,\n{http_sessions._MOST_BYTES >> 20} MiB",
            f"or {http_sessions._KEPT_SECONDS / 60:g} minutes are kept",
        ],
        "service.md": [f"{door.max_sessions:,} sessions"],
    }
    assert [
        f"{page}: {words}"
        for page, sentences in said.items()
        for words in sentences
        if words not in (ROOT / "docs" / page).read_text(encoding="utf-8")
    ] == []
