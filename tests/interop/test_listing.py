"""What real clients see when they list the tools of five real servers behind one gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from . import drive, world

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Tour

every_client = pytest.mark.parametrize("client", drive.CLIENTS, ids=lambda client: client.name)

FORWARDED = ["title", "description", "inputSchema", "outputSchema", "annotations"]
"""The parts of a tool that a revision may not take away from these clients, as it may `execution`."""


def native(report: drive.Report) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in report.tools}


@every_client
def test_every_client_speaks_its_own_revision_with_the_gateway(tour: Tour, client: drive.Client) -> None:
    """docs/transports.md#who-speaks-what-request-by-request.

    Handshake and 2026-07-28 clients are served by the same command, each in its own era.
    """
    expected = drive.MODERN if client.is_modern else drive.NEWEST_HANDSHAKE

    assert tour.through(client).report.version == expected


@every_client
def test_all_tools_of_all_servers_are_listed_under_their_prefixed_names(tour: Tour, client: drive.Client) -> None:
    """docs/names.md#names: `<upstream>__<native>`, nothing lost, nothing twice."""
    listed = tour.through(client).report.names

    assert len(listed) == len(set(listed))
    for name, report in tour.direct(drive.PROBE).items():
        mine = {tool.removeprefix(f"{name}__") for tool in listed if tool.startswith(f"{name}__")}
        if name == "everything":
            # It offers more to a client with more capabilities, and the gateway is another client than ours.
            assert mine >= set(report.names)
        else:
            assert mine == set(report.names)
    assert {tool.partition("__")[0] for tool in listed} == set(tour.calls)


@every_client
def test_tool_definitions_arrive_as_the_server_wrote_them(tour: Tour, client: drive.Client) -> None:
    """docs/behaviour.md#what-passes-untouched: schemas are forwarded, not re-modelled."""
    listed = native(tour.through(client).report)

    for name, report in tour.direct(client.for_direct_use).items():
        for tool in report.tools:
            forwarded = listed[f"{name}__{tool['name']}"]
            for part in FORWARDED:
                assert forwarded.get(part) == tool.get(part), (tool["name"], part)


@pytest.mark.timeout(300)  # alone, it has to make the visits of all clients
def test_every_client_sees_the_same_tools_in_the_same_order(tour: Tour) -> None:
    """docs/behaviour.md#lists: the order is deterministic, whichever server happened to be ready first."""
    orders = {client.name: tour.through(client).report.names for client in drive.CLIENTS}

    # The everything server has more tools for clients that can do more, which it is told on a pipe.
    known = orders[drive.PROBE.name]
    more = {name: [tool for tool in order if tool not in known] for name, order in orders.items()}
    assert {tool for tools in more.values() for tool in tools if not tool.startswith("everything__")} == set()
    shared = {name: [tool for tool in order if tool not in more[name]] for name, order in orders.items()}
    assert [name for name, order in shared.items() if order != known] == []


@pytest.mark.parametrize("client", drive.LEGACY_CLIENTS, ids=lambda client: client.name)
def test_a_client_that_listed_too_early_is_told_to_list_again(tour: Tour, client: drive.Client) -> None:
    """docs/behaviour.md#start: the gateway answers at once with what is ready and announces the rest."""
    visit = tour.through(client)
    listings = [line for line in visit.wire if not line.to_server and "tools" in line.message.get("result", {})]
    announced = [line for line in visit.wire if line.method == "notifications/tools/list_changed"]

    assert announced or len(listings[0].message["result"]["tools"]) == len(visit.report.tools)


@pytest.mark.parametrize("client", [drive.Client("python1"), drive.Client("typescript2", "auto")], ids=lambda c: c.name)
@pytest.mark.parametrize("separator", [":", "."])
def test_the_separator_is_a_flag_and_calls_are_understood_in_every_spelling(
    tmp_path: Path, client: drive.Client, separator: str
) -> None:
    """docs/names.md#what-a-call-may-say: `:` and `.` are one flag away; a call may use any of the three."""
    servers = world.real_servers(tmp_path)
    gateway = world.gateway(tmp_path, {name: servers[name] for name in ("files", "memory")}, "--separator", separator)
    calls = [drive.Call(f"memory{spelling}read_graph") for spelling in ("__", ":", ".")]
    expected = [f"files{separator}read_text_file", f"memory{separator}read_graph"]

    report = drive.run(client, gateway, calls, expected)

    assert {name.partition(separator)[0] for name in report.names} == {"files", "memory"}
    assert report.calls[0].result is not None
    assert report.calls[0] == report.calls[1] == report.calls[2]


@pytest.mark.parametrize(
    "client",
    [drive.Client("python1"), drive.Client("python2", drive.MODERN), drive.Client("typescript1")],
    ids=lambda client: client.name,
)
def test_a_client_that_follows_the_cursors_sees_every_tool_once(tmp_path: Path, client: drive.Client) -> None:
    """MCP 2025-11-25, server/utilities/pagination.

    An own cursor when a page size is set; the SDKs hand it back as they got it.
    """
    gateway = world.gateway(tmp_path, {"old": world.own_server("sdk1"), "new": world.own_server("sdk2")})
    paged = drive.Server([*gateway.command, "--page-size", "5"])
    wire = tmp_path / "wire"
    wire.mkdir()

    report = drive.run(client, paged.tapped(wire), expect=["old__add", "new__add"])

    assert len(report.names) == len(set(report.names)) == 12
    answers = [line.message["result"] for line in drive.read_wire(wire) if "result" in line.message]
    pages = [answer for answer in answers if "tools" in answer]
    assert [len(page["tools"]) for page in pages[-3:]] == [5, 5, 2]
    assert ["nextCursor" in page for page in pages[-3:]] == [True, True, False]
