"""What the processes of a server wrote, one after the other."""

from __future__ import annotations

from muxway.net.processes.journal import Journal


def shown(raw: bytes) -> str:
    return raw.decode().upper()


def test_lines_are_counted_over_all_processes() -> None:
    """Whoever follows a journal asks for what came after the lines that were seen."""
    journal = Journal()
    for line in (b"a", b"b", b"c"):
        journal.keep(line, shown)
    assert journal.lines() == ["A", "B", "C"]
    later = journal.lines(since=2)
    assert (later.first, list(later), journal.count) == (2, ["C"], 3)
    assert (journal.lines(since=3).first, len(journal.lines(since=3))) == (3, 0)


def test_lines_that_are_gone_are_skipped() -> None:
    """Ours: 256 KiB are kept; what was asked for may have left by then."""
    journal = Journal()
    for number in range(10_000):
        journal.keep(b"%04d" % number + b"x" * 96, shown)
    lines = journal.lines(since=5)
    assert lines.first == 10_000 - len(lines) > 5
    assert lines[0].startswith(f"{lines.first:04d}")
    assert lines[-1].startswith("9999")
    assert sum(map(len, lines)) <= 256 * 1024


def test_lines_are_those_of_the_moment() -> None:
    """Ours: whoever holds them is not surprised by later ones; they compare like lists."""
    journal = Journal()
    journal.keep(b"a", shown)
    lines = journal.lines()
    journal.keep(b"b", shown)
    assert lines == ["A"]
    assert lines != ["A", "B"]
    assert lines[-8:] == ["A"]
    assert lines != "A"
