"""The worst inputs that each limit allows, from both sides: none holds the event loop (docs/behaviour.md#size-limits).

The gateway runs in a thread of its own, and only the processor time of that thread counts: a crowded machine, or what
the client and the servers do, is not held against it.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from muxway.net import metronome as metronome_module
from muxway.net.metronome import BETWEEN, LONG, Metronome

from ..serve.harness import request
from .hostile_server import KIB, MIB
from .watched import Watched, hostile, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = b",".join(b'"k%d":1' % number for number in range(100_000))
TEXT = b"x" * (3 * MIB)
LISTING = 0.050
"""Seconds for whoever asks for lists of 10,000."""

FROM_SERVERS = (
    *("text", "numbers", "members", "blocks", "links", "many links", "error", "envelope", "deep", "broken"),
    *("surrogates", "latin", "backslashes", "ids", "quoted", "braces", "spaces", "glued", "seams", "batch", "digits"),
    *("log", "progress", "notice", "updated", "asks", "requests", "junk", "oversized"),
    *("deepest", "deepest blocks", "stderr"),
)


def rpc(method: bytes, params: bytes, id_: bytes = b"1") -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}' % (id_, method, params)


LARGEST = b'{"name":"s__echo","arguments":{"x":[%b1]}}' % (b"1," * (2 * MIB - KIB))

FROM_CLIENTS = {
    "largest": rpc(b"tools/call", LARGEST),
    "largest, with blanks": rpc(b"tools/call", LARGEST).replace(b":", b": ", 4),
    "numbers": b"[" + b"1," * (2 * MIB) + b"1]",
    "batch": b"[" + b",".join([rpc(b"tools/call", b'{"name":"s__none"}')] * 100) + b"]",
    "large batch": b"[" + b",".join([rpc(b"tools/call", b'{"name":"%b"}' % (b"n" * 25 * KIB))] * 100) + b"]",
    "batch of nonsense": b"[" + b",".join([b'{"x":"%b"}' % (b"n" * 40 * KIB)] * 100) + b"]",
    "name": rpc(b"tools/call", b'{"name":"%b"}' % TEXT),
    "spelled name": rpc(b"tools/call", b'{"name":"%b"}' % (b"s:" * MIB)),
    "near miss": rpc(b"tools/call", b'{"name":"s__ecko%b"}' % (b"o" * 200)),
    "arguments": rpc(b"tools/call", b'{"name":"s__echo","arguments":{"x":[%b1]}}' % (b"1," * MIB)),
    "members of arguments": rpc(b"tools/call", b'{"name":"s__echo","arguments":{%b}}' % MANY),
    "params": rpc(b"tools/call", b'{"name":"s__echo",%b}' % MANY),
    "meta": rpc(b"tools/call", b'{"name":"s__echo","_meta":{%b}}' % MANY),
    "message": b'{"jsonrpc":"2.0","id":1,"method":"ping",%b}' % MANY,
    "method": rpc(TEXT, b"{}"),
    "id": rpc(b"ping", b"{}", b'"%b"' % TEXT),
    "id that is none": rpc(b"ping", b"{}", b"[%b1]" % (b"1," * MIB)),
    "digits": rpc(b"tools/call", b'{"name":"s__echo","arguments":{"x":%b}}' % (b"9" * 3 * MIB)),
    "uri": rpc(b"resources/read", b'{"uri":"file:///%b"}' % TEXT),
    "nested uri": rpc(b"resources/read", b'{"uri":"%b"}' % (b"mcp+s+" * 50_000)),
    "percent": rpc(b"resources/read", b'{"uri":"file:///%b"}' % (b"%41%2e%2e/" * 200_000)),
    "uri for a template": rpc(b"resources/read", b'{"uri":"x1://%b"}' % (b"a/" * 500_000)),
    "subscription": rpc(b"resources/subscribe", b'{"uri":"x2://%b"}' % (b"a/" * 500_000)),
    "prompt": rpc(b"prompts/get", b'{"name":"s__p","arguments":{%b}}' % MANY),
    "completion": rpc(b"completion/complete", b'{"ref":{"type":"ref/prompt","name":"%b"},"argument":{}}' % TEXT),
    "completion of a template": rpc(b"completion/complete", b'{"ref":{"type":"ref/resource","uri":"%b"}}' % TEXT),
    "level": rpc(b"logging/setLevel", b'{"level":"%b"}' % TEXT),
    "cursor": rpc(b"tools/list", b'{"cursor":"%b"}' % TEXT),
    "cancelled": b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"%b"}}' % TEXT,
    "answer": b'{"jsonrpc":"2.0","id":1,"result":{%b}}' % MANY,
    "token": rpc(b"tools/call", b'{"name":"s__echo","_meta":{"progressToken":"%b"}}' % TEXT),
    "not JSON": b'{"jsonrpc":"2.0","id":1,' + b'"id":1,' * (400 * KIB),
    "not UTF-8": rpc(b"tools/call", b'{"name":"s__echo","arguments":{"x":"%b"}}' % (b"\xe9" * 3 * MIB)),
    "surrogates": rpc(b"tools/call", b'{"name":"s__echo","arguments":{"x":"%b"}}' % (b"\\ud800" * 500 * KIB)),
    "deep": rpc(b"tools/call", b'{"name":"s__echo","arguments":%b}' % (b'{"x":' * 100 + b"1" + b"}" * 100)),
    "bottomless": b"[" * (3 * MIB),
    "initialize": rpc(b"initialize", b'{"protocolVersion":"2025-11-25","capabilities":{%b}}' % MANY),
    "greeting": rpc(b"initialize", b'{"protocolVersion":"2025-11-25","capabilities":{"x":"%b"}}' % (b"x" * 60 * KIB)),
    "two names": rpc(b"tools/call", b'{"name":"s__echo","name":"%b"}' % TEXT),
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Watched]:
    """With a server that can say anything, and one with many templates."""
    with watched({"s": hostile(), "t": hostile("templates")}) as running:
        # What is loaded on first use is loaded once.
        session = running.session()
        running.call(session, "s__say", kind="links")
        running.post(FROM_CLIENTS["uri for a template"], session)
        yield running


@pytest.mark.parametrize("kind", FROM_SERVERS)
def test_nothing_a_server_sends_holds_the_loop(kind: str, gateway: Watched) -> None:
    """Ours: 20 ms, for the largest of each kind that the limits let through."""
    session = gateway.session(capabilities={"elicitation": {}})
    assert gateway.holds_for(LONG, lambda: gateway.call(session, "s__say", kind=kind)) < LONG


@pytest.mark.parametrize("kind", FROM_CLIENTS)
def test_nothing_a_client_sends_holds_the_loop(kind: str, gateway: Watched) -> None:
    """Ours: 20 ms, whatever it sends."""
    session = gateway.session("2025-03-26")
    headers = {} if b'"initialize"' in FROM_CLIENTS[kind][:60] else session
    assert gateway.holds_for(LONG, lambda: gateway.post(FROM_CLIENTS[kind], headers)) < LONG


STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.parametrize("what", ["headers", "capabilities", "name", "state", "answers"])
def test_nothing_a_stateless_client_sends_holds_the_loop(what: str, gateway: Watched) -> None:
    """Ours: 20 ms, whatever stands in its headers and its envelope."""
    message = request("tools/call", {"name": "s__echo", "arguments": {}, "_meta": dict(STATELESS)})
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "s__echo"}
    params = message["params"]
    if what == "headers":
        headers |= {f"Mcp-Param-{number}": "x" * 250 for number in range(80)}
    elif what == "capabilities":
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {f"k{n}": {} for n in range(4_000)}
    elif what == "name":
        headers["Mcp-Name"] = params["name"] = "s__" + "n" * 20_000
    elif what == "state":
        params["requestState"] = "x" * (3 * MIB)
    else:
        params["inputResponses"] = {f"q{n}": {"action": "accept"} for n in range(50_000)}
    body = json.dumps(message).encode()
    assert gateway.holds_for(LONG, lambda: gateway.post(body, headers)) < LONG


OF_TOOLS = ("many", "many hidden", "names", "alike", "hidden", "headers", "schema")


@pytest.mark.parametrize("listing", [*OF_TOOLS, "resources", "templates", "prompts"])
def test_no_list_holds_the_loop(listing: str) -> None:
    """Ours: 50 ms for whoever asks for 10,000 entries, or for the worst that may stand in one.

    The same holds while it is taken in, for the first time and with one entry less; also where there are views.
    """
    view = {"tools": ["s__*"], "prompts": ["s__*"], "hiddenTools": ["s__tool_7"], "resources": ["*"]}
    with watched({"s": hostile(listing, "later"), "other": hostile()}, views={"v": view}) as running:
        session = running.session()
        running.longest(anew=True)
        capability = {"prompts": "prompts", "resources": "resources", "templates": "resources"}.get(listing, "tools")
        for _ in range(2):
            with running.changing(capability):
                running.call(session, "s__say", kind="change")
        assert running.turn() < LISTING, "taken in"
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            running.post(json.dumps(request(method)).encode(), session)
        running.call(session, "s__echo")
        running.call(session, "s__tool_ecko")
        assert running.turn() < LISTING


class Clocks:
    """Of a loop whose work takes as long as a test says, whatever else the machine does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = self._worked = 100.0
        for name, clock in (("perf_counter", "_now"), ("thread_time", "_worked")):
            monkeypatch.setattr(metronome_module, name, lambda clock=clock: getattr(self, clock))

    def work(self, seconds: float) -> None:
        self._now += seconds
        self._worked += seconds

    def wait(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


async def test_a_metronome_finds_a_long_turn_and_no_short_ones(clocks: Clocks) -> None:
    """Ours: it must be able to find one. It counts what the loop does, not what it waits for."""
    metronome = Metronome()
    metronome.watch()
    for _ in range(10):
        clocks.work(0.004)
        await asyncio.sleep(0.01)
    clocks.wait(0.05)
    await asyncio.sleep(0.01)
    assert metronome.longest < LONG
    clocks.work(0.03)
    await asyncio.sleep(0.01)
    metronome.stop()
    assert metronome.longest == pytest.approx(0.03)
    assert metronome.long_turns == 1
    clocks.wait(3)
    assert metronome.ago == pytest.approx(3)


async def test_without_being_watched_the_loop_is_looked_at_while_messages_arrive(clocks: Clocks) -> None:
    """docs/behaviour.md#size-limits: `status` tells the longest turn, whether more messages follow it or not."""
    metronome = Metronome()
    assert metronome.due == 0.0, "the first message looks"
    metronome.look()
    assert metronome.due == pytest.approx(100.0 + BETWEEN)
    clocks.work(0.03)
    metronome.look()
    assert metronome.longest == pytest.approx(0.03)
    assert metronome.long_turns == 1
    metronome.begin()
    clocks.work(0.04)
    await at_rest(metronome)
    assert metronome.longest == pytest.approx(0.04)
    assert metronome.long_turns == 1
    # At rest: what a housekeeper does now and then does not add up to one turn.
    for _ in range(3):
        clocks.work(0.01)
        await asyncio.sleep(0.001)
    metronome.look()
    assert metronome.long_turns == 1
    assert metronome.longest == pytest.approx(0.04)


async def at_rest(metronome: Metronome) -> None:
    async with asyncio.timeout(30):
        while metronome.due:
            await asyncio.sleep(0.005)


async def test_no_turn_counts_for_more_than_the_time_that_has_passed(clocks: Clocks) -> None:
    """Ours: on some virtual machines the clock of a thread jumps ahead."""
    metronome = Metronome()
    metronome.look()
    clocks.work(0.5)
    clocks.wait(-0.49)
    metronome.look()
    assert metronome.longest == pytest.approx(0.01)
    await at_rest(metronome)
