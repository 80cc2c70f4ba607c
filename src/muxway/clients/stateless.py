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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from muxway.calls.call import Forwarded
    from muxway.calls.identity import Identity
    from muxway.calls.ports import Running
    from muxway.calls.server_request import ServerRequest
    from muxway.catalog.model import Catalog
    from muxway.clients.transports.http_response import Outlet
    from muxway.exchange.admission import Admission
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.exchange.runtime import Runtime
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
    """The checks, up to where the dispatcher takes over."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._mirrored: dict[str, _Mirrored | None] = {}

    def admit(
        self,
        request: HasHeaders,
        envelope: Envelope,
        method: str,
        dispatcher: Dispatcher,
        principal: bytes,
        identity: Identity | None = None,
        forwarded: Forwarded = (),
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
        caller = Caller(
            revision=revisions.NEWEST,
            capabilities=stated.capabilities,
            client_info=stated.client_info,
            principal=principal,
            identity=identity,
            forwarded=forwarded,
            # Whoever shows the same credentials is the same; those who show none cannot be told from each other.
            party=principal or None,
            log_level=stated.log_level,
        )
        if method == "tools/call":
            # Where it takes long to say what this caller may use, what there is will do.
            visible = dispatcher.find(caller) or dispatcher.visible
            self._check_mirrored(request.headers, params, visible.tools)
        return Call(caller, method, params, meta)

    def _check_mirrored(self, given: Mapping[bytes, Sequence[bytes]], params: Params, catalog: Catalog) -> None:
        """Compare arguments that the tool wants repeated in headers with these headers."""
        if catalog is not self._catalog:
            self._catalog, self._mirrored = catalog, {}
        name = envelopes.text(params.get("name"))
        # Nearly all callers use the name that is listed.
        route = None if name is None else catalog.routes.get(name) or catalog.find(name).route
        if route is None:
            return
        if route.public not in self._mirrored:
            self._mirrored[route.public] = _mirrored_by(route.definition)
        mirrored = self._mirrored[route.public]
        if mirrored is None:
            return
        for header, path, argument in mirrored.found_in(params.get("arguments")):
            if not _same(argument, given.get(_PARAM + header, ())):
                shown = (_PARAM + header).decode()
                raise RpcError(f"the header {shown} and the argument {'.'.join(path)} differ", code=HEADER_MISMATCH)


class _Mirrored:
    """Arguments that headers repeat: one, or those inside of one. Each object on the way is read once."""

    __slots__ = ("_header", "_inside", "_path", "_pick")

    def __init__(self, wanted: Mapping[tuple[str, ...], bytes], path: tuple[str, ...] = ()) -> None:
        """`wanted`: where the arguments are → headers (lower case, without their prefix)."""
        self._path = path
        self._header = wanted.get(path)
        depth = len(path)
        names = list(dict.fromkeys(one[depth] for one in wanted if len(one) > depth))
        self._inside = [
            _Mirrored(
                {one: header for one, header in wanted.items() if one[depth : depth + 1] == (name,)}, (*path, name)
            )
            for name in names
        ]
        self._pick = envelopes.picker(names)

    def found_in(self, raw: Raw | None) -> Iterator[tuple[bytes, tuple[str, ...], Raw | None]]:
        """Each header, where its argument is, and that itself; None if there is none."""
        if raw is not None and envelopes.is_null(raw):
            raw = None
        if self._header is not None:
            yield self._header, self._path, raw
        values = [None] * len(self._inside) if raw is None or not self._inside else self._pick(raw)
        for part, value in zip(self._inside, values, strict=True):
            yield from part.found_in(value)


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


def _mirrored_by(definition: bytes) -> _Mirrored | None:
    """What a tool wants repeated in headers; None: nothing."""
    if _ANNOTATION not in definition:
        return None
    try:
        wanted = headers.param_headers(envelopes.value(definition)["inputSchema"])
    except (headers.BadAnnotation, ParseError):
        # Clients must not offer such a tool, and nobody can know what its headers would be.
        return None
    return _Mirrored({path: header.lower().encode() for path, header in wanted.items()}) if wanted else None


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
    """One request and what is under way for it. A `calls.ports.Sink`."""

    id: bytes
    call: Call
    on_over: Callable[[StatelessRequest], None]
    """Called when the client has its answer, or has left."""
    admission: Admission | None = None
    """Where it is counted as under way, while it is."""
    running: Running | None = None
    runtime: Runtime | None = None
    """Of the gateway that answers it, once it was begun."""

    def begin(self, dispatcher: Dispatcher) -> None:
        """Have it answered, now or later; at once with an error if too much is under way."""
        self.runtime = dispatcher.runtime
        if self.call.method in CALLS:
            admission = dispatcher.runtime.admission
            refusal = admission.enter(self.call.caller.principal)
            if refusal is not None:
                # With status 200, as all errors of this code have (docs/errors.md#over-http). To the Python SDK 1.x
                # a 503 is the end of the connection and of all its other calls.
                self.failed(refusal)
                return
            self.admission = admission
        try:
            self.running = dispatcher.handle(self.call, self)
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
        if self.runtime is not None:
            told = self.runtime.logins.told(self.call, error, self.runtime.snapshot.settings.server_info)
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

    def open(self, call: Call, dispatcher: Dispatcher) -> bool:
        """Begin the stream, as the middleware pass the request on; whether there is one."""
        try:
            listening = Listening(self.id, call, dispatcher, self._tell_of, self._backlog, Quota())
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
