"""The limit for a gateway in Python: copies bytes between its own pipes and those of one server, and looks at nothing.

    python forward.py CONFIG

What muxway is slower than this is what routing, checking and bookkeeping cost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import uvloop


def main(config: str) -> None:
    """Start the one server of the config and copy until either side ends."""
    [entry] = json.loads(Path(config).read_text())["mcpServers"].values()
    server = subprocess.Popen([entry["command"], *entry["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    loop = uvloop.new_event_loop()

    def copy(source: int, sink: int) -> None:
        data = memoryview(os.read(source, 65536))
        if not data:
            loop.stop()
        while data:
            data = data[os.write(sink, data) :]

    for source, sink in ((0, server.stdin.fileno()), (server.stdout.fileno(), 1)):
        loop.add_reader(source, copy, source, sink)
    loop.run_forever()
    server.kill()


if __name__ == "__main__":
    main(sys.argv[1])
