"""How much is asked of one connection to a server at a time."""

from __future__ import annotations

from typing import Final, NamedTuple


class ServerLimits(NamedTuple):
    """What a connection lets through at once."""

    concurrency: int = 64
    """Calls under way; more wait."""
    queue: int = 256
    """Calls that wait; more are refused."""
    wait: float = 10.0
    """Seconds a call may wait for its turn."""


DEFAULT: Final = ServerLimits()
