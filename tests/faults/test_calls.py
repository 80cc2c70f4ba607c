"""Calls that meet every fault there is, through each door, between clients and servers of both eras.

One gateway has a server for each fault and a healthy one; the run is made once, and each test looks at one fault.
"""

from __future__ import annotations

import asyncio
import statistics

import pytest

from muxway.testing import faulty

from .calling import Report, run
from .doors import DOORS, ERAS, EXIT, child, combinations
from .table import CALLS, MEMORY, TURN, WITNESS_STALL

EVERY = [(door, client, server) for door in DOORS for client in ERAS for server in ERAS]
QUICK = {("stdio", "handshake", "stateless"), ("http", "stateless", "handshake")}
"""What `make test` runs: each era once on each side."""


@pytest.fixture(scope="module", params=combinations(EVERY, QUICK))
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What was seen of a gateway with these on its two sides."""
    folder = tmp_path_factory.mktemp("-".join(request.param))
    door, client_era, child_era = request.param
    servers = {fault: child(folder, fault, child_era) for fault in CALLS}
    # Sessions are served in their own era, where a server has it; on a pipe it is greeted in that at once.
    tried = int(door != "stdio" and (client_era, child_era) == ("handshake", "stateless"))
    return asyncio.run(run(door, client_era, servers, CALLS, folder, tried))


@pytest.mark.parametrize("fault", CALLS)
def test_a_call_that_meets_a_fault_ends_as_it_should(report: Report, fault: str) -> None:
    """docs/behaviour.md#behaviour: the bar of each fault is in `table.py`."""
    assert not report.complaints[fault], "\n".join(report.complaints[fault])


def test_a_healthy_server_notices_nothing(report: Report) -> None:
    """docs/behaviour.md#behaviour: about 20 calls a second to it, all right and in time, while all others misbehave."""
    assert not report.complaints["beta"], "\n".join(report.complaints["beta"][:5])
    assert len(report.witnessed) > 50
    assert report.stall < WITNESS_STALL + report.slack


def test_the_gateway_stays_small_and_open(report: Report) -> None:
    """docs/behaviour.md#under-all-of-it: a new client can connect and sees every server; memory is bounded."""
    assert report.unseen == []
    assert report.memory < MEMORY


def test_no_fault_holds_the_loop(report: Report) -> None:
    """docs/behaviour.md#size-limits: 50 ms of work with lists of thousands, on the machine that the bars are for."""
    assert report.longest_turn < TURN * statistics.median(report.paces)


def test_nothing_is_left_at_the_end(report: Report) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: no process outlives the gateway, which is gone in time."""
    assert report.survivors == []
    assert report.took_to_exit < EXIT + report.slack


def test_every_fault_has_its_bar() -> None:
    """Ours: a fault that nobody tests proves nothing."""
    assert sorted(CALLS) == sorted(faulty.FAULTS)
