"""`docs/compatibility.md`, made of the results of the matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compatibility.matrix import KINDS, REVISIONS, ROOT, TRANSPORTS, Kind
from tests.compatibility.subjects import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.compatibility.matrix import Cell
    from tests.compatibility.subjects import Subject

PAGE = ROOT / "docs" / "compatibility.md"

_HEAD = """\
# Compatibility

Any client with any server: {clients} kinds of client were tried with {servers} kinds of server through one muxway, on
{subjects} subjects. This page is made of the results: a [test](../tests/compatibility/subjects.py) fails when it is not
up to date. To write it anew: `.venv/bin/python -m tests.compatibility`.

So far these are the subjects of tools. [What is not there yet](README.md#what-is-not-there-yet) has the rest.
"""

_PAIRS = """\
Any of them with any other, to clients (rows) from servers (columns): how many subjects arrived, and in brackets how
many of these were converted. It is not always all {subjects}, as older revisions do not have them all.
"""

_CROSSING = """\
## What crosses

✓ arrives as the server sent it. Otherwise the cell says what a client of that revision gets: what it could not parse is
put in words that it knows, or left out. Where it depends on the server, the cell says on which. Transports make no
difference: each cell stands for all of them, on both sides.
"""


def render(cells: Sequence[Cell]) -> str:
    """The page."""
    parts = [
        _HEAD.format(clients=len(KINDS), servers=len(KINDS), subjects=len(SUBJECTS)),
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
        parts += [f"### {group}\n", _crossing(subjects, cells), "", *_sentences(subjects), ""]
    return "\n".join(parts)


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
    return f"{kind.revision[2:7]} {kind.transport}"


def _count(kinds: list[str]) -> str:
    tried = len(kinds) - kinds.count("absent")
    done = kinds.count("same") + kinds.count("converted")
    converted = kinds.count("converted")
    shown = str(tried) if done == tried else f"{done} of {tried}"
    return f"{shown} ({converted})" if converted else shown


def _crossing(subjects: Sequence[Subject], cells: Sequence[Cell]) -> str:
    rows = []
    for subject in subjects:
        own = [cell for cell in cells if cell.subject is subject and cell.outcome.kind != "absent"]
        columns = ([cell for cell in own if cell.client.revision == revision] for revision in REVISIONS)
        rows.append([_titled(subject), *map(_outcomes, columns)])
    return _table(["to a client of", *REVISIONS], rows)


def _titled(subject: Subject) -> str:
    if subject.since == subject.until:
        return f"{subject.title}, only in {subject.since}"
    return subject.title if subject.since == REVISIONS[0] else f"{subject.title}, since {subject.since}"


def _outcomes(cells: Iterable[Cell]) -> str:
    """One word if all agree; else each with the servers it is for."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        found.setdefault(_word(cell), set()).add(cell.server.revision)
    if len(found) == 1:
        return next(iter(found))
    # What most servers have goes without saying whose it is.
    usual = max(found, key=lambda word: len(found[word]))
    rest = [f"{word} (from {', '.join(sorted(found[word]))})" for word in found if word != usual]
    return "; ".join([usual, *rest])


def _word(cell: Cell) -> str:
    kind, words = cell.outcome.kind, cell.outcome.words
    return {"same": "✓", "converted": words, "impossible": f"✗ {words}", "failed": "**fails**"}[kind]


def _sentences(subjects: Sequence[Subject]) -> list[str]:
    return [f"- {subject.title}: {subject.sentence}" for subject in subjects]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
