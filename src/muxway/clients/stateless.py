"""Requests of 2026-07-28 over HTTP: each stands for itself, and its headers must say what its body says.

The checks are a ladder, and the first that fails gives the answer: envelope, headers, version, then whatever
the method asks for. The connection is the request's life: when it is lost, the request is cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from muxway.calls.call import Call, Caller
from muxway.calls.incidents import internal
from muxway.clients import notifications
from muxway.clients.listen_request import Listening
from muxway.clients.transports.http_response import HttpReply, PlainEvents
from muxway.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    RpcError,
    UnsupportedVersion,
)
from muxway.exchange.admission import CALLS
from muxway.exchange.subscriptions import Quota
from muxway.wire import envelopes, headers, revisions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.calls.ports import Running
    from muxway.calls.server_request import ServerRequest
    from muxway.catalog.model import Catalog
    from muxway.clients.transports.http_response import Outlet
    from muxway.exchange.admission import Admission
    from muxway.exchange.switchboard import Switchboard
    from muxway.wire.envelopes import Buffer, Envelope, Params, Raw

_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
_VERSION, _METHOD, _NAME = ((name.lower().encode(), name) for name in (headers.VERSION, headers.METHOD, headers.NAME))
_PARAM: Final = b"mcp-param-"
_ANNOTATION: Final = headers.ANNOTATION.encode()


def status_of(error: RpcError) -> int:
    """The HTTP status of an answer that is this error."""
    return _STATUS.get(error.code, 200)


class HasHeaders(Protocol):
    """A request, as far as its headers go."""

    @property
    def headers(self) -> Mapping[bytes, Sequence[bytes]]:
        """Every header, its name in lower case."""
        ...


class Ladder:
    """The checks, up to where the switchboard takes over."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._mirrored: dict[str, Mapping[bytes, tuple[str, ...]]] = {}

    def admit(
        self, request: HasHeaders, envelope: Envelope, method: str, switchboard: Switchboard, principal: bytes
    ) -> Call:
        """The call that this request of this principal makes.

        Raises:
            RpcError: it may not be made.
        """
        params = envelope.params or {}
        raw_meta = params.get("_meta")
        meta = None if raw_meta is None else envelopes.members(raw_meta)
        unsupported: UnsupportedVersion | None = None
        stated: revisions.RequestEnvelope | None = None
        try:
            stated = revisions.read_envelope(meta)
        except UnsupportedVersion as error:
            # Headers that contradict the body count for more.
            unsupported = error
        if meta is None or (stated is None and unsupported is None):
            raise InvalidParams(
                f'params._meta["{revisions.PROTOCOL_VERSION}"] is missing: '
                f"requests of {revisions.NEWEST.date} carry it, others need a session"
            )
        _agree(request.headers, _VERSION, envelopes.text(meta[revisions.PROTOCOL_VERSION]), encoded=False)
        _agree(request.headers, _METHOD, method, encoded=False)
        key = headers.NAMED_BY.get(method)
        if key is not None:
            _agree(request.headers, _NAME, envelopes.text(params.get(key)))
        if stated is None:
            raise cast("UnsupportedVersion", unsupported)
        if method == "tools/call":
            self._check_mirrored(request.headers, params, switchboard.catalog)
        caller = Caller(
            revision=revisions.NEWEST,
            capabilities=stated.capabilities,
            client_info=stated.client_info,
            principal=principal,
            # Whoever shows the same credentials is the same; those who show none cannot be told from each other.
            party=principal or None,
            log_level=stated.log_level,
        )
        return Call(caller, method, params, meta)

    def _check_mirrored(self, given: Mapping[bytes, Sequence[bytes]], params: Params, catalog: Catalog) -> None:
        """Compare arguments that the tool wants repeated in headers with these headers."""
        if catalog is not self._catalog:
            self._catalog, self._mirrored = catalog, {}
        name = envelopes.text(params.get("name"))
        route = None if name is None else catalog.find(name).route
        if route is None:
            return
        mirrored = self._mirrored.get(route.public)
        if mirrored is None:
            mirrored = self._mirrored[route.public] = _mirrored_by(route.definition)
        if not mirrored:
            return
        arguments = params.get("arguments")
        for header, path in mirrored.items():
            values = given.get(_PARAM + header, ())
            argument = _at(arguments, path)
            if not _same(argument, values):
                shown = (_PARAM + header).decode()
                raise RpcError(f"the header {shown} and the argument {'.'.join(path)} differ", code=HEADER_MISMATCH)


def _agree(
    given: Mapping[bytes, Sequence[bytes]], header: tuple[bytes, str], wanted: str | None, *, encoded: bool = True
) -> None:
    key, name = header
    values = given.get(key, ())
    if not values and wanted is None:
        return
    if len(values) != 1:
        raise RpcError(f"the header {name} is {'missing' if not values else 'doubled'}", code=HEADER_MISMATCH)
    text = values[0].decode("latin-1").strip(" \t")
    if (headers.decode_value(text) if encoded else text) != wanted:
        raise RpcError(f"the header {name} does not say what the body says", code=HEADER_MISMATCH)


def _mirrored_by(definition: bytes) -> Mapping[bytes, tuple[str, ...]]:
    """Header (lower case, without its prefix) → where the argument is that it repeats."""
    if _ANNOTATION not in definition:
        return {}
    try:
        wanted = headers.param_headers(envelopes.value(definition)["inputSchema"])
    except (headers.BadAnnotation, ParseError):
        # Clients must not offer such a tool, and nobody can know what its headers would be.
        return {}
    return {header.lower().encode(): path for path, header in wanted.items()}


def _at(raw: Raw | None, path: tuple[str, ...]) -> Raw | None:
    for step in path:
        raw = None if raw is None else (envelopes.members(raw) or {}).get(step)
    return None if raw is None or envelopes.is_null(raw) else raw


def _same(argument: Raw | None, values: Sequence[bytes]) -> bool:
    if argument is None or len(values) != 1:
        return argument is None and not values
    given = headers.decode_value(values[0].decode("latin-1"))
    text = envelopes.text(argument)
    if text is not None or given is None:
        return given == text and given is not None
    plain = bytes(argument).decode()
    if plain in ("true", "false"):
        return given == plain
    # 42 and 42.0 are the same integer.
    return envelopes.number(given.encode()) == envelopes.number(argument) is not None


class StatelessRequest(HttpReply, eq=False, kw_only=True):
    """One request and what is under way for it. A `core.ports.Sink`."""

    id: bytes
    call: Call
    on_over: Callable[[StatelessRequest], None]
    """Called when the client has its answer, or has left."""
    admission: Admission | None = None
    """Where it is counted as under way, while it is."""
    running: Running | None = None
    board: Switchboard | None = None
    """Who answers it."""

    def begin(self, switchboard: Switchboard) -> None:
        """Have it answered, now or later; at once with an error if too much is under way."""
        self.board = switchboard
        if self.call.method in CALLS:
            admission = switchboard.admission
            refusal = admission.enter(self.call.caller.principal)
            if refusal is not None:
                # With status 200, as all errors of this code have (docs/errors.md#over-http). To the Python SDK 1.x
                # a 503 is the end of the connection and of all its other calls.
                self.failed(refusal)
                return
            self.admission = admission
        try:
            self.running = switchboard.handle(self.call, self)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client waits for an answer
            self.failed(internal(error, method=self.call.method))

    def say(self, frame: Sequence[Buffer]) -> None:
        if not self.answered:
            super().say(frame)
            if self.events is None:
                self.over()

    def over(self, outlet: Outlet | None = None) -> None:
        del outlet
        admission, self.admission = self.admission, None
        if admission is not None:
            admission.leave(self.call.caller.principal)
        self.on_over(self)
        if not self.answered:
            self.cancel("the client has closed the connection")

    def done(self, *result: Buffer) -> None:
        self.running = None
        self.say(envelopes.result(self.id, *result))

    def failed(self, error: RpcError) -> None:
        self.running = None
        if self.board is not None:
            told = self.board.audience.logins.told(self.call, error, self.board.identity)
            if isinstance(told, bytes):
                self.say(envelopes.result(self.id, told))
                return
        self.status = status_of(error)
        self.say(envelopes.failure(self.id, error))

    def progress(self, params: dict[str, Buffer]) -> None:
        notice = notifications.progress(self.call, params)
        if notice is not None and not self.answered:
            self.tell(notice)

    def log(self, params: dict[str, Buffer]) -> None:
        notice = notifications.log(self.call.caller, params)
        if notice is not None and not self.answered:
            self.tell(notice)

    def ask(self, ask: ServerRequest) -> None:
        # Questions to stateless callers end the call: whoever does that waits until they have come here.
        if not ask.arrived():
            why = f"{ask.method}: a request of {revisions.NEWEST.date} cannot be asked in its course"
            ask.refuse(MethodNotFound(why))

    def stop(self, reason: str) -> None:
        """Give up on it, and say so."""
        running = self.running
        self.failed(RpcError(reason))
        if running is not None:
            running.cancel(reason)

    def cancel(self, reason: str) -> None:
        """Nobody waits for it any more."""
        running, self.running = self.running, None
        self.answered = True
        if running is not None:
            running.cancel(reason)


class ListenRequest(StatelessRequest, eq=False):
    """A `subscriptions/listen`: answered when the gateway ends it, told of changes until then."""

    listening: Listening | None = None

    def open(self, call: Call, switchboard: Switchboard) -> bool:
        """Begin the stream, as the middleware pass the request on; whether there is one."""
        try:
            listening = Listening(self.id, call, switchboard, self._tell_of, self._backlog, Quota())
        except RpcError as error:
            self.failed(error)
            return False
        self.listening = listening
        self.late()
        listening.begin()
        return True

    def _tell_of(self, frame: Sequence[Buffer]) -> None:
        if not self.answered:
            self.tell(frame)

    def _backlog(self) -> int:
        return self.events.outlet.waiting if isinstance(self.events, PlainEvents) else 0

    def done(self, *result: Buffer) -> None:
        if self.listening is None:
            self.failed(InvalidRequest("a middleware answered the request, so no stream was opened"))
        else:
            super().done(*result)

    def over(self, outlet: Outlet | None = None) -> None:
        if self.listening is not None:
            self.listening.close()
        super().over(outlet)
