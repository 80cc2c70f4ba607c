"""Users' patterns take time in proportion to the text, whatever both are (docs/security.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.middleware.builtin.patterns import KINDS, MOST_STEPS, WITHHELD, Search, compiled
from muxway.regexes import LARGEST, BadPattern, Regex
from muxway.testing import ScriptedServer
from tests.conftest import a_world

# Each of these never ends, or takes minutes, in Python's `re` on some text of a few kilobytes.
EVIL = [
    r"(a+)+$", r"([a-zA-Z]+)*$", r"(a|aa)+$", r"(a|a?)+$", r"(.*a){12}$", r"(a*)*b", r"(a+a+)+b", r"(x+x+)+y",
    r"^(([a-z])+.)+[A-Z]([a-z])+$", r"^(a?){40}a{40}$", "a?" * 30 + "a" * 30, r"^(([a-z0-9])+[-_.])*[a-z]+$",
    r"(\w+\s?)*$", r"\s+$", r"a*a*a*a*a*b", r".*.*=.*", r"^\d+1337\d+$", r"(a{1,30}){1,30}$",
    r"<a.*?>.*?</a>", r"(?:a|b|ab)*c", r"^(?:.?)+$|(?:x*)*y",
    r"^(?:[A-Z][^a-z]*)+$", r"(?:[A-Z][^a-z]*)+;", "(?i)(ſs+)*!", "(?i)(\u212ak+)*!", r"(é\W+)*!", r"(?m)^\s*SELECT",
    "a?" * 10 + "a*!", "a?" * 10 + "a*a*a*!", "a?" * 10 + "!", "a?" * 10 + "a*a*!", "a{1000}!",
    r"([^a-z]*?[A-Z])*?\s+!",
]  # fmt: skip
UNITS = ("a", "A", "1", "x", " ", "\n", "ab", "a ", "=", "<a>", "1337", "s", "k", "é")
LONG = 200_000


@pytest.mark.parametrize("pattern", EVIL)
def test_an_evil_pattern_is_taken_and_answers_right_on_long_texts(pattern: str) -> None:
    """docs/security.md: there is no time limit to a test: with another engine it would not end."""
    regex = Regex(pattern)
    for unit in UNITS:
        text = unit * (LONG // len(unit))
        for end in ("", "!", ";", "y", "b"):
            few = (unit * 8)[:8] + end
            if (pattern + few).isascii():
                # Eight are few enough for Python.
                assert regex.fits(few) == (re.search(pattern, few) is not None)
            assert regex.fits(text + few) or not regex.fits(few) or pattern.startswith("^")
    assert regex.size <= LARGEST


@pytest.mark.parametrize("pattern", EVIL)
def test_what_a_pattern_may_cost_is_known_before_it_is_run(pattern: str) -> None:
    """docs/shaping.md: the text that is searched while everybody waits has few enough bytes for that."""
    regex = Regex(pattern)
    assert 250 <= regex.longest <= 1 << 20
    assert regex.longest * regex.size <= 3_000_000


REFUSED = {
    "(": "no regular expression: missing",
    "[a": "no regular expression: missing",
    "a)": "no regular expression: unexpected",
    "*a": "no regular expression",
    "\\": "no regular expression",
    "(?=a)b": "lookaround",
    "a(?!b)": "lookaround",
    "(?<=a)b": "lookaround",
    "(?<!a)b": "lookaround",
    r"(a)\1": "refers back",
    "(?P<n>a)(?P=n)": "flag or group",
    "(?>a+)b": "atomic",
    "(?#note)a": "comment",
    "(?x) a": "flag or group",
    "(?a)x": "flag or group",
    "a++": "possessive",
    r"a\Z": r"write `\\z`",
    r"\u00e9": "write",
    r"\N{DIGIT ONE}": "escape",
    r"a\Cb": "half a character",
    "a\ud800": "half a character",
    "a{1001}": "counts too far",
    "(?:a{900}){2}": "counts too far",
    r"\pL{300}": "too large",
    r"(\pL{500}){2}": "too large",
}


@pytest.mark.parametrize(("pattern", "why"), REFUSED.items())
def test_what_the_engine_does_not_know_is_refused_with_what_to_write_instead(pattern: str, why: str) -> None:
    """docs/middleware/redact.md: and never shown, because it may be made of a secret."""
    with pytest.raises(BadPattern, match=why) as refused:
        Regex(pattern)
    assert len(pattern) < 4 or pattern not in str(refused.value)


@given(st.text("ab1 .\n", max_size=30))
def test_usual_patterns_mean_what_they_mean_in_python(text: str) -> None:
    """Ours: whoever writes what everybody writes notices nothing of the engine."""
    for pattern in (
        r"a+b",
        r"^a",
        r"(?m)^a$",
        r"\ba",
        r"(a|b)+1",
        r"[^a ]{2,3}",
        r"a.b",
        r"(?s)a.b",
        r"\d\s",
        r"(?i)A1",
    ):
        found = [match.span() for match in re.finditer(pattern, text)]
        assert [*Regex(pattern).spans(text.encode())] == found
        assert Regex(pattern).fits(text) == bool(found)


def test_half_a_character_in_a_text_is_no_trouble() -> None:
    """JSON may hold one: RFC 8259 §8.2."""
    assert Regex("b").fits("a\ud800b")
    assert Search(compiled(["b"])).masked("é\ud800b\udfff") == "é\ud800[redacted]\udfff"


def test_what_would_take_too_long_is_withheld(caplog: pytest.LogCaptureFixture) -> None:
    """docs/middleware/redact.md: neither does it stop the gateway nor come through. Decided by size, not by a clock."""
    [slow] = compiled(["[ab]*a[ab]{900}!secret"])
    longest = MOST_STEPS // slow.size
    search = Search([slow])
    assert search.masked("begin " + "a" * longest) == WITHHELD
    assert search.masked("and all else of the message") == WITHHELD
    assert "too long" in caplog.text
    assert "secret" not in caplog.text
    assert Search([slow]).masked("begin " + "a" * 1000) == "begin " + "a" * 1000


def test_matches_count_too() -> None:
    """docs/middleware/redact.md: each takes its time, and a text may be made of nothing else."""
    few = Search(compiled(["a"])).masked("a" * 1000)
    assert few == "[redacted]" * 1000
    assert Search(compiled(["a"])).masked("a" * 2_000_000) == WITHHELD


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_found_wherever_a_long_text_is_cut(kind: str) -> None:
    """docs/middleware/redact.md: long texts are searched a piece at a time, and no piece ends within a match."""
    key = "-----BEGIN RSA " + "PRIVATE KEY-----\n" + "MIIE" * 3000 + "\n-----END RSA PRIVATE KEY-----"
    samples = {
        "email": "ann.b+c@mail.example.org",
        "credit_card": "4111 1111 1111 1111",
        "aws_key": "AKIA" + "IOSFODNN7EXAMPLE",
        "github_token": "ghp_" + "a1B2" * 9,
        "private_key": key,
        "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0" * 300 + ".c2lnbmF0dXJl",
        "ipv4": "10.0.0.1",
    }
    for at in (0, 32_760, 32_767, 32_768, 40_000, 65_530):
        text = "x " * (at // 2) + samples[kind] + " y" * 40_000
        masked = KINDS[kind].masked(text, "***")
        assert masked == "x " * (at // 2) + "***" + " y" * 40_000, at


def test_who_has_no_patterns_does_not_load_the_engine() -> None:
    """Ours: it takes its part of a start."""
    said = "import sys, muxway.gateway, muxway.cli, muxway.middleware.builtin.redact; print('re2' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "False"


def shaped(pattern: str) -> dict[str, Any]:
    """The entry of a server one of whose arguments must match this."""
    return {"shape": {"t": {"arguments": {"x": {"pattern": pattern}}}}}


def test_a_pattern_of_a_shape_that_cannot_be_run_is_a_problem_of_the_configuration() -> None:
    """docs/shaping.md: refused when it is read, with what to write instead."""
    with pytest.raises(ConfigError) as caught:
        parse_config({"mcpServers": {"s": {"command": "c", **shaped("^(?=a)[ab]+$")}}})
    [problem] = caught.value.details
    assert problem.path == "mcpServers.s.shape.t.arguments.x.pattern"
    assert "lookaround" in problem.message
    parse_config({"mcpServers": {"s": {"command": "c", **shaped("(?:a+)+b$")}}})


async def test_a_text_too_long_for_its_pattern_is_refused_unread() -> None:
    """docs/shaping.md: the loop is for everybody. What is not too long is still checked."""
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    server = ScriptedServer(tools={"t": None}, definitions=[{"name": "t", "inputSchema": schema}])
    async with a_world({"s": server}, entries={"s": shaped(r"\s+$")}) as world:
        client = await world.client()
        reply = await client.call("s__t", {"x": " " * 1_050_000 + "!"})
        longest = Regex(r"\s+$").longest
        assert f"must have at most {longest} bytes" in str(reply.message)
        assert "must be text that matches" in str((await client.call("s__t", {"x": " " * 50_000 + "!"})).message)
        assert "must be text that matches" in str((await client.call("s__t", {"x": "a"})).message)
        assert (await client.call("s__t", {"x": "a "})).result
