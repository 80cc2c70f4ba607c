"""Keeping what the gateway knows from the servers that it starts, as far as the system helps."""

from __future__ import annotations

import sys

_SET_DUMPABLE = 4


def hide_from_children() -> None:
    """Let no other process of this user read our memory or our environment, where the token stands. Linux only.

    Children are not concerned: with its program, a process gets its usual rights again.
    """
    if sys.platform == "linux":
        import ctypes  # a dear import, and of use only here

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
