"""How many calls a server gets at a time, and what becomes of the others."""

from __future__ import annotations

import asyncio
import json

import pytest

from muxway.errors import UpstreamError
from muxway.middleware.engine.running import did_not_run
from muxway.servers.circuit import Circuit
from muxway.servers.limits import ServerLimits
from tests.servers.faking import Play, play

pytestmark = pytest.mark.leaping

TWO = ServerLimits(concurrency=2, queue=3, wait=10.0)
BRIEF = ServerLimits(concurrency=1, queue=3, wait=0.2)


async def test_calls_over_the_limit_wait_and_go_in_their_order() -> None:
    """docs/behaviour.md#too-much-at-once: 64 in flight, the rest queued, first come first served."""
    up = await play(TWO)
    outcomes = up.calls(5)
    assert up.channel.calls() == [1, 2]
    assert (up.link.queue.in_flight, len(up.link.queue.waiting)) == (2, 3)
    up.channel.answer(2, '{"n":2}')
    assert up.channel.calls() == [1, 2, 3]
    up.channel.answer(1, '{"n":1}')
    up.channel.answer(3, '{"n":3}')
    assert up.channel.calls() == [1, 2, 3, 4, 5]
    up.channel.answer(5, '{"n":5}')
    up.channel.answer(4, '{"n":4}')
    assert [json.loads(outcome.results[0])["n"] for outcome in outcomes] == [1, 2, 3, 4, 5]
    assert (up.link.queue.in_flight, len(up.link.queue.waiting)) == (0, 0)


async def test_the_default_is_64_under_way_and_256_that_wait() -> None:
    """docs/behaviour.md#too-much-at-once: the figures for one server."""
    up = await play()
    up.calls(64 + 256)
    assert (up.link.queue.in_flight, len(up.link.queue.waiting)) == (64, 256)
    with pytest.raises(UpstreamError, match="64 calls under way"):
        up.call()


async def test_one_more_than_may_wait_is_refused_at_once_and_told_what_to_do() -> None:
    """docs/behaviour.md#too-much-at-once: over the limit, decided at once, with a time to come back."""
    up = await play(TWO)
    up.calls(5)
    with pytest.raises(UpstreamError, match=r"did not run: try again later") as refused:
        up.call()
    assert refused.value.reason == "overloaded"
    assert refused.value.data == {"muxway": {"reason": "overloaded", "upstream": "up", "retryAfterMs": 1000}}
    assert did_not_run(refused.value)
    assert up.link.counters.refused == 1


async def test_a_call_that_waited_too_long_fails_and_is_never_sent() -> None:
    """docs/behaviour.md#too-much-at-once: queue wait 10 s; here less."""
    up = await play(BRIEF)
    first, second = up.calls(2)
    async with asyncio.timeout(2):
        while second.open:
            await asyncio.sleep(0.02)
    assert second.error.reason == "overloaded"
    assert "waited 0.2 s (queueWait)" in second.error.message
    assert did_not_run(second.error)
    up.channel.answer(1)
    assert first.results
    assert up.channel.calls() == [1]


async def test_a_cancelled_call_leaves_the_queue_and_is_never_sent_nor_told_of() -> None:
    """docs/behaviour.md#cancel-and-progress: nothing of it reaches the server."""
    up = await play(TWO)
    up.calls(2)
    third, waiting = up.call()
    fourth, _ = up.call()
    waiting.cancel("no longer wanted")
    waiting.cancel("twice")
    assert len(up.link.queue.waiting) == 1
    up.channel.answer(1)
    up.channel.answer(2)
    assert up.channel.calls() == [1, 2, 3]
    assert not any(message.get("method") == "notifications/cancelled" for message in up.channel.sent)
    up.channel.answer(3)
    assert fourth.results
    assert third.open


async def test_a_call_that_waited_can_be_cancelled_once_it_was_sent() -> None:
    """docs/behaviour.md#cancel-and-progress: what the caller holds works before and after."""
    up = await play(TWO)
    up.calls(2)
    third, running = up.call()
    up.channel.answer(1)
    running.cancel("enough")
    assert up.channel.sent[-1] == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 3, "reason": "enough"},
    }
    up.channel.answer(3)
    assert third.open
    assert up.link.counters.dropped == 1


async def test_a_cancelled_call_makes_room() -> None:
    """docs/behaviour.md#cancel-and-progress: also for a call that the server still has."""
    up = await play(TWO)
    _, running = up.call()
    up.calls(2)
    running.cancel(None)
    assert up.channel.calls() == [1, 2, 3]


async def test_the_clock_of_a_call_starts_when_it_is_sent() -> None:
    """Ours: waiting does not eat the time that the server has."""
    up = await play(ServerLimits(concurrency=1, queue=3, wait=10.0))
    up.call()
    second, _ = up.call(idle=0.5)
    await asyncio.sleep(0.8)
    up.channel.answer(1)
    await asyncio.sleep(0.3)
    assert second.open
    up.channel.answer(2)
    assert second.results


async def test_a_call_whose_caller_is_being_asked_does_not_count() -> None:
    """Ours: it is the caller who takes time, not the server."""
    up = await play(ServerLimits(concurrency=1, queue=3, wait=10.0))
    first, _ = up.call()
    second, _ = up.call()
    up.channel.hear([b'{"jsonrpc":"2.0","id":"q","method":"roots/list"}'])
    assert up.channel.calls() == [1, 2]
    assert up.link.queue.in_flight == 1
    first.asks[0].answer(b'{"roots":[]}')
    assert up.link.queue.in_flight == 2
    third, _ = up.call()
    up.channel.answer(1)
    assert up.channel.calls() == [1, 2]
    up.channel.answer(2)
    assert up.channel.calls() == [1, 2, 3]
    up.channel.answer(3)
    assert first.results
    assert second.results
    assert third.results
    assert up.link.queue.in_flight == 0


@pytest.mark.parametrize("how", ["answered", "cancelled", "withdrawn"])
async def test_a_question_that_ends_in_any_way_leaves_the_count_right(how: str) -> None:
    """Ours: slots are neither lost nor gained."""
    up = await play(TWO)
    first, running = up.call()
    up.channel.hear([b'{"jsonrpc":"2.0","id":"q","method":"roots/list"}'])
    assert up.link.queue.in_flight == 0
    if how == "answered":
        up.channel.answer(1)
        first.asks[0].answer(b"{}")  # too late, and no harm
    elif how == "cancelled":
        running.cancel(None)
    else:
        params = b'{"requestId":"q"}'
        up.channel.hear([b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}' % params])
        assert up.link.queue.in_flight == 1
        up.channel.answer(1)
    assert up.link.queue.in_flight == 0
    up.calls(3)
    assert (up.link.queue.in_flight, len(up.link.queue.waiting)) == (2, 1)


async def test_streams_and_requests_of_the_gateway_itself_do_not_count_and_do_not_wait() -> None:
    """docs/behaviour.md#a-server-hangs: a probe must get through to a server that has its hands full."""
    up = await play(TWO)
    up.calls(3)
    probe = asyncio.create_task(up.link.own.ask("ping", {}, timeout=5))
    await asyncio.sleep(0)
    assert up.channel.sent[-1]["method"] == "ping"
    assert (up.link.queue.in_flight, len(up.link.queue.waiting)) == (2, 1)
    up.channel.answer(up.channel.sent[-1]["id"])
    await probe
    assert (up.link.queue.in_flight, len(up.link.queue.waiting)) == (2, 1)
    assert up.channel.calls() == [1, 2]


async def test_when_the_link_is_lost_waiting_calls_say_that_they_did_not_run() -> None:
    """docs/middleware/retry.md#retry: so that they may be tried again, unlike those that the server had."""
    up = await play(TWO)
    sent_one, sent_two, waited = up.calls(3)
    up.channel.lost("exited with status 1")
    assert sent_one.error.reason == sent_two.error.reason == "lost"
    assert waited.error.reason == "not_running"
    assert waited.error.message == ('server "up" exited with status 1; this call had not been sent, so it did not run')
    assert did_not_run(waited.error)
    assert not did_not_run(sent_one.error)
    assert (up.link.queue.in_flight, len(up.link.queue.waiting)) == (0, 0)
    assert up.lost == ["exited with status 1"]
    with pytest.raises(UpstreamError, match="exited with status 1"):
        up.call()


async def test_a_server_that_does_not_read_refuses_what_waited() -> None:
    """Ours: what is let in from the queue fails like any other call, and fails once."""
    up = await play(ServerLimits(concurrency=1, queue=3, wait=10.0))
    first, running = up.call()
    second, _ = up.call()
    up.channel.queued = 1 << 30
    await asyncio.sleep(0.4)
    running.cancel(None)
    assert second.error.reason == "overloaded"
    assert first.open


# --- broken connections -----------------------------------------------------------------------


async def remote_call(up: Play, *, broken: bool = True) -> None:
    outcome, _ = up.call()
    up.channel.break_off(up.channel.calls()[-1], broken=broken)
    assert outcome.error.reason == "lost"


async def test_five_failures_in_a_row_end_the_link_with_the_last_reason() -> None:
    """docs/behaviour.md#a-remote-server-errs: 5 consecutive transport failures."""
    up = await play(remote=True)
    under_way, _ = up.call()
    for _ in range(4):
        await remote_call(up)
    assert up.lost == []
    await remote_call(up)
    assert up.lost == ["5 requests in a row failed, the last because it reset the connection"]
    assert "5 requests in a row failed" in under_way.error.message
    assert up.link.gone


async def test_any_answer_ends_the_row_and_other_failures_do_not_count() -> None:
    """docs/behaviour.md#a-remote-server-errs: not the server's own errors, nor the refusal of one request."""
    up = await play(remote=True)
    for _ in range(10):
        for _ in range(4):
            await remote_call(up)
            await remote_call(up, broken=False)
        for _ in range(10):
            said, _ = up.call()
            id_ = up.channel.calls()[-1]
            up.channel.hear([b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no"}}' % id_])
            assert len(said.errors) == 1
    assert up.lost == []


async def test_silence_of_a_remote_server_counts_as_a_failure_and_of_a_child_does_not() -> None:
    """Ours: a stall; whether a child is alive is found out by asking it."""
    for remote in (True, False):
        up = await play(remote=remote)
        outcomes = [up.call(idle=0.05)[0] for _ in range(6)]
        async with asyncio.timeout(3):
            while any(outcome.open for outcome in outcomes):
                await asyncio.sleep(0.02)
        assert bool(up.lost) is remote
        if remote:
            assert up.lost == ["5 requests in a row failed, the last because it gave no sign for 0.05 s"]


def test_half_of_many_failures_within_ten_seconds_are_too_many() -> None:
    """Ours: 50 % of at least 20 in 10 s."""
    circuit = Circuit()
    answers = 0
    verdicts: list[str | None] = []
    for n in range(10):
        answers += 1
        verdicts.append(circuit.failed(n * 0.5, answers))
    assert verdicts == [None] * 10  # ten of nineteen since the first
    answers += 1
    assert circuit.failed(5.0, answers) == "11 of 21 requests failed within 10 s"


def test_fewer_failures_or_slower_ones_are_not_too_many() -> None:
    """Ours: the same share over a longer time, and a smaller share, are ordinary life."""
    slow, few = Circuit(), Circuit()
    assert [slow.failed(n * 2.0, n) for n in range(100)] == [None] * 100
    assert [few.failed(n * 0.01, 3 * n) for n in range(1000)] == [None] * 1000
