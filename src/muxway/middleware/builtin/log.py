"""`log`: one line a request in muxway's own log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from muxway.config.values import SECRET_KEY
from muxway.errors import ParseError
from muxway.likeness import short
from muxway.log import EventLog, masker
from muxway.middleware.engine.base import Middleware
from muxway.middleware.engine.facts import client_of, size_in
from muxway.wire import envelopes

if TYPE_CHECKING:
    from muxway.middleware.engine.base import Outcome, Request

_LONGEST: Final = 400
_LONGEST_TEXT: Final = 80
_MOST_ITEMS: Final = 10
_DEEPEST: Final = 4

log = EventLog("calls", gathered=True)


class Log(Middleware):
    """Write one line for each request: method, name, server, client, outcome, milliseconds and sizes.

    It goes where muxway's log goes, at level `info`. Arguments and results are not in it. Lines are written within a
    fiftieth of a second, and all of them before muxway ends.

    Options:
        arguments: also show the arguments, shortened. Values whose key looks like that of a secret, and secrets that
            the configuration knows, are masked; a secret elsewhere in a text is not recognised.

    Costs about 19 µs a request, most of it for the line; more with `arguments`.
    """

    def __init__(self, *, arguments: bool = False, known_secrets: frozenset[str] = frozenset()) -> None:
        self._arguments = arguments
        self._mask = masker(known_secrets)

    def after(self, request: Request, outcome: Outcome) -> None:
        """Write it down."""
        log.info(
            "call",
            method=short(request.method),
            name=short(request.name) or None,
            server=request.server or None,
            client=client_of(request.caller)[0],
            outcome=outcome.word,
            code=None if outcome.error is None else outcome.error.code,
            ms=round(outcome.seconds * 1000, 2),
            bytes_in=size_in(request),
            bytes_out=outcome.size,
            arguments=self._shown(request) if self._arguments else None,
        )

    async def close(self) -> None:
        """Write what is left."""
        log.flush()

    def _shown(self, request: Request) -> str:
        try:
            given = request.arguments
        except ParseError:
            # A number that Python cannot hold: the server may know what to do with it.
            return "(cannot be shown)"
        return short(self._mask(envelopes.encode(_shortened(given)).decode()), _LONGEST)


def _shortened(value: object, depth: int = 0) -> object:
    """The value with its secrets masked, and little enough of it to be encoded without a thought."""
    if isinstance(value, str):
        return short(value, _LONGEST_TEXT)
    if isinstance(value, dict | list) and depth >= _DEEPEST:
        return "…"
    if isinstance(value, dict):
        entries = [*cast("dict[str, Any]", value).items()][:_MOST_ITEMS]
        return {
            short(key, _LONGEST_TEXT): "***" if SECRET_KEY.search(key) else _shortened(item, depth + 1)
            for key, item in entries
        }
    if isinstance(value, list):
        return [_shortened(item, depth + 1) for item in cast("list[object]", value)[:_MOST_ITEMS]]
    return value
