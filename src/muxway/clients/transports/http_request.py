"""One HTTP request as the door sees it: its headers read with care, its body bounded, its answer written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from muxway.clients.transports.http_connection import CONNECTION
from muxway.clients.transports.http_response import PING, Outlet
from muxway.errors import InvalidRequest, RpcError
from muxway.log import EventLog
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from muxway.clients.transports.http_connection import HttpConnection

log = EventLog("http")

Scope: TypeAlias = "Mapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Mapping[str, Any]]]"
Send: TypeAlias = "Callable[[Any], Awaitable[None]]"
HeaderList: TypeAlias = "Sequence[tuple[bytes, bytes]]"

_JSON: Final = (b"content-type", b"application/json")
_EVENTS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # nginx would hold events back until its buffer is full.
    (b"x-accel-buffering", b"no"),
)
_TOO_LARGE: Final = 413
_PLAIN_JSON: Final = [b"application/json"]
_USUAL: Final = [b"application/json, text/event-stream"]
_JSON_TYPES: Final = frozenset((b"application/json", b"application/*", b"*/*"))
_EVENT_TYPES: Final = frozenset((b"text/event-stream", b"text/*", b"*/*"))


class Refused(Exception):
    """The request is answered with this status and a JSON-RPC error."""

    def __init__(
        self, status: int, error: RpcError | str, *, id_: bytes | None = None, headers: HeaderList = ()
    ) -> None:
        super().__init__(status)
        self.status = status
        self.error = InvalidRequest(error) if isinstance(error, str) else error
        self.id = id_
        self.headers = headers


class ClientGone(Exception):
    """The client left before its request was complete."""


class HttpRequest:
    """One HTTP request."""

    __slots__ = (
        "_receive",
        "_send",
        "answering",
        "connection",
        "cors",
        "headers",
        "method",
        "modern",
        "path",
        "scope",
        "session_id",
        "view",
    )

    def __init__(self, scope: Scope, receive: Receive | None = None, send: Send | None = None) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.connection: HttpConnection = scope[CONNECTION]
        self.cors: HeaderList = ()
        """What every answer must carry besides."""
        self.view: str | None = None
        """The view that it is for; None: the whole."""
        self.modern = False
        """Whether it is for the stateless ladder, as far as the quick way has looked."""
        self.session_id: str | None = None
        """Whose it is, as far as the quick way has looked."""
        self.answering = False
        """Whether an answer has been begun, so that there cannot be another one."""
        self._receive = receive or _nothing
        self._send = send or _nowhere
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            known = self.headers.get(name)
            if known is None:
                self.headers[name] = [value]
            else:
                known.append(value)

    @property
    def address(self) -> str:
        """The address it came from."""
        client: tuple[str, int] | None = self.scope.get("client")
        return "" if client is None else client[0]

    def all(self, name: bytes) -> Sequence[bytes]:
        """Every value of a header."""
        return self.headers.get(name, ())

    def one(self, name: bytes) -> str | None:
        """The value of a header that may come once. Raises Refused."""
        values = self.headers.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise Refused(400, f"the header {name.decode()} is doubled")
        return values[0].decode("latin-1").strip()

    # --- what it must be ----------------------------------------------------------------------

    def must_be_json(self) -> None:
        """Refuse what is not sent as JSON. Browsers send other types across origins without asking."""
        types = self.headers.get(b"content-type", ())
        if types == _PLAIN_JSON and b"content-encoding" not in self.headers:
            return
        kind, _, parameters = types[0].partition(b";") if len(types) == 1 else (b"", b"", b"")
        charset = parameters.strip().lower().removeprefix(b"charset=").strip(b'"')
        if kind.strip().lower() != b"application/json" or charset not in (b"", b"utf-8", b"utf8"):
            raise Refused(415, "the body must be sent with Content-Type: application/json")
        if self.headers.get(b"content-encoding", [b"identity"]) != [b"identity"]:
            raise Refused(415, "the body must not be compressed")

    def must_accept(self, *, json: bool) -> None:
        """Refuse a client that does not say it can read what we may answer."""
        lines = self.headers.get(b"accept")
        if lines is None or lines == _USUAL:
            return  # HTTP: whoever says nothing takes anything.
        accepted = {part.partition(b";")[0].strip().lower() for line in lines for part in line.split(b",")}
        if not accepted & _EVENT_TYPES or (json and not accepted & _JSON_TYPES):
            wanted = "application/json, text/event-stream" if json else "text/event-stream"
            raise Refused(406, f"the request must have Accept: {wanted}")

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises Refused if it is larger than that, ClientGone if it never came."""
        declared = self.one(b"content-length")
        if declared is not None and (len(declared) > 15 or int(declared) > limit):
            raise _too_large(limit)
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            whole: bytes = message["body"]
            if len(whole) > limit:
                raise _too_large(limit)
            return whole
        chunks: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            chunks.append(message["body"])
            size += len(chunks[-1])
            if size > limit:
                raise _too_large(limit)
            if not message.get("more_body"):
                return b"".join(chunks)
            message = await self._receive()
        raise ClientGone

    # --- answering ----------------------------------------------------------------------------

    async def answer(self, status: int, body: bytes = b"", headers: HeaderList = ()) -> None:
        """Answer with JSON, or with nothing."""
        self.answering = True
        length = (b"content-length", b"%d" % len(body))
        kind = (_JSON,) if body else ()
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*kind, length, *headers, *self.cors]}
        )
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, refused: Refused) -> None:
        """Answer with an error."""
        if refused.status == _TOO_LARGE:
            self.connection.linger()
        body = b"".join(envelopes.failure(refused.id, refused.error)).rstrip(b"\n")
        await self.answer(refused.status, body, refused.headers)

    async def pump(self, outlet: Outlet, keep_alive: float, headers: HeaderList = ()) -> None:
        """Answer with events, until the outlet ends or the client leaves."""
        self.connection.watch(outlet.lost)
        self.answering = True
        await self._send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS, *headers, *self.cors]})
        try:
            await self._pump(outlet, keep_alive)
        finally:
            if outlet.dropped:
                log.warning("a client read too slowly for all it was told", dropped=outlet.dropped, client=self.address)

    async def _pump(self, outlet: Outlet, keep_alive: float) -> None:
        while not outlet.gone:
            data = outlet.take()
            if data:
                outlet.behind = True
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                outlet.behind = False
            elif outlet.ended:
                await self._send({"type": "http.response.body", "body": b""})
                return
            else:
                await outlet.wait(keep_alive)
                if outlet.empty and not outlet.ended:
                    outlet.put(PING)


async def _nothing() -> Mapping[str, Any]:
    return {"type": "http.disconnect"}


async def _nowhere(_: Any) -> None:
    return


def _too_large(limit: int) -> Refused:
    return Refused(_TOO_LARGE, f"the body is larger than {limit} bytes", headers=[(b"connection", b"close")])
