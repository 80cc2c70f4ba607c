"""`muxway top`: the same as `status`, drawn anew every second."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any

import click

from muxway.cli.help import Verb
from muxway.cli.output import badge, cut, dim, on_terminal, one_line, width
from muxway.cli.running import answered, gateway_options, pick_any
from muxway.cli.verbs.status import Facts, heads, look, table, troubles
from muxway.control.client import ControlError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from muxway.control.client import RunningGateway

_EVERY = 1.0
_ENTER = "\x1b[?1049h\x1b[?25l"
"""To the other screen, cursor off."""
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

_ORDERS: dict[str, Callable[[Facts], Any]] = {
    "trouble": lambda server: (server["status"] in ("running", "sleeping"), -server["errors"], -server["inFlight"]),
    "busy": lambda server: (-server["inFlight"] - server["queued"], -server["calls"]),
    "slow": lambda server: -(server["p99"] or 0),
    "memory": lambda server: -(server["memory"] or 0),
    "name": lambda server: server["name"],
}
"""Orders that may be asked for. Servers that are alike stay in the order of the config."""


@click.command(cls=Verb, examples=["muxway top", "muxway top --sort memory", "muxway top --pid 4242"])
@gateway_options
@click.option(
    "--sort",
    "order",
    type=click.Choice([*_ORDERS]),
    metavar="ORDER",
    default="trouble",
    help="Sort by: trouble (servers that are down or fail), busy (many calls), slow, memory, or name.",
)
def command(pid: int | None, config: str | None, order: str) -> None:
    """Watch a running gateway and its servers, every second.

    The columns are those of `muxway status`. Press q or Ctrl-C to quit. If stdout is
    not a terminal, the table is printed once. Exit 4 if no gateway runs, or if it
    ends in the meantime.
    """
    gateways = pick_any(pid, config)
    with answered():
        facts, doubt = [*map(look, gateways)], ""
        if not on_terminal():
            click.echo("\n".join(_lines(facts, order)))
            return
        with _screen() as screen:
            while True:
                screen.draw(_lines(facts, order, screen.room()), doubt)
                if screen.asked_to_end(_EVERY):
                    return
                facts, doubt = _looked(gateways, facts)


def _looked(gateways: list[RunningGateway], before: list[Facts]) -> tuple[list[Facts], str]:
    """How they are now, without those that have ended; and who did not answer. Raises ControlError if none is left."""
    facts: list[Facts] = []
    doubt = ""
    for gateway in [*gateways]:
        try:
            facts.append(look(gateway, wait=_EVERY * 2))
        except ControlError as error:
            if error.code == "lost":
                if len(gateways) == 1:
                    raise
                gateways.remove(gateway)
                continue
            facts += [one for one in before if one["pid"] == gateway.pid]
            doubt = one_line(str(error))
    return facts, doubt


def _lines(every: Sequence[Facts], order: str, room: int | None = None) -> list[str]:
    """What there is to show. Where there is not room for all of it, reasons get what servers leave, or a third."""
    servers = sorted((server for facts in every for server in facts["servers"]), key=_ORDERS[order])
    above, rows, below = [*heads(every), ""], table(servers, of_several=len(every) > 1), troubles(servers, 2)
    if room is not None:
        left = max(room - len(above), 0)
        rows = _cut(rows, left - min(len(below), left // 3), "servers")
        below = _cut(below, left - len(rows), "lines")
    return [*above, *rows, *below]


def _cut(lines: list[str], room: int, what: str) -> list[str]:
    if len(lines) <= room:
        return lines
    kept = max(room - 1, 0)
    return [*lines[:kept], dim(f"… and {len(lines) - kept} more {what}: make the window higher")]


class _Screen:
    """A terminal that is drawn on as a whole."""

    def __init__(self, keys: int | None) -> None:
        self._keys = keys
        self._plain = click.get_current_context().color is False

    def room(self) -> int:
        """How many lines it has, beside the last."""
        return max(shutil.get_terminal_size().lines - 2, 1)

    def draw(self, lines: Sequence[str], doubt: str) -> None:
        """Show these lines, as far as there is room, in place of what is there."""
        columns, room = shutil.get_terminal_size().columns, self.room()
        last = f"{badge('warning')}  {doubt}" if doubt else dim("q ends")
        shown = [*lines[:room], *[""] * (room - len(lines)), last]
        sys.stdout.write(_HOME + "\r\n".join(self._fitted(line, columns) for line in shown) + _BELOW)
        sys.stdout.flush()

    def _fitted(self, line: str, columns: int) -> str:
        if width(line) > columns:
            line = cut(click.unstyle(line), columns)
        # In this order: clearing after the last column would wipe it on some terminals.
        return _END_OF_LINE + (click.unstyle(line) if self._plain else line)

    def asked_to_end(self, seconds: float) -> bool:
        """Wait for so long; tell at once if the user wants no more."""
        if not select.select([] if self._keys is None else [self._keys], [], [], seconds)[0] or self._keys is None:
            return False
        keys = os.read(self._keys, 64)
        if not keys:
            self._keys = None
        return b"q" in keys.lower() or b"\x04" in keys


@contextlib.contextmanager
def _screen() -> Generator[_Screen]:
    """Take over the terminal, and give it back as it was, however this ends."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = [] if keys is None else termios.tcgetattr(keys)
    handlers = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, _terminated),
        signal.SIGHUP: signal.signal(signal.SIGHUP, _terminated),
        # Who puts it to sleep with Ctrl-Z would be left with this screen and no cursor.
        signal.SIGTSTP: signal.signal(signal.SIGTSTP, signal.SIG_IGN),
    }
    try:
        if keys is not None:
            tty.setcbreak(keys)
        sys.stdout.write(_ENTER)
        yield _Screen(keys)
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        if keys is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _terminated(number: int, _frame: object) -> None:
    raise click.exceptions.Exit(128 + number)
