"""Where a duty comes from can be read by a stranger: in a public standard, or on a page that is here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import anchors
from tests.house.test_files import ROOT, files

FOLDERS = ("src/", "tests/", "bench/", "fuzz/", "docs/", "examples/")
HERE = Path(__file__).relative_to(ROOT).as_posix()
PAPERS = "|".join(
    (
        *("conformance", "design", "discovery", "ecosystem", "field", "findings", "identity"),
        *("matrix", "observability", "performance", "reliability", "scale", "style"),
    )
)
"""What people worked from while they wrote this. Nobody else has it."""
UNSEEN = re.compile(
    rf"""\b(?:
      mcp-wire | wire\ facts
    | (?i:{PAPERS})\ §
    | (?<![\w./-])(?P<page>(?:{PAPERS})\.md)
    | seeds/m | [Ss]eeds?\ (?:mcp|multi|data) | the\ seeds\b
    | [Ii]ssues?\ \#?\d | [Ii]ssue\ (?:point|part)\b | (?<=["(])Issues?[:,]
    | Table\ [RS]\d*\b
    )""",
    re.VERBOSE,
)
CITED = re.compile(r"\b(docs/[\w./-]+\.md)(?:#([\w-]+))?")


def citing() -> dict[str, str]:
    """The files in which something may be cited: name → text."""
    return {name: text for name, text in files().items() if name.startswith(FOLDERS) and name != HERE}


def place(name: str, text: str, match: re.Match[str]) -> str:
    """Where something was found, as `file:line: what`."""
    return f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"


def unseen(name: str, text: str) -> list[str]:
    """What a file cites that is not here. A page of one of these names may yet be written."""
    folders = ((ROOT / name).parent, ROOT / "docs")
    return [
        place(name, text, match)
        for match in UNSEEN.finditer(text)
        if match["page"] is None or not any((folder / match["page"]).exists() for folder in folders)
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Issue 2, point 2: junk."""', True),
        ('"""Issue point 7."""', True),
        ('"""Issue, Bad input: wrong params."""', True),
        ("# as issue 11 says", True),
        ('"""mcp-wire §1.6."""', True),
        ('"""reliability.md 2.0: the bar."""', True),
        ('"""Ecosystem §1.2: literally."""', True),
        ('"""reliability.md B7."""', True),
        ('"""design §5: never silently."""', True),
        ('"""Table S20: integers."""', True),
        ('"""seeds/multi-mcp-client.md: its steps."""', True),
        ("[so fast](matrix.md)", True),
        ('"""docs/behaviour.md#start: at once."""', False),
        ('"""docs/design/README.md#folders: one way."""', False),
        ('"""MCP 2025-11-25, basic/lifecycle: a version."""', False),
        ('"""JSON-RPC 2.0 §4.2, RFC 9110 §15.5."""', False),
        ("put it into `fuzz/seeds/TARGET`", False),
        ("the issue is that it ends; python-sdk#2454", False),
    ],
)
def test_a_citation_that_nobody_can_open_is_told_from_others(text: str, found: bool) -> None:
    """Ours: a rule that finds nothing is no rule."""
    assert bool(unseen("tests/house/example.py", text)) is found


def test_no_duty_is_cited_where_a_stranger_cannot_read_it() -> None:
    """CONTRIBUTING.md#house-rules: the MCP specification, an RFC, a page of docs, or `Ours`."""
    assert [citation for name, text in citing().items() for citation in unseen(name, text)] == []


def test_every_page_that_is_cited_is_there_with_its_heading() -> None:
    """Ours: a page or heading that gets another name takes its citations along."""
    known = {name: anchors(ROOT / name) for name in files() if name.startswith("docs/") and name.endswith(".md")}
    assert [
        place(name, text, match)
        for name, text in citing().items()
        if not name.startswith("docs/")  # their links have a test of their own
        for match in CITED.finditer(text)
        if match[1] not in known or (match[2] and match[2] not in known[match[1]])
    ] == []
