"""The environments before the first test, and one visit per client that many tests look at.

Starting five real servers takes seconds, so each client visits them once per session, directly and
through the gateway, and makes all its calls; the tests then each read one thing from the reports.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import drive, peers, world

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
problem: list[peers.SetupError] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the environments here, where the time limit of a single test does not count."""
    if session.config.option.collectonly or not any(HERE in item.path.parents for item in session.items):
        return
    try:
        peers.set_up()
    except peers.SetupError as error:
        problem.append(error)


@pytest.fixture(scope="session", autouse=True)
def environments() -> None:
    """Fail, not skip, every test here when the peers could not be installed."""
    if problem:
        raise problem[0]


@dataclass(frozen=True)
class Visit:
    """One client's run through the gateway: what it reported, and what went over its pipe."""

    report: drive.Report
    steps: list[drive.Call]
    wire: list[drive.Line]

    def outcome(self, call: drive.Call) -> drive.Outcome:
        """What came of this call."""
        return self.report.calls[self.steps.index(call)]


@dataclass(frozen=True)
class Tour:
    """The real servers, and the visits made to them so far."""

    calls: dict[str, list[drive.Call]]
    direct: Callable[[drive.Client], dict[str, drive.Report]]
    through: Callable[[drive.Client], Visit]


@pytest.fixture(scope="session")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Tour:
    """Visits to the five real servers, each made when first asked for."""
    directory = tmp_path_factory.mktemp("world").resolve()
    servers = world.real_servers(directory)
    calls = world.real_calls(directory)
    # Hasty, because a client may leave before changes have been gathered for as long as usual.
    gateway = world.gateway(directory, servers, program=world.HASTY)

    @drive.once_each
    def direct(client: drive.Client) -> dict[str, drive.Report]:
        # Two at a time: each is two processes, one of which waits for the other.
        with ThreadPoolExecutor(2) as pool:
            reports = pool.map(lambda name: drive.run(client, servers[name], calls[name]), servers)
            return dict(zip(servers, reports, strict=True))

    @drive.once_each
    def through(client: drive.Client) -> Visit:
        expected = [f"{name}__{tool}" for name, report in direct(drive.PROBE).items() for tool in report.names]
        steps = [call.under(f"{name}__") for name in servers for call in calls[name]]
        steps += world.GATEWAY_CALLS
        wire = tmp_path_factory.mktemp(client.name)
        report = drive.run(client, gateway.tapped(wire), steps, expected)
        return Visit(report, steps, drive.read_wire(wire))

    return Tour(calls, direct, through)
