"""Ending a child: politely, then not, and always the whole tree."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from muxway.net.processes.manager import Exit

from ..pace import crowding
from .conftest import Stage, children_of, gone, is_alive, read_line, state, until

QUICK = 0.1
"""A grace that is meant to run out."""
LONG = 10.0
"""A grace that must not."""


async def test_a_clean_child_ends_with_its_input(stage: Stage) -> None:
    child, pids = await stage.act()
    end = await child.stop(close_stdin=stage.close_stdin(child), eof_grace=LONG)
    assert end == Exit(status=0)
    assert not any(map(is_alive, pids))


async def test_a_child_that_ignores_the_end_of_input_gets_sigterm(stage: Stage) -> None:
    child, pids = await stage.act("ignore-eof")
    end = await child.stop(close_stdin=stage.close_stdin(child), eof_grace=QUICK, term_grace=LONG)
    assert end == Exit(status=-signal.SIGTERM)
    assert not any(map(is_alive, pids))


async def test_a_child_that_ignores_everything_gets_sigkill_in_bounded_time(stage: Stage) -> None:
    child, pids = await stage.act("ignore-eof", "ignore-term", "grandchild", "daemon")
    start = time.monotonic()
    end = await child.stop(close_stdin=stage.close_stdin(child), eof_grace=QUICK, term_grace=QUICK)
    assert end == Exit(status=-signal.SIGKILL)
    assert QUICK * 2 <= time.monotonic() - start < QUICK * 2 + 1.5 + crowding()
    assert not any(map(is_alive, pids))


async def test_a_stopped_child_is_ended_too(stage: Stage) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: a SIGTERM waits in a stopped process, SIGKILL does not."""
    child, pids = await stage.act()
    os.kill(child.pid, signal.SIGSTOP)
    end = await child.stop(close_stdin=stage.close_stdin(child), eof_grace=QUICK, term_grace=QUICK)
    assert end == Exit(status=-signal.SIGKILL)
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("parts", [("grandchild",), ("daemon",), ("grandchild", "daemon")])
async def test_what_a_clean_leader_leaves_behind_is_ended(stage: Stage, parts: tuple[str, ...]) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: the group is killed also when the leader exited by itself."""
    child, pids = await stage.act(*parts)
    end = await child.stop(close_stdin=stage.close_stdin(child), eof_grace=LONG)
    assert end == Exit(status=0)
    assert not any(map(is_alive, pids))


async def test_stop_after_the_leader_died_ends_the_rest(stage: Stage) -> None:
    child, pids = await stage.act("grandchild", "daemon")
    os.write(child.stdin, b"die\n")
    assert await child.exited == Exit(status=3)
    end = await child.stop(close_stdin=stage.close_stdin(child), eof_grace=LONG)
    assert end == Exit(status=3)
    assert not any(map(is_alive, pids))


async def test_what_a_crashed_leader_leaves_behind_is_ended_unasked(stage: Stage) -> None:
    child, pids = await stage.act("grandchild", "daemon")
    os.kill(child.pid, signal.SIGKILL)
    assert await child.exited == Exit(status=-signal.SIGKILL)
    await gone(pids)


async def test_the_exit_is_reported_before_the_leftovers_are_gone(stage: Stage) -> None:
    """Ours: calls in flight fail at once, they do not wait for a stubborn grandchild."""
    child, pids = await stage.act("grandchild")
    os.write(child.stdin, b"die\n")
    await child.exited
    assert is_alive(pids[1])


async def test_only_the_strays_of_that_child_are_ended(stage: Stage) -> None:
    mine, mine_pids = await stage.act("daemon", "grandchild")
    _, other_pids = await stage.act("daemon", "grandchild")
    # Both daemons were adopted by the reaper: only the mark tells them apart.
    assert {mine_pids[2], other_pids[2]} <= set(children_of(stage.reaper))
    await mine.stop(close_stdin=stage.close_stdin(mine), eof_grace=LONG)
    assert not any(map(is_alive, mine_pids))
    assert all(map(is_alive, other_pids))


async def test_a_signal_reaches_the_whole_tree(stage: Stage) -> None:
    child, pids = await stage.act("grandchild", "daemon")
    child.signal(signal.SIGSTOP)
    await until(lambda: [state(pid) for pid in pids] == ["T"] * 3)
    child.signal(signal.SIGCONT)
    await until(lambda: "T" not in [state(pid) for pid in pids])
    child.signal(signal.SIGKILL)
    assert await child.exited == Exit(status=-signal.SIGKILL)
    await gone(pids)


async def test_a_signal_to_a_child_that_is_gone_is_no_error(stage: Stage) -> None:
    child, pids = await stage.act("exit-with=0")
    await child.exited
    await gone(pids)
    child.signal(signal.SIGTERM)
    end = await child.stop(close_stdin=stage.close_stdin(child), eof_grace=LONG)
    assert end == Exit(status=0)


async def test_a_cancelled_stop_kills_at_once(stage: Stage) -> None:
    child, pids = await stage.act("ignore-eof", "ignore-term", "grandchild", "daemon")
    stopping = asyncio.ensure_future(child.stop(close_stdin=stage.close_stdin(child), eof_grace=LONG))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert await child.exited == Exit(status=-signal.SIGKILL)
    await gone(pids)


async def test_many_children_stop_side_by_side(stage: Stage) -> None:
    actors = await asyncio.gather(*(stage.act("ignore-eof", "ignore-term", "daemon") for _ in range(10)))
    start = time.monotonic()
    ends = await asyncio.gather(
        *(child.stop(close_stdin=stage.close_stdin(child), eof_grace=QUICK, term_grace=QUICK) for child, _ in actors)
    )
    assert time.monotonic() - start < QUICK * 2 + 1.5 + crowding()
    assert ends == [Exit(status=-signal.SIGKILL)] * 10
    assert not [pid for _, pids in actors for pid in pids if is_alive(pid)]


async def test_no_zombies_are_left(stage: Stage) -> None:
    """The adopted ones too: a daemon's death is reaped though nobody here started it."""
    survivor, _ = await stage.act()
    ending = await asyncio.gather(*(stage.act("grandchild", "daemon") for _ in range(5)))
    for child, _ in ending:
        child.signal(signal.SIGKILL)
    await gone(pid for _, pids in ending for pid in pids)
    await until(lambda: children_of(stage.reaper) == [survivor.pid])


async def test_a_process_that_keeps_forking_does_not_escape(stage: Stage) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(flush=True)\n"
        "while True:\n"  # each generation leaves the session and dies: a moving target
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
        "    time.sleep(0.001)\n"
    )
    survivor, _ = await stage.act()
    child = await stage.python(code)
    await read_line(child.stdout)
    await child.stop(close_stdin=stage.close_stdin(child), eof_grace=QUICK, term_grace=QUICK)
    await until(lambda: children_of(stage.reaper) == [survivor.pid])


async def test_a_nested_gateways_children_belong_to_the_outer_one(stage: Stage) -> None:
    """Killed as a whole, the inner gateway's reaper cannot do its work: the outer one finds the marks."""
    # As seen by the outer reaper: a leader whose descendant carries an inner mark behind the outer one.
    code = (
        "import os, subprocess, sys\n"
        "env = {'MUXWAY_CHILD': os.environ['MUXWAY_CHILD'] + '/0123456789abcdef:1'}\n"
        "inner = subprocess.Popen(['/bin/sleep', '60'], env=env, start_new_session=True)\n"
        "print(inner.pid, flush=True)\n"
        "os._exit(0)\n"
    )
    survivor, _ = await stage.act()
    child = await stage.python(code)
    inner = int(await read_line(child.stdout))
    assert await child.exited == Exit(status=0)
    await gone([inner])
    assert is_alive(survivor.pid)


async def test_a_stray_without_any_mark_holds_nobody_up_and_ends_with_the_process_manager(stage: Stage) -> None:
    """It wiped its environment and left its session before its parent died: it could be anybody's."""
    code = (
        "import os, subprocess\n"
        "stray = subprocess.Popen(['/bin/sleep', '60'], env={}, start_new_session=True)\n"
        "print(stray.pid, flush=True)\n"
        "input()\n"
        "os._exit(0)\n"
    )
    child = await stage.python(code)
    stray = int(await read_line(child.stdout))
    os.write(child.stdin, b"\n")
    assert await child.stop(close_stdin=stage.close_stdin(child), eof_grace=LONG) == Exit(status=0)
    await stage.processes.aclose()
    assert not is_alive(stray)
