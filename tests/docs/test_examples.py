"""Every example does what it says, run as a user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
CONFIGS = sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in {".json", ".jsonc", ".toml", ".yaml"})
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))

SAYS = {
    "library_usage.py": ["clock: running", "notes__add: Remember a note.", "09:30 in UTC is 18:30 in +09:00"],
    "in_process.py": ["shelf__put ['title', 'copies']", "{'Emma': 2}", "True PermissionError: Emma stays"],
    "sync_script.py": ["'text': 'Buy milk'", "'text': 'Call Ada'"],
    "add_and_remove.py": ["text running", "3 of 3: three", "gave up", "no database", "Tool not found: text.count"],
}
NOTES = ["notes__add", "notes__list", "notes__search", "notes__delete"]
CLOCK = ["clock__now", "clock__convert"]
TEXT = ["text__count", "text__read_aloud"]
LISTS = {
    "servers.jsonc": ["remember", "notes__list", "notes__search", *CLOCK, *TEXT],
    "servers.toml": ["notes.add", "notes.list", "notes.search", "time.now", "time.convert"],
    "servers.yaml": [*NOTES, *CLOCK, *TEXT],
    "compound_tools.jsonc": ["Desk", *CLOCK],
    "composed_tool.jsonc": ["Remember", *CLOCK, *TEXT],
    "shaping_and_views.jsonc": ["remember", "notes__list", "notes__search", "notes__delete", "clock__now"],
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python as if its environment were activated, so that the configs' `python3` is this one."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_example_is_tested_and_in_the_index() -> None:
    """Ours: an example that is not run is soon wrong."""
    assert sorted(SAYS) == SCRIPTS
    assert sorted(LISTS) == CONFIGS
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in (*SCRIPTS, *CONFIGS) if f"]({name})" not in index] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_and_says_what_it_should(script: str) -> None:
    """Ours: an example does what it promises. `library_usage.py` is the usage example of the multi-MCP client."""
    done = run("-W", "error", str(EXAMPLES / script))
    assert done.returncode == 0, done.stderr
    assert [words for words in SAYS[script] if words not in done.stdout] == []


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_is_valid_and_its_servers_start(config: str) -> None:
    """Ours: whoever copies an example has one that works."""
    done = run("-m", "muxway", "check", f"examples/{config}", "--connect")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "valid" in done.stdout
    assert "warning" not in done.stdout


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_lists_the_tools_its_comments_promise(config: str) -> None:
    """Ours: filters, renames, prefixes and separators as written beside them."""
    done = run("-m", "muxway", "tools", "--config", f"examples/{config}")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == LISTS[config]


def test_a_compound_tool_runs_what_is_shown_nowhere_else() -> None:
    """Ours: examples/compound_tools.jsonc."""
    arguments = ("server=notes", "tool=add", 'args:={"text": "Buy milk"}')
    done = run("-m", "muxway", "call", "Desk", *arguments, "--config", "examples/compound_tools.jsonc")
    assert done.returncode == 0, done.stderr
    assert "Buy milk" in done.stdout


@pytest.mark.parametrize("servers", ["recorded", "live"])
def test_a_composed_tool_does_what_its_own_examples_say(servers: str) -> None:
    """docs/composed-tools.md#test-it: `muxway test`, with what was recorded and with three real servers."""
    done = run("-m", "muxway", "test", "examples/composed_tool.jsonc", *(["--live"] if servers == "live" else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed, 0 failed" in done.stdout


@pytest.mark.parametrize(
    ("view", "tools"), [("agent", ["notes__list", "notes__search"]), ("writer", ["remember", "clock__now"])]
)
def test_the_views_of_the_example_list_what_its_comments_promise(view: str, tools: list[str]) -> None:
    """docs/cookbook.md#a-read-only-view-for-an-agent: what its comments promise."""
    done = run("-m", "muxway", "tools", "--config", "examples/shaping_and_views.jsonc", "--view", view)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == tools


def test_the_shapes_of_the_example_do_what_its_comments_promise() -> None:
    """docs/shaping.md#shape-tools: what its comments promise."""
    config = ("--config", "examples/shaping_and_views.jsonc")
    done = run("-m", "muxway", "call", *config, "remember", "text=Buy milk")
    assert '"team"' in done.stdout, done.stderr
    assert run("-m", "muxway", "call", *config, "notes__search", "word=milk").stdout.strip() == "[]"
    refused = run("-m", "muxway", "call", *config, "clock__now", "timezone=Mars")
    assert 'argument "timezone" must be one of "UTC", "Asia/Tokyo"' in refused.stderr
