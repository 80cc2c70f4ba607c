"""The log: one line an event, whatever is in it (docs/security.md)."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muxway.log import EventLog
from muxway.testing import ScriptedServer
from tests.conftest import a_world

if TYPE_CHECKING:
    from collections.abc import Iterator

law = settings(deadline=None)
"""A busy machine is no fault."""

FIELD = re.compile(r' (one|two)=("[^"]*"|[^\s"]+)')
FORGED = "x\n12:00:00 error upstream lost upstream=github"


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def kept() -> Iterator[_Kept]:
    handler = _Kept()
    logger = logging.getLogger("muxway.hardening")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


values = st.one_of(
    st.text(st.characters()), st.text(st.sampled_from("a\"'\\ =\n\r\x1b[\x85\u2028\u202e")), st.integers()
)


@law
@given(values, values)
@example(FORGED, "\r\n")
@example('" two=forged "', "\x1b[2J\x1b]0;owned\x07")
@example("a\u2028b\x85c\x1cd\x0be\x0cf", "\ud800")
def test_any_input_is_exactly_one_line_that_can_be_read(kept: _Kept, one: object, two: object) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Names, headers and stderr come from others, and forge nothing. No end of line, no escape, no second field.
    """
    kept.lines.clear()
    EventLog("hardening").warning("event", one=one, two=two)
    [line] = kept.lines
    assert line.splitlines() == [line]
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", line)
    assert line.startswith("event ")
    rest = line.removeprefix("event")
    shown = FIELD.findall(rest) if str(one) and str(two) else None
    if shown is not None:
        assert [name for name, _ in shown] == ["one", "two"]
        assert "".join(f" {name}={value}" for name, value in shown) == rest


async def test_a_server_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    By the names of its tools, and by what it says when it fails.
    """
    forged = "t\n12:00:00 error forged\x1b[2J"
    definitions = [{"name": forged, "description": "\u202e", "inputSchema": {"type": "object"}}, {"name": forged}]
    with caplog.at_level(logging.DEBUG, "muxway"):
        async with a_world({"s": ScriptedServer(definitions=definitions)}) as world:
            client = await world.client()
            assert len(await client.tools()) == 1
            assert (await client.call(f"s__{FORGED}")).error
    assert caplog.messages
    assert [message for message in caplog.messages if message.splitlines() != [message] or "\x1b" in message] == []


async def test_of_many_problems_of_a_list_a_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Ours: docs/behaviour.md#size-limits; each line takes its time, and nobody reads ten thousand."""
    hidden = [{"name": f"t{number}", "description": "x\u200b", "inputSchema": {}} for number in range(50)]
    long = [{"name": f"{number:0100}", "inputSchema": {}} for number in range(50)]
    with caplog.at_level(logging.WARNING, "muxway"):
        async with a_world({"s": ScriptedServer(definitions=[*hidden, *long])}):
            pass
    problems = [message for message in caplog.messages if "problem=" in message]
    assert [message for message in problems if "30 more problems" in message] == [problems[20], problems[41]]
    assert len(problems) == 42
