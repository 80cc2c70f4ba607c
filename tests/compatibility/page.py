"""`docs/compatibility.md`, made of the results of the matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compatibility.matrix import KINDS, REVISIONS, ROOT, TRANSPORTS, Kind
from tests.compatibility.subjects import SUBJECTS
from tests.compatibility.subjects.questions import QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.compatibility.matrix import Cell
    from tests.compatibility.subjects import Subject

PAGE = ROOT / "docs" / "compatibility.md"

_HEAD = """\
# Compatibility

Any client works with any server: {kinds} kinds of client were tested with {kinds} kinds of server through one
muxway, with {subjects} features. This page is generated from the {cells:,} results; a
[test](../tests/compatibility/test_compatibility.py) fails if it is out of date. To generate it:
`.venv/bin/python -m tests.compatibility`.
"""

_PAIRS = """\
Clients are rows, servers are columns. Each cell has the number of features that work and, in brackets, how many
of these are converted. It is not always {subjects}, because older revisions do not have all of them.
"""

_CROSSING = """\
## What crosses

✓: passed on as the server sent it. Otherwise the cell says what a client of that revision gets: what it could
not parse is converted or left out. ✗: not possible; the number leads to [the reason](#what-cannot-cross). If it
depends on the server, the cell names the server's revision; 26-07 is 2026-07-28. Empty: clients of that
revision do not have this feature. Transports make no difference: each cell applies to all of them, on both
sides.
"""

_ABOUT = {
    QUESTIONS: """\
A server with a handshake asks with a request during a call. A server of 2026-07-28 ends the call with
`input_required`, and the client repeats the call with the answers. Between the two, muxway translates: it asks
a client with a handshake with a request, and repeats the call to the server; a client of 2026-07-28 gets
`input_required`, and the call at the server waits until the client repeats it with its answers.
"""
}
"""What to know before a group of subjects."""

_IMPOSSIBLE = """\
## What cannot cross

The test checks the error of each of these, and its revisions.
"""


def render(cells: Sequence[Cell]) -> str:
    """The page."""
    reasons = list(dict.fromkeys(cell.outcome.words for cell in cells if cell.outcome.kind == "impossible"))
    parts = [
        _HEAD.format(kinds=len(KINDS), subjects=len(SUBJECTS), cells=len(cells)),
        "## Transports and revisions\n",
        _transports(cells),
        "",
        _PAIRS.format(subjects=len(SUBJECTS)),
        _pairs(cells),
        "",
        _CROSSING,
    ]
    for group in dict.fromkeys(subject.group for subject in SUBJECTS):
        subjects = [subject for subject in SUBJECTS if subject.group == group]
        about = [_ABOUT[group]] if group in _ABOUT else []
        parts += [f"### {group}\n", *about, _crossing(subjects, cells, reasons), "", *_sentences(subjects), ""]
    return "\n".join([*parts, _IMPOSSIBLE, *(f"{n}. {reason}" for n, reason in enumerate(reasons, 1)), ""])


def _transports(cells: Sequence[Cell]) -> str:
    tried = {
        kind for cell in cells if cell.outcome.kind in ("same", "converted") for kind in (cell.client, cell.server)
    }
    rows = [
        [name, *("✓" if Kind(transport, revision) in tried else "" for revision in REVISIONS)]
        for transport, name in TRANSPORTS.items()
    ]
    return _table(["clients and servers", *REVISIONS], rows)


def _pairs(cells: Sequence[Cell]) -> str:
    found: dict[tuple[Kind, Kind], list[str]] = {}
    for cell in cells:
        found.setdefault((cell.client, cell.server), []).append(cell.outcome.kind)
    head = ["client ↓ server →", *map(_short, KINDS)]
    return _table(head, [[_short(client), *(_count(found[client, server]) for server in KINDS)] for client in KINDS])


def _short(kind: Kind) -> str:
    return f"{_short_date(kind.revision)} {kind.transport}"


def _short_date(revision: str) -> str:
    return revision[2:7]


def _count(kinds: list[str]) -> str:
    tried = len(kinds) - kinds.count("absent")
    done = kinds.count("same") + kinds.count("converted")
    converted = kinds.count("converted")
    shown = str(tried) if done == tried else f"{done} of {tried}"
    return f"{shown} ({converted})" if converted else shown


def _crossing(subjects: Sequence[Subject], cells: Sequence[Cell], reasons: Sequence[str]) -> str:
    rows: list[list[str]] = []
    for subject in subjects:
        own = [cell for cell in cells if cell.subject is subject and cell.outcome.kind != "absent"]
        columns = ([cell for cell in own if cell.client.revision == revision] for revision in REVISIONS)
        rows.append([_titled(subject), *(_outcomes(column, reasons) for column in columns)])
    return _table(["to a client of", *REVISIONS], rows)


def _titled(subject: Subject) -> str:
    if subject.since == subject.until:
        return f"{subject.title}, only in {subject.since}"
    if subject.until != REVISIONS[-1]:
        return f"{subject.title}, until {subject.until}"
    return subject.title if subject.since == REVISIONS[0] else f"{subject.title}, since {subject.since}"


def _outcomes(cells: Iterable[Cell], reasons: Sequence[str] = ()) -> str:
    """One word if all agree; else each with the servers it is for."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        found.setdefault(_word(cell, reasons), set()).add(cell.server.revision)
    if len(found) < 2:
        return "".join(found)
    # What most servers have goes without saying whose it is.
    usual = max(found, key=lambda word: len(found[word]))
    rest = [f"{word} (from {', '.join(map(_short_date, sorted(found[word])))})" for word in found if word != usual]
    return "; ".join([usual, *rest])


def _word(cell: Cell, reasons: Sequence[str]) -> str:
    kind, words = cell.outcome.kind, cell.outcome.words
    if kind == "impossible":
        return f"✗ {reasons.index(words) + 1}"
    return {"same": "✓", "converted": words, "failed": "**fails**"}[kind]


def _sentences(subjects: Sequence[Subject]) -> list[str]:
    return [f"- {subject.title}: {subject.sentence}" for subject in subjects]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
