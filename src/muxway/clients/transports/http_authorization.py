"""Who asks over HTTP: what the credentials of a request are worth now, and whether what they opened may stay open.

The guard knows tokens of the configuration; an `Authenticator`, if there is one, judges the others. What was found out
of a head holds while `terms` is the same object: whatever changes it makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muxway.calls.identity import Denial
from muxway.clients.authenticator import KEY_PREFIX, Admitted, Rejected
from muxway.clients.transports.guard import Refusal, bearer
from muxway.clients.transports.http_gateway import SOON
from muxway.clients.transports.http_request import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from muxway.calls.identity import Identity
    from muxway.clients.authenticator import Authenticator, Verdict
    from muxway.clients.transports.guard import Guard
    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_request import HeaderList, RequestHead

AUTHORIZATION: Final = b"authorization"
_RENEWED_EVERY: Final = 1.0
"""Seconds after which credentials that somebody else judges are looked at again, also if a client repeats itself."""
FOR_EVERY_PAGE: Final = (
    b"access-control-allow-origin: *\r\naccess-control-allow-methods: GET\r\naccess-control-allow-headers: *\r\n"
)
"""What anybody may know, any page may read. Clients send headers of their own with the question."""


class Undecided(Exception):
    """What a request needs to be judged, or answered, has to be found out first."""

    def __init__(self, coming: asyncio.Future[Any], *, anew: bool = False) -> None:
        super().__init__()
        self.coming = coming
        self.anew = anew
        """Whether what comes says nothing of the credentials: they are then judged from the beginning."""


class Asker(NamedTuple):
    """Who makes a request."""

    owner: bytes
    """Whose sessions it may use."""
    principal: bytes
    view: str | None
    """The only view that is open to it; None: any."""
    identity: Identity | None
    until: float | None = None
    """When its credentials end, if they do by themselves."""


class HttpAuthorization:
    """Judges the credentials of requests."""

    def __init__(self, guard: Guard, authenticator: Authenticator | None, on_denied: Callable[[Denial], None]) -> None:
        """Prepare; `on_denied` is called when somebody is turned away for want of good credentials."""
        self._guard = guard
        self.authenticator = authenticator
        """Judges the credentials that the guard does not know."""
        self._on_denied = on_denied
        self.terms = object()
        """Marks what was found out under the present ones."""
        self.on_renewed: Callable[[], None] = lambda: None
        """Called when it is time to look again at what somebody else judges."""
        self._held: asyncio.Future[None] | None = None
        """While who may come in is being changed, what requests wait for."""
        self._is_open = False
        self._renewal: asyncio.TimerHandle | None = None

    # --- its terms ----------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to look again now and then at what somebody else judges."""
        self._is_open = True
        self._begin_renewal()

    def close(self) -> None:
        """Nobody is let in any more."""
        self._is_open = False
        self._begin_renewal()
        self.terms = object()

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Let every request wait that comes meanwhile; it is then judged by what holds afterwards."""
        self._held = asyncio.get_running_loop().create_future()
        # What was found out of headers before is not true any more.
        self.terms = object()
        try:
            yield
        finally:
            held, self._held = self._held, None
            held.set_result(None)

    def expect(
        self,
        tokens: Iterable[str],
        views: Mapping[str, str],
        authenticator: Authenticator | None,
        own: str | None = None,
    ) -> None:
        """Let in those with these tokens, or with what this authenticator takes, from now on."""
        self._guard.expect(tokens, views, closed=authenticator is not None and authenticator.demands, own=own)
        self.authenticator = authenticator
        self._begin_renewal()

    def _begin_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self.authenticator is not None and self._is_open:
            self._renew()

    def _renew(self) -> None:
        # Instead of a look at the clock for each request: what is said of a token holds for a while, not for ever.
        self.terms = object()
        self._renewal = asyncio.get_running_loop().call_later(_RENEWED_EVERY, self._renew)
        self.on_renewed()

    def may_stay(self, owner: bytes, view: str | None, identity: Identity | None) -> bool:
        """Whether the owner of something that is open, in this view, could open it now."""
        if identity is None:
            return self._guard.still_knows(owner, view)
        return self.authenticator is not None and self.authenticator.still_admits(identity, view)

    # --- requests -----------------------------------------------------------------------------

    def check_place(self, head: RequestHead) -> None:
        """Check where a request was sent to, and which page made it, if any did. Raises Refused."""
        origins = head.all(b"origin")
        _check(self._guard.refuses_place(head.all(b"host"), origins))
        head.cors = _lines(self._guard.cors(origins))

    def check_preflight(self, head: RequestHead) -> None:
        """Answer to a browser that asks before it sends. Raises Refused."""
        granted = self._guard.preflight(head.all(b"origin"), head.all(b"access-control-request-headers"))
        if granted is None:
            raise Refused(403, "pages of other origins may not use this server; see --allow-origin")
        head.cors = _lines(granted)

    def public_document(self, head: RequestHead, authenticator: Authenticator) -> bytes:
        """What everybody may read, whatever page it is for. Raises Refused, Undecided."""
        self.check_name(head)
        head.cors = FOR_EVERY_PAGE
        document = authenticator.metadata(head.path, host_of(head))
        if isinstance(document, asyncio.Future):
            raise Undecided(document)
        if document is None:
            raise Refused(404, "there is nothing here; MCP is at /mcp, HTTP+SSE at /sse")
        return document

    def check_name(self, head: RequestHead) -> None:
        """Check where a request was sent to, whatever page made it. Raises Refused."""
        _check(self._guard.refuses_place(head.all(b"host"), ()))

    def is_operator(self, connection: HttpConnection) -> bool:
        """Whether whoever asks needs no credentials, because it is the user who runs us."""
        return self._guard.knows(()) and self._guard.refuses_user(connection) is None

    def may_see_servers(self, head: RequestHead, connection: HttpConnection) -> bool:
        """Whether whoever asks may know what the servers are called: nobody's business who may not call them."""
        guard = self._guard
        return guard.knows_for_all(head.all(AUTHORIZATION)) and guard.refuses_user(connection) is None

    def asker(
        self, head: RequestHead, at: str, connection: HttpConnection, decided: asyncio.Future[Verdict] | None
    ) -> Asker:
        """Find out who asks at an endpoint. Raises Refused, Undecided."""
        if self._held is not None:
            raise Undecided(self._held, anew=True)
        guard, authenticator = self._guard, self.authenticator
        authorizations = head.all(AUTHORIZATION)
        token = bearer(authorizations)
        if authenticator is None or guard.has(token) or not (authenticator.demands or authenticator.judges(token)):
            if (refusal := guard.refuses_caller(authorizations, connection.address)) is not None:
                raise self._deny(head, connection, refusal, "token")
            if (refusal := guard.refuses_user(connection)) is not None:
                raise self._deny(head, connection, refusal, "user")
            owner, principal = guard.owner(authorizations), guard.principal(authorizations)
            return Asker(owner, principal, guard.view_of(authorizations), None)
        if len(authorizations) > 1 or b"access_token" in head.query:
            # RFC 6750 §2: one way to send a token, and never in the URL.
            raise Refused(400, "send one access token, in the header Authorization: Bearer <token>")
        if not token:
            headers = [(b"www-authenticate", authenticator.challenge(at, host_of(head), None))]
            why = "an access token is required: log in, as WWW-Authenticate says"
            raise self._deny(head, connection, Refusal(401, why, headers), "token")
        # Most clients show the same token again, also those who send a header and its body apart.
        shown = (token, at, self.terms)
        if connection.shown == shown:
            return cast("Asker", connection.asker)
        if decided is not None and decided.cancelled():
            raise Refused(503, "the gateway is being stopped", close=True)
        verdict = authenticator.check(token, at) if decided is None else decided.result()
        if isinstance(verdict, Admitted):
            asker = Asker(verdict.principal, verdict.principal, verdict.view, verdict.identity, verdict.until)
            connection.shown, connection.asker = shown, asker
            return asker
        if not isinstance(verdict, Rejected):
            raise Undecided(verdict)
        if verdict.status == 503:
            raise Refused(503, verdict.why, headers=SOON)
        headers = [(b"www-authenticate", authenticator.challenge(at, host_of(head), verdict))]
        rule = "scope" if verdict.status == 403 else "key" if token.startswith(KEY_PREFIX) else "token"
        refusal = guard.refuses_guess(token, connection.address) or Refusal(verdict.status, verdict.why, headers)
        raise self._deny(head, connection, refusal, rule, verdict.identity)

    def _deny(
        self,
        head: RequestHead,
        connection: HttpConnection,
        refusal: Refusal,
        rule: str,
        identity: Identity | None = None,
    ) -> Refused:
        """Somebody is turned away: tell whoever keeps account of that. What is to be raised then."""
        self._on_denied(
            Denial(
                status=refusal.status,
                rule=rule,
                why=refusal.why,
                method=head.method,
                path=head.path,
                address=connection.address,
                identity=identity,
            )
        )
        return Refused(refusal.status, refusal.why, headers=refusal.headers)


def host_of(head: RequestHead) -> str:
    """By what name we were called; the guard has let it in."""
    return head.all(b"host")[0].decode("latin-1").strip().lower()


def _lines(headers: HeaderList) -> bytes:
    return b"".join(b"%b: %b\r\n" % line for line in headers)


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal.status, refusal.why, headers=refusal.headers)
