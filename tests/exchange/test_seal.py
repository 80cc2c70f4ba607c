"""The seal on what stateless callers keep: nobody else can read, forge, move or outlive it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.calls.call import Call, Caller
from muxway.errors import InvalidParams
from muxway.exchange import seal
from muxway.exchange.seal import Claims, Seal, StateTooLarge, digest
from muxway.wire import envelopes
from muxway.wire.revisions import NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable


def a_call(principal: bytes = b"", method: str = "tools/call", **params: Any) -> Call:
    caller = Caller(revision=NEWEST, principal=principal)
    return Call(caller, method, {name: Raw(envelopes.encode(value)) for name, value in params.items()})


def claims_for(call: Call, *, state: str | None = "s", expires: float | None = None) -> Claims:
    until = time.time() + 60 if expires is None else expires
    return Claims("wrap", until, call.caller.principal, digest(call), "up", b"head", 1, state)


CALL = a_call(b"ann", name="t", arguments={"x": 1})


def test_what_was_sealed_comes_back() -> None:
    seal = Seal()
    claims = claims_for(CALL)
    assert seal.open(seal.close(claims), CALL) == claims


def test_one_key_is_good_in_two_processes_and_another_is_not() -> None:
    text = Seal("correct horse").close(claims_for(CALL))
    assert Seal("correct horse").open(text, CALL).state == "s"
    with pytest.raises(InvalidParams):
        Seal("battery staple").open(text, CALL)
    with pytest.raises(InvalidParams):
        Seal().open(text, CALL)


@pytest.mark.parametrize(
    "other",
    [
        a_call(b"bob", name="t", arguments={"x": 1}),
        a_call(b"", name="t", arguments={"x": 1}),
        a_call(b"ann", name="u", arguments={"x": 1}),
        a_call(b"ann", name="t", arguments={"x": 2}),
        a_call(b"ann", name="t"),
        a_call(b"ann", "prompts/get", name="t", arguments={"x": 1}),
    ],
)
def test_it_is_good_for_one_call_of_one_caller(other: Call) -> None:
    seal = Seal()
    with pytest.raises(InvalidParams, match="Invalid or expired"):
        seal.open(seal.close(claims_for(CALL)), other)


def test_it_expires() -> None:
    seal = Seal()
    with pytest.raises(InvalidParams):
        seal.open(seal.close(claims_for(CALL, expires=time.time() - 1)), CALL)


def test_a_client_may_spell_the_same_arguments_otherwise() -> None:
    same = a_call(b"ann", arguments={"y": None, "x": 1.0}, name="t", inputResponses={}, requestState="z")
    assert digest(same) == digest(CALL)


def test_a_state_too_large_to_carry_is_not_sealed() -> None:
    with pytest.raises(StateTooLarge):
        Seal().close(claims_for(CALL, state="x" * 20_000))


SEAL = Seal()
GOOD = SEAL.close(claims_for(CALL))


@given(st.integers(0, len(GOOD) - 1), st.characters(codec="ascii"))
def test_a_changed_character_spoils_it(position: int, character: str) -> None:
    forged = GOOD[:position] + character + GOOD[position + 1 :]
    assume(forged != GOOD)
    with pytest.raises(InvalidParams, match=seal.INVALID):
        SEAL.open(forged, CALL)


@pytest.mark.parametrize("respell", [lambda text: text.replace("-", "+"), lambda text: text.replace("_", "/")])
def test_the_same_bytes_in_other_letters_are_refused(respell: Callable[[str], str]) -> None:
    """RFC 4648 §5 has one alphabet for names, and Python's decoder takes that of §4, too."""
    sealed = (SEAL.close(claims_for(CALL)) for _ in range(1000))
    text = next(text for text in sealed if respell(text) != text)
    with pytest.raises(InvalidParams, match=seal.INVALID):
        SEAL.open(respell(text), CALL)


@given(st.text(max_size=60))
def test_nonsense_is_refused(text: str) -> None:
    for forged in (text, f"mw1.{text}"):
        with pytest.raises(InvalidParams):
            SEAL.open(forged, CALL)


def test_a_large_call_is_compared_byte_by_byte_and_at_once() -> None:
    """docs/behaviour.md#size-limits: what 4 MB of arguments mean would take half a second to find out."""
    raw = Raw(b"[" + b"{}," * 1_300_000 + b"{}]")
    large = Call(CALL.caller, "tools/call", {"name": Raw(b'"t"'), "arguments": raw})
    best = 60.0
    for _ in range(3):
        began = time.thread_time()
        known = digest(large)
        best = min(best, time.thread_time() - began)
    assert best < 0.1
    assert known == digest(large)
    assert known != digest(Call(CALL.caller, "tools/call", {**large.params, "arguments": Raw(b" " + bytes(raw))}))
