"""A muxway that runs as a process of its own, and what it says."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tests.pace import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


class Running:
    """The process, and the file to which it writes for people."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until it has said this."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.said())) is None:
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)
        return found
