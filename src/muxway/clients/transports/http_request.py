"""The head of an HTTP request: its request line and headers, read with care, and what they were found to mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from muxway.errors import InvalidRequest, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.call import Forwarded
    from muxway.calls.identity import Identity
    from muxway.clients.transports.http_sessions import HttpSession

HeaderList: TypeAlias = "Sequence[tuple[bytes, bytes]]"

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)(?=\r\n)", re.IGNORECASE).finditer
_MOST_DIGITS: Final = 10
_PLAIN_JSON: Final = [b"application/json"]
_USUAL: Final = [b"application/json, text/event-stream"]
_JSON_TYPES: Final = frozenset((b"application/json", b"application/*", b"*/*"))
_EVENT_TYPES: Final = frozenset((b"text/event-stream", b"text/*", b"*/*"))


class Refused(Exception):
    """The request is answered with this status and a JSON-RPC error."""

    def __init__(
        self,
        status: int,
        error: RpcError | str,
        *,
        id_: bytes | None = None,
        headers: HeaderList = (),
        close: bool = False,
    ) -> None:
        super().__init__(status)
        self.status = status
        self.error = InvalidRequest(error) if isinstance(error, str) else error
        self.id = id_
        self.headers = headers
        self.close = close
        """Whether the connection ends with it."""


class RequestHead:
    """What stands before the body. The next request may have the same, byte for byte but for the length of its body."""

    __slots__ = (
        "admitted",
        "chunked",
        "cors",
        "forwarded",
        "handler",
        "headers",
        "identity",
        "keep_alive",
        "limit",
        "method",
        "modern",
        "owner",
        "path",
        "principal",
        "query",
        "session",
        "until",
        "view",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        chunked: bool = True,
    ) -> None:
        self.method, self.path, self.query = method, path, query
        self.keep_alive = keep_alive
        """Whether the connection outlasts the request."""
        self.chunked = chunked
        """Whether the answer may come in chunks, which HTTP/1.0 does not know."""
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            known = self.headers.get(name)
            if known is None:
                self.headers[name] = [value]
            else:
                known.append(value)
        # What follows is found out once, and holds as long as `admitted` is what it was then.
        self.admitted: object = None
        self.handler: Callable[..., None]
        """Takes the request."""
        self.cors = b""
        """Header lines that every answer must carry."""
        self.limit: int | None = None
        """Bytes of its body, if it may have fewer than others."""
        self.view: str | None = None
        """The view that it is for; None: the whole."""
        self.owner = self.principal = b""
        self.identity: Identity | None = None
        self.until: float | None = None
        """When its credentials end, if they do by themselves."""
        self.forwarded: Forwarded = ()
        """What of it some server is to get."""
        self.modern = False
        """Whether it is for the stateless ladder, if only to fail there."""
        self.session: HttpSession | None = None
        """That it names, once somebody has looked for it."""

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

    # --- the body -----------------------------------------------------------------------------

    @property
    def expects(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        return any(value.lower() == b"100-continue" for value in self.all(b"expect"))

    def announces_more_than(self, limit: int) -> bool:
        """Whether the body is said to be larger than that. The parser has seen that a length is a number."""
        return any(len(value.strip()) > 15 or int(value) > limit for value in self.all(b"content-length"))

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


def _sole(data: bytes) -> tuple[int, int, int] | None:
    """Where the length of the body, what follows it, and the body begin, if `data` is a POST and nothing else."""
    body = data.find(b"\r\n\r\n") + 4
    if not data.startswith(b"POST ") or body == 3:
        return None
    lengths = list(_LENGTH(data, 0, body - 2))
    if len(lengths) != 1:
        return None
    start, end = lengths[0].span(1)
    alone = end - start < _MOST_DIGITS and int(data[start:end]) == len(data) - body
    return (start, end, body) if alone else None


def is_sole(data: bytes) -> bool:
    """Whether `data`, if it begins a request, is all of it and nothing else."""
    return _sole(data) is not None


class Known:
    """The head of a request that came in one piece. Most clients send the same again, but for the length of the body.

    What has it, and is as long as it says, need not be parsed: byte for byte, it has been.
    """

    __slots__ = ("_after", "_before", "head", "last", "size")

    def __init__(self, head: RequestHead, before: bytes, after: bytes) -> None:
        self.head = head
        self._before, self._after = before, after
        self.last = before
        """The last one, with its length: the next request is often just as long."""
        self.size = 0
        """Bytes of all that came with it. What has so many, and begins with `last`, is such a request."""

    @classmethod
    def of(cls, data: bytes, body: bytes, head: RequestHead) -> Known | None:
        """The head of a request, if `data` is exactly this request with this body."""
        # What else is in the piece, or was in another, may have been written by somebody else.
        found = _sole(data)
        if found is None or found[2] + len(body) != len(data):
            return None
        start, end, body_start = found
        return cls(head, data[:start], data[end:body_start])

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` is exactly one request with this head."""
        if not data.startswith(self._before):
            return None
        start = len(self._before)
        end = data.find(b"\r", start, start + _MOST_DIGITS)
        length = data[start:end]
        if not data.startswith(self._after, end) or not length.isdigit():
            return None
        start = end + len(self._after)
        if len(data) - start != int(length):
            return None
        self.last, self.size = data[:start], len(data)
        return data[start:]
