"""`python -m tests.golden [--write] [WALK …]`: show transcripts, or store them."""

from __future__ import annotations

import argparse
import asyncio
import sys

from .stage import transcribe
from .stored import path
from .walks import WALKS, title


async def _go(names: list[str], write: bool) -> None:
    for name in names:
        text = await transcribe(title(name), WALKS[name])
        if write:
            path(name).write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)


parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
parser.add_argument("--write", action="store_true", help="store what is heard, to be compared with from now on")
parser.add_argument("walks", nargs="*", metavar="WALK", help=f"one of {', '.join(WALKS)} (default: all)")
given = parser.parse_args()
asyncio.run(_go(given.walks or list(WALKS), given.write))
