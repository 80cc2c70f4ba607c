"""Listings of many servers → one catalog."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from muxway.catalog.build import Exposure, Source, build, read_listing, same_listing
from muxway.catalog.kinds import TOOLS
from muxway.catalog.model import EMPTY, Finding
from muxway.catalog.naming import Naming

from .making import catalog_of, source, tool

GOLDEN = Path(__file__).with_name("merged_listing.json")


def found(*findings: Finding) -> list[str]:
    """The findings as their reader sees them."""
    return [str(finding) for finding in findings]


# --- reading one listing ------------------------------------------------------------------------


def test_a_definition_keeps_every_member_as_it_came() -> None:
    """docs/behaviour.md#what-passes-untouched: unknown members, nulls and number spellings of a definition survive."""
    raw = b'{"title":null,"name":"x","inputSchema":{"type":"object","maximum":1E5},"x-vendor":{"a":-0},"icons":[]}'
    (native,), findings = read_listing(TOOLS, "up", [Raw(raw)])
    assert not findings
    assert native.name == "x"
    assert [(name, bytes(value)) for name, value in native.members.items()] == [
        ("title", b"null"),
        ("inputSchema", b'{"type":"object","maximum":1E5}'),
        ("x-vendor", b'{"a":-0}'),
        ("icons", b"[]"),
    ]


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (b"null", "up: tool '#2': left out: it has no name"),
        (b'"x"', "up: tool '#2': left out: it has no name"),
        (b"[]", "up: tool '#2': left out: it has no name"),
        (b'{"inputSchema":{}}', "up: tool '#2': left out: it has no name"),
        (b'{"name":"","inputSchema":{}}', "up: tool '#2': left out: it has no name"),
        (b'{"name":7,"inputSchema":{}}', "up: tool '#2': left out: it has no name"),
        (b'{"name":null,"inputSchema":{}}', "up: tool '#2': left out: it has no name"),
        (b'{"name":"bad"}', "up: tool 'bad': left out: its inputSchema is not a JSON object"),
        (b'{"name":"bad","inputSchema":null}', "up: tool 'bad': left out: its inputSchema is not a JSON object"),
        (b'{"name":"bad","inputSchema":[]}', "up: tool 'bad': left out: its inputSchema is not a JSON object"),
        (b'{"name":"bad","inputSchema":"{}"}', "up: tool 'bad': left out: its inputSchema is not a JSON object"),
        (
            b'{"name":"a","inputSchema":{"second":1}}',
            "up: tool 'a': left out: the server lists this name twice; the first is kept",
        ),
    ],
)
def test_a_broken_definition_is_left_out_alone_and_named(broken: bytes, complaint: str) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: left out alone, with a warning, never the whole server."""
    good = [Raw(b'{"name":"%s","inputSchema":{}}' % name) for name in (b"a", b"b")]
    tools, findings = read_listing(TOOLS, "up", [good[0], Raw(broken), good[1]])
    assert [native.name for native in tools] == ["a", "b"]
    assert bytes(tools[0].members["inputSchema"]) == b"{}"
    assert found(*findings) == [complaint]


# --- merging ------------------------------------------------------------------------------------


def test_one_merged_listing_as_a_client_sees_it() -> None:
    """The golden example: two servers, a rename, a hidden tool, a bare server, a collision and a compound tool."""
    natives = {
        "files": ["read", "write", "delete"],
        "git hub": ["create_issue", "search/code"],
        "clock": ["now", "files__read"],
    }
    definitions = {
        upstream: read_listing(
            TOOLS,
            upstream,
            [
                Raw(
                    b'{"description":"%s of %s","name":%s,"inputSchema":{"type":"object","minimum":1E0},"_meta":null}'
                    % (name.encode(), upstream.encode(), json.dumps(name).encode())
                )
                for name in names
            ],
        )[0]
        for upstream, names in natives.items()
    }
    catalog = build(
        Naming(),
        [
            Source(upstream="", tools=[tool("Research", description=b'"Both."')], prefix="", own=True),
            Source(
                upstream="files",
                tools=definitions["files"],
                prefix="files",
                exposure=Exposure(hidden=frozenset(("delete",))),
            ),
            Source(
                upstream="git hub",
                tools=definitions["git hub"],
                prefix="git_hub",
                exposure=Exposure({"create_issue": "new_issue", "search/code": None}),
            ),
            Source(upstream="clock", tools=definitions["clock"], prefix=""),
        ],
    )
    listing = b"[\n" + b",\n".join(route.definition for route in catalog.routes.values()) + b"\n]\n"
    assert listing.decode() == GOLDEN.read_text(encoding="utf-8")
    assert json.loads(b"[" + catalog.page(0, None) + b"]") == json.loads(listing)
    assert found(*catalog.findings) == [
        (
            "git hub: tool 'search/code': listed as 'git_hub__search_code', because 'git_hub__search/code' is not "
            "legal for every client"
        ),
        (
            "clock: tool 'files__read': listed as 'files__read_64dd7361', because 'files__read' is already 'files''s "
            "'read'; set `prefix` or rename it in `exposedTools`"
        ),
    ]


def test_a_route_carries_the_native_name_ready_to_send() -> None:
    """docs/behaviour.md#what-passes-untouched: the native name in a call. It is encoded once, here."""
    name = 'weird "né\\" name'
    (route,) = catalog_of(source("up", name)).routes.values()
    assert route.native == name
    sent = json.loads(b"{" + route.head + b"}}")
    assert sent == {"method": "tools/call", "params": {"name": name}}
    assert route.describe()["name"] == route.public
    assert next(iter(route.describe())) == "name"


def test_the_second_of_two_equal_names_is_told_apart_and_reported() -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: the first keeps it; never silently."""
    catalog = catalog_of(source("one", "x", prefix=""), source("two", "x", prefix=""))
    first, second = catalog.routes
    assert first == "x"
    assert re.fullmatch(r"x_[0-9a-f]{8}", second)
    assert catalog.routes[second].upstream == "two"
    assert found(*catalog.findings) == [
        (
            f"two: tool 'x': listed as {second!r}, because 'x' is already 'one''s 'x'; "
            "set `prefix` or rename it in `exposedTools`"
        )
    ]


def test_a_name_that_could_be_two_tools_is_the_listed_one_and_the_other_is_told_apart() -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: one name, one tool, even if the separator is in it."""
    catalog = catalog_of(source("a", "b__c"), source("a__b", "c"))
    first, second = catalog.routes
    assert first == "a__b__c"
    assert second.startswith("a__b__c_")
    route = catalog.find("a__b__c").route
    assert route is not None
    assert (route.upstream, route.native) == ("a", "b__c")
    other = catalog.find("a__b:c").route
    assert other is not None
    assert (other.upstream, other.native) == ("a__b", "c")


@pytest.mark.parametrize(
    ("native", "why"), [("x" * 60, "too long"), ("a/b", "not legal for every client"), ("é", "not legal")]
)
def test_a_name_that_had_to_change_is_reported(native: str, why: str) -> None:
    """docs/names.md: what is too long or has other characters changes, the same in every run, and is reported."""
    catalog = catalog_of(source("up", native))
    (finding,) = catalog.findings
    assert finding.item == native
    assert why in finding.message
    assert repr(next(iter(catalog.routes))) in finding.message
    assert catalog_of(source("up", native)).routes == catalog.routes, "the same in every run"


def test_a_name_that_is_fine_is_not_reported() -> None:
    """Ours: findings are for what the owner should look at."""
    assert catalog_of(source("up", "fine"), source("bare", "too", prefix="")).findings == ()


# --- filters ------------------------------------------------------------------------------------


def test_only_exposed_tools_are_listed_renamed_where_asked() -> None:
    """docs/configuration.md#filters-and-renames: a new name stands as it is, without a prefix."""
    catalog = catalog_of(source("up", "a", "b", "c", exposed={"c": None, "a": "Alpha"}))
    assert {public: route.native for public, route in catalog.routes.items()} == {"Alpha": "a", "up__c": "c"}
    assert catalog.findings == ()
    for spelling in ("Alpha", "up__Alpha", "up:Alpha", "up.Alpha"):
        route = catalog.find(spelling).route
        assert route is not None
        assert route.native == "a"
    assert catalog.find("up__a").problem == "Tool not found: up__a"
    assert catalog.find("up__b").problem == "Tool not found: up__b"


def test_nothing_is_listed_when_nothing_is_exposed() -> None:
    """Ours: an empty list is a choice, unlike none."""
    assert catalog_of(source("up", "a", exposed={})).routes == {}
    assert list(catalog_of(source("up", "a", exposed=None)).routes) == ["up__a"]


def test_hidden_wins_over_exposed() -> None:
    """docs/configuration.md#filters-and-renames: `hiddenTools` wins. Of two contradictory wishes the safer one."""
    catalog = catalog_of(source("up", "a", "b", exposed={"a": "Alpha", "b": None}, hidden=frozenset(("a",))))
    assert list(catalog.routes) == ["up__b"]
    assert catalog.find("Alpha").route is None


def test_names_in_filters_that_no_tool_has_are_reported() -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: a mistyped filter must not look like an empty server."""
    catalog = catalog_of(source("up", "a", exposed={"a": None, "zz": "Z", "b": None}, hidden=frozenset(("c",))))
    assert found(*catalog.findings) == [
        "up: tool 'b': named in exposedTools, but the server has no such tool",
        "up: tool 'c': named in hiddenTools, but the server has no such tool",
        "up: tool 'zz': named in exposedTools, but the server has no such tool",
    ]


def test_filters_mean_native_names_of_their_own_server_only() -> None:
    """docs/configuration.md#filters-and-renames: the server's own names."""
    catalog = catalog_of(source("one", "a", hidden=frozenset(("two__a", "a"))), source("two", "a"))
    assert list(catalog.routes) == ["two__a"]


def test_a_rename_to_an_illegal_or_taken_name_is_repaired_and_reported() -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: the same in every run, never silent."""
    catalog = catalog_of(source("up", "a", "b", "c", exposed={"a": "new name", "b": "same", "c": "same"}))
    first, second, third = catalog.routes
    assert (first, second) == ("new_name", "same")
    assert third.startswith("same_")
    assert len(catalog.findings) == 2


# --- prefixes -----------------------------------------------------------------------------------


def test_a_prefix_can_be_off_or_chosen_for_one_server() -> None:
    """docs/names.md#prefixes: `prefix: ""` or `prefix: "gh"`."""
    catalog = catalog_of(source("one", "a"), source("two", "b", prefix=""), source("three", "c", prefix="gh"))
    assert list(catalog.routes) == ["one__a", "b", "gh__c"]


def test_own_compound_tools_are_never_prefixed_and_keep_their_name() -> None:
    """docs/names.md#prefixes: compound tools have the name you give them; a server cannot take it."""
    catalog = catalog_of(source("", "Research", own=True), source("evil", "Research", prefix=""))
    first, second = catalog.routes
    assert first == "Research"
    assert catalog.routes[first].upstream == ""
    assert second.startswith("Research_")
    assert [finding.upstream for finding in catalog.findings] == ["evil"]
    assert catalog.find("__Research").route is None


# --- pages --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 30), size=st.integers(1, 12))
def test_pages_together_are_the_whole(count: int, size: int) -> None:
    """docs/resources.md#pages-and-changes: cursors of our own when pageSize is set; no tool twice, none missing."""
    catalog = catalog_of(source("up", *(f"t{index}" for index in range(count))))
    pages = [catalog.page(offset, size) for offset in range(0, count, size)]
    assert b",".join(pages) == catalog.page(0, None)
    assert json.loads(b"[" + catalog.page(0, None) + b"]") == [route.describe() for route in catalog.routes.values()]
    assert catalog.page(count, size) == b""


def test_a_page_is_encoded_once_for_all_who_ask() -> None:
    """Ours: listings are encoded once per version of the catalog, not per request."""
    catalog = catalog_of(source("up", "a", "b", "c"))
    assert catalog.page(0, None) is catalog.page(0, None)
    assert catalog.page(1, 1) is catalog.page(1, 1)


# --- comparing ----------------------------------------------------------------------------------


def test_listings_are_the_same_if_no_client_could_tell() -> None:
    """docs/subscriptions.md#lists: told only of a real difference."""
    one = catalog_of(source("up", "a", "b"))
    assert same_listing(one, build(Naming(), [source("up", "a", "b")]))
    assert same_listing(one, catalog_of(source("up", "a", "b", "c", hidden=frozenset("c"))))
    assert same_listing(EMPTY, catalog_of(source("up")))
    assert not same_listing(one, catalog_of(source("up", "b", "a")))
    assert not same_listing(one, catalog_of(source("up", "a")))
    assert not same_listing(one, catalog_of(source("up", "a", "b"), source("other", "c")))


def test_a_changed_definition_is_a_difference() -> None:
    """docs/subscriptions.md#lists: what clients see has changed, be it the names or not."""
    before, after = (
        build(Naming(), [Source(upstream="up", tools=[tool("a", description=words)], prefix="up")])
        for words in (b'"old"', b'"new"')
    )
    assert not same_listing(before, after)


def test_the_nearest_names_are_offered_for_a_wrong_one() -> None:
    """docs/errors.md: `data.muxway.nearest` has like names, if any."""
    catalog = catalog_of(source("github", "create_issue", "close_issue", "list_issues", "search"))
    assert catalog.nearest("github__creat_issue")[0] == "github__create_issue"
    assert len(catalog.nearest("github__issue")) <= 3
    assert catalog.nearest("zzzzzz") == []
    assert EMPTY.nearest("a") == []


def test_an_empty_catalog_finds_nothing_and_lists_nothing() -> None:
    """Ours: without servers there is an empty list, and an error for each name."""
    assert EMPTY.page(0, None) == b""
    assert EMPTY.find("a__b").problem == "Tool not found: a__b"


def test_what_stays_is_taken_over_and_what_changes_is_made_anew() -> None:
    """Ours: with thousands of tools, a server that comes or goes costs what it has itself."""
    natives, _ = read_listing(TOOLS, "a", [Raw(b'{"name":"x","inputSchema":{"type":"object"}}')])
    one = Source(upstream="a", tools=natives, prefix="a", asked="a")
    other = Source(upstream="b", tools=natives, prefix="b", asked="b")
    first = build(Naming(), [one])
    second = build(Naming(), [other, one], first)
    assert second.routes["a__x"] is first.routes["a__x"]
    assert second.routes["b__x"].upstream == "b"
    renamed = build(Naming(), [replace(one, exposure=Exposure({"x": "a__x"}))], first)
    assert renamed.routes["a__x"].alias == "a__x"
    fresh, _ = read_listing(TOOLS, "a", [Raw(b'{"name":"x","description":"new","inputSchema":{"type":"object"}}')])
    third = build(Naming(), [replace(one, tools=fresh)], first)
    assert b"new" in third.routes["a__x"].definition
