"""A program that owns a process manager, for tests that kill it: starts one actor per argument, prints everybody's pid.

owner.py [--fork] PARTS...    each of PARTS is the comma separated part of one actor

The first line on stdout is `{"reaper": pid, "pids": [...]}`; with --fork also `"copy"`, a process forked without exec,
which holds a copy of everything that was open here.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from muxway.net.processes.manager import ProcessManager

ACTOR = str(Path(__file__).with_name("actor.py"))


async def first_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        try:
            line += os.read(fd, 4096)
        except BlockingIOError:
            await asyncio.sleep(0.005)
    return line


async def own(actors: list[str], *, fork: bool) -> None:
    processes = ProcessManager()
    spawning = (
        processes.spawn(["python", "-I", "-S", ACTOR, *parts.split(",")], path=sys.executable, env={}, cwd=None)
        for parts in actors
    )
    children = await asyncio.gather(*spawning)
    pids: list[int] = []
    for child in children:
        pids += json.loads(await first_line(child.stdout))
    about = {"reaper": processes._reapers[-1]._process.pid, "pids": pids}
    if fork:
        about["copy"] = os.fork()
        if about["copy"] == 0:
            signal.pause()
    sys.stdout.write(json.dumps(about) + "\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(own([part for part in sys.argv[1:] if part != "--fork"], fork="--fork" in sys.argv))
