"""What muxway says on its usual walks is what it said before, byte for byte."""

from __future__ import annotations

import difflib

import pytest

from .stage import transcribe
from .stored import FOLDER, path
from .walks import WALKS, title


@pytest.mark.parametrize("name", WALKS)
async def test_a_walk_is_what_it_was(name: str) -> None:
    """Ours: whoever changes the inside changes nothing outside; whoever means to, writes the transcripts anew and reads
    the difference."""
    heard = await transcribe(title(name), WALKS[name])
    stored = path(name).read_text(encoding="utf-8")
    difference = difflib.unified_diff(stored.splitlines(), heard.splitlines(), "stored", "heard", lineterm="")
    assert heard == stored, "\n" + "\n".join(difference)


def test_there_is_one_transcript_for_each_walk() -> None:
    """Ours: nothing is stored that nothing is compared with."""
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(WALKS)
