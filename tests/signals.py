"""Signals to other processes, one after the other.

The system keeps no count of them: one that is sent before the last of its kind was taken is lost.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pace import PATIENCE

if TYPE_CHECKING:
    import signal


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal and wait until the process has taken it, so that the next one counts."""
    os.kill(pid, number)
    end = time.monotonic() + PATIENCE
    while _waits(pid, number):
        assert time.monotonic() < end, f"process {pid} does not take {number.name}"
        time.sleep(0.005)


def _waits(pid: int, number: signal.Signals) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(
        int(mask, 16) >> number - 1 & 1 for mask in re.findall(r"^(?:Sig|Shd)Pnd:\s*(\w+)", status, re.MULTILINE)
    )
