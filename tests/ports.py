"""Ports for programs that want to be told one.

The system itself would name one of those that it gives to connections which leave, from 32768 on: the tests make
thousands of them, so one that was free is soon taken. Who looks whether somebody listens there may even meet itself.
"""

from __future__ import annotations

import itertools
import os
import socket

_FROM, _TO = 20_000, 32_000

_offers = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """One on which nobody listens, and which no other test of this process gets."""
    for offer in itertools.islice(_offers, _TO - _FROM):
        port = _FROM + offer % (_TO - _FROM)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port from {_FROM} to {_TO} is free")
