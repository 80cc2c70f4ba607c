"""The matrix, run once; and the page that is made of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.compatibility import matrix, page
from tests.compatibility.subjects import SUBJECTS, Subject, converted, impossible

# The first test waits for all results: 20 s where nobody else wants the machine.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cells() -> list[matrix.Cell]:
    """All results."""
    return asyncio.run(matrix.run())


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_it_crosses_between_every_client_and_every_server(subject: Subject, cells: list[matrix.Cell]) -> None:
    """docs/compatibility.md: every revision, every transport, both sides."""
    own = [cell for cell in cells if cell.subject is subject]
    assert len(own) == len(matrix.KINDS) ** 2
    assert any(cell.outcome.kind in ("same", "converted") for cell in own)
    assert [
        f"{cell.client.name} ← {cell.server.name}: {cell.outcome.words}"
        for cell in own
        if cell.outcome.kind == "failed"
    ] == []


def test_transports_make_no_difference(cells: list[matrix.Cell]) -> None:
    """Ours: what is converted depends on the two revisions alone, as the page says."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for cell in cells:
        key = cell.subject.name, cell.client.revision, cell.server.revision
        found.setdefault(key, set()).add(f"{cell.outcome.kind} {cell.outcome.words}")
    assert {key: outcomes for key, outcomes in found.items() if len(outcomes) > 1} == {}


def test_the_page_says_what_was_found(cells: list[matrix.Cell]) -> None:
    """docs/compatibility.md is generated from the test results. Run `.venv/bin/python -m tests.compatibility`."""
    assert page.PAGE.read_text(encoding="utf-8") == page.render(cells)


def test_every_subject_has_its_sentence_and_its_own_tool() -> None:
    """Ours: a row without words helps nobody."""
    assert [subject.name for subject in SUBJECTS if not subject.sentence.endswith(".")] == []
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)


def test_a_failure_would_be_shown() -> None:
    """Ours: a matrix that finds nothing must be shown to be able to."""
    kind = matrix.KINDS[0]

    async def broken(_: matrix.Pair) -> object:
        """Fails."""
        raise AssertionError("lost")

    subject = Subject("broken", "broken", "none", broken)  # pyright: ignore[reportArgumentType]
    pair = matrix.Pair(None, kind, kind, None)  # pyright: ignore[reportArgumentType]
    outcome = asyncio.run(matrix._try(subject, pair, []))
    assert (outcome.kind, outcome.words) == ("failed", "AssertionError: lost")
    cells = [matrix.Cell(subject, kind, kind, outcome), matrix.Cell(subject, kind, kind, converted("a text"))]
    assert page._outcomes(cells) != page._outcomes(cells[1:])


def test_no_excuse_is_taken_that_does_not_hold() -> None:
    """Ours: what does not arrive is a failure, unless the two revisions are the reason."""
    assert impossible("because of its revision", because=True).kind == "impossible"
    with pytest.raises(AssertionError, match="not because of this"):
        impossible("because of its revision", because=False)
