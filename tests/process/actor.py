"""A child that plays a part. Its first line on stdout lists the pids it is made of, its own first.

actor.py [ignore-eof] [ignore-term] [grandchild] [daemon] [exit-with=N] [kill-self=N]

It then reads lines: `die` ends it at once with status 3, anything else comes back in capitals. At the end of input
it exits with status 0, unless it was told to do otherwise. Grandchild and daemon ignore SIGTERM and the end of input.
"""

import json
import os
import signal
import sys


def offspring(*, own_session: bool) -> int:
    """The pid of a process that waits for SIGKILL; with its own session, it is nobody's child any more."""
    told, tell = os.pipe()
    middle = os.fork()
    if middle == 0:
        if own_session:
            os.setsid()
            if os.fork():
                os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Only now may anybody know of it: before, a SIGTERM would end it.
        os.write(tell, str(os.getpid()).encode())
        os.close(tell)
        while True:
            signal.pause()
    os.close(tell)
    if own_session:
        os.waitpid(middle, 0)
    with os.fdopen(told) as pipe:
        return int(pipe.read(20))


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main(*parts: str) -> None:
    options = dict(part.partition("=")[::2] for part in parts)
    if "ignore-term" in options:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()]
    if "grandchild" in options:
        pids.append(offspring(own_session=False))
    if "daemon" in options:
        pids.append(offspring(own_session=True))
    say(json.dumps(pids) + "\n")
    if "exit-with" in options:
        sys.exit(int(options["exit-with"]))
    if "kill-self" in options:
        os.kill(os.getpid(), int(options["kill-self"]))
    for line in sys.stdin:
        if line == "die\n":
            os._exit(3)
        say(line.upper())
    while "ignore-eof" in options:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
