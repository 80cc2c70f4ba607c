"""Many messages at once, each as costly as one may be, do not hold the event loop (docs/behaviour.md#size-limits)."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.net.metronome import LONG
from muxway.testing import RawClient

from ..conftest import a_world
from ..noting import notes
from ..pace import watching
from ..serve.harness import request
from .hostile_server import KIB
from .piping import stdio
from .watched import Watched, hostile, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 100
numbers = itertools.count(1)


def read(padding: int) -> dict[str, Any]:
    """A request for what no server lists, and no cache has: all templates are tried."""
    return request("resources/read", {"uri": f"x://{'b' * padding}{next(numbers)}"}, next(numbers))


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "reads": lambda: read(500),
    "unknown names": lambda: request("tools/call", {"name": f"many__tool_{next(numbers)}x"}, next(numbers)),
    "large": lambda: request("tools/call", {"name": "none", "arguments": {"x": "y" * 40 * KIB}}, next(numbers)),
    "large nonsense": lambda: {"x": [1] * 20 * KIB},
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Watched]:
    with watched({"alike": hostile("templates alike"), "many": hostile("many"), "other": hostile()}) as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_no_batch_holds_the_loop(kind: str, gateway: Watched) -> None:
    """Ours: 20 ms at a time for a batch of 2025-03-26, whatever its messages are; and it is answered whole."""
    session = gateway.session("2025-03-26")

    def post() -> None:
        body = json.dumps([KINDS[kind]() for _ in range(BATCH)], separators=(",", ":")).encode()
        assert len(json.loads(gateway.post(body, session)[1])) == BATCH

    assert gateway.holds_for(LONG, post) < LONG


def test_a_batch_without_requests_is_accepted(gateway: Watched) -> None:
    """MCP 2025-03-26, basic/transports: 202 and no body for notifications and responses alone."""
    session = gateway.session("2025-03-26")
    notices = [{"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": "y" * 4 * KIB}}] * BATCH
    response, body = gateway.post(json.dumps(notices).encode(), session)
    assert (response.status, body) == (202, b"")


async def test_many_lines_of_a_client_do_not_hold_the_loop_and_are_answered_in_their_order() -> None:
    """Ours: what one read of a pipe brings may be hundreds of messages."""
    templates: dict[str, Any] = {f"x://{'{a}b' * 7}{number}": None for number in range(128)}
    async with a_world({"up": notes(templates=templates)}) as world, stdio(world) as (pipes, _):
        await RawClient(pipes).hello()
        async with watching(world.gateway.metronome) as seen:
            sent = [read(60) for _ in range(250)]
            pipes.send(b"\n".join(json.dumps(message).encode() for message in sent))
            answers = [json.loads(await pipes.receive()) for _ in sent]
        assert [answer["id"] for answer in answers] == [message["id"] for message in sent]
        assert seen.turn < LONG
