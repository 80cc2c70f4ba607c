"""Shapes: what a client sees of a tool, and what its server gets for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.catalog.build import Exposure, Source, build
from muxway.catalog.globs import Globs
from muxway.catalog.model import Catalog, NativeTool
from muxway.catalog.naming import Naming
from muxway.catalog.selection import Selection
from muxway.config import parse_server
from muxway.errors import InvalidParams

if TYPE_CHECKING:
    from muxway.catalog.shaping import Shaping

SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": "Query", "x-odd": 1},
        "org": {"type": "string"},
        "limit": {"type": "integer"},
        "deep": {"type": "boolean"},
    },
    "required": ["q", "org"],
    "additionalProperties": False,
}
TOOL = {
    "title": "Search",
    "description": "Searches.",
    "inputSchema": SCHEMA,
    "outputSchema": {"type": "object"},
    "annotations": {"openWorldHint": True},
    "x-vendor": {"n": 1.0},
}


def native(name: str, definition: dict[str, Any] | None = None) -> NativeTool:
    return NativeTool(name, {key: Raw(json.dumps(value).encode()) for key, value in (definition or TOOL).items()})


def shaped(shape: dict[str, Any], *names: str, environ: dict[str, str] | None = None, **keys: Any) -> Catalog:
    """The catalog of a server with such a configuration and tools of these names."""
    config = parse_server("s", {"command": "x", "shape": shape, **keys}, environ=environ or {})
    exposed = None if config.exposed_tools is None else {one.original: one.exposed for one in config.exposed_tools}
    source = Source(
        upstream="s",
        prefix="s",
        tools=[native(name) for name in names or ("search",)],
        exposure=Exposure(exposed, frozenset(config.hidden_tools), config.read_only, config.shape),
    )
    return build(Naming(), [source])


def only(catalog: Catalog) -> dict[str, Any]:
    (route,) = catalog.routes.values()
    return route.describe()


def shaping(catalog: Catalog) -> Shaping:
    (route,) = catalog.routes.values()
    assert route.shape is not None
    return route.shape


def sent(catalog: Catalog, arguments: dict[str, Any] | None) -> dict[str, Any]:
    """What the server gets for these arguments."""
    raw = None if arguments is None else Raw(json.dumps(arguments).encode())
    return json.loads(bytes(shaping(catalog).arguments(raw)))


def notes(catalog: Catalog) -> list[str]:
    return [str(finding) for finding in catalog.findings]


# --- definitions ------------------------------------------------------------------------------


def test_name_title_description_and_annotations_are_replaced_and_nothing_else() -> None:
    """docs/shaping.md#how-it-works: what a shape does not name stays."""
    catalog = shaped(
        {"search": {"name": "find", "title": "T", "description": "D", "annotations": {"readOnlyHint": True}}}
    )
    annotations = {"openWorldHint": True, "readOnlyHint": True}
    assert only(catalog) == {"name": "find", **TOOL, "title": "T", "description": "D", "annotations": annotations}
    (route,) = catalog.routes.values()
    assert route.shape is None, "calls need nothing, so they pay nothing"
    assert route.native == "search"
    assert catalog.find("s:find").route is route
    assert catalog.find("s__search").route is None


def test_a_tool_without_a_shape_is_untouched() -> None:
    """docs/shaping.md#how-it-works: a tool without a shape passes as before, at the same speed."""
    catalog = shaped({"a": {"description": "D"}}, "a", "b")
    plain = shaped({}, "a", "b")
    assert catalog.routes["s__b"] == plain.routes["s__b"]
    assert catalog.routes["s__b"].shape is None


def test_arguments_are_hidden_renamed_described_defaulted_and_restricted_in_the_schema() -> None:
    """docs/shaping.md."""
    catalog = shaped(
        {
            "search": {
                "arguments": {
                    "q": {"rename": "query", "description": "Words", "pattern": "^[a-z]+$"},
                    "org": {"hide": True, "value": "acme"},
                    "limit": {"default": 5, "enum": [5, 10]},
                }
            }
        }
    )
    assert only(catalog)["inputSchema"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words", "x-odd": 1, "pattern": "^[a-z]+$"},
            "limit": {"type": "integer", "default": 5, "enum": [5, 10]},
            "deep": {"type": "boolean"},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert list(only(catalog)["inputSchema"]["properties"]) == ["query", "limit", "deep"]
    assert notes(catalog) == []


def test_required_goes_when_nothing_is_left_of_it() -> None:
    """Ours: JSON Schema of old drafts wants at least one."""
    catalog = shaped({"search": {"arguments": {"q": {"default": "x"}, "org": {"hide": True, "value": "a"}}}})
    assert "required" not in only(catalog)["inputSchema"]


def test_a_result_expression_takes_the_output_schema_away() -> None:
    """docs/shaping.md#how-it-works: what comes out does not follow it any more."""
    assert "outputSchema" not in only(shaped({"search": {"result": "items"}}))


def test_what_patterns_say_comes_first_and_the_name_itself_wins() -> None:
    """docs/shaping.md."""
    catalog = shaped(
        {
            "search": {"description": "mine", "arguments": {"org": {"hide": True, "value": "own"}}},
            "*": {"description": "all", "title": "all", "arguments": {"org": {"hide": True, "value": "all"}}},
        },
        "search",
        "other",
    )
    texts = {
        name: (route.describe()["title"], route.describe()["description"]) for name, route in catalog.routes.items()
    }
    assert texts == {"s__search": ("all", "mine"), "s__other": ("all", "all")}
    values = {name: dict(route.shape.fixed) for name, route in catalog.routes.items() if route.shape}
    assert values == {"s__search": {"org": b'"own"'}, "s__other": {"org": b'"all"'}}


# --- calls ------------------------------------------------------------------------------------


def test_arguments_are_mapped_back() -> None:
    """docs/shaping.md#how-it-works: fixed values put in, renames undone, defaults filled."""
    catalog = shaped(
        {
            "search": {
                "arguments": {
                    "q": {"rename": "query"},
                    "org": {"hide": True, "value": {"a": [1, None]}},
                    "limit": {"default": 5},
                }
            }
        }
    )
    assert sent(catalog, {"query": "x", "deep": True}) == {"q": "x", "deep": True, "limit": 5, "org": {"a": [1, None]}}
    assert sent(catalog, {"query": "x", "limit": 7})["limit"] == 7
    assert sent(catalog, None) == {"limit": 5, "org": {"a": [1, None]}}


def test_numbers_pass_as_they_were_written() -> None:
    """README: nothing lost."""
    catalog = shaped({"search": {"arguments": {"q": {"rename": "query"}}}})
    raw = Raw(b'{"query": 1.0, "limit": 123456789012345678901234567890}')
    assert bytes(shaping(catalog).arguments(raw)) == b'{"q":1.0,"limit":123456789012345678901234567890}'


def test_two_arguments_may_swap_their_names() -> None:
    """Ours: the names are those after all changes."""
    catalog = shaped({"search": {"arguments": {"q": {"rename": "org"}, "org": {"rename": "q"}}}})
    assert sent(catalog, {"q": 1, "org": 2}) == {"org": 1, "q": 2}
    assert notes(catalog) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"org": "other"}, 's__search: there is no argument "org"'),
        ({"q": "x"}, 's__search: there is no argument "q"; it is called "query" here'),
        ({"query": "UPPER"}, 's__search: argument "query" must be text that matches ^[a-z]+$'),
        ({"query": 3}, 's__search: argument "query" must be text that matches ^[a-z]+$'),
        ({"limit": 7}, 's__search: argument "limit" must be one of 5, 10, "all"'),
        ({"limit": True}, 's__search: argument "limit" must be one of 5, 10, "all"'),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(arguments: dict[str, Any], why: str) -> None:
    """docs/errors.md: -32602 that says which argument and what is allowed."""
    catalog = shaped(
        {
            "search": {
                "arguments": {
                    "q": {"rename": "query", "pattern": "^[a-z]+$"},
                    "org": {"hide": True, "value": "acme"},
                    "limit": {"enum": [5, 10, "all"]},
                }
            }
        }
    )
    with pytest.raises(InvalidParams) as refused:
        sent(catalog, arguments)
    assert refused.value.message == why
    assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("argument", "text", "expected"),
    [("org", "7", "7"), ("limit", " 7 ", 7), ("limit", "seven", "seven"), ("deep", "true", True), ("deep", "1", "1")],
)
def test_a_variable_becomes_what_its_argument_takes(argument: str, text: str, expected: object) -> None:
    """docs/shaping.md: a variable is text, a limit is a number."""
    shape = {"search": {"arguments": {argument: {"hide": True, "env": "THE_VALUE"}}}}
    catalog = shaped(shape, environ={"THE_VALUE": text})
    assert sent(catalog, {})[argument] == expected
    wrong = argument != "org" and isinstance(expected, str)
    assert bool(notes(catalog)) == wrong
    assert "THE_VALUE" not in repr(catalog.routes)
    assert "seven" not in repr(shaping(catalog)) + "".join(notes(catalog))


@given(
    arguments=st.dictionaries(st.sampled_from(["q", "org", "limit", "deep"]), st.integers(), max_size=4),
    renames=st.permutations(["q", "org", "limit", "deep"]),
)
def test_renaming_there_and_back_changes_nothing(arguments: dict[str, int], renames: list[str]) -> None:
    """Ours: a law of renames, swaps and circles included."""
    new = dict(zip(["q", "org", "limit", "deep"], renames, strict=True))
    catalog = shaped({"search": {"arguments": {name: {"rename": name_} for name, name_ in new.items()}}})
    (route,) = catalog.routes.values()
    if route.shape is not None:
        assert sent(catalog, {new[name]: value for name, value in arguments.items()}) == arguments


# --- results ----------------------------------------------------------------------------------


def reshaped(expression: str, result: dict[str, Any]) -> dict[str, Any]:
    return json.loads(bytes(shaping(shaped({"search": {"result": expression}})).reshape(json.dumps(result).encode())))


TEXT = {"content": [{"type": "text", "text": '{"items":[{"n":"a","x":1},\n{"n":"b","x":2}]}'}], "_meta": {"k": 1}}


@pytest.mark.parametrize(
    ("expression", "structured", "text"),
    [
        ("items[].n", {"result": ["a", "b"]}, '["a","b"]'),
        ("items[0]", {"n": "a", "x": 1}, '{"n":"a","x":1}'),
        ("{names: items[].n}", {"names": ["a", "b"]}, '{"names":["a","b"]}'),
        ("items[0].n", None, "a"),
        ("nothing", {"result": None}, "null"),
        ("length(items)", {"result": 2}, "2"),
    ],
)
def test_a_result_is_picked_from(expression: str, structured: object, text: str) -> None:
    """docs/shaping.md#how-it-works: on the structured content, or on the JSON that its text is."""
    expected: dict[str, Any] = {"_meta": {"k": 1}, "content": [{"type": "text", "text": text}]}
    if structured is not None:
        expected["structuredContent"] = structured
    assert reshaped(expression, TEXT) == expected
    data = json.loads(TEXT["content"][0]["text"])
    assert reshaped(expression, {**TEXT, "content": [], "structuredContent": data}) == expected


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "no"}], "isError": True},
        {"resultType": "input_required", "inputRequests": {}},
        {"taskId": "t", "status": "working"},
    ],
)
def test_failures_questions_and_tasks_are_left_alone(result: dict[str, Any]) -> None:
    """Ours: there is nothing to pick from."""
    assert reshaped("items", result) == result


@pytest.mark.parametrize(
    ("expression", "result", "why"),
    [
        ("items", {"content": [{"type": "text", "text": "plain words"}]}, "it is no JSON"),
        ("items", {"content": []}, "it has neither structured content nor a single text"),
        ("items", {"content": [{"type": "image", "data": ""}]}, "it has neither structured content"),
        ("length(a)", {"content": [], "structuredContent": {"a": 1}}, "length()"),
        ("&a", {"content": [], "structuredContent": {"a": 1}}, "what it gives is no JSON"),
        ("sort(a)", {"content": [], "structuredContent": {"a": [1, "x"]}}, "sort"),
    ],
)
def test_an_expression_that_fails_says_which_shape_it_was(expression: str, result: dict[str, Any], why: str) -> None:
    """docs/shaping.md#how-it-works: the call fails alone with a message that names the shape."""
    answer = reshaped(expression, result)
    assert answer["isError"] is True
    assert "structuredContent" not in answer
    text = answer["content"][0]["text"]
    assert text.startswith('s__search was run, but its result could not be reshaped by shape "search": ')
    assert why in text


def test_a_result_that_cannot_be_read_is_not_passed_on() -> None:
    """Ours: what a shape takes out must not come through because there is too much of it."""
    deep = b'{"content":[],"structuredContent":{"secret":' + b"[" * 5000 + b"]" * 5000 + b"}}"
    answer = json.loads(bytes(shaping(shaped({"search": {"result": "a"}})).reshape(deep)))
    assert answer["isError"] is True
    assert "it cannot be read" in answer["content"][0]["text"]


# --- findings ---------------------------------------------------------------------------------

FOR_SEARCH = "s: tool 'search': shape \"search\": "


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"serach": {"title": "T"}}, "s: tool 'serach': named in shape, but the server has no such tool"),
        ({"get_*": {"title": "T"}}, "s: tool 'get_*': named in shape, but matches none"),
        (
            {"search": {"arguments": {"x": {"hide": True}}}},
            FOR_SEARCH + 'argument "x" does not exist; there are: q, org, limit, deep',
        ),
        (
            {"s*": {"arguments": {"x": {"hide": True}}}},
            "s: tool 's*': no tool that its shape matches has an argument \"x\"",
        ),
        (
            {"search": {"arguments": {"org": {"hide": True}}}},
            FOR_SEARCH + 'argument "org" is hidden, but the server needs it, so that every call will fail: '
            "give it a `value` or `env`",
        ),
        (
            {"search": {"arguments": {"q": {"rename": "limit"}}}},
            FOR_SEARCH + 'argument "q" cannot be called "limit": there is another one of that name',
        ),
    ],
)
def test_what_a_shape_asks_for_in_vain_is_told(shape: dict[str, Any], why: str) -> None:
    """docs/shaping.md#what-is-checked: shapes that match nothing, arguments that do not exist, each with its place."""
    assert notes(shaped(shape)) == [why]


def test_two_tools_that_end_up_with_one_name_are_told_apart() -> None:
    """docs/shaping.md#what-is-checked: a name that is taken."""
    catalog = shaped({"a": {"name": "s__b"}}, "a", "b")
    assert [route.native for route in catalog.routes.values()] == ["a", "b"]
    assert len(catalog.routes) == 2
    assert "already 's''s 'a'" in notes(catalog)[0]


def test_an_open_schema_takes_any_argument() -> None:
    """Ours: a server that does not say what it takes may take what its shape says."""
    config = parse_server("s", {"command": "x", "shape": {"t": {"arguments": {"k": {"hide": True, "value": 1}}}}})
    tool = native("t", {"inputSchema": {"type": "object"}})
    catalog = build(Naming(), [Source(upstream="s", prefix="s", tools=[tool], exposure=Exposure(shapes=config.shape))])
    assert sent(catalog, {"z": 1}) == {"z": 1, "k": 1}
    assert only(catalog)["inputSchema"] == {"type": "object"}
    assert notes(catalog) == []


# --- globs and annotations --------------------------------------------------------------------


def test_tools_are_shown_and_hidden_by_glob() -> None:
    """docs/configuration.md#filters-and-renames: names or globs."""
    names = ("get_a", "get_b", "list_a", "drop_a", "odd*")
    catalog = shaped({}, *names, exposedTools=["get_*", "list_a", "odd*", "none_*"], hiddenTools=["*_b", "gone"])
    assert list(catalog.routes) == ["s__get_a", "s__list_a", "s__odd_"]
    assert [note for note in notes(catalog) if "named in" in note] == [
        "s: tool 'gone': named in hiddenTools, but the server has no such tool",
        "s: tool 'none_*': named in exposedTools, but matches none",
    ]


def test_read_only_shows_what_says_so_itself_or_by_its_shape() -> None:
    """docs/configuration.md#filters-and-renames: `readOnly`."""
    reads = {**TOOL, "annotations": {"readOnlyHint": True}}
    writes = {**TOOL, "annotations": {"readOnlyHint": False}}
    config = parse_server("s", {"command": "x", "shape": {"c": {"annotations": {"readOnlyHint": True}}}})
    tools = [native("a", reads), native("b", writes), native("c"), native("d")]
    source = Source(upstream="s", prefix="s", tools=tools, exposure=Exposure(shapes=config.shape, read_only=True))
    assert list(build(Naming(), [source]).routes) == ["s__a", "s__c"]
    none = build(Naming(), [Source(upstream="s", prefix="s", tools=[native("d")], exposure=Exposure(read_only=True))])
    assert "readOnly shows none of its tools" in notes(none)[0]


def test_a_hidden_tool_keeps_its_shape_for_who_reaches_it_by_name() -> None:
    """Ours: a fixed argument holds for compound tools too."""
    catalog = shaped({"search": {"arguments": {"org": {"hide": True, "value": "a"}}}}, hiddenTools=["search"])
    assert not catalog.routes
    assert set(catalog.shapes) == {("s", "search")}


# --- views ------------------------------------------------------------------------------------


def test_a_view_shapes_what_the_server_has_shaped() -> None:
    """docs/views.md#what-is-in-it: by public name, on top of the server's own."""
    inner = {"search": {"name": "find", "arguments": {"q": {"rename": "query"}}, "result": "items"}}
    outer = {"find": {"name": "look", "arguments": {"query": {"rename": "words"}}, "result": "result[0]"}}
    catalog = shaped(inner)
    wanted = parse_server("v", {"command": "x", "shape": outer}).shape
    view = Selection(view="v", shapes=wanted).of_tools(catalog, Naming())
    assert list(view.routes) == ["look"]
    assert "words" in only(view)["inputSchema"]["properties"]
    assert sent(view, {"words": "x"}) == {"q": "x"}
    result = shaping(view).reshape(b'{"content":[],"structuredContent":{"items":["one","two"]}}')
    assert json.loads(bytes(result))["content"][0]["text"] == "one"
    assert list(catalog.routes) == ["find"], "the whole is as it was"


def test_names_in_a_view_that_clash_are_told() -> None:
    """docs/shaping.md#what-is-checked: a name that is taken, a shape that matches no tool."""
    wanted = parse_server("v", {"command": "x", "shape": {"s__a": {"name": "s__b"}, "s__z": {"title": "T"}}}).shape
    catalog = shaped({}, "a", "b")
    view = Selection(view="v", shapes=wanted, tools=Globs(["s__*", "none*"])).of_tools(catalog, Naming())
    assert list(view.routes) == ["s__a", "s__b"]
    assert notes(view) == [
        "view \"v\": tool 's__a': shape \"s__a\": it cannot be called 's__b', which another tool is",
        "view \"v\": tool 'none*': named in tools, but matches none",
        "view \"v\": tool 's__z': named in shape, but the view has no such tool",
    ]
