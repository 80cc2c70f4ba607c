"""What one line can tell of a request: who and what. For `log` and `audit`, which must agree.

Whatever a caller chose is shortened: a line must not grow with the name somebody gave to a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.likeness import short
from muxway.wire import envelopes

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.calls.call import Caller
    from muxway.middleware.engine.base import Request


class _Clients:
    """Who calls, remembered from one call to the next: most often it is the same one, and is asked for twice."""

    info: Raw | None = None
    known: tuple[str | None, str | None] = (None, None)


def client_of(caller: Caller) -> tuple[str | None, str | None]:
    """Name and version of the caller's program, as it says itself."""
    info = caller.client_info
    if info is not _Clients.info:
        said = {} if info is None else envelopes.members(info) or {}
        name, version = envelopes.text(said.get("name")), envelopes.text(said.get("version"))
        _Clients.known = (None if name is None else short(name), None if version is None else short(version))
        _Clients.info = info
    return _Clients.known


def size_in(request: Request) -> int:
    """Bytes of the arguments, as they came."""
    arguments = request.call.params.get("arguments")
    return 0 if arguments is None else memoryview(arguments).nbytes
