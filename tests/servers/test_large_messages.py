"""Large messages of a server: answers pass, the rest has limits (docs/behaviour.md#size-limits)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muxway.errors import UpstreamSaid
from muxway.servers.transports.http_intake import HttpIntake
from muxway.wire import large
from muxway.wire.envelopes import Envelope
from tests.servers.faking import play

if TYPE_CHECKING:
    from tests.servers.faking import FakeChannel

MIB = 1024 * 1024


def say(channel: FakeChannel, frame: bytes) -> None:
    """As a transport does: what is large is opened first."""
    if len(frame) <= large.LARGE_MESSAGE:
        channel.hear([frame])
        return
    steps = large.opening(frame)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            channel.hear([frame], b"", stop.value)
            return


def of_size(message: bytes, size: int) -> bytes:
    """A message with a text in it that makes it so large."""
    return message % (b"x" * (size - len(message) + 2))


async def test_a_large_answer_passes_byte_for_byte() -> None:
    """docs/behaviour.md#what-passes-untouched: results and errors, up to maxMessageBytes."""
    up = await play()
    one, two = up.calls(2)
    result = b'{"content": [],  "x":"%b"}' % (b"x" * 3 * MIB)
    error = b'{"code":7,"message":"%b","data":[1, 2]}' % (b"m" * 3 * MIB)
    say(up.channel, b'{"jsonrpc":"2.0","id":2,"error":%b}' % error)
    say(up.channel, b'{"jsonrpc":"2.0","result":%b,"id":1}' % result)
    assert one.results == [result]
    [said] = two.errors
    assert isinstance(said, UpstreamSaid)
    assert (said.raw, said.code, said.data) == (error, 7, [1, 2])
    assert 4_000 < len(said.message) < 5_000


async def test_a_large_answer_in_many_lines_becomes_one_line() -> None:
    """docs/behaviour.md: outside strings line breaks are only layout, and the other side is made of lines."""
    frame = b'{"jsonrpc":"2.0",\r\n"id":1,\n"result":{"x":[%b1]}}' % (b"1,\n" * MIB)
    line, opened = await HttpIntake(lambda: None).open(frame)
    assert line == frame.replace(b"\r", b" ").replace(b"\n", b" ")
    assert isinstance(opened, Envelope)
    assert bytes(opened.result) in line


@pytest.mark.parametrize(
    ("message", "most"),
    [
        (
            b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"x":"%b"}}',
            MIB,
        ),
        (b'{"jsonrpc":"2.0","id":"q","method":"ping","params":{"x":"%b"}}', 2 * MIB),
    ],
)
async def test_what_is_no_answer_may_not_be_as_large_as_one(message: bytes, most: int) -> None:
    """Ours: a notification is dropped and counted, a request refused; the call goes on."""
    up = await play()
    [call] = up.calls(1)
    say(up.channel, of_size(message, most))
    assert up.link.counters.junk == 0
    say(up.channel, of_size(message, most + 1))
    assert up.link.counters.junk == 1
    if b'"id"' in message:
        assert [sent.get("error", {}).get("code") for sent in up.channel.sent[1:]] == [None, -32600]
    else:
        assert up.link.counters.dropped == 1
    assert call.open
    up.channel.answer(1)
    assert not call.open


@pytest.mark.parametrize("id_", [b'"%b"' % (b"1" * 5_000), b"[%b1]" % (b"1," * 4_000)])
async def test_a_large_message_with_a_long_id_is_none(id_: bytes) -> None:
    """Ours: nothing answers such an id, and it answers nothing."""
    up = await play()
    [call] = up.calls(1)
    say(up.channel, b'{"jsonrpc":"2.0","id":%b,"result":{"x":"%b"}}' % (id_, b"x" * 2 * MIB))
    assert up.link.counters.junk == 1
    assert call.open
