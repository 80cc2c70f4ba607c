"""Arguments of `muxway call`: text in, the values that the tool's schema wants out."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import click
import pytest

from muxway import Gateway
from muxway.cli.arguments import Arguments, fitted
from muxway.errors import InvalidParams
from tests.control.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

ROOT = {"$defs": {"Size": {"enum": [1, 2, "many"]}, "Count": {"type": "integer"}}}
OPTIONAL_INT = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
ECHO = """
import json
from muxway.demo.serving import DemoServer, DemoTool
class Echo(DemoServer):
    def _result(self, params, run):
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
fields = {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "text": {"type": "string", "description": "Words."}}
Echo("echo", "2025-06-18", {"it": DemoTool("Echo.", fields, ("text",), lambda a, r: "")}).serve()
"""


@pytest.fixture
def echo(write: Callable[..., Path]) -> Path:
    """A config with a server that returns the arguments it gets."""
    return write({"mcpServers": {"echo": {"command": sys.executable, "args": ["-c", ECHO]}}})


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"type": ["integer", "null"]}, "null", None),
        (OPTIONAL_INT, "5", 5),
        (OPTIONAL_INT, "-3", -3),
        (OPTIONAL_INT, "five", "five"),
        ({"oneOf": [{"type": "boolean"}, {"type": "number"}]}, "true", True),
        ({"oneOf": [{"type": "boolean"}, {"type": "number"}]}, "1.5", 1.5),
        ({"$ref": "#/$defs/Count"}, "7", 7),
        ({"allOf": [{"$ref": "#/$defs/Count"}]}, "7", 7),
        ({"$ref": "#/$defs/Size"}, "2", 2),
        ({"$ref": "#/$defs/Size"}, "many", "many"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"type": ["string", "integer"]}, "5", 5),
        ({"type": ["string", "integer"]}, "007", "007"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "[1]", "[1]"),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, '{"a": 1}', {"a": 1}),
        ({"type": "integer"}, "1e2", 100.0),
        ({"type": "integer"}, "1.5", "1.5"),
        ({"type": "integer"}, "9" * 5000, "9" * 5000),
        ({}, "5", "5"),
        (None, "5", "5"),
    ],
)
def test_text_becomes_what_the_schema_wants(schema: object, text: str, value: object) -> None:
    """docs/cli.md#muxway-call: however a schema says it, a number is a number; text stays text where text is wanted."""
    given = fitted(text, schema, ROOT, "n")
    assert (type(given), given) == (type(value), value)


@pytest.mark.parametrize("word", ["n:=1e400", "n:=-1e400", "n:=NaN", "n:=Infinity", "n:=[1, 1e999]"])
def test_numbers_that_json_does_not_have_are_refused(word: str) -> None:
    """Ours: they would arrive as null without a word."""
    with pytest.raises(click.UsageError, match=r"n is too large|JSON has no"):
        Arguments(None, [word])
    with pytest.raises(click.UsageError, match="n is too large"):
        Arguments(None, ["n=1e400"]).fitted({"properties": {"n": {"type": "number"}}})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [None, v], lambda v: {"deep": (1, {"er": v})}])
def test_the_library_refuses_them_too(wrap: Callable[[float], object], value: float) -> None:
    """Ours: docs/library.md: a call sends what it is given, or says why it cannot."""

    async def call() -> None:
        async with Gateway.open() as gateway:
            await gateway.call("any__tool", {"a": wrap(value)})

    with pytest.raises(InvalidParams, match=r"the argument a.* is not a finite number"):
        asyncio.run(call())


def test_an_optional_number_arrives_as_a_number(muxway: Callable[..., Result], echo: Path) -> None:
    """Ours: `Optional[int]` of pydantic is an `anyOf`."""
    result = muxway("call", "echo__it", "n=5", "text=x", "-c", echo)
    assert (json.loads(result.stdout), result.stderr) == ({"n": 5, "text": "x"}, "")
    shown = muxway("tools", "--schema", "-c", echo).stdout
    assert "integer|null" in shown


def test_unknown_and_missing_arguments_are_told(muxway: Callable[..., Result], echo: Path) -> None:
    """Ours: the schema is there, so nobody needs to guess what the server complains about."""
    result = muxway("call", "echo__it", "txt=x", "-c", echo)
    assert "echo__it knows no argument `txt`; did you mean `text`?\n" in result.stderr
    assert f"It needs text: `muxway tools echo__it --schema -c {echo}` shows its arguments.\n" in result.stderr
    # The server has the last word.
    assert json.loads(result.stdout) == {"txt": "x"}


def test_on_a_terminal_what_is_missing_is_asked_for(echo: Path) -> None:
    """docs/cli.md#muxway-call: on a terminal it asks."""
    line = [sys.executable, "-m", "muxway", "call", "echo__it", "n=1", "-c", str(echo)]
    with Terminal(line, columns=80, rows=24) as terminal:
        terminal.until(lambda said: "text (string): " in said)
        terminal.type("hello there\n")
        assert terminal.end() == 0
        assert any("Words." in row for row in terminal.lines())
        assert terminal.lines()[-2] == '{"n": 1, "text": "hello there"}'


def test_ctrl_c_at_the_question_calls_nothing(echo: Path) -> None:
    """Ours: exit 130, as anywhere else."""
    with Terminal(
        [sys.executable, "-m", "muxway", "call", "echo__it", "-c", str(echo)], columns=80, rows=24
    ) as terminal:
        terminal.until(lambda said: "text (string): " in said)
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "was cancelled" in terminal.said
