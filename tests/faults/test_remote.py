"""Calls to servers by URL that speak HTTP wrong in every way there is, through each door and between both eras."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ..pace import crowding
from . import remote
from .calling import Report, run
from .doors import DOORS, ERAS, EXIT, child, combinations, gateway
from .table import CALL_TIMEOUT, MEMORY, REMOTE_CALLS, SETTINGS, STREAM_CALLS, WITNESS_STALL

if TYPE_CHECKING:
    from pathlib import Path

    from .doors import Door, Era

EVERY = [(door, client, server) for door in DOORS for client in ERAS for server in ERAS]
QUICK = {("sse", "handshake", "stateless"), ("http", "stateless", "handshake")}


async def _run(door: Door, client_era: Era, server_era: Era, folder: Path) -> Report:
    async with remote.remote(server_era) as servers:
        bars = {**REMOTE_CALLS, **(STREAM_CALLS if server_era == "handshake" else {})}
        report = await run(door, client_era, {fault: servers.entry(fault) for fault in bars}, bars, folder)
        if servers.trapped:
            report.complaints["redirect-elsewhere"].append("a request was sent elsewhere")
    return report


@pytest.fixture(scope="module", params=combinations(EVERY, QUICK))
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What was seen of a gateway with these on its two sides."""
    return asyncio.run(_run(*request.param, tmp_path_factory.mktemp("-".join(request.param))))


@pytest.mark.parametrize("fault", REMOTE_CALLS)
def test_a_call_to_a_remote_server_that_errs_ends_as_it_should(report: Report, fault: str) -> None:
    """docs/behaviour.md#a-remote-server-errs: the bar of each fault is in `table.py`."""
    assert not report.complaints[fault], "\n".join(report.complaints[fault])


def test_a_call_by_http_and_sse_that_meets_a_fault_ends_as_it_should(report: Report) -> None:
    """Ours: the older transport, where answers come on one stream for all; its bars are in `table.py`, too."""
    complaints = {fault: report.complaints[fault] for fault in STREAM_CALLS if report.complaints.get(fault)}
    assert complaints == {}


def test_a_healthy_server_notices_nothing_of_remote_ones(report: Report) -> None:
    """docs/behaviour.md#behaviour.

    About 20 calls a second to it, all right and in time; memory is bounded; the end comes.
    """
    assert not report.complaints["beta"], "\n".join(report.complaints["beta"][:5])
    assert report.stall < WITNESS_STALL + report.slack
    assert report.memory < MEMORY
    assert report.took_to_exit < EXIT + report.slack
    assert report.survivors == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_refuses_connections_fails_alone_and_says_so(era: Era, tmp_path: Path) -> None:
    """docs/behaviour.md#a-remote-server-errs: it refuses connections."""
    refusing = {"type": "http", "url": "http://127.0.0.1:1/mcp", "startTimeout": CALL_TIMEOUT}
    servers = {"gone": refusing, "beta": child(tmp_path, "beta", era)}
    async with gateway("http", tmp_path, servers, SETTINGS) as running:
        client = await running.client(era)
        assert (await client.call("beta__echo", text="there")).text == "there"
        outcome = await client.call("gone__echo")
        assert outcome.seconds < CALL_TIMEOUT + 1 + crowding()
        assert outcome.reason == "not_running"
        assert "cannot be reached" in outcome.why
        assert outcome.retry_after is not None


def test_every_remote_fault_has_its_bar() -> None:
    """Ours: a fault that nobody tests proves nothing."""
    assert sorted(REMOTE_CALLS) == sorted(remote.FAULTS)
    assert sorted(STREAM_CALLS) == sorted(remote.STREAM_FAULTS)
