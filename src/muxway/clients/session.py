"""One connection of a client: bytes in, calls to the dispatcher, bytes out.

Serves both eras side by side. `initialize` opens the pipe's one handshake session; a
request with the 2026-07-28 envelope needs none and brings its own caller. The transport owns
the pipe, this owns its meaning.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from muxway.calls.call import Call, Caller
from muxway.calls.incidents import internal
from muxway.calls.ports import TURN, stopwatch
from muxway.catalog.client_profiles import profile_of
from muxway.clients import notifications
from muxway.clients.backlog import Backlog, Message
from muxway.clients.changes import ClientChanges
from muxway.clients.questions import ClientQuestion, ClientQuestions
from muxway.clients.unsent import Unsent
from muxway.errors import URL_ELICITATION_REQUIRED, InvalidParams, InvalidRequest, ParseError, RpcError, UpstreamSaid
from muxway.exchange.admission import CALLS
from muxway.exchange.meeting import Meeting
from muxway.exchange.open_sessions import Listener
from muxway.likeness import short
from muxway.log import EventLog
from muxway.wire import envelopes, large, revisions
from muxway.wire.envelopes import ABSENT, NotAnEnvelope
from muxway.wire.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from muxway.calls.call import Forwarded
    from muxway.calls.identity import Identity
    from muxway.calls.ports import Running, Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.wire.envelopes import Buffer, Envelope, Params
    from muxway.wire.framing import Oversized

_OPENERS: Final = frozenset(("initialize", "ping"))
"""What a handshake client may say before it has a session."""
NO_BATCHES: Final = (
    "batches (arrays of messages) exist only in sessions of revision 2025-03-26; send one message a line"
)
_LARGE_BATCH: Final = 256 * 1024
"""Bytes of a batch that take a turn to be taken apart."""
_SHORT: Final = ("name", "uri", "ref", "cursor", "_meta")
"""Params that are read, and not only passed on."""
_NOTHING: Final[dict[str, envelopes.Raw]] = {}

log = EventLog("client")


class ClientRequest(msgspec.Struct, eq=False):
    """One request of the client and what is under way for it. A `calls.ports.Sink`.

    A Struct, as its constructor runs for every call.
    """

    endpoint: Session
    id: bytes
    """As the client wrote it."""
    key: bytes
    """The same, in the one spelling by which it is known here."""
    call: Call
    say: Callable[[Sequence[Buffer]], None]
    """Takes the answer."""
    tell: Callable[[Sequence[Buffer]], None]
    """Takes what is said before the answer."""
    running: Running | None = None

    def done(self, *result: Buffer) -> None:
        # It holds us as we hold it: without this, each call would be left to the garbage collector.
        self.running = None
        # First what may fail: once it is closed, nobody could be told.
        frame = envelopes.result(self.id, *result)
        if self.endpoint.closed_exchange(self):
            self.say(frame)

    def failed(self, error: RpcError) -> None:
        self.running = None
        told = self.endpoint.told(self.call, error)
        if isinstance(told, bytes):
            self.done(told)
            return
        error = told
        frame = envelopes.failure(self.id, error)
        if self.endpoint.closed_exchange(self):
            if error.code == URL_ELICITATION_REQUIRED and isinstance(error, UpstreamSaid):
                self.endpoint.questions.note_pages(error)
            self.say(frame)

    def progress(self, params: dict[str, Buffer]) -> None:
        notice = notifications.progress(self.call, params)
        if notice is not None and self.endpoint.peer.theirs.get(self.key) is self:
            self.tell(notice)

    def log(self, params: dict[str, Buffer]) -> None:
        notice = notifications.log(self.call.caller, params)
        if notice is not None and self.endpoint.peer.theirs.get(self.key) is self:
            self.tell(notice)

    def ask(self, ask: ServerRequest) -> None:
        if not ask.arrived():
            self.endpoint.questions.put(ask, self.call.caller, self.tell)


class _Batch:
    """Collects the answers to a 2025-03-26 batch and sends them as one array, once none is missing."""

    def __init__(self, size: int, say: Callable[[Sequence[Buffer]], None], nothing: Callable[[], None]) -> None:
        self._left = size
        self._say = say
        self._nothing = nothing
        self._answers: list[Buffer] = []

    def add(self, frame: Sequence[Buffer] = ()) -> None:
        """The answer to one message of the batch; empty if it gets none."""
        if frame:
            # Not put together here: each may be as large as a message may be.
            self._answers += (b"," if self._answers else b"[", *frame[:-1], bytes(frame[-1]).rstrip(b"\n"))
        self._left -= 1
        if self._left == 0:
            if self._answers:
                self._say([*self._answers, b"]\n"])
            else:
                self._nothing()


@lru_cache(64)
def _told(*capabilities: str) -> frozenset[str]:
    """One set for all sessions that are told the same: there may be thousands of them."""
    return frozenset(capabilities)


def _nobody_asked() -> None:
    pass


class Session:
    """The gateway as one client sees it."""

    _HERE: ClassVar[Mapping[str, Callable[[Session, ClientRequest], bool]]] = {
        "subscriptions/listen": lambda self, request: self._changes.listen(request),
        "logging/setLevel": lambda self, request: self._set_log_level(request),
        "resources/subscribe": lambda self, request: self._changes.subscribe(request),
        "resources/unsubscribe": lambda self, request: self._changes.unsubscribe(request),
    }
    """Requests about this connection itself; False from one of these means that it is none for this caller."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        say: Callable[[Sequence[Buffer]], None],
        principal: bytes = b"",
        backlog: Callable[[], float] = lambda: 0.0,
        *,
        alone: bool = False,
        identity: Identity | None = None,
    ) -> None:
        """Serve a client.

        Args:
            dispatcher: what answers its requests.
            say: writes to it what belongs to no request of its.
            principal: whose credentials it came with.
            backlog: how many bytes of that it has yet to read; infinite while there is nowhere to write to.
            identity: what these credentials say of it.
            alone: whether the gateway has no other clients, so that it may have as many calls under way as all may.
        """
        self.say = say
        self._principal = principal
        self._identity = identity
        self._forwarded: Forwarded = ()
        self.peer: Peer[ClientQuestion, ClientRequest] = Peer()
        self._dispatcher = dispatcher
        self._admission = dispatcher.runtime.admission
        self._alone = alone
        self.session: Caller | None = None
        """The handshake session, once `initialize` has opened it."""
        self.called = False
        """Whether it ever made a call."""
        self.ready = False
        """Whether it has said that it is."""
        self.backlog = backlog
        self.unsent = Unsent(say, backlog)
        """What the session is to be told of changes."""
        self.questions = ClientQuestions(self, dispatcher)
        self._changes = changes = ClientChanges(self, dispatcher)
        self._meeting: Meeting | None = None
        """What the answer to its handshake waits for."""
        self.unheard = Backlog(self._caught_up)
        """What it has sent and has to wait for its turn."""
        self.on_heard: Callable[[], None] = _nobody_asked
        """Called when none of that is left."""
        self._idle: asyncio.Event | None = None
        """Set when nothing runs any more; there is one only once the client has said its last word."""
        self._leave = [dispatcher.listen(changes.lists_changed, self._who)]
        """What ends all that others would tell it."""

    # --- hearing ------------------------------------------------------------------------------

    def hear_all(self, frames: Sequence[bytes | Oversized]) -> None:
        """Take what the client sent."""
        first = frames[0] if frames else b""
        # Only the first one can be longer than what was read.
        if isinstance(first, bytes) and len(first) > large.LARGE_MESSAGE:
            lines = [Message(partial(self._hear_line, late)) for late in frames[1:]]
            self.unheard.put([Message(partial(self._hear_large, first)), *lines], soon=True)
            return
        if len(frames) == 1 and not self.unheard.behind:
            self._hear_line(first)
            return
        # Most reads of many messages are heard within a turn: only what is left of one has to be queued.
        until = stopwatch() + TURN
        for index, frame in enumerate(frames):
            if self.unheard.behind or stopwatch() > until:
                self.unheard.put([Message(partial(self._hear_line, late)) for late in frames[index:]], soon=True)
                return
            self._hear_line(frame)

    def _hear_line(self, frame: bytes | Oversized) -> None:
        if isinstance(frame, bytes):
            try:
                self.hear(frame, self.say)
            except Exception as error:  # noqa: BLE001 - the next message has to be heard
                self._refuse_line(frame, internal(error), self.say)
        else:
            why = "the message is larger than this server accepts (maxMessageBytes)"
            self._refuse_line(frame.head, InvalidRequest(why), self.say)

    def _hear_large(self, frame: bytes) -> Generator[None, None, None]:
        """Take a message in steps: nobody else need wait for it."""
        opened = yield from large.opening(frame)
        try:
            if isinstance(opened, ParseError):
                self._refuse_line(frame, opened, self.say)
            elif isinstance(opened, NotAnEnvelope):
                self.say(envelopes.failure(opened.id, InvalidRequest(f"not a JSON-RPC request: {opened}")))
            elif large.has_huge_integer(frame, opened):
                self._refuse_line(frame, InvalidRequest(envelopes.HUGE_INTEGER), self.say)
            elif name := next(
                (name for name in _SHORT if len((opened.params or {}).get(name, b"")) > large.LARGE_MESSAGE), ""
            ):
                self._refuse_line(
                    frame, InvalidParams(f"params.{name} has more than {large.LARGE_MESSAGE} bytes"), self.say
                )
            else:
                self._hear(opened, self.say, self.say)
        except Exception as error:  # noqa: BLE001 - the next message has to be heard
            self._refuse_line(frame, internal(error), self.say)

    def hear(self, frame: bytes, say: Callable[[Sequence[Buffer]], None]) -> bool:
        """Take one message. True if it has an answer, which goes to `say`, now or later."""
        try:
            envelope = envelopes.decode(frame)
            if len(frame) > envelopes.MAX_DIGITS:
                envelopes.check_integers(frame, envelope)
        except ParseError as error:
            salvaged = envelopes.salvage(frame)
            if salvaged is None:
                if frame.strip():
                    self._refuse_line(frame, error, say)
                    return True
                return False
            envelope = salvaged
            if len(frame) > envelopes.MAX_DIGITS and envelopes.has_huge_integer(frame):
                self._refuse_line(frame, InvalidRequest(envelopes.HUGE_INTEGER), say)
                return True
        except NotAnEnvelope as error:
            if envelopes.is_batch(frame):
                self.hear_batch(frame, say, self.say)
                return True
            say(envelopes.failure(error.id, InvalidRequest(f"not a JSON-RPC request: {error}")))
            return True
        if envelope.method is not None and envelope.id is not ABSENT:
            # A request, as nearly always.
            self.hear_request(envelope, envelope.method, say, self.say)
            return True
        return self._hear(envelope, say, self.say)

    def _hear(
        self, envelope: Envelope, say: Callable[[Sequence[Buffer]], None], tell: Callable[[Sequence[Buffer]], None]
    ) -> bool:
        if envelope.method is None:
            self.hear_answer(envelope)
            return False
        if envelope.id is ABSENT:
            self.hear_notice(envelope.method, envelope.params or _NOTHING)
            return False
        self.hear_request(envelope, envelope.method, say, tell)
        return True

    def hear_answer(self, envelope: Envelope) -> None:
        """Take the answer to something the client was asked; what answers nothing is dropped."""
        question = self.peer.take(bytes(envelope.id))
        if question is not None:
            question.answered(envelope)

    def consult(self, ask: ServerRequest) -> None:
        """A server whose only client this is asks it something outside any call. See `calls.ports.Client`."""
        if self.session is not None and not self.ready and self.questions.wait(ask):
            # It may be asked nothing before it has said that it is ready.
            if self._meeting is not None:
                self._meeting.end()
        else:
            self.questions.consult(ask, self.session if self.ready else None)

    def told(self, call: Call, error: RpcError) -> bytes | RpcError:
        """What a request is answered with that failed: mostly with just that."""
        runtime = self._dispatcher.runtime
        return runtime.logins.told(call, error, runtime.snapshot.settings.server_info)

    def hear_request(
        self,
        envelope: Envelope,
        method: str,
        say: Callable[[Sequence[Buffer]], None],
        tell: Callable[[Sequence[Buffer]], None],
        key: bytes | None = None,
    ) -> None:
        """Take a request. Its answer goes to `say`, and what comes before the answer to `tell`.

        With `key`, its id has been read already (`envelopes.read_id`).
        """
        id_ = bytes(envelope.id)
        key = key or envelopes.read_id(id_)
        if key is None:
            given = id_[:40].decode(errors="replace")
            say(envelopes.failure(None, InvalidRequest(f"an id is a string or an integer, not {given}")))
            return
        if key in self.peer.theirs:
            # Answering under this id would end the first request with the second one's outcome.
            shown = id_[:40].decode(errors="replace")
            why = f"id {shown} is already in use by a request that is still running; use a new one"
            say(envelopes.failure(None, InvalidRequest(why)))
            return
        try:
            params = envelope.params or _NOTHING
            raw_meta = params.get("_meta")
            meta = None if raw_meta is None else envelopes.members(raw_meta)
            caller = self.session
            if caller is None or meta is not None or method in _OPENERS:
                caller = self._caller(method, meta)
                if caller is None:
                    self._meet(id_, key, method, params, say, tell)
                    return
            if method in CALLS:
                admission = self._admission
                if admission.running >= admission.most or len(self.peer.theirs) >= admission.each:
                    under_way = len(self.peer.theirs) - len(self._changes.streams)
                    refusal = admission.refusal(0 if self._alone else under_way)
                    if refusal is not None:
                        say(envelopes.failure(id_, refusal))
                        return
                admission.running += 1
                self.called = True
                here = None
            else:
                here = self._HERE.get(method)
            call = Call(caller, method, params, meta)
            exchange = self.peer.theirs[key] = ClientRequest(self, id_, key, call, say, tell)
            if here is None or not here(self, exchange):
                exchange.running = self._dispatcher.handle(call, exchange)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client waits for an answer
            self._not_taken(id_, key, internal(error, method=method), say)

    def _meet(
        self,
        id_: bytes,
        key: bytes,
        method: str,
        params: Params,
        say: Callable[[Sequence[Buffer]], None],
        tell: Callable[[Sequence[Buffer]], None],
    ) -> None:
        """Answer `initialize` or `ping`."""
        if method == "ping":
            say(envelopes.result(id_, b"{}"))
            return
        exchange = ClientRequest(self, id_, key, Call(self._open(params), method, params), say, tell)
        self.peer.theirs[key] = exchange
        unmet = partial(self._dispatcher.unmet, exchange.call.caller)
        if self.questions.early or unmet() is None:
            self._introduce(exchange)
        else:
            introduce = partial(self._introduce, exchange)
            exchange.running = self._meeting = Meeting(unmet, introduce, exchange.failed)

    def _not_taken(self, id_: bytes, key: bytes, error: RpcError, say: Callable[[Sequence[Buffer]], None]) -> None:
        exchange = self.peer.theirs.get(key)
        if exchange is not None:
            exchange.failed(error)
        else:
            say(envelopes.failure(id_, error))

    def identify(self, identity: Identity | None, forwarded: Forwarded = ()) -> None:
        """Its principal has shown a newer credential, or sends other headers on: from now on, these count."""
        if identity == self._identity and forwarded == self._forwarded:
            return
        self._identity, self._forwarded = identity, forwarded
        if self.session is not None:
            before, self.session = self.session, replace(self.session, identity=identity, forwarded=forwarded)
            # Rules may show it something else now.
            dispatcher = self._dispatcher
            dispatcher.runtime.compare(dispatcher.view, before, self.session, self._changes.lists_changed)

    def _caller(self, method: str, meta: Params | None) -> Caller | None:
        """Who asks; None for what a client may say before anybody knows who it is."""
        envelope = None if meta is None else revisions.read_envelope(meta)
        if envelope is not None:
            caller = Caller(
                revision=revisions.NEWEST,
                capabilities=envelope.capabilities,
                client_info=envelope.client_info,
                principal=self._principal,
                identity=self._identity,
                forwarded=self._forwarded,
                party=self,
                log_level=envelope.log_level,
            )
            if self._alone and (only := self._dispatcher.runtime.sessions.only) is not None and not only.spoke:
                only.came(None, None)
            return caller
        if method in _OPENERS:
            return None
        if self.session is None:
            raise InvalidRequest(
                f"{short(method)} before initialize: send `initialize` first, "
                "or give params._meta the 2026-07-28 envelope"
            )
        return self.session

    def _open(self, params: Params) -> Caller:
        """Open the session that `initialize` asks for."""
        version = envelopes.text(params.get("protocolVersion"))
        if version is None:
            raise InvalidParams("initialize: params.protocolVersion must be a string such as 2025-11-25")
        if self.session is not None:
            raise InvalidRequest("this connection is already initialized; open another one for another session")
        revision = revisions.negotiate(version)
        client_info = revisions.introduction("params.clientInfo", params.get("clientInfo"))
        self.session = session = Caller(
            revision=revision,
            capabilities=revisions.introduction("params.capabilities", params.get("capabilities")),
            client_info=client_info,
            client=profile_of(client_info),
            principal=self._principal,
            identity=self._identity,
            forwarded=self._forwarded,
            party=self,
        )
        dispatcher = self._dispatcher
        sessions = dispatcher.runtime.sessions
        self._leave.append(sessions.join(Listener(self._principal, self, self._sees, self._hear_log)))
        if self._alone and sessions.only is not None:
            sessions.only.came(self, session)
        log.debug("client connected", revision=revision.date)
        return session

    def _introduce(self, exchange: ClientRequest) -> None:
        """Answer `initialize`."""
        revision = exchange.call.caller.revision
        visible = self._dispatcher.seen(exchange.call.caller)
        if (adapted := visible.adapted) is not None:
            # Once is enough: there may be thousands of sessions.
            tell = log.info if self._dispatcher.runtime.is_first(self._dispatcher.view, visible.client) else log.debug
            tell(
                "lists adapted for a client",
                client=visible.client,
                view=self._dispatcher.view,
                tools=len({change.tool for change in adapted.changes}),
                warning="; ".join(adapted.warnings) or None,
                see=f"muxway check --client {visible.client}",
            )
        offered = visible.offered(revision)
        self._changes.told = _told(*offered)
        body: dict[str, object] = {
            "protocolVersion": revision.date,
            "capabilities": offered,
            "serverInfo": visible.settings.identity,
        }
        if visible.instructions:
            body["instructions"] = visible.instructions
        exchange.done(envelopes.encode(body))

    def hear_notice(self, method: str, params: Params) -> None:
        """Take a notification. Nobody waits for anything, whatever becomes of it."""
        try:
            self._notice(method, params)
        except Exception as error:  # noqa: BLE001 - the client's next message has to be heard
            internal(error, method=method)

    def _notice(self, method: str, params: Params) -> None:
        if method == "notifications/initialized":
            if self.session is not None:
                self.ready = True
                self.unsent.open()
                for ask in self.questions.taken():
                    self.consult(ask)
        elif method == "notifications/cancelled":
            key = envelopes.read_id(params.get("requestId", ABSENT))
            if key is not None:
                self._cancel(key, envelopes.text(params.get("reason")))
        elif method == "notifications/roots/list_changed":
            self._dispatcher.runtime.sessions.roots_changed(self)

    def hear_batch(
        self,
        frame: bytes,
        say: Callable[[Sequence[Buffer]], None],
        tell: Callable[[Sequence[Buffer]], None],
        nothing: Callable[[], None] = lambda: None,
        *,
        strict: bool = False,
    ) -> None:
        """Take a JSON array of messages. Its answer is an array, which goes to `say` as a whole.

        If it has none, `nothing` is called. If strict, nothing may stand twice in a message, as
        `envelopes.decode_strict` says.
        """
        if self.session is None or not self.session.revision.batches:
            say(envelopes.failure(None, InvalidRequest(NO_BATCHES)))
            return
        try:
            parts = envelopes.decode_batch(frame)
        except NotAnEnvelope as error:
            say(envelopes.failure(None, InvalidRequest(str(error))))
            return
        if not parts:
            say(envelopes.failure(None, InvalidRequest("a batch may not be empty")))
            return
        batch = _Batch(len(parts), say, nothing)

        def hear(part: bytes) -> None:
            answered = False
            try:
                # Requests answer for what happens to them.
                answered = self._hear_part(part, batch.add, tell, strict=strict)
            finally:
                if not answered:
                    batch.add()

        waiting = [Message(partial(hear, part), batch.add) for part in parts]
        self.unheard.put(waiting, first=True, soon=len(frame) > _LARGE_BATCH)

    def _hear_part(
        self,
        part: bytes,
        say: Callable[[Sequence[Buffer]], None],
        tell: Callable[[Sequence[Buffer]], None],
        *,
        strict: bool,
    ) -> bool:
        """Take one message of a batch; like `hear`, but its progress goes where the batch came from."""
        if envelopes.is_batch(part):
            say(envelopes.failure(None, InvalidRequest("a batch may not hold another batch")))
            return True
        try:
            envelope = envelopes.decode_strict(part) if strict else envelopes.decode(part)
            if not strict and len(part) > envelopes.MAX_DIGITS:
                envelopes.check_integers(part, envelope)
        except (ParseError, NotAnEnvelope) as error:
            if not strict:
                return self.hear(part, say)
            id_ = error.id if isinstance(error, NotAnEnvelope) else None
            say(envelopes.failure(id_, InvalidRequest(f"not a JSON-RPC request: {error}")))
            return True
        return self._hear(envelope, say, tell)

    def _refuse_line(self, line: bytes, error: RpcError, say: Callable[[Sequence[Buffer]], None]) -> None:
        """Answer a line that could not be read; under its id if it plainly shows one."""
        ids = envelopes.visible_ids(line)
        usable = ids[0] if len(ids) == 1 and ids[0] not in self.peer.theirs else None
        say(envelopes.failure(usable, error))

    # --- requests under way -------------------------------------------------------------------

    def closed_exchange(self, exchange: ClientRequest) -> bool:
        """Note that a request has its outcome; False if nobody waits for it any more."""
        theirs, key = self.peer.theirs, exchange.key
        # It may have been cancelled, and its id used again: that other request still waits for its own.
        if theirs.get(key) is not exchange:
            return False
        del theirs[key]
        if exchange.call.method in CALLS:
            self._admission.running -= 1
        if self._idle is not None:
            self._note_idle(self._idle)
        return True

    def _note_idle(self, idle: asyncio.Event) -> None:
        if len(self.peer.theirs) == len(self._changes.streams) and not self.unheard.behind:
            idle.set()

    def _caught_up(self) -> None:
        self.on_heard()
        if self._idle is not None:
            self._note_idle(self._idle)

    def _cancel(self, key: bytes, reason: str | None, *, closed: bool = False) -> None:
        exchange = self.peer.theirs.pop(key, None)
        if exchange is None:
            return
        if exchange.call.method in CALLS:
            self._admission.running -= 1
        self._changes.end(key)
        if self._idle is not None:
            self._note_idle(self._idle)
        if exchange.running is not None:
            try:
                exchange.running.cancel(reason)
            except Exception as error:  # noqa: BLE001 - others are cancelled with it, or wait for its part of a batch
                internal(error, method=exchange.call.method)
        if exchange.say is not self.say:
            # Part of a batch, whose other answers wait for it, or of an HTTP exchange, which is over. Whoever cancelled
            # it wants no answer; all others must have one.
            exchange.say(notifications.closed(exchange.id) if closed else ())

    async def finish(self, drain: float) -> None:
        """The client will say no more: let what runs end for up to `drain` seconds, cancel the rest, stop listening."""
        self._depart()
        idle = self._idle = asyncio.Event()
        self._note_idle(idle)
        if not idle.is_set():
            try:
                await asyncio.wait_for(idle.wait(), drain)
            except TimeoutError:
                log.warning("client left; calls cancelled", calls=len(self.peer.theirs) - len(self._changes.streams))
        for key in list(self._changes.streams):
            self._changes.end(key)
            exchange = self.peer.theirs[key]
            exchange.done(notifications.listening_ended(exchange.id))
            # On a pipe there is no stream whose end would say so: some clients wait for one word, some for the other.
            exchange.tell(notifications.cancelled(exchange.id, "the gateway is being stopped"))
        self.abandon()

    def abandon(self) -> None:
        """Nobody is there any more: cancel everything at once."""
        self._depart()
        self.unheard.drop()
        for key in list(self.peer.theirs):
            self._cancel(key, "the client has gone", closed=True)
        self._dispatcher.runtime.left(self)

    def _depart(self) -> None:
        """The session is to hear of nothing more."""
        self.unsent.close()
        for ask in self.questions.taken():
            ask.refuse(InvalidParams(f"{ask.method}: the client has gone"))
        for leave in self._leave:
            leave()
        self._changes.leave()

    # --- changes ------------------------------------------------------------------------------

    def _set_log_level(self, exchange: ClientRequest) -> bool:
        session = self.session
        if session is None or exchange.call.caller is not session:
            return False

        def answer(call: Call, sink: Sink) -> None:
            try:
                level = revisions.read_log_level(call.params.get("level", b""))
            except RpcError as error:
                sink.failed(error)
            else:
                self.session = replace(session, log_level=level)
                self._dispatcher.runtime.set_log_level(self, level)
                sink.done(b"{}")

        exchange.running = self._dispatcher.around(exchange.call, exchange, answer)
        return True

    def _who(self) -> Caller | None:
        return self.session

    def _sees(self, server: str) -> bool:
        return self.session is not None and self._dispatcher.shows_server(server, self.session)

    def _hear_log(self, server: str, params: dict[str, Buffer]) -> None:
        session = self.session
        if session is None or not self.ready or notifications.log(session, params) is None:
            return
        shown = self._dispatcher.screen(server, session, params)
        notice = None if shown is None else notifications.log(session, shown)
        if notice is not None:
            self.say(notice)
