"""What one line can tell of a request: who, what, how it went. For `log` and `audit`, which must agree.

Whatever a caller chose is shortened: a line must not grow with the name somebody gave to a client.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from muxway.errors import RpcError
from muxway.middleware.base import Middleware
from muxway.protocol import messages

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.core.call import Caller
    from muxway.middleware.base import Next, Request, Result

Outcome = Literal["ok", "isError", "asked", "error", "cancelled"]
"""`isError`: a tool says that it failed. `asked`: the caller must answer something first. `error`: there is a code."""

_LONGEST: Final = 200


def short(text: str, longest: int = _LONGEST) -> str:
    """The text, cut if it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class _Clients:
    """Who calls, remembered from one call to the next: most often it is the same one, and is asked for twice."""

    info: Raw | None = None
    known: tuple[str | None, str | None] = (None, None)


def client_of(caller: Caller) -> tuple[str | None, str | None]:
    """Name and version of the caller's program, as it says itself."""
    info = caller.client_info
    if info is not _Clients.info:
        said = {} if info is None else messages.members(info) or {}
        name, version = messages.text(said.get("name")), messages.text(said.get("version"))
        _Clients.known = (None if name is None else short(name), None if version is None else short(version))
        _Clients.info = info
    return _Clients.known


def size_in(request: Request) -> int:
    """Bytes of the arguments, as they came."""
    arguments = request.call.params.get("arguments")
    return 0 if arguments is None else memoryview(arguments).nbytes


class Observed(NamedTuple):
    """How a request went."""

    outcome: Outcome
    code: int | None
    """Of the error, if there was one."""
    size: int
    """Bytes of the result."""
    seconds: float


class Observer(Middleware):
    """Notes how every request went."""

    plain = True

    async def any_request(self, request: Request, go: Next) -> Result:
        """Go on, and note what came of it."""
        started = perf_counter()
        outcome: Outcome = "cancelled"
        code: int | None = None
        size = 0
        try:
            result = await go(request)
            outcome, size = outcome_of(result), len(result.raw)
            return result
        except RpcError as error:
            outcome, code = "error", error.code
            raise
        finally:
            self.observe(request, Observed(outcome, code, size, perf_counter() - started))

    def observe(self, request: Request, observed: Observed) -> None:
        """Take note of a request that is over."""
        raise NotImplementedError


def outcome_of(result: Result) -> Outcome:
    """How a request went that was answered."""
    if result.is_error:
        return "isError"
    return "ok" if result.is_final else "asked"
