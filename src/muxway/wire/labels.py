"""Which server something comes from, before its own words: people see one gateway and should know who speaks.

A gateway behind a gateway has labelled what it passes on. It gets no second label, its own is made longer:
`[team/ci] Deploy?`. The server that is spoken to comes first, so that nobody can speak in another's name.
"""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = re.compile(r"\[([\w.-]{1,64}(?:/[\w.-]{1,64}){0,8})\] ", re.ASCII)


def labelled(label: str, text: str) -> str:
    """The text with a label before it; without a label, the text as it is."""
    if not label:
        return text
    known = _LABEL.match(text)
    if known is None:
        return f"[{label}] {text}"
    within = known[1]
    path = within if within == label or within.startswith(f"{label}/") else f"{label}/{within}"
    return f"[{path}] {text[known.end() :]}"
