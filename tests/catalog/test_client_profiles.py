"""What clients cannot take, and what they get instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.catalog import flat_schemas
from muxway.catalog.build import Source, build
from muxway.catalog.client_profiles import PROFILES, ClientProfile, adapt, changes_of, cut, profile_of
from muxway.catalog.model import Catalog, NativeTool
from muxway.catalog.naming import Naming

STRICT = ClientProfile(
    name="strict", title="Strict", clients=(), longest_name=20, portable=True, refs=False, unions=False, most_tools=2
)


def catalog(separator: Any = "__", **tools: dict[str, Any]) -> Catalog:
    natives = [
        NativeTool(
            name,
            {key: Raw(json.dumps(one).encode()) for key, one in {"inputSchema": {"type": "object"}, **tool}.items()},
        )
        for name, tool in tools.items()
    ]
    return build(Naming.of(separator, None), [Source(upstream="up", prefix="up", tools=natives)])


def listed(made: Catalog) -> dict[str, Any]:
    """Name → definition, as a client sees it."""
    return {tool["name"]: tool for tool in json.loads(b"[" + made.page(0, None) + b"]")}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("claude-ai", "claude-desktop"),
        ("claude-code", "claude-code"),
        ("claude-code/2.1", "claude-code"),
        ("cursor-vscode", "cursor"),
        ("Cursor", "cursor"),
        ("Visual Studio Code", "vscode"),
        ("Visual Studio Code - Insiders", "vscode"),
        ("github-copilot-developer", "copilot-cli"),
        ("windsurf-client", "windsurf"),
        ("opencode", "opencode"),
        ("claude-codex", ""),
        ("mcp-inspector", ""),
        ("", ""),
    ],
)
def test_clients_are_known_by_how_their_name_begins(said: str, name: str) -> None:
    """docs/names.md#clients."""
    assert profile_of(json.dumps({"name": said, "version": "1"}).encode()) == name


@pytest.mark.parametrize("info", [None, b"{}", b'{"name":7}', b"[]", b'{"name":"' + b"x" * 100_000 + b'"}'])
def test_who_does_not_say_what_it_is_is_nobody(info: bytes | None) -> None:
    """Ours: what a client says of itself may be anything."""
    assert profile_of(info) == ""


def test_what_every_client_takes_is_the_very_same() -> None:
    """docs/names.md#clients: nothing is done without need."""
    tools = catalog(plain={"description": "Does it.", "inputSchema": {"type": "object", "properties": {"a": {}}}})
    for profile in PROFILES.values():
        assert adapt(tools, profile).catalog is tools
        assert changes_of(tools.routes["up__plain"], profile) == ()


def test_names_are_made_to_fit_and_lead_to_their_tools() -> None:
    """docs/names.md#clients: the name in the list is another, and all others stay good."""
    tools = catalog(":", **{"a": {}, "b c": {}, "a_long_name_of_a_tool": {}})
    made = adapt(tools, STRICT)
    assert [*listed(made.catalog)][:2] == ["up_a", "up_b_c"]
    assert all(len(name) <= 20 for name in listed(made.catalog))
    assert [str(change) for change in made.changes][:1] == ["up:a: listed as up_a"]
    for name, route in made.catalog.routes.items():
        for spelling in (name, route.public, f"up.{route.native}", f"up__{route.native}"):
            found = made.catalog.find(spelling).route
            assert found is not None
            assert found.native == route.native
        assert route.public == tools.find(route.public).route.public  # type: ignore[union-attr]


def test_two_names_that_become_the_same_are_told_apart() -> None:
    """Ours: `a.b` and `a:b` are one name to a client that knows neither."""
    made = adapt(catalog(":", **{"a.b": {}, "a-b": {}, "a_b": {}, "a b": {}}), STRICT)
    assert len(listed(made.catalog)) == 4
    again = adapt(catalog(":", **{"a.b": {}, "a-b": {}, "a_b": {}, "a b": {}}), STRICT)
    assert [*listed(again.catalog)] == [*listed(made.catalog)]


def test_too_many_tools_are_said_and_stay() -> None:
    """docs/names.md#clients: which tools to leave out is not ours to choose."""
    made = adapt(catalog(a={}, b={}, c={}), STRICT)
    assert len(made.catalog.routes) == 3
    assert made.warnings == ("Strict takes 2 tools, and there are 3: give it a view with fewer",)


REFS = {
    "type": "object",
    "$defs": {"Kind": {"enum": ["a", "b"]}, "Query": {"type": "object", "properties": {"k": {"$ref": "#/$defs/Kind"}}}},
    "properties": {"q": {"$ref": "#/$defs/Query", "description": "What to look for"}},
    "required": ["q"],
}


def test_references_are_replaced_by_what_they_lead_to() -> None:
    """docs/names.md#clients: clients send schemas without `$defs` to their models."""
    made = adapt(catalog(t={"inputSchema": REFS}), STRICT)
    assert listed(made.catalog)["up__t"]["inputSchema"] == {
        "type": "object",
        "properties": {
            "q": {"type": "object", "properties": {"k": {"enum": ["a", "b"]}}, "description": "What to look for"}
        },
        "required": ["q"],
    }
    assert [change.what for change in made.changes] == ["$ref replaced by what they lead to"]


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"$ref": "#/$defs/Tree"}},
        {"a": {"$ref": "#"}},
        {"a": {"$ref": "https://example.com/schema"}},
        {"a": {"$ref": "#/$defs/None"}},
        {"a": {"$ref": "#/$defs/L0"}},
    ],
    ids=["circle", "root", "elsewhere", "nowhere", "bomb"],
)
def test_references_that_cannot_be_replaced_stay_and_are_told(properties: dict[str, Any]) -> None:
    """docs/names.md#clients: bounded, whatever a server lists."""
    levels = {
        f"L{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/L{n + 1}"} for k in "abcd"}} for n in range(12)
    }
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}
    schema = {"type": "object", "$defs": {"Tree": tree, **levels, "L12": {"type": "string"}}, "properties": properties}
    made = adapt(catalog(t={"inputSchema": schema}), STRICT)
    assert listed(made.catalog)["up__t"]["inputSchema"] == schema
    assert "its $ref stay" in made.changes[0].what


def test_all_schemas_of_a_server_together_are_bounded() -> None:
    """docs/names.md#clients: and those of other servers do not pay for it."""
    levels = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 4} for n in range(12)}
    bomb = {"type": "object", "$defs": {**levels, "L12": {}}, "properties": {"a": {"$ref": "#/$defs/L0"}}}

    def native(name: str, schema: Any) -> NativeTool:
        return NativeTool(name, {"inputSchema": Raw(json.dumps(schema).encode())})

    sources = [
        Source(upstream="bad", prefix="bad", tools=[*(native(f"t{n}", bomb) for n in range(30)), native("last", REFS)]),
        Source(upstream="good", prefix="good", tools=[native("last", REFS)]),
    ]
    made = listed(adapt(build(Naming.of("__", None), sources), PROFILES["claude-desktop"]).catalog)
    assert "$ref" in json.dumps(made["bad__last"])
    assert "$ref" not in json.dumps(made["good__last"])


def test_a_property_of_many_kinds_may_be_anything() -> None:
    """Ours: a thousand branches would be compared with each other."""
    branches = [{"properties": {"kind": {"const": n}}, "required": ["kind"]} for n in range(1000)]
    made, _ = flat_schemas.merged({"type": "object", "oneOf": branches})
    assert made["properties"] == {"kind": {}}
    assert made["required"] == ["kind"]


def test_a_union_at_the_top_becomes_one_object_and_the_rest_is_said_in_words() -> None:
    """docs/names.md#clients: APIs of models refuse the whole request for it."""
    schema = {
        "anyOf": [
            {
                "type": "object",
                "properties": {"page": {"type": "string"}, "content": {"type": "string"}},
                "required": ["page", "content"],
            },
            {
                "type": "object",
                "properties": {"page": {"type": "string"}, "url": {"type": "string"}},
                "required": ["page", "url"],
            },
        ]
    }
    tool = listed(adapt(catalog(t={"description": "Attach it.", "inputSchema": schema}), STRICT).catalog)["up__t"]
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {"page": {"type": "string"}, "content": {"type": "string"}, "url": {"type": "string"}},
        "required": ["page"],
    }
    assert tool["description"] == "Attach it. Give at least one of these: `content`; `url`."


@pytest.mark.parametrize(
    ("schema", "required", "note"),
    [
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, [], ["Give exactly one of these: `a`; `b`."]),
        ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, ["a", "b"], []),
        ({"required": ["c"], "anyOf": [{"required": ["a", "c"]}, {"required": ["a"]}]}, ["c", "a"], []),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}], "$defs": {"A": {"required": ["a"]}}}, ["a"], []),
        ({"oneOf": []}, [], []),
        ({"oneOf": [True, 7]}, [], []),
    ],
)  # fmt: skip
def test_what_a_union_requires(schema: dict[str, Any], required: list[str], note: list[str]) -> None:
    """Ours: of `allOf` everything, of the others what all have in common."""
    merged, notes = flat_schemas.merged(schema)
    assert merged.get("required", []) == required
    assert notes == note
    assert merged["type"] == "object"
    assert not {"oneOf", "anyOf", "allOf"} & merged.keys()


def test_a_property_that_differs_between_the_branches_may_be_either() -> None:
    """Ours: nothing that was valid becomes invalid."""
    merged, _ = flat_schemas.merged(
        {"oneOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "number"}}}]}
    )
    assert merged["properties"]["a"] == {"anyOf": [{"type": "string"}, {"type": "number"}]}


def test_unions_further_down_stay() -> None:
    """docs/names.md#clients: they are taken."""
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    tools = catalog(t={"inputSchema": schema})
    assert adapt(tools, STRICT).catalog is tools


def test_long_descriptions_end_with_a_sentence() -> None:
    """docs/names.md#clients: Claude Code would cut them in the middle of a word, and say nothing."""
    text = "It does this. " * 400
    made = adapt(catalog(t={"description": text}), PROFILES["claude-code"])
    short = listed(made.catalog)["up__t"]["description"]
    assert len(short) <= 2048
    assert short.endswith("does this. …")
    assert made.changes[0].what == "description cut from 5,600 to 2,048 characters"


@given(text=st.text(), limit=st.integers(2, 50))
def test_what_is_cut_fits(text: str, limit: int) -> None:
    assert len(cut(text, limit)) <= limit or len(text) <= limit


def test_numbers_that_python_cannot_hold_are_left_alone() -> None:
    """docs/behaviour.md#what-passes-untouched: 1e999 is JSON."""
    schema = Raw(b'{"type":"object","anyOf":[{"maximum":1e999}]}')
    tools = build(Naming(), [Source(upstream="up", prefix="up", tools=[NativeTool("t", {"inputSchema": schema})])])
    assert b"1e999" in adapt(tools, STRICT).catalog.page(0, None)
