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

Any client with any server: {kinds} kinds of client were tried with {kinds} kinds of server through one muxway, on
{subjects} subjects. This page is made of the {cells:,} results: a [test](../tests/compatibility/test_compatibility.py)
fails when it is not up to date. To write it anew: `.venv/bin/python -m tests.compatibility`.
"""

_PAIRS = """\
Any of them with any other, to clients (rows) from servers (columns): how many subjects arrived, and in brackets how
many of these were converted. It is not always all {subjects}, as older revisions do not have them all.
"""

_CROSSING = """\
## What crosses

✓ arrives as the server sent it. Otherwise the cell says what a client of that revision gets: what it could not parse is
put in words that it knows, or left out. ✗ cannot arrive: the number leads to [the reason](#what-cannot-cross). Where it
depends on the server, the cell says on which, 26-07 being 2026-07-28. An empty cell: clients of that revision have
nothing of the kind that they could begin. Transports make no difference: each cell stands for all of them, on both
sides.
"""

_ABOUT = {
    QUESTIONS: """\
A handshake server asks with a request in the middle of a call; one of 2026-07-28 ends the call with `input_required`,
and is called again with the answers. Where the two meet muxway does what is missing: a handshake client is asked with
a request, and the server called again; a client of 2026-07-28 is given `input_required`, and the call of the server
waits until the client comes back with its answers.
"""
}
"""What to know before a group of subjects."""

_IMPOSSIBLE = """\
## What cannot cross

Each of these was seen: the test checks the error that is named, and that the revisions are those it speaks of.
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
