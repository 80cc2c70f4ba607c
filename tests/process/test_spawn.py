"""Starting processes: what a child gets, and what we say when there is none."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muxway.errors import SpawnError
from muxway.net.processes.manager import Exit, ProcessManager

from ..pace import PATIENCE
from .conftest import Stage, children_of, gone, is_alive, open_fds, read_all, read_line, until

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_what_goes_in_comes_out(stage: Stage) -> None:
    child, pids = await stage.act()
    assert pids == [child.pid]
    os.write(child.stdin, b"hello\n")
    assert await read_line(child.stdout) == b"HELLO\n"
    stage.close(child.stdin)
    assert await child.exited == Exit(status=0)
    assert await read_all(child.stdout) == b""
    assert await read_all(child.stderr) == b""


async def test_stdout_and_stderr_are_separate_pipes(stage: Stage) -> None:
    child = await stage.python("import sys; print('out'); print('err', file=sys.stderr)")
    assert (await read_all(child.stdout), await read_all(child.stderr)) == (b"out\n", b"err\n")


async def test_our_ends_do_not_block_and_are_not_inherited(stage: Stage) -> None:
    child, _ = await stage.act()
    for fd in (child.stdin, child.stdout, child.stderr):
        assert not os.get_blocking(fd)
        assert not os.get_inheritable(fd)


async def test_the_childs_own_ends_block_as_programs_expect(stage: Stage) -> None:
    child = await stage.python("import os; print([os.get_blocking(fd) for fd in range(3)])")
    assert await read_line(child.stdout) == b"[True, True, True]\n"


async def test_fifty_children_start_side_by_side(stage: Stage) -> None:
    """docs/behaviour.md#start: 50 children start in parallel."""
    start = time.monotonic()
    children = await asyncio.gather(*(stage.run("60", path="/bin/sleep") for _ in range(50)))
    assert time.monotonic() - start < 5.0, "0.07 s when the machine is idle"
    assert len({child.pid for child in children}) == 50
    assert all(is_alive(child.pid) for child in children)
    await asyncio.gather(*(child.stop(close_stdin=stage.close_stdin(child), eof_grace=0) for child in children))
    assert not any(is_alive(child.pid) for child in children)


async def test_arguments_arrive_literally(stage: Stage) -> None:
    """docs/behaviour.md#start: no shell."""
    args = [
        "two words",
        "",
        "$HOME",
        "`id`",
        "; exit 1",
        "*",
        "line\nbreak",
        "naïve 中文 🎉",
        "\udcff",
        "-c",
        '"quoted"',
    ]
    child = await stage.python("import sys; print(ascii(sys.argv[1:]))", *args, env={"LC_ALL": "C.UTF-8"})
    assert await read_line(child.stdout) == ascii(args).encode() + b"\n"


async def test_the_environment_is_what_is_given_and_the_mark(stage: Stage) -> None:
    code = "import os, json; print(json.dumps({k: v for k, v in os.environ.items()}))"
    child = await stage.python(code, env={"A": "1", "LC_ALL": "C.UTF-8", "ODD": "x=y\nz 中"})
    env = json.loads(await read_line(child.stdout))
    mark = env.pop("MUXWAY_CHILD")
    assert env == {"A": "1", "LC_ALL": "C.UTF-8", "ODD": "x=y\nz 中"}
    assert mark.endswith(f":{child.id}")


async def test_a_large_environment_arrives_whole(stage: Stage) -> None:
    """The socket to the reaper takes less than this in one piece, and several such orders wait in line."""
    env = {f"VARIABLE_{number}": "x" * 100_000 for number in range(6)}
    code = "import os; print(sum(len(v) for k, v in os.environ.items() if k.startswith('VARIABLE_')))"
    children = await asyncio.gather(*(stage.python(code, env=env) for _ in range(8)))
    assert [await read_line(child.stdout) for child in children] == [b"600000\n"] * 8


async def test_only_standard_fds_are_open_in_a_child(stage: Stage) -> None:
    """docs/behaviour.md#start.

    The child sees only fds 0-2, whatever is open here, in the reaper and in other nurseries.
    """
    inheritable = os.dup(2)
    os.set_inheritable(inheritable, True)
    other = ProcessManager()
    try:
        neighbour = await other.spawn(["sleep", "60"], path="/bin/sleep", env={}, cwd=None)
        await stage.act()
        children = await asyncio.gather(*(stage.run("/proc/self/fd", path="/bin/ls") for _ in range(10)))
        for child in children:
            # ls itself holds the folder open, as 3.
            assert (await read_all(child.stdout)).split() == [b"0", b"1", b"2", b"3"]
        for fd in (neighbour.stdin, neighbour.stdout, neighbour.stderr):
            os.close(fd)
    finally:
        await other.aclose()
        os.close(inheritable)


async def test_a_child_leads_its_own_session_with_default_signals_and_our_umask(stage: Stage) -> None:
    code = (
        "import os, resource, signal;"
        "os.umask(mask := os.umask(0));"
        "ignored = next(l.split()[1] for l in open('/proc/self/status') if l.startswith('SigIgn'));"
        "blocked = next(l.split()[1] for l in open('/proc/self/status') if l.startswith('SigBlk'));"
        "print(os.getsid(0) == os.getpgid(0) == os.getpid(), oct(mask), resource.getrlimit(resource.RLIMIT_CORE),"
        # Signals from 32 on are the C library's and the real-time ones, which a shell in the background may ignore.
        "hex(int(ignored, 16) & 0x7FFFFFFF), int(blocked, 16))"
    )
    child = await stage.python(code)
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25) again.
    os.umask(ours := os.umask(0))
    expected = f"True {oct(ours)} (0, 0) {1 << 12 | 1 << 24:#x} 0\n"
    assert (await read_line(child.stdout)).decode() == expected


async def test_the_working_folder_is_the_given_one_or_ours(stage: Stage, tmp_path: Path) -> None:
    given = await stage.python("import os; print(os.getcwd())", cwd=str(tmp_path))
    ours = await stage.python("import os; print(os.getcwd())")
    assert (await read_line(given.stdout)).decode() == f"{tmp_path}\n"
    assert (await read_line(ours.stdout)).decode() == f"{Path.cwd()}\n"


@pytest.mark.parametrize("status", [0, 1, 3, 127, 255])
async def test_an_exit_status_is_reported(stage: Stage, status: int) -> None:
    child, _ = await stage.act(f"exit-with={status}")
    end = await child.exited
    assert end == Exit(status=status)
    assert str(end) == f"exited with status {status}"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_death_by_signal_is_reported(stage: Stage, signum: signal.Signals) -> None:
    child, _ = await stage.act(f"kill-self={signum}")
    end = await child.exited
    assert end == Exit(status=-signum)
    assert str(end) == f"was killed by {signum.name}"


async def test_an_exit_right_after_the_start_is_not_missed(stage: Stage) -> None:
    children = await asyncio.gather(*(stage.run(path="/bin/true") for _ in range(40)))
    ends = await asyncio.wait_for(asyncio.gather(*(child.exited for child in children)), PATIENCE)
    assert ends == [Exit(status=0)] * 40


async def test_cancelling_a_wait_for_the_exit_cancels_only_that_wait(stage: Stage) -> None:
    child, _ = await stage.act()
    waiter = asyncio.ensure_future(asyncio.wait_for(child.exited, PATIENCE))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert not child.exited.done()
    stage.close(child.stdin)
    assert await child.exited == Exit(status=0)
    assert child.exited.done()


def _missing(folder: Path) -> dict[str, str | None]:
    return {"path": str(folder / "missing"), "cwd": None}


def _not_executable(folder: Path) -> dict[str, str | None]:
    (folder / "plain").write_text("#!/bin/sh\n")
    return {"path": str(folder / "plain"), "cwd": None}


def _a_folder(folder: Path) -> dict[str, str | None]:
    return {"path": str(folder), "cwd": None}


def _lost_interpreter(folder: Path) -> dict[str, str | None]:
    (folder / "script").write_text("#!/no/such/interpreter\n")
    (folder / "script").chmod(0o755)
    return {"path": str(folder / "script"), "cwd": None}


def _no_interpreter(folder: Path) -> dict[str, str | None]:
    (folder / "script").write_text("echo hello\n")
    (folder / "script").chmod(0o755)
    return {"path": str(folder / "script"), "cwd": None}


def _missing_cwd(folder: Path) -> dict[str, str | None]:
    return {"path": "/bin/true", "cwd": str(folder / "nowhere")}


def _cwd_is_a_file(folder: Path) -> dict[str, str | None]:
    (folder / "file").touch()
    return {"path": "/bin/true", "cwd": str(folder / "file")}


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        (_missing, "does not exist"),
        (_not_executable, "chmod +x"),
        (_a_folder, "permission denied"),
        (_lost_interpreter, "interpreter"),
        (_no_interpreter, "#!"),
        (_missing_cwd, "no such file or directory. Check `cwd`"),
        (_cwd_is_a_file, "not a directory. Check `cwd`"),
    ],
)
async def test_a_failed_start_says_why(
    stage: Stage, tmp_path: Path, prepare: Callable[[Path], dict[str, str | None]], complaint: str
) -> None:
    order = prepare(tmp_path)
    before = open_fds()
    await stage.processes.start()
    with pytest.raises(SpawnError) as caught:
        await stage.processes.spawn(["x"], path=str(order["path"]), env={}, cwd=order["cwd"])
    assert complaint in str(caught.value)
    assert str(order["path"]) in str(caught.value)
    assert open_fds() <= before + 1, "only the socket to the reaper is new"


async def test_arguments_too_long_for_the_system_are_named(stage: Stage) -> None:
    with pytest.raises(SpawnError, match="too long"):
        await stage.run("x" * 3_000_000, path="/bin/true")


@pytest.mark.parametrize(
    ("argv", "env", "complaint"),
    [
        ([], {}, "argv is empty"),
        (["x", "a\0b"], {}, "NUL"),
        (["x"], {"A": "secret\0"}, "NUL"),
        (["x"], {"A=B": "1"}, "A=B"),
        (["x"], {"": "1"}, "''"),
        (["x", "\ud800"], {}, "cannot be encoded"),
    ],
)
async def test_what_no_system_accepts_is_refused(
    stage: Stage, argv: list[str], env: dict[str, str], complaint: str
) -> None:
    with pytest.raises(SpawnError, match=complaint) as caught:
        await stage.processes.spawn(argv, path="/bin/true", env=env, cwd=None)
    assert "secret" not in str(caught.value)


async def test_a_failed_start_leaves_the_others_alone(stage: Stage) -> None:
    child, _ = await stage.act()
    with pytest.raises(SpawnError):
        await stage.run(path="/no/such/program")
    os.write(child.stdin, b"still here\n")
    assert await read_line(child.stdout) == b"STILL HERE\n"


async def test_a_cancelled_start_leaves_nothing(stage: Stage) -> None:
    await stage.act()
    before = open_fds()
    task = asyncio.ensure_future(stage.run("60", path="/bin/sleep"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The order was sent before the one below, so by its answer the cancelled child was there.
    _, [other] = await stage.act()
    await until(lambda: len(children_of(stage.reaper)) == 2)
    assert other in children_of(stage.reaper)
    assert open_fds() <= before + 3


async def test_pipes_have_room_for_large_messages(stage: Stage) -> None:
    child, _ = await stage.act()
    assert os.write(child.stdin, b"x" * 200_000) == 200_000


async def test_a_closed_process_manager_starts_nothing_more() -> None:
    processes = ProcessManager()
    await processes.start()
    await processes.aclose()
    await processes.aclose()
    with pytest.raises(SpawnError, match="shutting down"):
        await processes.spawn(["x"], path="/bin/true", env={}, cwd=None)


async def test_a_process_manager_never_used_closes_at_once() -> None:
    await ProcessManager().aclose()


async def test_a_reaper_that_cannot_start_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(SpawnError, match=r"reaper of child processes with /no/such/python: No such file"):
        await ProcessManager().start()


async def test_a_reaper_that_dies_at_once_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    processes = ProcessManager()
    with pytest.raises(SpawnError, match="exited with status 1"):
        await processes.spawn(["x"], path="/bin/true", env={}, cwd=None)
    await processes.aclose()
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 2


async def test_windows_users_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SpawnError, match="Linux or macOS"):
        await ProcessManager().start()


async def test_two_nurseries_do_not_disturb_each_other(stage: Stage) -> None:
    child, _ = await stage.act()
    other = Stage(ProcessManager())
    _, pids = await other.act("ignore-eof", "grandchild", "daemon")
    await other.processes.aclose()
    other.close_all()
    await gone(pids)
    os.write(child.stdin, b"fine\n")
    assert await read_line(child.stdout) == b"FINE\n"


async def test_closing_ends_every_child_and_reports_how(stage: Stage) -> None:
    polite, some = await stage.act()
    stubborn, more = await stage.act("ignore-eof", "ignore-term", "grandchild", "daemon")
    reaper = stage.reaper
    await stage.processes.aclose()
    assert not [pid for pid in (*some, *more, reaper) if is_alive(pid)]
    assert await polite.exited == Exit(status=-signal.SIGTERM)
    assert await stubborn.exited == Exit(status=-signal.SIGKILL)
    stubborn.signal(signal.SIGTERM)  # no error when it is gone
