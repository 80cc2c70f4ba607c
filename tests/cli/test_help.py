"""What the command says about itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from muxway import __version__
from muxway.cli import group
from muxway.config.find import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

HEAVY = ("asyncio", "msgspec", "yaml", "uvloop", "muxway.gateway", "muxway.config", "logging")
SUBCOMMANDS = [[verb] for verb in group.VERBS] + [
    *(["config", "schema"], ["config", "explain"]),
    *(["key", "create"], ["key", "list"], ["key", "revoke"]),
]


def test_help_loads_nothing_heavy() -> None:
    """Ours: `--help` under 100 ms, which holds only while neither the gateway nor asyncio is imported for it."""
    program = f"""
import sys
from muxway.cli import cli
try:
    cli(["--help"], prog_name="muxway")
except SystemExit:
    pass
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert "Commands:" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("path", [[], *SUBCOMMANDS], ids=" ".join)
def test_help_fits_eighty_columns_and_begins_with_a_sentence(path: list[str], muxway: Callable[..., Result]) -> None:
    """Ours: ≤ 80 columns; a summary, examples before options."""
    result = muxway(*path, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert result.output.splitlines()[2].strip().endswith(".")
    assert not [line for line in result.output.splitlines()[2:] if line.endswith("...")], "a sentence is cut"
    if path not in (["config"], ["key"], ["registry"], ["secret"]):
        assert 0 < result.output.index("Examples:") < result.output.index("Options:")


def test_every_verb_has_the_summary_that_the_overview_shows(muxway: Callable[..., Result]) -> None:
    """Ours: the overview is made from a table so that it loads no verb; the table must not lie."""
    for verb, summary in group.VERBS.items():
        shown = muxway(verb, "--help").output.splitlines()[2].strip()
        assert shown.startswith(summary.removesuffix("."))


def test_nothing_at_all_shows_help(muxway: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a plain `muxway` on a terminal is a question, not a mistake."""
    monkeypatch.setattr("os.isatty", lambda fd: fd == 0)
    result = muxway()
    assert result.exit_code == 0
    assert result.output == muxway("--help").output


def test_version(muxway: Callable[..., Result]) -> None:
    """Ours: `muxway --version`."""
    assert muxway("--version").output == f"muxway {__version__}\n"


def test_a_mistyped_verb_gets_the_nearest_one(muxway: Callable[..., Result]) -> None:
    """Ours: nearest-name suggestions on typos."""
    result = muxway("chekc")
    assert result.exit_code == 2
    assert 'There is no command "chekc". Did you mean "check"?' in result.stderr


def test_a_verb_like_no_other_gets_the_list(muxway: Callable[..., Result]) -> None:
    """Ours: an error says what to do."""
    result = muxway("zzz")
    assert result.exit_code == 2
    assert "There are: stdio, serve, demo, check" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-completion: shell completion."""
    result = muxway("completion", shell)
    assert result.exit_code == 0
    assert "_MUXWAY_COMPLETE" in result.output


def test_completion_knows_the_verbs_and_their_options(muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-completion: shell completion; verbs come from the table, options from the verb."""

    def complete(words: str, count: int) -> list[str]:
        env = {"_MUXWAY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
        return [line.partition(",")[2] for line in muxway(env=env).output.splitlines()]

    assert complete("muxway c", 1) == ["check", "call", "clients", "connect", "config", "completion"]
    assert "--separator" in complete("muxway stdio --", 2)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--config f", "stdio --config f"),
        ("--config=f", "stdio --config=f"),
        ("-cf", "stdio -cf"),
        ("--config f --debug", "stdio --config f --debug"),
        ("--separator : --config f", "stdio --separator : --config f"),
        ("--config f tools --json", "--config f tools --json"),
        ("tools --config f", "tools --config f"),
        ("--help", "--help"),
        ("--config f --help", "--config f --help"),
        ("--version", "--version"),
        ("", ""),
    ],
)
def test_a_command_line_without_a_verb_serves(given: str, meant: str) -> None:
    """docs/cli.md#muxway: `muxway --config FILE` is what clients launch."""
    assert group.with_verb(given.split()) == meant.split()


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_program_that_names_the_config_by_variable_is_served(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/configuration.md#which-file-is-read: without arguments, the config named by MCP_PROXY_CONFIG_PATH."""
    monkeypatch.setenv(variable, "servers.json")
    monkeypatch.setattr("os.isatty", lambda _: False)
    assert group.with_verb([]) == ["stdio"]


def test_config_schema_is_one_json_document(muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-config-schema: one JSON document."""
    assert json.loads(muxway("config", "schema").output)["title"] == "muxway configuration"


def test_config_explain_tells_about_one_key_or_all(muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-config-explain: one key, or all of them."""
    assert "gateway.separator" in muxway("config", "explain", "separator").output
    assert "hiddenTools" in muxway("config", "explain").output


def test_config_explain_suggests_the_nearest_key(muxway: Callable[..., Result]) -> None:
    """Ours: nearest-name suggestions on typos."""
    result = muxway("config", "explain", "calTimeout")
    assert result.exit_code == 2
    assert "did you mean `callTimeout`?" in result.stderr
