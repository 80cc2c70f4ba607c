"""How things are printed for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muxway.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Launched


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    """A terminal 40 columns wide."""
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    return capsys


def test_a_table_aligns_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours: tables of our own; what is wide stays whole in a pipe."""
    output.show_table([["a", "b" * 5, "c" * 200], ["aaa", "b", ""]], indent=1)
    assert capsys.readouterr().out == f" a    bbbbb  {'c' * 200}\n aaa  b\n"


def test_the_last_column_is_cut_to_fit_the_terminal(terminal: pytest.CaptureFixture[str]) -> None:
    """Ours: a line is a line, however much a server has to say."""
    output.show_table([["name", "word " * 20]])
    assert terminal.readouterr().out == f"name  {('word ' * 20)[:33]}…\n"


def test_wide_characters_take_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours: tool names and descriptions come in every script."""
    output.show_table([["時計", "x"], ["clock", "y"], ["e\u0301", "z"]])
    assert capsys.readouterr().out == "時計   x\nclock  y\ne\u0301      z\n"


def test_wide_characters_count_when_cutting(terminal: pytest.CaptureFixture[str]) -> None:
    """Ours: the line must fit in columns, not in characters."""
    output.show_table([["name", "時" * 40]])
    assert terminal.readouterr().out == f"name  {'時' * 16}…\n"


def test_foreign_text_keeps_its_lines_and_loses_its_power(terminal: pytest.CaptureFixture[str]) -> None:
    """Ours: escape sequences and returns are shown, newlines and tabs kept."""
    output.show_text("a\n\tb\x1b[2J\rc\x9b")
    assert terminal.readouterr().out == "a\n\tb\\x1b[2J\\rc\\x9b\n"


def test_foreign_text_on_one_line() -> None:
    """Ours: a description is one line of a table, whatever is in it."""
    assert output.one_line("two\n  lines \x1b[31m") == "two lines \\x1b[31m"


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 byte"), (999, "999 bytes"), (12_000, "12 kB"), (2_500_000, "2.5 MB")]
)
def test_sizes(count: int, words: str) -> None:
    """Ours: `[image image/png, 12 kB]`."""
    assert output.size(count) == words


def test_glyphs_have_a_plain_form(launch: Callable[..., Launched], servers: Path) -> None:
    """Ours: a terminal that knows only ASCII gets another glyph and the same word, not an error."""
    code, out, _ = launch("check", servers, env={"PYTHONIOENCODING": "ascii"}).end()
    assert code == 0
    assert out.startswith("+ valid")


@pytest.mark.parametrize(
    ("env", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
        ({"FORCE_COLOR": "0"}, False),
    ],
    ids=str,
)
def test_colour_in_a_pipe_only_when_forced(
    env: dict[str, str], *, coloured: bool, launch: Callable[..., Launched], servers: Path
) -> None:
    """docs/cli.md#command: honour NO_COLOR, FORCE_COLOR and TERM=dumb."""
    code, out, _ = launch("check", servers, env={"TERM": "xterm", **env}).end()
    assert code == 0
    assert ("\x1b[32m" in out) is coloured
