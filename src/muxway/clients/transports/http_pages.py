"""Web pages for people, and what programs ask that have no credentials yet. Each is answered by a task of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import internal
from muxway.clients.pages import PageRequest, read_cookies, read_fields
from muxway.clients.transports.http_authorization import FOR_EVERY_PAGE, host_of
from muxway.clients.transports.http_gateway import not_allowed, too_large
from muxway.clients.transports.http_request import Refused
from muxway.clients.transports.http_response import HttpReply, joined
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.clients.pages import PageHandler
    from muxway.clients.transports.http_authorization import HttpAuthorization
    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_request import RequestHead

_FOR_EVERY_PROGRAM: Final = FOR_EVERY_PAGE.replace(b": GET", b": GET, POST")
_LONGEST_FORM: Final = 64 * 1024
"""Bytes. Strangers may send as much: who it is, is found out with the form."""


class PageEndpoint:
    """All pages of an HTTP transport."""

    def __init__(self, authorization: HttpAuthorization) -> None:
        self._authorization = authorization
        self.pages: Mapping[str, PageHandler] = {}
        """Who serves a web page, by its path."""
        self.endpoints: Mapping[str, PageHandler] = {}
        """Who answers programs, by path: they bring no credentials in headers, and any page may read the answers."""
        self._tasks: set[asyncio.Task[None]] = set()

    def has(self, path: str) -> bool:
        """Whether something is served there."""
        return path in self.pages or path in self.endpoints

    def admit(self, head: RequestHead, path: str) -> bool:
        """Let a browser or a program come to a page, which asks itself who it is. Raises Refused.

        Returns whether it only asks what it may send.
        """
        self._authorization.check_name(head)
        head.cors = b""
        if head.method == "OPTIONS" and path in self.endpoints:
            head.cors = _FOR_EVERY_PROGRAM
            return True
        if head.method not in ("GET", "POST"):
            raise not_allowed("GET, POST")
        head.handler, head.limit = self._answer, _LONGEST_FORM
        return False

    def _answer(self, connection: HttpConnection, head: RequestHead, body: bytes, *_: object) -> None:
        if len(body) > _LONGEST_FORM:
            raise too_large(_LONGEST_FORM)
        path = head.path.rstrip("/")
        form: dict[str, str] | None = {}
        if head.method == "POST":
            kind = (head.one(b"content-type") or "").partition(";")[0].strip().lower()
            is_form = kind == "application/x-www-form-urlencoded"
            form = read_fields(body.decode("utf-8", "replace")) if is_form else None
            if not is_form and path in self.endpoints:
                form = {}
        if form is None:
            raise Refused(400, "this is no form of a page of this server")
        request = PageRequest(
            method=head.method,
            path=path,
            query=head.query.decode("latin-1"),
            form=form,
            body=body if path in self.endpoints else b"",
            address=connection.address,
            cookies=read_cookies(head.all(b"cookie")),
            host=host_of(head),
            origin=head.one(b"origin"),
            is_operator=self._authorization.is_operator(connection),
        )
        waiting = HttpReply(connection)
        connection.begin(waiting, None)
        task = asyncio.get_running_loop().create_task(self._serve(connection, waiting, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: HttpConnection, waiting: HttpReply, request: PageRequest) -> None:
        try:
            handler = self.pages.get(request.path) or self.endpoints[request.path]
            answer = await handler(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the browser waits for an answer
            failure = internal(error, method=request.method, path=request.path)
            if connection.under_way is waiting:
                connection.answer(500, joined(envelopes.failure(None, failure)))
            return
        if connection.under_way is waiting:
            headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers]
            connection.answer_page(answer.status, answer.body, headers)

    def close(self) -> None:
        """Answer nothing more."""
        for task in list(self._tasks):
            task.cancel()
