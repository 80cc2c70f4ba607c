"""The laws of `fuzz/targets.py`, tried with what is kept in `fuzz/seeds` and with bytes put together from pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.targets import TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SEEDS = Path(__file__).parents[2] / "fuzz" / "seeds"
DICTIONARIES = SEEDS.with_name("dictionaries")


def seeds(target: str) -> list[bytes]:
    """What is kept for a target, by name of its file."""
    return [file.read_bytes() for file in sorted((SEEDS / target).iterdir())]


def pieces(target: str) -> st.SearchStrategy[bytes]:
    """Inputs that look a little like what the target reads: parts of its seeds and words of its language."""
    words = [line.encode().decode("unicode_escape").encode("latin-1") for line in _lines(target)]
    kept = seeds(target)
    parts = st.tuples(st.sampled_from(kept), st.integers(0, 400), st.integers(0, 60)).map(
        lambda cut: cut[0][cut[1] % (len(cut[0]) + 1) :][: cut[2]]
    )
    some = st.one_of(st.sampled_from(words), parts, st.binary(max_size=6))
    return st.one_of(st.sampled_from(kept), st.lists(some, max_size=16).map(b"".join), st.binary(max_size=80))


def _lines(target: str) -> list[str]:
    """The words of a dictionary of libFuzzer's: one in quotes on each line."""
    lines = (DICTIONARIES / f"{target}.dict").read_text().splitlines()
    return [line[1:-1] for line in lines if line.startswith('"')]


@pytest.mark.parametrize("target", TARGETS)
def test_what_once_was_found_stays_mended(target: str) -> None:
    """Ours: an input that broke a law is kept and tried in every run."""
    kept = seeds(target)
    assert kept
    for data in kept:
        TARGETS[target](data)


@pytest.mark.filterwarnings("ignore:deprecated string literal syntax")  # of JMESPath, to whoever writes such a thing
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tries", [250, pytest.param(5_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_no_bytes_break_a_law(target: str, tries: int) -> None:
    """Ours: no crash, no exception outside the declared classes, no difference to `json`."""
    law = TARGETS[target]

    @settings(
        max_examples=tries,
        deadline=None,
        database=None,
        derandomize=tries < 1000,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(pieces(target))
    def holds(data: bytes) -> None:
        law(data)

    holds()
