"""`muxway status`: how a running gateway and its servers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muxway.cli import figures, processes
from muxway.cli.describing import counted, reason
from muxway.cli.figures import Column, duration, latency, memory, number
from muxway.cli.help import Verb
from muxway.cli.options import json_option
from muxway.cli.output import badge, dim, fits, heading, one_line, plural, show_json, wrapped
from muxway.cli.running import answered, client_of, gateway_options, known_server, pick_any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.control.client import RunningGateway

Facts = dict[str, Any]
"""What a gateway says of itself, or of one of its servers."""

_ERROR_LINES = 3
"""Lines of an error shown beside the table. `muxway status SERVER` shows all of it."""


@click.command(
    cls=Verb,
    examples=[
        "muxway status",
        "muxway status github",
        "muxway status --json | jq -r '.servers[] | select(.status != \"running\").name'",
    ],
)
@click.argument("server", required=False)
@gateway_options
@json_option
def command(server: str | None, pid: int | None, config: str | None, *, as_json: bool) -> None:
    """Show the state of a running gateway and its servers.

    For each server: state, protocol revision, process, uptime, restarts, running
    and queued calls, median and 99th percentile of call times, failed calls, memory
    of all its processes. With SERVER, everything about that server.

    If several gateways run, one table shows all, with their clients; --pid or
    --config selects one.

    A failed server does not change the exit code. Exit 4 if no gateway runs.
    """
    with answered():
        every = [look(gateway) for gateway in pick_any(pid, config)]
    if server is not None:
        chosen = [known_server(facts, server) for facts in _having(every, server)]
        if as_json:
            show_json(chosen[0] if len(chosen) == 1 else {"servers": chosen})
        else:
            for one in chosen:
                _show_server(one, of_several=len(chosen) > 1)
    elif as_json:
        show_json(every[0] if len(every) == 1 else {"gateways": every})
    else:
        servers = [one for facts in every for one in facts["servers"]]
        click.echo("\n".join((*heads(every), "", *table(servers, of_several=len(every) > 1))))
        for line in troubles(servers, _ERROR_LINES):
            click.echo(line)
        for line in _about_clients(every):
            click.echo(line)


def _having(every: Sequence[Facts], server: str) -> Sequence[Facts]:
    """The gateways that have this server; all of them if none does, so that whoever looks is told."""
    return [facts for facts in every if any(one["name"] == server for one in facts["servers"])] or every[:1]


def look(gateway: RunningGateway, *, wait: float = 10.0) -> Facts:
    """How it is now, with what the system knows of its processes. Raises ControlError."""
    facts = gateway.ask("status", wait=wait)
    every = processes.running()
    facts["memory"] = processes.used(processes.tree(facts["pid"], every)[:1])
    facts["client"] = client_of(facts["pid"], facts.get("client"), every) if facts["door"] == "stdio" else None
    for server in facts["servers"]:
        server["gateway"] = facts["pid"]
        tree = [process for pid in server.pop("pids") for process in processes.tree(pid, every)]
        server["memory"] = processes.used(tree)
        server["processes"] = [process._asdict() for process in tree]
    return facts


def heads(every: Sequence[Facts]) -> list[str]:
    """The gateway itself; or, if there are several, a table of them."""
    if len(every) == 1:
        return head(every[0])
    return figures.table(
        [
            Column("gateway", [str(facts["pid"]) for facts in every], left=True),
            Column("client", [one_line(facts["client"] or figures.NOTHING) for facts in every], left=True),
            Column("door", [one_line(facts["door"]) for facts in every], left=True, spare=4),
            Column("up", [duration(facts["uptime"]) for facts in every]),
            Column("mem", [memory(facts["memory"]) for facts in every], spare=2),
            Column("servers", [_up(facts["servers"]) for facts in every]),
            Column("config", [one_line(facts["config"] or "no file") for facts in every], left=True, spare=6),
        ]
    )


def _up(servers: Sequence[Facts]) -> str:
    return f"{sum(1 for server in servers if server['status'] == 'running')} of {len(servers)} up"


def head(facts: Facts) -> list[str]:
    """The gateway itself, in two lines, or three if the terminal is narrow."""
    servers: Sequence[Facts] = facts["servers"]
    up = sum(1 for server in servers if server["status"] == "running")
    of = f", of {one_line(facts['client'])}" if facts["client"] else ""
    words = [f"pid {facts['pid']}", one_line(facts["door"]) + of, f"up {duration(facts['uptime'])}"]
    if facts["memory"] is not None:
        words.append(memory(facts["memory"]))
    if facts.get("longestTurn"):
        words.append(f"longest turn {latency(facts['longestTurn'])}")
    asleep = sum(1 for server in servers if server["status"] == "sleeping")
    state = f"{up} of {len(servers)} servers up" + (f", {asleep} sleeping" if asleep else "")
    if facts["resting"]:
        state = "servers stopped until a client comes"
    first = f"{heading('muxway')} {one_line(facts['version'])}  " + "  ".join(words)
    lines = [f"{first}  {state}"] if fits(f"{first}  {state}") else [first, state]
    return [*lines, dim(one_line(facts["config"] or "no config file"))]


def table(servers: Sequence[Facts], *, of_several: bool = False) -> list[str]:
    """A line for each server, below their headings; with the gateway it belongs to, if there are several."""
    if not servers:
        return []
    whose = [Column("gateway", [str(server["gateway"]) for server in servers], left=True)] if of_several else []
    return figures.table(
        [
            *whose,
            Column("server", [one_line(server["name"]) for server in servers], left=True),
            Column("state", [badge(server["status"]) for server in servers], left=True),
            Column("revision", [server["revision"] or figures.NOTHING for server in servers], left=True, spare=7),
            Column("pid", [*map(_pid, servers)], spare=6),
            Column("up", [duration(server["uptime"]) for server in servers]),
            Column("restarts", [number(server["restarts"]) for server in servers], short="rst", spare=1),
            Column("busy", [number(server["inFlight"]) for server in servers], spare=3),
            Column("queue", [number(server["queued"]) for server in servers], spare=5),
            Column("calls", [number(server["calls"]) for server in servers], spare=8),
            Column("p50", [latency(server["p50"]) for server in servers], spare=4),
            Column("p99", [latency(server["p99"]) for server in servers]),
            Column("errors", [_errors(server["errors"]) for server in servers], short="err"),
            Column("mem", [memory(server["memory"]) for server in servers], spare=2),
        ]
    )


def _pid(server: Facts) -> str:
    if server["pid"] is None:
        return figures.NOTHING
    more = len(server["processes"]) - 1
    return f"{server['pid']}+{more}" if more > 0 else str(server["pid"])


def _errors(count: int) -> str:
    return click.style(number(count), fg="red") if count else "0"


def troubles(servers: Sequence[Facts], lines: int) -> list[str]:
    """Why servers are not running, each in at most so many lines; and which have something odd about them."""
    said: list[str] = []
    for server in servers:
        if server["status"] != "running" and server["error"] is not None:
            text = f"{one_line(server['name'])}{_again(server)}: {_error(server)}"
            said += wrapped(server["status"], text, lines)
    # Of several gateways each may have a server of that name.
    odd = dict.fromkeys(one_line(server["name"]) for server in servers if server["notes"])
    if odd:
        notes = f"{', '.join(odd)}: something is odd about the tools; see `muxway status SERVER`"
        said += wrapped("warning", notes, lines)
    return ["", *said] if said else []


def _about_clients(every: Sequence[Facts]) -> list[str]:
    """What was done for clients that cannot take all tools as they are."""
    said: list[str] = []
    for one in (client for facts in every for client in facts.get("clients", ())):
        where = "" if one["view"] is None else f" in view {one_line(one['view'])}"
        if one["tools"]:
            see = f"see `muxway check --client {one['client']}`"
            said.append(f"{one['title']} gets {plural(one['tools'], 'tool')}{where} in a form that it takes; {see}")
        said += [f"{badge('warning')}  {one_line(warning)}" for warning in one["warnings"]]
    return ["", *said] if said else []


def why(server: Mapping[str, Any]) -> str:
    """Why a server is not running, and when it will be tried again."""
    return f"{_error(server)}{_again(server)}"


def _error(server: Mapping[str, Any]) -> str:
    return reason(server["name"], server["error"] or f"it is {server['status']}")


def _again(server: Mapping[str, Any]) -> str:
    wait = server["retryIn"]
    return "" if wait is None else f" (again in {duration(wait)})" if wait >= 1 else " (again in a moment)"


# --- one server -------------------------------------------------------------------------------


def _show_server(server: Facts, *, of_several: bool) -> None:
    name = one_line(server["name"])
    whose = f"  gateway {server['gateway']}" if of_several else ""
    click.echo(f"{heading(name)}  {badge(server['status'])}{whose}")
    rows = [["revision", server["revision"] or "not known yet"], ["has", _holdings(server)]]
    if server["uptime"] is not None:
        started = "" if server["startSeconds"] is None else f", after a start of {latency(server['startSeconds'])}"
        rows.append(["up", f"{duration(server['uptime'])}{started}"])
    rows.append(["restarts", str(server["restarts"])])
    rows.append(["calls", _calls(server)])
    rows += [["" if number else "processes", line] for number, line in enumerate(_tree(server["processes"]))]
    if server["status"] == "sleeping":
        rows.append(["why", "it is idle; the next call starts it"])
    elif server["status"] != "running":
        rows.append(["why", why(server)])
    for label, cell in rows:
        click.echo(f"  {dim(label.ljust(9))}  {cell}")
    for note in server["notes"]:
        click.echo(f"  {badge('warning')}  {one_line(note).removeprefix(f'{name}: ')}")
    if server["error"] is not None:
        pid = f" --pid {server['gateway']}" if of_several else ""
        click.echo(f"What it wrote last: `muxway logs {name}{pid}`. Start it anew: `muxway restart {name}{pid}`.")


def _holdings(server: Facts) -> str:
    return counted(server["tools"], server["prompts"], server["resources"], server["resourceTemplates"])


def _calls(server: Facts) -> str:
    said = f"{plural(server['calls'], 'call')} done, {server['errors']} failed; "
    said += f"{server['inFlight']} under way, {server['queued']} waiting"
    if server["p50"] is not None:
        said += f"; half within {latency(server['p50'])}, 99 of 100 within {latency(server['p99'])}"
    return said


def _tree(found: Sequence[Facts]) -> list[str]:
    """Processes below their parents, as they come."""
    depth: dict[int, int] = {}
    lines: list[str] = []
    for process in found:
        deep = depth[process["pid"]] = depth.get(process["parent"], -1) + 1
        lines.append(f"{'  ' * deep}{process['pid']} {one_line(process['name'])} {memory(process['memory'])}")
    return lines
