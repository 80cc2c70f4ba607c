"""What a server says of itself unasked, or is asked to say: lists that changed, resources that were updated.

Two ways to ask, one `ServerFeed`. A handshake server takes one `resources/subscribe` for each URI and says the rest of
its own accord. A stateless one is told everything in one `subscriptions/listen`, which stays open; its filter cannot be
changed, so a new one is opened beside it, and the old one ended once the new one is acknowledged. Connections come
and go: what is wanted lasts, and is asked for again on each.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from muxway.errors import INVALID_PARAMS, METHOD_NOT_FOUND, InvalidParams, RpcError, UpstreamError, UpstreamSaid
from muxway.log import EventLog
from muxway.servers.transports.port import RENEWED
from muxway.wire import envelopes
from muxway.wire.revisions import LOG_LEVELS, SUBSCRIPTION_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from muxway.calls.call import Caller
    from muxway.calls.server_request import ServerRequest
    from muxway.exchange.subscriptions import Settled
    from muxway.servers.connection import Connection
    from muxway.servers.negotiation import Negotiated
    from muxway.wire.envelopes import Buffer, Params

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"
_KINDS: Final = ("tools", "prompts", "resources")
_CONFIRM: Final = 10.0
"""Seconds that a server may take to agree to a subscription."""
_AT_ONCE: Final = 8
"""Subscriptions asked for at the same time, so that many of them do not stand in the way of calls."""
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0
_SOON: Final = 2.0
"""Seconds that a subscription may wait for a stream that has ended to be opened anew."""
_NOT_FOUND: Final = -32002
_REFUSALS: Final = frozenset((INVALID_PARAMS, _NOT_FOUND))
"""Errors that are about a URI and not about the connection."""

log = EventLog("upstream")


class ServerFeed:
    """The news of one server. Lasts as the server does. Implements `exchange.subscriptions.Feed`."""

    def __init__(
        self,
        name: str,
        tell: Callable[[str, Params], None],
        on_updated: Callable[[str], None],
        on_log: Callable[[object, dict[str, Buffer]], None],
        bare: Callable[[], bool] = bool,
    ) -> None:
        """Prepare; nothing is asked for before there is a connection.

        Args:
            name: the server's.
            tell: takes what the server says, unless it is about subscriptions.
            on_updated: called with the URI of a resource that has changed.
            on_log: called with log messages that are about no call, and with who uses the connection.
            bare: says whether it is asked also for what it does not offer, so that it refuses that in its own words.
        """
        self.name = name
        self.bare = bare
        self.tell = tell
        self.on_updated = on_updated
        self.wake: Callable[[], object] | None = None
        """Called when something is wanted and there is no connection: the server may be asleep."""
        self._on_log = on_log
        self.wanted: dict[str, list[Settled]] = {}
        """What is to be subscribed to, and who waits to hear how that went."""
        self._way: _Subscribing | _Listening | None = None
        self._absence: str | None = None
        """Why there is no connection; None while one is being made."""
        self._leaving: dict[str, list[Settled]] = {}
        """What the server is being told that nobody wants any more, and who waits to hear that it knows."""

    # --- wishes -------------------------------------------------------------------------------

    def want(self, uri: str, settled: Settled) -> None:
        """See `exchange.subscriptions.Feed`."""
        if self._way is None and self._absence is not None:
            why = f'server "{self.name}" is not running: {self._absence}'
            settled(UpstreamError(self.name, "not_running", why))
            return
        waiting = self.wanted.setdefault(uri, [])
        if self._way is not None and uri in self._way.held:
            settled(None)
            return
        waiting.append(settled)
        if self._way is not None:
            self._way.turn(uri)
        elif self.wake is not None:
            self.wake()

    def keep(self, uri: str) -> None:
        """See `exchange.subscriptions.Feed`."""
        self.wanted.setdefault(uri, [])
        if self._way is not None:
            self._way.turn(uri)

    def drop(self, uri: str, settled: Settled) -> None:
        """See `exchange.subscriptions.Feed`."""
        waiting = self.wanted.pop(uri, ())
        self._leaving.setdefault(uri, []).append(settled)
        if self._way is None or not self._way.turn(uri):
            self.left(uri)
        for heard in waiting:
            heard(None)

    @property
    def leaving(self) -> set[str]:
        """What the server is being told that nobody wants any more."""
        return set(self._leaving)

    def left(self, uri: str) -> None:
        """The server knows that this is not wanted, or cannot be told."""
        for settled in self._leaving.pop(uri, ()):
            settled(None)

    def settle(self, uri: str, error: RpcError | None) -> None:
        """The server has agreed to a subscription, or not."""
        waiting = self.wanted.get(uri)
        if waiting:
            self.wanted[uri] = []
            for settled in waiting:
                settled(error)
        elif error is None and uri in self.wanted:
            # It was subscribed to before. Whatever happened until it was so again, nobody heard of.
            self.on_updated(uri)
        elif error is not None and uri in self.wanted:
            log.warning("subscription not renewed", upstream=self.name, uri=uri, error=error)

    # --- connections --------------------------------------------------------------------------------

    def connect(self, connection: Connection, greeting: Negotiated) -> None:
        """There is a new connection, ready for use."""
        self.disconnect(None)
        way = (
            _Listening(self, connection, greeting)
            if connection.revision.stateless
            else _Subscribing(self, connection, greeting)
        )
        self._way = way
        connection.notices.on_notice = self._hear
        connection.notices.on_log = self._hear_log
        for uri in list(self.wanted):
            way.turn(uri)

    def disconnect(self, why: str | None) -> None:
        """The connection is gone; None: another one is being made."""
        way, self._way, self._absence = self._way, None, why
        if way is not None:
            way.end()
        for uri in list(self._leaving):
            self.left(uri)
        if why is not None:
            for uri in list(self.wanted):
                if self.wanted.get(uri):
                    self.settle(uri, UpstreamError(self.name, "lost", f'server "{self.name}" {why}'))

    def _hear(self, method: str, params: Params) -> None:
        way = self._way
        if way is None or not way.takes(method, params):
            return
        if method == _UPDATED:
            uri = envelopes.text(params.get("uri"))
            if uri is not None:
                self.on_updated(uri)
        else:
            self.tell(method, params)

    def _hear_log(self, params: dict[str, Buffer]) -> None:
        # While somebody calls it may be about that call, and the connection could not tell whose.
        if self._way is not None and not self._way.connection.called:
            self._on_log(self._way.connection.user, params)

    def lists_may_have_changed(self, kinds: Iterable[str]) -> None:
        """Nobody would have heard of it if they had."""
        for kind in kinds:
            self.tell(f"notifications/{kind}/list_changed", {})


class Feeds:
    """The news of one server over every connection that all may share. Implements `exchange.subscriptions.Feed`.

    A server that is run twice, once for each era, has two states: what is wanted of it is wanted of both.
    """

    def __init__(self, first: ServerFeed) -> None:
        self._first = first
        self.anothers: Callable[[Caller], bool] | None = None
        """Whether these connections are another user's than a caller; None: they are everybody's."""
        self._other: ServerFeed | None = None

    def is_anothers(self, caller: Caller) -> bool:
        """See `exchange.subscriptions.Feed`."""
        return self.anothers is not None and self.anothers(caller)

    def want(self, uri: str, settled: Settled) -> None:
        """See `exchange.subscriptions.Feed`; well if over one of them: a server may offer it in one era only."""
        if self._other is None:
            self._first.want(uri, settled)
            return
        failures: list[RpcError] = []
        over = False

        def heard(error: RpcError | None) -> None:
            nonlocal over
            if error is not None:
                failures.append(error)
            if not over and (error is None or len(failures) > 1):
                over = True
                settled(error and next((one for one in failures if isinstance(one, UpstreamSaid)), failures[0]))

        self._first.want(uri, heard)
        self._other.want(uri, heard)

    def keep(self, uri: str) -> None:
        """See `exchange.subscriptions.Feed`."""
        self._first.keep(uri)
        if self._other is not None:
            self._other.keep(uri)

    def drop(self, uri: str, settled: Settled) -> None:
        """See `exchange.subscriptions.Feed`; when the first connection knows is what counts."""
        self._first.drop(uri, settled)
        if self._other is not None:
            self._other.drop(uri, _unheard)

    def join(self, other: ServerFeed) -> None:
        """There is a connection for callers of the other era, in place of any before it."""
        self._other = other
        for uri in self._first.wanted:
            other.want(uri, _unheard)


def _unheard(_: RpcError | None) -> None:
    pass


def _declares(greeting: Negotiated, kind: str, what: str) -> bool:
    """Whether a server says that it tells of changes of a kind."""
    declared: object = (greeting.capabilities or {}).get(kind)
    return isinstance(declared, dict) and bool(cast("dict[str, object]", declared).get(what))


def _unable(name: str) -> RpcError:
    return InvalidParams(f'server "{name}" does not offer subscriptions')


class _Subscribing:
    """The way of a handshake server: each URI for itself."""

    def __init__(self, feed: ServerFeed, connection: Connection, greeting: Negotiated) -> None:
        self.held: set[str] = set()
        """What the server has agreed to."""
        self._feed = feed
        self.connection = connection
        self._able = greeting.vague or _declares(greeting, "resources", "subscribe")
        """Whether the server takes subscriptions."""
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def turn(self, uri: str) -> bool:
        """Bring what the server knows of a URI in line with what is wanted. False if it cannot be told."""
        able = self._able or self._feed.bare()
        if not able:
            self._feed.settle(uri, _unable(self._feed.name))
        elif uri not in self._busy:
            self._busy.add(uri)
            task = asyncio.get_running_loop().create_task(self._align(uri))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return able

    async def _align(self, uri: str) -> None:
        try:
            async with self._few:
                # What is wanted may change while the server thinks.
                while (uri in self._feed.wanted) != (uri in self.held):
                    if not await self._change(uri):
                        return
        finally:
            self._busy.discard(uri)
            self._feed.left(uri)

    async def _change(self, uri: str) -> bool:
        subscribing = uri not in self.held
        self.held.discard(uri)
        method = "resources/subscribe" if subscribing else "resources/unsubscribe"
        try:
            await self.connection.own.ask(method, {"uri": envelopes.encode(uri)}, timeout=_CONFIRM)
        except RpcError as error:
            if subscribing:
                self._feed.settle(uri, error)
            else:
                log.debug("not unsubscribed", upstream=self._feed.name, uri=uri, error=error)
            return not subscribing
        if subscribing:
            self.held.add(uri)
            self._feed.settle(uri, None)
        return True

    def takes(self, method: str, params: Params) -> bool:
        """Whether something the server said is to be passed on."""
        del params
        if method == RENEWED:
            if self.connection.log_level < len(LOG_LEVELS):
                self.connection.set_log_level(self.connection.log_level)
            self.held.clear()
            for uri in list(self._feed.wanted):
                self.turn(uri)
        return method != RENEWED

    def end(self) -> None:
        """The connection is gone."""
        for task in self._tasks:
            task.cancel()


class _Stream:
    """One `subscriptions/listen`. A `calls.ports.Sink`."""

    def __init__(self, connection: Connection, kinds: Iterable[str], uris: frozenset[str]) -> None:
        loop = asyncio.get_running_loop()
        self.uris = uris
        self.acknowledged: asyncio.Future[None] = loop.create_future()
        self.over = False
        self.on_over: Callable[[], None] | None = None
        self.began = loop.time()
        wanted: dict[str, object] = {f"{kind}ListChanged": True for kind in kinds}
        if uris:
            wanted["resourceSubscriptions"] = sorted(uris)
        self._pending = connection.own.listen(envelopes.encode(wanted), self)

    @property
    def id(self) -> bytes:
        """The id that all its notices carry."""
        return b"%d" % self._pending.id

    def cancel(self) -> None:
        self.on_over = None
        self._pending.cancel("another one takes its place")

    def done(self, *result: Buffer) -> None:
        del result
        self.failed(RpcError("the server ended the subscription"))

    def failed(self, error: RpcError) -> None:
        self.over = True
        if not self.acknowledged.done():
            self.acknowledged.set_exception(error)
            # Whoever waited may have been told to stop in the same moment.
            self.acknowledged.exception()
        if self.on_over is not None:
            self.on_over()

    def progress(self, params: dict[str, Buffer]) -> None:
        """None travels here."""

    def log(self, params: dict[str, Buffer]) -> None:
        """None travels here."""

    def ask(self, ask: ServerRequest) -> None:
        ask.refuse(InvalidParams("nobody called"))


class _Listening:
    """The way of a stateless server: one stream for everything."""

    def __init__(self, feed: ServerFeed, connection: Connection, greeting: Negotiated) -> None:
        self.held: set[str] = set()
        """What the server has agreed to."""
        self._feed = feed
        self.connection = connection
        self._kinds = [kind for kind in _KINDS if _declares(greeting, kind, "listChanged")]
        self._able = _declares(greeting, "resources", "subscribe")
        self._stream: _Stream | None = None
        """The one that is heard."""
        self._next: _Stream | None = None
        """The one that is to take its place, until it is acknowledged."""
        self._refused: set[str] = set()
        """What the server did not agree to."""
        self._one_by_one = False
        """Whether the server has refused several URIs at once, of which one may be the reason."""
        self._pause = _PAUSE
        self._down = False
        """Whether there will be no stream for some time."""
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        if self._kinds:
            self._begin(self._run())

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    def turn(self, uri: str) -> bool:
        """Bring what the server knows of a URI in line with what is wanted. False if it cannot be told."""
        if not self._able:
            self._feed.settle(uri, _unable(self._feed.name))
            return False
        self._refused.discard(uri)
        self._news.set()
        self._fail_if_down()
        if self._task is None:
            self._begin(self._run())
        return True

    def end(self) -> None:
        """The connection is gone."""
        if self._task is not None:
            self._task.cancel()

    def takes(self, method: str, params: Params) -> bool:
        """Whether something the server said is to be passed on."""
        about = (envelopes.members(params.get("_meta", b"")) or {}).get(SUBSCRIPTION_ID)
        id_ = None if about is None else bytes(about).strip(b'"')
        if method == _ACKNOWLEDGED:
            if self._next is not None and id_ in (None, self._next.id):
                # At once: what follows on the new stream may already count.
                self._take(self._next, params)
            return False
        # While two are open both bring the same: only one is heard.
        return id_ is None or (self._stream is not None and id_ == self._stream.id)

    # --- the stream ---------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._able or self._kinds:
            self._news.clear()
            stream = self._stream
            if stream is not None and stream.over:
                await self._lost(stream)
                continue
            target = frozenset(self._feed.wanted) - self._refused if self._able else frozenset[str]()
            now = None if stream is None else stream.uris
            if target == now or not (target or self._kinds):
                if stream is not None and target != now:
                    self._stream, self.held = None, set()
                    stream.cancel()
                for uri in self._feed.leaving - self._feed.wanted.keys():
                    self._feed.left(uri)
                self._one_by_one = False
                await self._news.wait()
                continue
            await self._renew(stream, target)

    async def _lost(self, stream: _Stream) -> None:
        """A stream has ended: begin anew, after a pause that grows if that happens often."""
        self._stream, self.held = None, set()
        self._refused.clear()
        if asyncio.get_running_loop().time() - stream.began > _LONGEST_PAUSE:
            self._pause = _PAUSE
        await self._rest()

    async def _rest(self) -> None:
        self._down = self._pause > _SOON
        self._fail_if_down()
        await asyncio.sleep(self._pause)
        self._down = False
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _fail_if_down(self) -> None:
        if self._down:
            why = f'server "{self._feed.name}" ends its streams of changes at once; another one is tried later'
            self._fail(UpstreamError(self._feed.name, "lost", why))

    async def _renew(self, old: _Stream | None, target: frozenset[str]) -> None:
        """Open a stream for all of these, then end the old one."""
        known = frozenset[str]() if old is None else old.uris
        new = sorted(target - known)
        if self._one_by_one and len(new) > 1:
            target = target - frozenset(new[1:])
            new = new[:1]
        error: RpcError | None = None
        try:
            self._next = fresh = _Stream(self.connection, self._kinds, target)
        except UpstreamError as gone:
            self._fail(gone)
            await self._rest()
            return
        try:
            async with asyncio.timeout(_CONFIRM):
                await fresh.acknowledged
        except TimeoutError:
            why = f'server "{self._feed.name}" did not acknowledge a subscription within {_CONFIRM:g} s'
            error = UpstreamError(self._feed.name, "timeout", why)
        except RpcError as refusal:
            error = refusal
        finally:
            self._next = None
            if self._stream is not fresh:
                fresh.cancel()
        if error is not None:
            await self._refuse(error, new)

    def _take(self, fresh: _Stream, params: Params) -> None:
        """The server has acknowledged a stream: from now on this one is heard."""
        honoured = envelopes.members(params.get("notifications", b"{}")) or {}
        uris = set(map(envelopes.text, envelopes.items(honoured.get("resourceSubscriptions", b"[]")) or ()))
        old, self._stream, self._next = self._stream, fresh, None
        fresh.acknowledged.set_result(None)
        fresh.on_over = self._news.set
        missed = old is None or old.over
        before, self.held = set[str]() if missed else self.held, set(fresh.uris & uris)
        if old is not None:
            old.cancel()
        for uri in fresh.uris - before:
            if uri in uris:
                self._feed.settle(uri, None)
            else:
                self._refused.add(uri)
                why = f'server "{self._feed.name}" does not offer a subscription to {uri}'
                self._feed.settle(uri, InvalidParams(why))
        if missed:
            # Nothing is replayed: what changed before this stream was there has been missed.
            self._feed.lists_may_have_changed(self._kinds)

    async def _refuse(self, error: RpcError, new: list[str]) -> None:
        if error.code == METHOD_NOT_FOUND:
            log.debug("offers no subscriptions", upstream=self._feed.name)
            self._able, self._kinds = False, []
            self._fail(_unable(self._feed.name))
        elif error.code in _REFUSALS and len(new) > 1:
            self._one_by_one = True
        elif error.code in _REFUSALS and new:
            self._refused.update(new)
            self._feed.settle(new[0], error)
        else:
            log.debug("could not subscribe", upstream=self._feed.name, error=error)
            self._fail(error)
            await self._rest()

    def _fail(self, error: RpcError) -> None:
        """Nobody need wait any longer."""
        for uri, waiting in list(self._feed.wanted.items()):
            if waiting:
                self._feed.settle(uri, error)
