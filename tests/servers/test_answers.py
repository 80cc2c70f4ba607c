"""What a link makes of answers that are none."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from muxway.wire.framing import LineFramer, Oversized
from tests.servers.faking import play

if TYPE_CHECKING:
    from tests.servers.faking import Play

pytestmark = pytest.mark.leaping

HUGE = b"9" * 401
MAX = b"9" * 400


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":2,"result":{"id":1,"x":}}',
        b'{"jsonrpc":"2.0","id":2,"result":{"id":1,"x"',
        b'{"result":{"items":[{"id":1},]},"jsonrpc":"2.0","id":2}',
        b'{"jsonrpc":"1.0","id":2,"result":{}}',
        b'{"id":2,"result":{}}',
        b'{"jsonrpc":"2.0","id":2}',
        b'{"jsonrpc":"2.0","id":2,"result":null}',
        b'{"jsonrpc":"2.0","id":2,"result":[1]}',
        b'{"jsonrpc":"2.0","id":2,"result":"text"}',
        b'{"jsonrpc":"2.0","id":2,"error":"text"}',
        b'{"jsonrpc":"2.0","id":2,"error":{"message":"no code"}}',
        b'{"jsonrpc":"2.0","id":2,"error":{"code":"1","message":"no"}}',
        b'{"jsonrpc":"2.0","id":2,"result":NaN}',
        b'{"jsonrpc":"2.0","id":2,"result":{"x":%b}}' % HUGE,
        b'{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"","data":-%b}}' % HUGE,
        b'{"jsonrpc":"2.0","id":2,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
async def test_an_answer_that_is_none_fails_its_own_call_at_once_and_no_other(line: bytes) -> None:
    """docs/behaviour.md#a-server-talks-nonsense.

    If the line still shows a pending id, that call errs, and never waits for a time-out.
    """
    up = await play()
    one, two, three = up.calls(3)
    up.channel.hear([line])
    assert two.error.reason == "malformed"
    assert one.open
    assert three.open
    assert up.link.counters.junk == 1
    up.channel.answer(2)
    assert up.link.counters.dropped == 1


@pytest.mark.parametrize(
    "value", [MAX, b"-" + MAX, b'"%b"' % HUGE, b'"\\"%b"' % HUGE, b"0.%b" % HUGE, b"%b.5" % HUGE, b"1e-%b" % HUGE]
)
async def test_long_numbers_that_can_be_read_pass_untouched(value: bytes) -> None:
    """RFC 8259 §6 allows limits: 400 digits of an integer. Digits in strings and fractions are no integers."""
    up = await play()
    outcome, _ = up.call()
    up.channel.hear([b'{"jsonrpc":"2.0","id":1,"result":{"x":%b}}' % value])
    assert outcome.results == [b'{"x":%b}' % value]


async def test_a_question_or_notice_with_an_integer_beyond_reading_goes_no_further() -> None:
    """Ours: clients do not get what they could not read; the server that asks is told."""
    up = await play()
    outcome, _ = up.call()
    params = b'{"progressToken":1,"progress":1,"x":%b}' % HUGE
    up.channel.hear([b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params])
    up.channel.hear([b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"x":%b}}' % HUGE])
    assert (outcome.progressed, outcome.asks) == (0, [])
    assert up.channel.sent[-1]["id"] == "q"
    assert "400 digits" in up.channel.sent[-1]["error"]["message"]


def framed(up: Play, limit: int, *chunks: bytes) -> None:
    """Hear chunks as the stdio channel does."""
    framer = LineFramer(limit, tails=True)
    for chunk in chunks:
        up.channel.hear(framer.feed(chunk))


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (b'{"jsonrpc":"2.0","id":2,"result":{"id":1,"x":"', b'"}}\n'),
        (b'{"result":{"id":1,"x":"', b'"},"jsonrpc":"2.0","id":2}\n'),
        (b'{"result":{"id":1,"x":"', b'"},"id":2}\r\n'),
    ],
)
async def test_the_call_of_an_overlong_answer_is_found_by_the_id_at_either_end(
    start: bytes, end: bytes, pieces: int
) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: it fails its call. The official TypeScript SDK writes the id last."""
    up = await play()
    one, two, three = up.calls(3)
    line = start + b"x" * 20_000 + end
    step = len(line) // pieces + 1
    framed(up, 10_000, *(line[at : at + step] for at in range(0, len(line), step)))
    assert two.error.reason == "too_large"
    assert "maxMessageBytes" in two.error.message
    assert one.open
    assert three.open
    assert up.link.counters.junk == 1


async def test_an_overlong_answer_with_its_id_in_front_fails_before_its_end() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: the end may never come."""
    up = await play()
    outcome, _ = up.call()
    framed(up, 10_000, b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 10_000)
    assert outcome.error.reason == "too_large"


async def test_an_id_inside_an_overlong_answer_is_not_taken_for_its_own() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: nothing is ever delivered to the wrong call."""
    up = await play()
    outcomes = up.calls(3)
    framed(up, 10_000, b'{"result":[{"id":1},' + b"[]," * 5000 + b'{"id":2}]}\n')
    assert all(outcome.open for outcome in outcomes)


async def test_late_repeated_and_invented_answers_are_counted_and_reach_nobody() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: late, repeated and invented ids reach nobody."""
    up = await play()
    one, running = up.call()
    two, _ = up.call()
    running.cancel(None)
    up.channel.answer(1)
    up.channel.answer(7)
    up.channel.hear([b'{"jsonrpc":"2.0","id":"x","result":{}}', b'{"jsonrpc":"2.0","id":-2,"result":{}}'])
    assert one.open
    assert two.open
    up.channel.answer(2, '{"n":1}')
    up.channel.answer(2, '{"n":2}')
    assert two.results == [b'{"n":1}']
    assert up.link.counters.dropped == 5


async def test_junk_is_logged_in_part_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: counted, escaped, logged at a limited rate."""
    up = await play()
    with caplog.at_level(logging.WARNING):
        up.channel.hear([b"\x1b[31mjunk %d" % n for n in range(5000)])
    assert up.link.counters.junk == 5000
    shown = [record.getMessage() for record in caplog.records if "not a message" in record.getMessage()]
    assert len(shown) == 10
    assert "\x1b" not in "".join(shown)


# --- what a supervisor wants to know ------------------------------------------------------------


async def test_the_link_knows_when_it_last_heard_something() -> None:
    """docs/behaviour.md#a-server-hangs.

    Probes of silent links. Junk is a sign of life, too; a failure of our own is none.
    """
    up = await play(remote=True)
    clock = asyncio.get_running_loop().time
    assert up.link.heard == 0.0
    began = clock()
    up.channel.hear([b"junk"])
    assert began <= up.link.heard <= clock()
    heard = up.link.heard
    up.call()
    await asyncio.sleep(0.01)
    up.channel.break_off(1)
    assert up.link.heard == heard


async def test_a_time_out_by_silence_is_told_and_one_by_the_hard_limit_is_not() -> None:
    """docs/behaviour.md#a-server-hangs: a server that makes progress until the end is not silent."""
    up = await play()
    told: list[str] = []
    up.link.deadlines.on_timeout = lambda: told.append("timeout")
    busy, _ = up.call(idle=60, limit=0.3)
    up.channel.hear([b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'])
    async with asyncio.timeout(2):
        while busy.open:
            await asyncio.sleep(0.02)
    assert "callMax" in busy.error.message
    assert told == []
    silent, _ = up.call(idle=0.05)
    async with asyncio.timeout(2):
        while silent.open:
            await asyncio.sleep(0.02)
    assert "gave no sign for 0.05 s" in silent.error.message
    assert told == ["timeout"]
    assert [message["params"]["requestId"] for message in up.channel.sent if "requestId" in message["params"]] == [1, 2]


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_link_is_closed_the_way_its_owner_wants(at_once: bool) -> None:
    """docs/behaviour.md#a-server-hangs: a server that was declared dead gets no time to say goodbye."""
    up = await play()
    outcome, _ = up.call()
    await up.link.close(at_once=at_once)
    assert up.channel.closed == [at_once]
    assert outcome.error.reason == "lost"
    assert up.lost == []


async def test_a_link_is_lost_only_once() -> None:
    """Ours: generations; the second report must not end the next link."""
    up = await play(remote=True)
    up.channel.lost("closed its event stream")
    up.channel.lost("again")
    for _ in range(6):
        up.channel.fail(b"1", RuntimeError(), broken=False)  # type: ignore[arg-type]
    assert up.lost == ["closed its event stream"]


def test_a_line_over_the_limit_is_reported_at_both_ends_if_that_is_wanted() -> None:
    """Ours: 512 bytes of the end are enough for an id."""
    framer = LineFramer(1000, tails=True)
    assert framer.feed(b"a" * 999) == []
    assert framer.feed(b"bb") == [Oversized(b"a" * 999 + b"bb")]
    assert framer.feed(b"c" * 300) == []
    assert framer.feed(b"d\nnext\n") == [Oversized(b"", b"a" * 209 + b"bb" + b"c" * 300 + b"d"), b"next"]
    whole = b"e" * 5000
    assert framer.feed(whole + b"\nnext\n") == [Oversized(whole[:4096], whole[-512:]), b"next"]
