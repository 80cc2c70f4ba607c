"""Runs the matrix and writes the page."""

from __future__ import annotations

import asyncio
import sys

from tests.compatibility import matrix, page


def main() -> int:
    cells = asyncio.run(matrix.run())
    failed = [cell for cell in cells if cell.outcome.kind == "failed"]
    for cell in failed:
        sys.stderr.write(f"{cell.subject.name}, {cell.client.name} ← {cell.server.name}: {cell.outcome.words}\n")
    if failed:
        return 1
    page.PAGE.write_text(page.render(cells), encoding="utf-8")
    sys.stdout.write(f"{len(cells)} results; {page.PAGE.name} is written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
