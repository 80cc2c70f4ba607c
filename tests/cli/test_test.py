"""`muxway test`, and what `muxway check --connect` says about composed tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway import demo
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

SHARED = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
STEPS = [
    {"name": "size", "tool": "text__count", "arguments": {"text": "${input.text}"}},
    {"name": "save", "tool": "notes.add", "arguments": {"text": "${input.text} (${steps.size.result.words})"}},
]
WORKS = {
    "name": "works",
    "input": {"text": "a b"},
    "expect": {"note": {"text": "a b (2)"}, "words": 2},
    "recorded": {"text__count": {"words": 2}, "notes.add": {"id": 1, "text": "a b (2)", "tags": []}},
}


def config(*examples: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The demo servers and a tool made of two of them."""
    output = {"note": "${steps.save.result}", "words": "${steps.size.result.words}"}
    tool = {
        "description": "d",
        "inputSchema": SHARED,
        "steps": STEPS,
        "output": output,
        "examples": [*examples],
        **more,
    }
    return {**demo.config(), "tools": {"Keep": tool}}


def test_examples_that_hold_pass_without_a_server(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/composed-tools.md#test-it: example cases beside the tool, against recorded results."""
    file = write({**config(WORKS), "mcpServers": {"text": {"command": "no-such"}, "notes": {"command": "no-such"}}})
    result = muxway("test", file)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["✓ ok  Keep: works", "1 example: 1 passed, 0 failed"]


def test_the_same_examples_hold_with_the_servers(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/composed-tools.md#test-it: … or live servers."""
    result = muxway("test", write(config(WORKS)), "--live")
    assert result.exit_code == 0, result.output


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another value": ({"expect": {"words": 3}}, "output.words must be 3, is 2"),
    "something that is missing": ({"expect": {"note": {"no": 1}}}, "output.note.no is missing"),
    "another number of items": ({"expect": {"note": {"tags": [1]}}}, "output.note.tags must have 1 item, has 0"),
    "another kind of value": ({"expect": {"note": "x"}}, 'output.note must be "x", is {"id":1'),
    "no failure": ({"expect": None, "fails": "boom"}, "must fail with 'boom', gave: {"),
    "wrong input": ({"input": {}}, "failed: Keep: wrong arguments: text is required"),
    "another failure": ({"input": {}, "expect": None, "fails": "boom"}, "must fail with 'boom', failed with: Keep"),
    "nothing recorded": ({"recorded": {}}, "no result is recorded for text__count"),
    "too little recorded": ({"recorded": {"text__count": []}}, "called more often than results are recorded"),
    "a tool that fails": ({"recorded": {"text__count": {"isError": True, "content": []}}}, 'failed: Keep: step "size"'),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_example_that_does_not_hold_is_shown_with_the_reason(
    case: str, muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """docs/cli.md#muxway-test: pass or fail per case, exit code."""
    change, said = WRONG[case]
    result = muxway("test", write(config(WORKS, {**WORKS, "name": "other", **change})))
    assert result.exit_code == 1
    first, second, why, last = result.stdout.splitlines()
    assert (first, second) == ("✓ ok  Keep: works", "✗ failed  Keep: other")
    assert said in why
    assert last == "2 examples: 1 passed, 1 failed"


def test_recorded_answers_may_be_whole_results_texts_or_one_for_each_call(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """docs/composed-tools.md#test-it."""
    steps = [
        {"name": "a", "tool": "text__count", "forEach": [1, 2], "arguments": {"text": "x"}},
        {"name": "b", "tool": "notes__list"},
        {"name": "c", "tool": "Inner"},
    ]
    output = ["${steps.a.result}", "${steps.b.result}", "${steps.c.result}"]
    whole = {"content": [{"type": "text", "text": "[5]"}]}
    recorded = {"text__count": ["one", whole], "notes__list": "two", "clock__now": "three"}
    example = {"name": "e", "input": {"text": ""}, "expect": [["one", [5]], "two", "three"], "recorded": recorded}
    made = config(example, steps=steps, output=output)
    made["tools"]["Inner"] = {"description": "d", "steps": [{"name": "s", "tool": "clock__now"}]}
    result = muxway("test", write(made))
    assert result.exit_code == 0, result.output


def test_json_is_one_document(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """Ours: for programs."""
    result = muxway("test", write(config(WORKS, {**WORKS, "name": "b", "expect": {"words": 1}})), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "ok": False,
        "cases": [
            {"tool": "Keep", "name": "works", "ok": True, "problems": []},
            {"tool": "Keep", "name": "b", "ok": False, "problems": ["output.words must be 1, is 2"]},
        ],
    }


def test_no_examples_are_no_success(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """Ours: whoever runs tests and has none should know."""
    result = muxway("test", write(config()))
    assert result.exit_code == 1
    assert "no composed tool has `examples`" in result.stderr


def test_a_config_that_cannot_be_used_is_not_tested(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """Ours: exit 3, as everywhere."""
    result = muxway("test", write(config(WORKS, output="${steps.no.result}")))
    assert result.exit_code == 3
    assert 'there is no step "no"' in result.stderr


def test_the_example_of_the_docs_holds(muxway: Callable[..., Result]) -> None:
    """Ours: examples/composed_tool.jsonc."""
    result = muxway("test", ROOT / "examples" / "composed_tool.jsonc")
    assert result.exit_code == 0, result.output
    assert "4 passed" in result.stdout


def test_check_with_connect_holds_steps_against_the_servers(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """docs/composed-tools.md#check-it.

    Unknown tools, types against the schemas; every problem with its place and line.
    """
    steps = {
        "gone": {"tool": "text__no_such"},
        "size": {"tool": "text__count", "arguments": {"text": ["${input.text}"]}},
        "save": {"tool": "notes__add", "arguments": {"txt": "${input.text}"}},
    }
    made = config(steps=steps, output=None)
    made["mcpServers"]["notes"]["exposedTools"] = []
    file = write(json.dumps(made, indent=1))
    assert muxway("check", file).exit_code == 0
    result = muxway("check", file, "--connect")
    assert result.exit_code == 3
    lines = file.read_text().splitlines()
    gone, size, save = (
        next(number for number, line in enumerate(lines, 1) if mark in line)
        for mark in ("text__no_such", '"text": [', '"txt"')
    )
    path = "tools.Keep.steps"
    unknown = "the tool names no such argument; it has text, tags"
    assert [line for line in result.stdout.splitlines() if "tools.Keep" in line] == [
        f"! warning  {path}.save.arguments.txt (line {save}): {unknown}",
        f'✗ error  {path}.gone.tool (line {gone}): there is no tool "text__no_such"',
        f"✗ error  {path}.size.arguments.text (line {size}): must be string, found array",
        f"✗ error  {path}.save.arguments.text (line {save - 1}): is required",
    ]
    document = json.loads(muxway("check", file, "--connect", "--json").stdout)
    assert document["ok"] is False
    assert [problem["path"] for problem in document["problems"]] == [
        f"{path}.gone.tool", f"{path}.size.arguments.text", f"{path}.save.arguments.text",
    ]  # fmt: skip
    assert document["composedTools"] == ["Keep"]


def test_check_does_not_judge_steps_of_servers_that_are_down(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """Ours: one bad server is one bad server."""
    made = config()
    made["mcpServers"]["text"] = {"command": "no-such-program"}
    result = muxway("check", write(made), "--connect")
    assert result.exit_code == 4
    assert "tools.Keep" not in result.stdout


def test_only_the_servers_of_its_steps_are_started_for_a_call(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """Ours: as for any other tool."""
    made = config()
    made["mcpServers"]["clock"] = {"command": "no-such-program"}
    result = muxway("call", "Keep", "text=a b", "-c", write(made), "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["structuredContent"]["words"] == 2
