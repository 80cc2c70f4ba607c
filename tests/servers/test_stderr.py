"""What a child writes for people: kept within bounds, shown within bounds."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from muxway.net.processes.journal import Journal
from muxway.net.processes.stderr import StderrTail

KIB = 1024


class Shown:
    """A tail whose lines for the log are kept."""

    def __init__(self, *secrets: str) -> None:
        self.lines: list[str] = []
        self.journal = Journal()
        self.tail = StderrTail(secrets, self.lines.append, asyncio.get_running_loop(), self.journal)

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self.tail.take(self.tail.framer.feed(data))


async def test_a_hundred_lines_a_second_are_shown_and_the_rest_is_counted() -> None:
    """docs/behaviour.md#size-limits: 100 lines/s to the log. The count comes by itself, when nothing else does."""
    shown = Shown()
    shown.feed(b"".join(b"line %d\n" % n for n in range(1000)))
    assert shown.lines == [f"line {n}" for n in range(100)]
    async with asyncio.timeout(3):
        while len(shown.lines) == 100:
            await asyncio.sleep(0.02)
    assert shown.lines[100:] == ["(900 more lines not logged)"]
    assert len(shown.journal.lines()) == 1000
    shown.feed(b"after\n")
    assert shown.lines[101:] == ["after"]


async def test_what_was_left_out_is_told_at_the_end() -> None:
    """Ours: a child that floods and dies."""
    shown = Shown()
    shown.feed(b"x\n" * 150 + b"last words")
    shown.tail.end()
    shown.tail.end()
    assert shown.lines[100:] == ["(51 more lines not logged)"]
    assert shown.tail.last() == "last words"


@pytest.mark.parametrize("npm", ["npm error", "npm ERR!"])
async def test_of_what_npm_says_the_reason_counts(npm: str) -> None:
    """Ours: `npx` ends with where its log is, which tells nobody that there is no such package."""
    shown = Shown()
    said = ["code E404", "404 Not Found - GET https://example.com/nope", "404", "A complete log of this run: /x"]
    shown.feed("".join(f"{npm} {line}\n" for line in said).encode())
    assert shown.tail.last() == f"{npm} 404 Not Found - GET https://example.com/nope"
    shown.feed(b"Error: from the server itself\n")
    assert shown.tail.last() == "Error: from the server itself"


@pytest.mark.parametrize(
    "line", [b"x" * 100, b"\r", "é".encode() * 50, b"\x1b" * 20], ids=["text", "empty", "é", "esc"]
)
async def test_no_more_than_a_quarter_of_a_megabyte_is_kept(line: bytes) -> None:
    """docs/behaviour.md#size-limits: 256 KiB ring per child."""
    shown = Shown()
    chunk = (line + b"\n") * 400
    tracemalloc.start()
    try:
        for _ in range(30):
            shown.feed(chunk)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    lines = shown.journal.lines()
    assert len(lines) * len(line) <= 256 * KIB
    assert lines.first + len(lines) == 30 * 400
    assert kept < 2048 * KIB


async def test_a_line_without_end_is_cut_and_costs_nothing() -> None:
    """docs/behaviour.md#size-limits: 8 KiB a line."""
    shown = Shown()
    chunk = b"x" * 64 * KIB
    tracemalloc.start()
    try:
        for _ in range(200):
            shown.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 512 * KIB
    shown.feed(b"\nafter\n")
    assert [len(line) for line in shown.lines] == [4096 + 3, 5]
    shown.feed(b"y" * 8 * KIB + b"\n")
    assert shown.tail.last() == "y" * 8 * KIB


async def test_secrets_and_escape_sequences_are_shown_nowhere() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: secrets in logs; lines that write to your terminal."""
    shown = Shown("hunter2hunter2")
    shown.feed(b"\x1b[2Jtoken hunter2hunter2\r\n\xff\n")
    for lines in (shown.lines, list(shown.journal.lines())):
        assert lines == ["\\x1b[2Jtoken ***", "\N{REPLACEMENT CHARACTER}"]
    assert shown.tail.last() == "\N{REPLACEMENT CHARACTER}"
