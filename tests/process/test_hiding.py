"""What the servers must not read of the gateway (docs/security.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muxway.net.processes.launch import ReaperProcess, _needed  # pyright: ignore[reportPrivateUsage]

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc to read it from")


@linux
def test_the_reaper_has_none_of_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: it needs none, and every server could read them there."""
    monkeypatch.setenv("MUXWAY_TOKEN", "hunter2hunter2")
    monkeypatch.setenv("GITHUB_TOKEN", "hunter3hunter3")
    reaper = ReaperProcess()
    try:
        environ = Path(f"/proc/{reaper.process.pid}/environ").read_bytes()
    finally:
        reaper.close()
    # Empty if the system hides it from us, too: the reaper is as shy as the gateway.
    assert b"hunter" not in environ
    assert "hunter" not in str(_needed(os.environ))
    assert "PATH" in _needed(os.environ)


@linux
def test_other_processes_of_the_user_cannot_read_what_the_gateway_knows() -> None:
    """Ours, by prctl(2): the memory and environment of a process that is not dumpable are readable for root only."""
    code = (
        "import ctypes; from muxway.cli.hiding import hide_from_children; hide_from_children(); "
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout
    assert said.strip() == "0"


@linux
@pytest.mark.parametrize("verb", [["stdio"], ["serve", "--port", "0"]])
def test_whoever_serves_is_hidden(verb: list[str], tmp_path: Path) -> None:
    """The same, of a gateway that is run: as long as there are servers, they can read nothing of it."""
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {"none": {"command": "muxway-no-such-program"}}}')
    # The state of another process cannot be asked for, so it tells its own when it has ended.
    code = (
        "import atexit, ctypes, sys; from muxway.cli import cli; "
        "atexit.register(lambda: print('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), file=sys.stderr)); "
        f"cli({[*verb, str(file)]!r})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        said = ""
        while "no-such-program" not in said:
            line = running.stderr.readline()
            assert line, said
            said += line
        running.terminate()
        _, rest = running.communicate(timeout=30)
    assert rest.splitlines()[-1] == "dumpable 0"
