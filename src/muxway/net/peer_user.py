"""Whose process is at the other end of a loopback connection: asked of the kernel, by netlink (Linux).

The kernel knows the socket at the other end, as long as that is open on this machine, and who made it. A socket that
its process has closed already has no owner any more, and shows as root's: such an answer is no answer.
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import sys
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEAD: Final = struct.Struct("=IHHII")
"""Of a netlink message: length, type, flags, number, process."""
_ASKED: Final = struct.Struct("=BBBxI")
"""Family, protocol, wanted extras, states."""
_ENDS: Final = struct.Struct("!HH16s16s")
"""Of the socket that is looked for: its port and the other's, its address and the other's."""
_NO_COOKIE: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_ANSWERED: Final = struct.Struct("=BBxx48xIIIII")
"""Family, state, …; times and queues, user, inode."""
_CONNECTED: Final = frozenset((1, 4, 5, 8))
"""Established, or closed on one side only (TCP's own numbers)."""
_LARGEST: Final = 4096


def owner_of(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The user who has the socket at `peer` that is connected to `own`; None if that cannot be told."""
    try:
        return _ask(peer, own)
    except (OSError, AttributeError, ValueError, struct.error):
        return None


@cache
def _kernel() -> socket.socket:
    # Kept: where no more files can be opened, whoever is connected by then must still be told from strangers.
    netlink: int = socket.AF_NETLINK  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - Linux
    made = socket.socket(netlink, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG)
    # Python warns of a socket that nobody has closed, at the end of a process, too.
    atexit.register(made.close)
    return made


_numbers = count(1)
"""Of questions: an answer to another one, which nobody has read, is none."""


def _ask(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    ends = (socket.inet_pton(family, address.partition("%")[0]) for address in (peer[0], own[0]))
    body = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + _ENDS.pack(peer[1], own[1], *ends) + _NO_COOKIE
    kernel, number = _kernel(), next(_numbers) & 0xFFFFFFFF
    kernel.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST, number, 0) + body)
    while True:
        # The kernel has answered before the question has been sent: there is nothing to wait for.
        answer = kernel.recv(_LARGEST, socket.MSG_DONTWAIT)
        _, kind, _, answered, _ = _HEAD.unpack_from(answer)
        if answered == number:
            break
    if kind != _BY_FAMILY:
        return None
    _, state, _, _, _, user, inode = _ANSWERED.unpack_from(answer, _HEAD.size)
    return user if inode and state in _CONNECTED else None


def can_tell() -> bool:
    """Whether the kernel answers here, and means users by what it says."""
    if not sys.platform.startswith("linux") or os.geteuid() == _unmapped_user():
        return False
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
            with socket.create_connection(address, 1) as asking:
                return owner_of(asking.getsockname(), address) == os.geteuid()
    except OSError:
        return False


def _unmapped_user() -> int:
    """What all users are called who have no number in this container: whoever is called that may be anybody."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534
