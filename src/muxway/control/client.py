"""The asking end of the control socket: which gateways of this user run, and what they say. Nothing here waits long."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.control.folders import check_folder, folders, sockets, whose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HELLO_WAIT: Final = 2.0
"""Seconds in which a gateway says who it is."""
_MAX_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of one line."""


class ControlError(Exception):
    """A gateway did not do what it was asked."""

    def __init__(self, code: str, message: str) -> None:
        """Codes of our own are `lost` and `silent`; the others are what the gateway said."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that runs."""

    path: Path
    pid: int
    version: str
    config: str | None
    """The whole path of its config file, if it has one."""
    door: str
    """How clients reach it: a URL, or `stdio`."""
    uptime: float
    client: str | None = None
    """What its client calls itself, if it has one alone, and has been introduced."""

    def ask(self, what: str, *, wait: float = 10.0, **more: object) -> dict[str, Any]:
        """Ask it for something that has one answer.

        Raises:
            ControlError: it refuses, has ended, or does not answer within `wait` seconds.
        """
        return next(part["result"] for part in _parts(self.path, self.pid, wait, ask=what, **more) if "result" in part)

    def lines(self, what: str, **more: object) -> Iterator[str]:
        """Ask it for lines, however long they take to come. Raises ControlError."""
        for part in _parts(self.path, self.pid, None, ask=what, **more):
            yield from part.get("lines", ())


@dataclass(frozen=True, slots=True)
class Found:
    """What there is."""

    gateways: list[RunningGateway] = field(default_factory=list[RunningGateway])
    """Those that answer, the youngest last."""
    silent: list[int] = field(default_factory=list[int])
    """Process ids of those that do not."""
    problems: list[str] = field(default_factory=list[str])
    """Folders that could not be looked into, and why."""
    looked: list[Path] = field(default_factory=list["Path"])


def find() -> Found:
    """Every gateway of this user that runs."""
    found = Found()
    for folder in folders():
        found.looked.append(folder)
        try:
            check_folder(folder)
            there = list(sockets(folder))
        except FileNotFoundError:
            continue
        except OSError as error:
            found.problems.append(f"{folder} {error.strerror or error}")
            continue
        for pid, path in there:
            try:
                who = next(_parts(path, pid, _HELLO_WAIT, ask="who"))["result"]
                found.gateways.append(
                    RunningGateway(
                        path,
                        who["pid"],
                        who["version"],
                        who["config"],
                        who["door"],
                        who["uptime"],
                        who.get("client"),  # an older muxway does not say
                    )
                )
            except ControlError as error:
                # Nobody listens at what a number that is in use again has left behind.
                if error.code != "lost":
                    found.silent.append(pid)
            except (KeyError, TypeError):
                found.silent.append(pid)
    found.gateways.sort(key=lambda gateway: gateway.pid)  # the same order each time, whoever answers first
    return found


def _parts(path: Path, pid: int, wait: float | None, **request: object) -> Iterator[dict[str, Any]]:
    """The parts of an answer, until it is complete."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_HELLO_WAIT)
        try:
            _connect(connection, path)
            if whose(connection) not in (None, os.geteuid()):
                raise ControlError("lost", f"the socket of pid {pid} is another user's")
            connection.sendall(json.dumps(request).encode() + b"\n")
            connection.settimeout(wait)
            with connection.makefile("rb") as stream:
                while line := stream.readline(_MAX_ANSWER):
                    part = _read(line, pid)
                    yield part
                    if "result" in part:
                        return
        except TimeoutError:
            raise ControlError("silent", f"the gateway with pid {pid} does not answer within {wait:g} s") from None
        except BlockingIOError:
            raise ControlError("silent", f"the gateway with pid {pid} takes no more connections") from None
        except OSError:
            raise ControlError("lost", f"the gateway with pid {pid} has ended") from None
    raise ControlError("lost", f"the gateway with pid {pid} has ended")


def _connect(connection: socket.socket, path: Path) -> None:
    end = time.monotonic() + _HELLO_WAIT
    while True:
        try:
            connection.connect(str(path))
        except BlockingIOError:
            # Many others are waiting to be let in.
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return


def _read(line: bytes, pid: int) -> dict[str, Any]:
    try:
        part = json.loads(line)
    except ValueError:
        part = None
    if not isinstance(part, dict):
        raise ControlError("strange", f"what answers for pid {pid} is no muxway")
    answer = cast("dict[str, Any]", part)
    if "error" in answer:
        raise ControlError(str(answer["error"]["code"]), str(answer["error"]["message"]))
    return answer
