"""The figures of the design can be counted at any time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FIGURES = Path(__file__).parents[2] / "docs" / "design" / "figures.py"


def test_the_figures_of_the_code_are_counted() -> None:
    """CONTRIBUTING.md#set-up: a script counts how large the code is, and how long the way of a call."""
    shown = subprocess.run([sys.executable, FIGURES], capture_output=True, text=True, timeout=280, check=True).stdout
    for row in ("files a call enters", "envelope parses", "files a parked call enters", "class with most attributes"):
        found = re.search(rf"^\| {row}.* \| (\d+) / (\d+) \|$", shown, re.MULTILINE)
        assert found, shown
        assert int(found[1]) > 0 < int(found[2]), shown
    for row in ("words of our own", "lines in `src`"):
        assert re.search(rf"^\| {row} \| [\d,]*[1-9][\d,]* \|$", shown, re.MULTILINE), shown
