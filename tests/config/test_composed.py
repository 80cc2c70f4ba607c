"""Composed tools as they are configured: what can be proved wrong before any server is started."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.config import model, parse_config
from muxway.config.composed import needs, uses
from muxway.config.templates import (
    BadTemplate,
    Constant,
    Operation,
    Reference,
    Text,
    parse_condition,
    parse_reference,
    parse_template,
    parse_text,
    plain,
)
from muxway.errors import ConfigError

if TYPE_CHECKING:
    from muxway.config.model import CustomTool

SERVERS = {
    "web": {"command": "x"},
    "wiki": {"command": "x", "prefix": "w", "exposedTools": [{"original": "long_name", "exposed": "ask"}]},
    "off": {"command": "x", "disabled": True},
}


def config_of(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A file with one composed tool."""
    return {"mcpServers": SERVERS, "tools": {"T": {"description": "d", "steps": [*steps], **more}}}


def tool_of(*steps: dict[str, Any], **more: Any) -> CustomTool:
    """That tool, read."""
    return parse_config(config_of(*steps, **more)).tools["T"]


def problems_of(*steps: dict[str, Any], **more: Any) -> dict[str, str]:
    """What is wrong with it: place → message."""
    with pytest.raises(ConfigError) as caught:
        parse_config(config_of(*steps, **more))
    return {problem.path: problem.message for problem in caught.value.details}


STEP: dict[str, Any] = {"name": "a", "tool": "web__search"}


# --- references -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("$5 and {x} and $x", "$5 and {x} and $x"),
        ("$${input.x}", "${input.x}"),
        ("${input.x}", Reference("input", path=("x",), written="${input.x}")),
        ("${ input.x }", Reference("input", path=("x",), written="${input.x}")),
        ("${input}", Reference("input", written="${input}")),
        ("${item.a[0][-1]}", Reference("item", path=("a", 0, -1), written="${item.a[0][-1]}")),
        ("${index}", Reference("index", written="${index}")),
        ("${steps.a.ok}", Reference("steps", "a", "ok", (), "${steps.a.ok}")),
        (
            '${steps.a-b.result["odd name"].y[2]}',
            Reference("steps", "a-b", "result", ("odd name", "y", 2), '${steps.a-b.result["odd name"].y[2]}'),
        ),
    ],
)
def test_a_string_that_is_one_reference_is_that_reference(text: str, expected: object) -> None:
    """docs/composed-tools.md#references: typed references."""
    assert parse_text(text) == expected


def test_references_inside_a_text_make_it_a_text() -> None:
    """docs/composed-tools.md#references: inside a longer string a reference becomes text."""
    text = parse_text("a ${input.x} $${b} ${index}")
    assert isinstance(text, Text)
    assert [part if isinstance(part, str) else part.written for part in text.parts] == [
        "a ", "${input.x}", " ", "${", "b} ", "${index}",
    ]  # fmt: skip
    assert plain(text) == "a ${input.x} ${b} ${index}"


@pytest.mark.parametrize(
    "inner",
    ["", "HOME", "env:HOME", "input.", "input..x", "input.x y", "input[x]", "input[0", "steps", "steps.a",
     "steps.a.resullt", "steps[0].result", "steps.a.ok.x", "index.x", "item[99999999999]", "input.x()", "1"],
)  # fmt: skip
def test_what_is_no_reference_is_refused(inner: str) -> None:
    """Ours: whoever writes ${…} expects something to happen."""
    with pytest.raises(BadTemplate):
        parse_reference(inner)


def test_a_template_is_read_at_every_depth_and_complains_with_the_place() -> None:
    """docs/composed-tools.md#check-it: every problem with its place."""
    said: list[tuple[object, str]] = []
    template = parse_template(
        {"a": [1, None, {"b": "${input.x}"}], "c": ["${nope}", "${"]}, ("t",), lambda *one: said.append(one)
    )
    assert plain(template) == {"a": [1, None, {"b": "${input.x}"}], "c": [None, None]}
    assert [path for path, _ in said] == [("t", "c", 0), ("t", "c", 1)]


# --- conditions -------------------------------------------------------------------------------

X = parse_reference("input.x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${input.x}", X),
        ("true", Constant(True)),
        ("not ${input.x}", Operation("not", (X,))),
        ("not not ${input.x}", Operation("not", (Operation("not", (X,)),))),
        ("not not not ${input.x}", Operation("not", (X,))),
        ("${input.x} == 'a b'", Operation("==", (X, Constant("a b")))),
        ('${input.x} != "a"', Operation("!=", (X, Constant("a")))),
        ("${input.x}>=-1.5", Operation(">=", (X, Constant(-1.5)))),
        (
            "${input.x} < 3 and null or 1",
            Operation("or", (Operation("and", (Operation("<", (X, Constant(3))), Constant(None))), Constant(1))),
        ),
        ("not (${input.x} or false)", Operation("not", (Operation("or", (X, Constant(False))),))),
    ],
)  # fmt: skip
def test_conditions_are_read_by_the_usual_ranks(text: str, expected: object) -> None:
    """docs/composed-tools.md#order: what `when` may say."""
    assert parse_condition(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "and", "${input.x} ==", "== 1", "${input.x} 1", "(1", "1)", "x", "__import__('os')", "1 == 1 == 1", "1 + 1",
     "${input.x", "${nope}", "'open", "(" * 30 + "1" + ")" * 30, "1 or " * 1000 + "1", "1.2.3", "12abc"],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text: str) -> None:
    """Ours: no eval, no surprises, no bottomless recursion."""
    with pytest.raises(BadTemplate):
        parse_condition(text)


# --- tools ------------------------------------------------------------------------------------


def test_a_composed_tool_is_read_whole() -> None:
    """docs/configuration.md#composed-tools: every key."""
    tool = tool_of(
        {"name": "a", "tool": "web:search", "arguments": {"q": "${input.q}"}, "timeout": "5s", "onError": "skip"},
        {"name": "b", "tool": "w.ask", "forEach": "${steps.a.result}", "maxItems": 1000, "when": "${item.ok}"},
        {"name": "c", "tool": "ask", "arguments": {"n": "${steps.a.ok}"}, "after": ["b"]},
        inputSchema={"type": "object", "properties": {"q": {"type": "string"}}},
        output={"x": "${steps.b.result[0]}"},
        deadline="30s",
        maxResultBytes=2048,
        dryRun=True,
        examples=[{"name": "e", "input": {"q": "$x ${y}"}, "fails": "z"}],
    )
    a, b, c = tool.steps
    assert (a.timeout, a.on_error, b.max_items, b.on_error) == (5.0, "skip", 1000, "fail")
    assert (needs(a), needs(b), needs(c)) == (set(), {"a"}, {"a", "b"})
    assert (uses(b), uses(c)) == ({"a"}, set())
    assert (tool.deadline, tool.max_result_bytes, tool.dry_run) == (30.0, 2048, True)
    assert tool.examples[0].input == {"q": "$x ${y}"}


def test_steps_may_be_an_object() -> None:
    """Ours: names as keys read better where order does not matter."""
    config = config_of()
    config["tools"]["T"]["steps"] = {"a": {"tool": "web__x"}, "b": {"tool": "web__y"}}
    assert [step.name for step in parse_config(config).tools["T"].steps] == ["a", "b"]
    config["tools"]["T"]["steps"] = {"a": {"tool": "web__x", "arguments": {"v": "${steps.z.ok}"}}}
    with pytest.raises(ConfigError) as caught:
        parse_config(config)
    assert [problem.path for problem in caught.value.details] == ["tools.T.steps.a.arguments.v"]


@pytest.mark.parametrize(
    ("steps", "more", "path", "said"),
    [
        ([], {}, "tools.T.steps", "1 to 100 steps"),
        ([STEP] * 101, {}, "tools.T.steps", "1 to 100 steps"),
        ([{"tool": "web__a"}], {}, "tools.T.steps.0.name", "Missing required field: name"),
        ([{"name": "a"}], {}, "tools.T.steps.0.tool", "Missing required field: tool"),
        ([STEP, STEP], {}, "tools.T.steps.1", 'two steps called "a"'),
        ([{**STEP, "name": "a.b"}], {}, "tools.T.steps.0.name", "must begin with a letter"),
        ([{**STEP, "arguments": [1]}], {}, "tools.T.steps.0.arguments", "must be an object"),
        ([{**STEP, "arguments": {"q": ["${steps.b.ok}"]}}], {}, "tools.T.steps.0.arguments.q.0", 'no step "b"'),
        ([{**STEP, "arguments": {"q": "${steps.a.ok}"}}], {}, "tools.T.steps.0.arguments.q", "gives itself"),
        ([{**STEP, "arguments": {"q": "${item}"}}], {}, "tools.T.steps.0.arguments.q", "needs `forEach`"),
        ([{**STEP, "forEach": "${item}"}], {}, "tools.T.steps.0.forEach", "needs `forEach`"),
        ([{**STEP, "forEach": "x ${input.a}"}], {}, "tools.T.steps.0.forEach", "one reference to an array"),
        ([{**STEP, "forEach": [1], "maxItems": 1001}], {}, "tools.T.steps.0.maxItems", "more than 1000"),
        ([{**STEP, "when": "1 +"}], {}, "tools.T.steps.0.when", "cannot be read"),
        ([{**STEP, "when": 3}], {}, "tools.T.steps.0.when", "must be a condition"),
        ([{**STEP, "onError": "retry"}], {}, "tools.T.steps.0.onError", "one of"),
        ([{**STEP, "after": ["z"]}], {}, "tools.T.steps.0.after.0", 'no step "z"'),
        ([{**STEP, "tool": "webb__search"}], {}, "tools.T.steps.0.tool", 'did you mean "web"?'),
        ([{**STEP, "tool": "search"}], {}, "tools.T.steps.0.tool", "write server__tool"),
        ([STEP], {"output": "${steps.q.result}"}, "tools.T.output", 'no step "q"'),
        ([STEP], {"output": ["${item}"]}, "tools.T.output.0", "needs `forEach`"),
        ([STEP], {"output": "${PATH}"}, "tools.T.output", "is no reference"),
        ([STEP], {"deadline": "11m"}, "tools.T.deadline", "callMax, 600 s"),
        ([STEP], {"inputSchema": {"type": "array"}}, "tools.T.inputSchema.type", "object"),
        ([STEP], {"inputSchema": {"properties": []}}, "tools.T.inputSchema.properties", "an object"),
        ([STEP], {"subtools": {"web": ["a"]}}, "tools.T.subtools", "either `subtools` or `steps`"),
        ([STEP], {"examples": [{"name": "x", "expect": 1, "fails": "y"}]}, "tools.T.examples.0", "either"),
        ([STEP], {"steps": 3}, "tools.T.steps", "must be an array"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    steps: list[dict[str, Any]], more: dict[str, Any], path: str, said: str
) -> None:
    """docs/composed-tools.md#check-it: references to missing steps, wrong types, endless forEach."""
    problems = problems_of(*steps, **more)
    assert said in problems[path], problems


def test_an_input_that_the_schema_does_not_have_is_a_mistake() -> None:
    """docs/composed-tools.md#check-it: `muxway check` proves references."""
    schema = {"type": "object", "properties": {"query": {}}}
    problems = problems_of({**STEP, "arguments": {"q": "${input.qery}"}}, inputSchema=schema)
    assert "did you mean `query`?" in problems["tools.T.steps.0.arguments.q"]


def test_steps_that_wait_for_each_other_are_named() -> None:
    """docs/composed-tools.md#order: absence of cycles."""
    problems = problems_of(
        {"name": "start", "tool": "web__x"},
        {"name": "a", "tool": "web__x", "arguments": {"v": "${steps.c.result}", "w": "${steps.start.ok}"}},
        {"name": "b", "tool": "web__x", "when": "${steps.a.ok}"},
        {"name": "c", "tool": "web__x", "after": ["b"]},
        {"name": "end", "tool": "web__x", "after": ["c"]},
    )
    assert problems == {"tools.T.steps": "these steps wait for each other: a → c → b → a"}


def nested(depth: int, last: str = "web__x") -> dict[str, Any]:
    tools = {
        f"T{number}": {"description": "d", "steps": [{"name": "s", "tool": f"T{number + 1}"}]}
        for number in range(1, depth)
    }
    tools[f"T{depth}"] = {"description": "d", "steps": [{"name": "s", "tool": last}]}
    return {"mcpServers": SERVERS, "tools": tools}


def test_composed_tools_may_use_each_other_to_a_depth_of_three() -> None:
    """Ours: no recursion into composed tools beyond depth 3."""
    assert len(parse_config(nested(3)).tools) == 3
    with pytest.raises(ConfigError, match="more than 3 deep"):
        parse_config(nested(4))
    with pytest.raises(ConfigError, match="these tools use each other: T1 → T2 → T1"):
        parse_config(nested(2, "T1"))
    with pytest.raises(ConfigError, match="more than 3 deep"):
        parse_config(nested(3000))


def test_doubtful_things_are_warnings() -> None:
    """Ours: a step of a server that is off, and keys of composed tools on a compound one."""
    config = parse_config(config_of({"name": "a", "tool": "off__x"}))
    assert [warning.path for warning in config.warnings] == ["tools.T.steps.0.tool"]
    compound = {"description": "d", "subtools": {"web": ["a"]}, "output": 1}
    config = parse_config({"mcpServers": SERVERS, "tools": {"T": compound}})
    assert [(warning.path, warning.message) for warning in config.warnings] == [
        ("tools.T.output", "has no effect without `steps`")
    ]


# --- anything at all --------------------------------------------------------------------------

_PIECES = st.sampled_from(
    ["${", "}", "$${", "input", "steps", ".a", ".result", ".ok", "[0]", '["x"]', "item", "index", " ", "and", "or",
     "not", "==", "<", "(", ")", "'t'", "1", "-2.5", "null", "x"]
)  # fmt: skip
_WORDS = st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=20)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=8,
)


@given(text=_WORDS)
def test_a_condition_is_read_or_refused_whatever_it_is(text: str) -> None:
    """Ours: nothing but BadTemplate comes out of the parsers."""
    for parse in (parse_condition, parse_text):
        with contextlib.suppress(BadTemplate):
            parse(text)


@given(
    tool=st.dictionaries(st.sampled_from([row.key for row in model.CUSTOM_TOOL.fields]), _VALUES),
    steps=st.lists(st.dictionaries(st.sampled_from([row.key for row in model.STEP.fields]), _VALUES), max_size=3),
)
def test_a_tool_is_read_or_refused_whatever_it_is(tool: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """docs/configuration.md#problems: a clear error, never a traceback."""
    named = [{"name": f"s{number}", "tool": "web__x", **step} for number, step in enumerate(steps)]
    with contextlib.suppress(ConfigError):
        parse_config({"mcpServers": SERVERS, "tools": {"T": {"description": "d", "steps": named, **tool}}})
