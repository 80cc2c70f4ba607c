"""The official conformance suite, run as its users run it: the results of each scenario, and of each check in it.

Two versions: 0.1 is the stable one and knows the handshake revisions, 0.2 also knows 2026-07-28. A server is
judged in one process per revision, which runs all scenarios one after another; a client in one process each,
because the suite starts the client itself. A warning counts as a failure here: every one stands for a SHOULD.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import peers

HERE = Path(__file__).parent

SCENARIO_SECONDS = 30
"""For one scenario; most need a tenth of a second, and on a busy machine their processes take longer to start."""
LOGIN_SECONDS = 60
"""For one in which somebody logs in, which takes more processes, one after the other."""
SERVER_SECONDS = 90
"""For all scenarios of one revision. Well below the limit of a test, so that a hang is told as one."""

EXTENSION = "extension"
"""In place of a revision, for scenarios that belong to none."""
_SHOWN = 2000
_OUTPUT = re.compile(r"(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""How the suite names the folder of a result, after `server-` if it is about a server."""


@dataclass(frozen=True)
class Case:
    """One scenario at one revision, as one version of the suite tells it."""

    suite: str
    revision: str
    scenario: str

    def __str__(self) -> str:
        return f"{self.suite}-{self.revision}-{self.scenario}"


@dataclass(frozen=True)
class Result:
    """What came of a scenario."""

    checks: list[dict[str, Any]]
    trouble: str = ""
    """What went wrong outside of the checks: no result, a client that failed."""

    @property
    def passed(self) -> bool:
        return not self.failures and not self.trouble and self.held > 0

    @property
    def held(self) -> int:
        """How many checks succeeded. A scenario in which none was made shows nothing."""
        return sum(check["status"] == "SUCCESS" for check in self.checks)

    @property
    def failures(self) -> list[str]:
        bad = [check for check in self.checks if check["status"] in ("FAILURE", "WARNING")]
        return [f"{check['status'].lower()} {check['id']}: {_message(check)}" for check in bad]

    def __str__(self) -> str:
        lines = [*self.failures, *([self.trouble] if self.trouble else [])]
        return "\n".join([f"{self.held} checks held", *lines])


def _message(check: dict[str, Any]) -> str:
    return str(check.get("errorMessage") or check.get("description") or "").strip()


def plan(kind: str) -> list[Case]:
    """The scenarios for `server` or `client`, from `scenarios.toml`. A test compares it with the suite's own list."""
    table = tomllib.loads((HERE / "scenarios.toml").read_text())[kind]
    return [
        Case(suite, revision, scenario)
        for suite, revisions in table.items()
        for revision, scenarios in revisions.items()
        for scenario in scenarios
    ]


def listed(suite: str, kind: str, revision: str) -> list[str]:
    """The scenarios the suite itself offers at a revision; none if it does not know it."""
    done = subprocess.run(
        [*_command(suite), "list", f"--{kind}", "--spec-version", revision],
        capture_output=True,
        text=True,
        timeout=SCENARIO_SECONDS,
        check=False,
    )
    return re.findall(r"^ *- (\S+)", done.stdout, re.MULTILINE)


def judge_server(suite: str, revision: str, url: str, directory: Path, scenario: str = "") -> dict[Case, Result]:
    """Run all scenarios of a revision, or one, against a running server."""
    command = [*_command(suite), "server", "--url", url, "--spec-version", revision, "-o", str(directory)]
    command += ["--scenario", scenario] if scenario else ["--suite", "all"]
    if suite != "0.1":  # which has no such option
        command += ["--timeout", str(SCENARIO_SECONDS * 1000)]
    output = _run(command, SERVER_SECONDS)
    saved = _saved(directory)
    cases = [case for case in plan("server") if (case.suite, case.revision) == (suite, revision)]
    return {
        case: _result(saved.get(f"server-{case.scenario}"), output) for case in cases if scenario in ("", case.scenario)
    }


def judge_client(case: Case, command: list[str], directory: Path) -> Result:
    """Run one scenario against a client, which the suite starts with its mock server's URL as last argument."""
    full = [*_command(case.suite), "client", "--command", shlex.join(command), "--scenario", case.scenario]
    seconds = LOGIN_SECONDS if case.scenario.startswith("auth/") else SCENARIO_SECONDS
    if case.revision != EXTENSION:
        full += ["--spec-version", case.revision]
    full += ["--timeout", str(seconds * 1000), "-o", str(directory)]
    # The mock servers would listen on every interface.
    output = _run(full, seconds + 10, NODE_OPTIONS=f"--require={HERE / 'local.cjs'}")
    return _result(_saved(directory).get(case.scenario), output)


def _result(checks: list[dict[str, Any]] | None, output: str) -> Result:
    if checks is None:
        return Result([], f"the suite gave no result; it ended with:\n{output[-_SHOWN:]}")
    failed = re.search(r"client (timed out|exited with error)", output, re.IGNORECASE)
    return Result(checks, f"{failed[0]}:\n{output[-_SHOWN:]}" if failed else "")


def _command(suite: str) -> list[str]:
    return peers.node_script(f"conformance-{suite}/dist/index.js")


def _run(command: list[str], seconds: float, **environment: str) -> str:
    """All it said. That it exits with 1 when a check failed adds nothing; that it hangs is said."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        # With the client it may have started, or the pipe would stay open.
        os.killpg(process.pid, signal.SIGKILL)
        return f"{process.communicate()[0]}\nstill running after {seconds} s"


def _saved(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """The checks the suite saved, by the name of their scenario."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in directory.rglob("checks.json"):
        if name := _OUTPUT.fullmatch(str(file.parent.relative_to(directory))):
            found[name["scenario"]] = json.loads(file.read_text())
    return found
