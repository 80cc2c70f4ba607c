"""Web pages for people, beside what is served to MCP clients. Each is answered by a task of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import internal
from muxway.clients.pages import PageRequest, read_cookies, read_fields
from muxway.clients.transports.http_gateway import not_allowed
from muxway.clients.transports.http_request import Refused
from muxway.clients.transports.http_response import HttpReply, joined
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.clients.pages import PageHandler
    from muxway.clients.transports.http_authorization import HttpAuthorization
    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_request import RequestHead

_LONGEST_FORM: Final = 64 * 1024


class PageEndpoint:
    """Takes requests of browsers."""

    def __init__(self, authorization: HttpAuthorization) -> None:
        self._authorization = authorization
        self.pages: Mapping[str, PageHandler] = {}
        """Who serves a page, by its path."""
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, head: RequestHead) -> None:
        """Let a browser come to a page, which asks itself who it is, and whose form it sends. Raises Refused."""
        self._authorization.check_browser(head)
        if head.method not in ("GET", "POST"):
            raise not_allowed("GET, POST")
        head.handler = self._answer

    def _answer(self, connection: HttpConnection, head: RequestHead, body: bytes, *_: object) -> None:
        form: dict[str, str] | None = {}
        if head.method == "POST":
            kind = (head.one(b"content-type") or "").partition(";")[0].strip().lower()
            is_form = kind == "application/x-www-form-urlencoded" and len(body) <= _LONGEST_FORM
            form = read_fields(body.decode("utf-8", "replace")) if is_form else None
        if form is None:
            raise Refused(400, "this is no form of a page of this server")
        request = PageRequest(
            method=head.method,
            path=head.path.rstrip("/"),
            query=head.query.decode("latin-1"),
            form=form,
            cookies=read_cookies(head.all(b"cookie")),
            host=head.all(b"host")[0].decode("latin-1").strip().lower(),
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
            answer = await self.pages[request.path](request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the browser waits for an answer
            failure = internal(error, method=request.method, path=request.path)
            if connection.under_way is waiting:
                connection.answer(500, joined(envelopes.failure(None, failure)))
            return
        if connection.under_way is waiting:
            headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers]
            connection.answer_page(answer.status, answer.body, headers)

    def close(self) -> None:
        """Answer nobody any more."""
        for task in list(self._tasks):
            task.cancel()
