"""The pages of the documentation, taken apart: code blocks, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=ticks)$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+).+?\1")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced code block."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page people read."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def name_of(page: Path) -> str:
    """The page as people would write it."""
    return page.relative_to(ROOT).as_posix()


def blocks(*languages: str) -> list[Block]:
    """Every code block in one of these languages."""
    return [
        Block(name_of(page), text.count("\n", 0, match.start()) + 1, match["language"], match["text"])
        for page in pages()
        for text in [page.read_text(encoding="utf-8")]
        for match in _FENCE.finditer(text)
        if match["language"] in languages
    ]


def links(page: Path) -> list[str]:
    """Where the page links to, outside of code."""
    return _LINK.findall(_CODE.sub("`", _FENCE.sub("", page.read_text(encoding="utf-8"))))


def anchors(page: Path) -> set[str]:
    """What can stand after a `#`: the headings as GitHub spells them in links."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}
