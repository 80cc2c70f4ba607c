"""Where the transcripts are."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("transcripts")


def path(name: str) -> Path:
    """The file of a walk."""
    return FOLDER / f"{name}.txt"
