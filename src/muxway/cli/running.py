"""Which running gateway a verb is for: the only one, or the one that `--pid` or `--config` says."""

from __future__ import annotations

import contextlib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muxway.cli import processes
from muxway.cli.exits import Failed, Unreachable
from muxway.cli.figures import duration
from muxway.cli.options import one_config
from muxway.cli.output import one_line
from muxway.control.client import ControlError, Found, RunningGateway, find

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from muxway.cli.processes import StartedProcess

_F = TypeVar("_F", bound="Callable[..., object]")

CHANGE_WAIT = 330.0
"""Seconds for a change: longer than the gateway itself lets us wait."""


def gateway_options(command: _F) -> _F:
    """`--pid N` and `--config FILE`, to pick one of several gateways."""
    config = click.option(
        "-c",
        "--config",
        metavar="FILE",
        multiple=True,
        callback=one_config,
        help="The gateway that runs this config, if several run.",
    )
    pid = click.option("--pid", type=int, metavar="N", help="The gateway with this process id.")
    return pid(config(command))


def pick(pid: int | None, config: str | None) -> RunningGateway:
    """The gateway that is meant.

    Raises:
        Unreachable: there is none, or it does not answer.
        UsageError: there are several.
    """
    found = find()
    chosen = matching(found, pid, config)
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise several(chosen, config)
    raise nobody(found, pid, config)


def pick_for(server: str, pid: int | None, config: str | None) -> RunningGateway:
    """The gateway that is meant by whoever only looks at this server: the only one that has it.

    Raises:
        Unreachable: there is no gateway, or one does not answer.
        UsageError: there are several that may be meant.
    """
    chosen = pick_any(pid, config)
    if len(chosen) > 1:
        with answered():
            names = {one.pid: [it["name"] for it in one.ask("status")["servers"]] for one in chosen}
        having = [one for one in chosen if server in names[one.pid]]
        if not having:
            there = sorted({name for some in names.values() for name in some})
            raise click.UsageError(f"None of the {len(chosen)} running gateways has a server {_nearest(server, there)}")
        chosen = having
    if len(chosen) > 1:
        raise several(chosen, config)
    return chosen[0]


def pick_any(pid: int | None, config: str | None) -> list[RunningGateway]:
    """The gateways that may be meant: for those who only look. Raises Unreachable if there is none."""
    found = find()
    chosen = matching(found, pid, config)
    if not chosen:
        raise nobody(found, pid, config)
    return chosen


def matching(found: Found, pid: int | None, config: str | None) -> list[RunningGateway]:
    """Those that may be meant."""
    file = None if config is None else str(Path(config).resolve())
    return [
        gateway
        for gateway in found.gateways
        if (pid is None or gateway.pid == pid) and (file is None or gateway.config == file)
    ]


def several(gateways: list[RunningGateway], config: str | None) -> click.UsageError:
    """What to say where one gateway is meant, and all of these may be."""
    how = "--pid or --config" if config is None and len({one.config for one in gateways}) > 1 else "--pid"
    return click.UsageError(f"{len(gateways)} gateways are running: pick one with {how}.\n{_listed(gateways)}")


def _listed(gateways: list[RunningGateway]) -> str:
    """Gateways, one a line, so that a person can choose."""
    every = processes.running()
    rows = [
        (f"pid {one.pid}", _door(one, every), f"up {duration(one.uptime)}", one.config or "no file") for one in gateways
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  " + "  ".join(one_line(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _door(gateway: RunningGateway, every: Mapping[int, StartedProcess]) -> str:
    """How clients reach it; which client that is, if it has one."""
    client = client_of(gateway.pid, gateway.client, every)
    return gateway.door if gateway.door != "stdio" or client is None else f"stdio, of {client}"


def client_of(pid: int, said: str | None, every: Mapping[int, StartedProcess]) -> str | None:
    """What the client of a gateway on stdio is called: by itself, or by its program, which is the gateway's parent."""
    own = every.get(pid)
    parent = None if own is None else every.get(own.parent)
    return said or (None if parent is None else parent.name)


def nobody(found: Found, pid: int | None, config: str | None) -> Unreachable:
    """What to say where a gateway is meant that is not there, or does not answer."""
    return Unreachable(_nobody(found, pid, config))


def _nobody(found: Found, pid: int | None, config: str | None) -> str:
    if found.silent and (pid in found.silent or not found.gateways):
        silent = f"pid {pid or ', '.join(map(str, found.silent))}"
        return f"the gateway with {silent} does not answer: it is stopped, or very busy."
    which = f" with pid {pid}" if pid is not None else f" with {config}" if config is not None else ""
    said = f"no gateway of yours is running{which}."
    if found.gateways:
        return f"{said} There {'is' if len(found.gateways) == 1 else 'are'}:\n{_listed(found.gateways)}"
    for problem in found.problems:
        said += f"\nNot looked into: {problem}."
    return f"{said}\nStart one with `muxway serve` or let a client launch `muxway`; other users' are not shown."


@contextlib.contextmanager
def answered() -> Generator[None]:
    """Whoever is asked in here may not answer, or refuse: that ends the command, with the exit code that says so."""
    try:
        yield
    except ControlError as error:
        raise failure(error) from None


def known_server(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a gateway's status says of one server. Raises UsageError."""
    servers = {server["name"]: server for server in facts["servers"]}
    if name in servers:
        return servers[name]
    raise click.UsageError(f"The gateway has no server {_nearest(name, servers)}")


def _nearest(name: str, known: Collection[str]) -> str:
    """A name that nobody has, and the one that may be meant instead."""
    near = get_close_matches(name, known, n=1)
    hint = (
        f'Did you mean "{one_line(near[0])}"?' if near else f"There are: {', '.join(map(one_line, known)) or 'none'}."
    )
    return f'"{one_line(name)}". {hint}'


def failure(error: ControlError) -> Failed | click.UsageError:
    """How a verb ends that was not answered."""
    message = one_line(str(error))
    message += "" if message.endswith((".", "?")) else "."
    match error.code:
        case "unknown_server" | "unknown_view":
            return click.UsageError(message)
        case "lost" | "silent" | "resting":
            return Unreachable(message)
        case _:
            return Failed(message)
