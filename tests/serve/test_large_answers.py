"""Answers of megabytes over HTTP: they are not put together before they are written, and arrive as small ones do."""

from __future__ import annotations

from typing import Any

import pytest

from muxway.clients.transports.http_response import Outlet, Parts, message_event
from muxway.testing import ScriptedServer
from muxway.wire import envelopes

from .harness import a_web, request

MIB = 1024 * 1024
CONTENT = [{"type": "text", "text": "é\n" * MIB * 2}]


def saying() -> dict[str, ScriptedServer]:
    """A server whose tool says more than is put together in one go."""

    def say(server: ScriptedServer, asked: dict[str, Any]) -> None:
        server.reply(asked, {"content": CONTENT})

    return {"s": ScriptedServer(tools={"say": say})}


async def test_a_large_answer_is_one_json_body() -> None:
    async with a_web(saying()) as web:
        client = await web.session()
        answer = await client.ask("tools/call", {"name": "s__say"})
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.body.endswith(b"}")
        assert answer.json["result"]["content"] == CONTENT


async def test_a_batch_of_large_answers_is_one_array() -> None:
    async with a_web(saying()) as web:
        client = await web.session("2025-03-26")
        batch = [request("tools/call", {"name": "s__say"}, id_) for id_ in (1, 2)]
        answer = await web.post([*batch, request("ping", id_=3)], client.headers)
        assert sorted(part["id"] for part in answer.json) == [1, 2, 3]
        assert [part["result"]["content"] for part in answer.json if part["id"] < 3] == [CONTENT] * 2


@pytest.mark.parametrize("id_", [None, "s-1"])
def test_an_event_of_megabytes_is_the_same_bytes_as_a_small_one(id_: str | None) -> None:
    """WHATWG HTML, server-sent events: a line break would end the data, so there is none."""
    value = b'"%b"' % (b"x" * 5 * MIB)
    small, _ = message_event(envelopes.result(b"7", b'{"a":\r\n[1],\r"x":"?"}'), id_)
    large, lossy = message_event(envelopes.result(b"7", b'{"a":\r\n[1],\r"x":%b}' % value), id_)
    assert isinstance(large, Parts)
    assert not lossy
    assert bytes(large) == bytes(small).replace(b'"?"', value)
    assert len(large) == len(bytes(large))


def test_what_waits_is_written_in_its_order() -> None:
    outlet = Outlet()
    large, _ = message_event(envelopes.result(b"7", b'"%b"' % (b"x" * 5 * MIB)))
    for chunk in (b"a", large, b"b"):
        outlet.put(chunk)
    assert outlet.waiting == len(large) + 2
    assert bytes(outlet.take()) == b"a" + bytes(large) + b"b"
    assert outlet.waiting == 0
