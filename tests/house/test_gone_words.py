"""Words that were given up stay given up: whoever reads the code learns those of the design page, and no others."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "muxway"

GONE = {
    "switchboard": "Runtime, Snapshot, Dispatcher",
    "relay": "Forwarder",
    "lane": "Slot",
    "fleet": "Servers",
    "station": "ManagedServer",
    "desk": "ParkedCalls",
    "crossing": "Exchange",
    "twin": "the field's word for it",
    "nursery": "ProcessManager",
    "mailbox": "Unsent",
    "ticket": "Pending",
    "channel": "ServerTransport",
    "HttpDoor": "HttpClientTransport",
    "core.ports": "calls.ports",
}
"""Word → what is said instead."""
PUBLIC = re.compile(r"stdio_door|memory_door")
"""Names of the library."""
TOLD = ("control/", "cli/running.py", "cli/verbs/status.py")
"""Who knows how a running gateway is reached: `door` in what `muxway status --json` prints."""


@cache
def lines() -> list[tuple[str, str]]:
    """Every line of the source, with the place where it stands."""
    return [
        (f"{path.relative_to(SOURCE).as_posix()}:{number}", line)
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    ]


@pytest.mark.parametrize("word", GONE)
def test_a_word_that_is_gone_stays_gone(word: str) -> None:
    """docs/design/README.md#words: a private word must earn its place there."""
    # In names, too: `lane_of`, `_lanes`.
    found = re.compile(rf"(?<![a-zA-Z]){re.escape(word)}s?(?![a-z])", re.IGNORECASE)
    assert [f"{place}: {line.strip()} (say: {GONE[word]})" for place, line in lines() if found.search(line)] == []


def test_a_door_is_a_transport_but_in_public_names() -> None:
    """docs/design/README.md#words. `Gateway.stdio_door` and `memory_door` are public, and stay."""
    assert [
        f"{place}: {line.strip()}"
        for place, line in lines()
        if not place.startswith(TOLD) and re.search(r"(?i)door", PUBLIC.sub("", line))
    ] == []


def test_every_class_of_the_glossary_is_there() -> None:
    """docs/design/README.md#words: who looks a word up there finds it in the code."""
    page = (ROOT / "docs" / "design" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \|", page.partition("## Words")[2].partition("\n## ")[0], re.MULTILINE)[1:]
    words = [word.strip() for row in rows for word in row.split(",")]
    said = "\n".join(line for _, line in lines())
    assert len(words) <= 60
    assert [word for word in words if not re.search(rf"(?i){re.escape(word)}", said)] == []
