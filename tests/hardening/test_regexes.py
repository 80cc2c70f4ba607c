"""Expressions that take forever are not run (reliability.md S22)."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.middleware.patterns import compiled, search
from muxway.regexes import TakesForever, longest_text
from muxway.testing import ScriptedServer
from tests.conftest import a_world

EVIL = [
    r"(a+)+$", r"([a-zA-Z]+)*$", r"(a|aa)+$", r"(a|a?)+$", r"(.*a){12}$", r"(a*)*b", r"(a+a+)+b", r"(x+x+)+y",
    r"^(([a-z])+.)+[A-Z]([a-z])+$", r"^(a?){40}a{40}$", "a?" * 30 + "a" * 30, r"^(([a-z0-9])+[-_.])*[a-z]+$",
    r"(\w+\s?)*$", r"\s+$", r"a*a*a*a*a*b", r"(?x)(a+) +$", r".*.*=.*", r"^\d+1337\d+$", r"(a{1,30}){1,30}$",
    r"(\d+)\1+x", r"<a.*?>.*?</a>", r"(?:a|b|ab)*c", r"^(?:.?)+$|(?:x*)*y", r"(?=(a+)+$)b",
]  # fmt: skip
UNITS = ("a", "1", "x", " ", "ab", "a ", "=", "<a>", "0.", "1337")
USUAL = [r"^[a-z]+/[a-z]+$", r"^\w+@\w+\.\w+$", r"^[A-Z]{2}-\d{1,5}$", r"^(red|green)$", r"\d{4}-\d\d", r"^[^\n]+$"]


@pytest.mark.parametrize("pattern", EVIL)
def test_an_evil_pattern_is_refused_or_run_over_so_little_that_it_is_quick(pattern: str) -> None:
    """reliability.md S22: 20 evil patterns, 50 KB each, 50 ms."""
    try:
        longest = longest_text(pattern)
    except TakesForever:
        return
    for unit in UNITS:
        text = (unit * 50_000)[: min(longest, 50_000) - 1] + "!"
        began = time.process_time()
        re.search(pattern, text)
        assert time.process_time() - began < 0.05, (unit, len(text))


def test_most_of_them_are_refused() -> None:
    """Ours: the test above must not pass because nothing is ever run or nothing ever refused."""
    refused = [pattern for pattern in EVIL if _is_refused(pattern)]
    assert 15 <= len(refused) < len(EVIL)


def _is_refused(pattern: str) -> bool:
    try:
        longest_text(pattern)
    except TakesForever:
        return True
    return False


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_fine_for_texts_of_usual_length(pattern: str) -> None:
    """Ours: whoever writes what everybody writes notices nothing."""
    assert longest_text(pattern) >= 250


@pytest.mark.parametrize("pattern", EVIL)
def test_a_pattern_to_redact_by_is_refused_or_quick(pattern: str) -> None:
    """reliability.md S22: the other place where users write patterns. It is given up after its time."""
    try:
        [one] = compiled([pattern])
    except ValueError:
        return
    for unit in UNITS:
        text = (unit * 50_000)[:50_000]
        began = time.process_time()
        search(one, text, time.perf_counter() + 0.05)
        assert time.process_time() - began < 0.25, unit


def shaped(pattern: str) -> dict[str, Any]:
    """The entry of a server one of whose arguments must match this."""
    return {"shape": {"t": {"arguments": {"x": {"pattern": pattern}}}}}


def test_an_evil_pattern_of_a_shape_is_a_problem_of_the_configuration() -> None:
    """reliability.md S22: refused when it is read, with what to write instead."""
    with pytest.raises(ConfigError) as caught:
        parse_config({"mcpServers": {"s": {"command": "c", **shaped("(a+)+$")}}})
    [problem] = caught.value.details
    assert problem.path == "mcpServers.s.shape.t.arguments.x.pattern"
    assert "takes forever" in problem.message
    assert "possessive" in problem.message
    parse_config({"mcpServers": {"s": {"command": "c", **shaped("(?:a+b)++$")}}})


async def test_a_text_too_long_for_its_pattern_is_refused_unread() -> None:
    """reliability.md S22: the loop is for everybody. What is not too long is still checked."""
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    server = ScriptedServer(tools={"t": None}, definitions=[{"name": "t", "inputSchema": schema}])
    async with a_world({"s": server}, entries={"s": shaped(r"\s+$")}) as world:
        client = await world.client()
        began = time.process_time()
        reply = await client.call("s__t", {"x": " " * 50_000 + "!"})
        assert time.process_time() - began < 0.5
        assert "must have at most 1024 characters" in str(reply.message)
        assert "must be text that matches" in str((await client.call("s__t", {"x": "a"})).message)
        assert (await client.call("s__t", {"x": "a "})).result
