"""Stands between two peers on a pipe, passes every line on, and keeps a copy of both directions.

    python tap.py DIRECTORY COMMAND [ARGUMENT ...]

Writes one file per process into DIRECTORY, because a client may start the command more than
once. Each line of it is `>` (towards the command) or `<` (from it) and the line as it was.
Standard library only: it runs as a client's server and as muxway's child.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def pump(source: BinaryIO, sink: BinaryIO, log: BinaryIO, mark: bytes) -> None:
    # An OSError means that the reader has gone; closing our end tells the writer.
    with suppress(OSError), sink:
        for line in source:
            log.write(mark + line)
            sink.write(line)
            sink.flush()


def main() -> int:
    directory, *command = sys.argv[1:]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    # Unbuffered and one write per line: the two threads share it, and it must be complete after a kill.
    log = (Path(directory) / f"{os.getpid()}.log").open("ab", buffering=0)
    to_child = threading.Thread(target=pump, args=(sys.stdin.buffer, child.stdin, log, b"> "), daemon=True)
    from_child = threading.Thread(target=pump, args=(child.stdout, sys.stdout.buffer, log, b"< "))
    to_child.start()
    from_child.start()
    code = child.wait()
    from_child.join()
    # Not sys.exit: the first thread may hold stdin's lock in a blocking read, which ends only with the process.
    os._exit(code if code >= 0 else 128 - code)


main()
