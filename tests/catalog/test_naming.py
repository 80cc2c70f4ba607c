"""Laws of public names: legal, reversible, stable."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.catalog.build import assign_prefixes
from muxway.catalog.naming import SEPARATORS, Naming, Separator, has_prefix, spellings

from .making import catalog_of, merged, publics, source

PORTABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,49}")

_any = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
_tricky = st.sampled_from(
    ("a", "b", "a__b", "b__c", "a_b", "a b", "a.b", "a:b", "c", "_", "__", "1st", "-x", "é", "中文", "x" * 49, "y" * 80)
)
names = st.one_of(_tricky, _any)
offers = st.dictionaries(names, st.lists(names, unique=True, max_size=4), max_size=4)
namings = st.sampled_from(SEPARATORS).map(lambda separator: Naming.of(separator, None))

LAW = settings(max_examples=150, deadline=None)


@LAW
@given(offers)
def test_public_names_suit_the_strictest_client(offers: dict[str, list[str]]) -> None:
    """docs/names.md: model APIs refuse the whole request for one name that does not fit."""
    for public in merged(offers).routes:
        assert PORTABLE.fullmatch(public), public


@LAW
@given(offers=offers, naming=namings)
def test_public_names_lead_back_to_the_same_tool(offers: dict[str, list[str]], naming: Naming) -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: every tool has one name, every name one tool."""
    catalog = merged(offers, naming)
    every = {(upstream, native) for upstream, tools in offers.items() for native in tools}
    assert publics(catalog).keys() == every
    assert len(catalog.routes) == len(every)
    for (upstream, native), public in publics(catalog).items():
        route = catalog.find(public).route
        assert route is not None
        assert (route.upstream, route.native, route.public) == (upstream, native, public)
        assert len(public) <= naming.limit


@LAW
@given(offers=offers, naming=namings)
def test_all_three_spellings_lead_to_the_same_tool_unless_they_could_be_two(
    offers: dict[str, list[str]], naming: Naming
) -> None:
    """docs/names.md#what-a-call-may-say: whatever is listed, any spelling works when it is unambiguous."""
    catalog = merged(offers, naming)
    written = Counter(
        spelling
        for upstream, tools in offers.items()
        for native in tools
        for spelling in {*spellings(upstream, native)}
    )
    for (upstream, native), public in publics(catalog).items():
        for spelling in spellings(upstream, native):
            found = catalog.find(spelling)
            listed = catalog.routes.get(spelling)
            if listed is not None:
                assert found.route is listed
            elif written[spelling] == 1:
                assert found.route is catalog.routes[public]
            else:
                assert found.route is None
                assert f"ambiguous: {spelling} may be " in (found.problem or "")
                assert public in (found.problem or "")


@LAW
@given(offers=offers, newcomer=names, tools=st.lists(names, unique=True, max_size=4), naming=namings)
def test_one_more_upstream_changes_no_name_of_the_earlier_ones(
    offers: dict[str, list[str]], newcomer: str, tools: list[str], naming: Naming
) -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: the first in the order of the config keeps its name."""
    if newcomer in offers:
        return
    before = publics(merged(offers, naming))
    after = publics(merged({**offers, newcomer: tools}, naming))
    assert {tool: after[tool] for tool in before} == before


@LAW
@given(offers=offers, data=st.data())
def test_who_is_there_changes_no_prefix(offers: dict[str, list[str]], data: st.DataObject) -> None:
    """Ours: prefixes come of the configuration alone, so a server that is late or gone renames nobody."""
    prefixes = assign_prefixes(Naming(), dict.fromkeys(offers))
    assert len({*prefixes.values()}) == len(prefixes)
    there = data.draw(st.sets(st.sampled_from(sorted(offers)))) if offers else set[str]()
    catalog = merged({name: offers[name] for name in there}, configured=list(offers))
    for (upstream, native), public in publics(catalog).items():
        asked = Naming().public(prefixes[upstream], native)
        assert public == asked or public.startswith(asked[: Naming().limit - 9] + "_")


@LAW
@given(offers)
def test_the_order_is_that_of_the_configuration_then_of_each_upstream(offers: dict[str, list[str]]) -> None:
    """docs/names.md#order."""
    catalog = merged(offers)
    assert list(publics(catalog)) == [(upstream, native) for upstream, tools in offers.items() for native in tools]


@LAW
@given(name=names, identity=names, other=names, limit=st.integers(16, 64))
def test_a_shortened_name_fits_and_tells_its_tools_apart(name: str, identity: str, other: str, limit: int) -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: too long is cut, with a hash that stays the same."""
    naming = Naming("__", limit)
    fitted = naming.fit(naming.legal(name * 10), identity)
    assert len(fitted) <= limit
    assert fitted == naming.fit(naming.legal(name * 10), identity)
    if identity != other:
        assert naming.distinct(name, identity) != naming.distinct(name, other)


@pytest.mark.parametrize(
    ("separator", "prefix", "native", "public"),
    [
        ("__", "github", "create_issue", "github__create_issue"),
        (":", "github", "create_issue", "github:create_issue"),
        (".", "github", "create_issue", "github.create_issue"),
        ("__", "", "create_issue", "create_issue"),
        ("__", "my server", "a.b/c", "my_server__a_b_c"),
        (":", "my server", "a.b/c é", "my server:a.b/c é"),
        (":", "a", "tab\there", "a:tab_here"),
        ("__", "1st", "x", "_1st__x"),
        ("__", "", "9", "_9"),
        ("__", "", "-", "_-"),
        ("__", "name_12345678", "文", "name_12345678__name_4d505591"),
        ("__", "u", "x" * 47, "u__" + "x" * 47),
        ("__", "u", "x" * 48, "u__" + "x" * 38 + "_15376770"),
    ],
)
def test_names_as_people_will_see_them(separator: Separator, prefix: str, native: str, public: str) -> None:
    """docs/names.md, by example. The hash is part of the promise: clients keep names in their settings."""
    assert Naming.of(separator, None).public(prefix, native) == public


@pytest.mark.parametrize(("separator", "limit"), [("__", 50), (":", 128), (".", 128)])
def test_each_separator_has_its_own_length_limit(separator: Separator, limit: int) -> None:
    """Ours: `mcp__muxway__` before a name must fit in 64; the other spellings suit no such API anyway."""
    assert Naming.of(separator, None).limit == limit
    assert Naming.of(separator, 20).limit == 20


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("a__b", True),
        ("a:b", True),
        ("a.b", True),
        ("read_file", False),
        ("__init__", False),
        (":a", False),
        ("a.", False),
        ("", False),
    ],
)
def test_a_prefix_is_something_before_a_separator_before_something(name: str, looks: bool) -> None:
    """docs/names.md#what-a-call-may-say: a bare name is told from a wrong one."""
    assert has_prefix(name) is looks


def test_upstreams_that_become_the_same_once_made_legal_are_told_apart() -> None:
    """Ours: `a b` and `a_b` are two servers."""
    prefixes = assign_prefixes(Naming(), {"a b": None, "a_b": None, "c": "a.b", "bare": "", "bare too": ""})
    assert prefixes["a b"] == "a_b"
    assert re.fullmatch(r"a_b_[0-9a-f]{8}", prefixes["a_b"])
    assert re.fullmatch(r"a_b_[0-9a-f]{8}", prefixes["c"])
    assert prefixes["a_b"] != prefixes["c"]
    assert prefixes["bare"] == prefixes["bare too"] == ""


@pytest.mark.parametrize("spelling", ["a_b:x", "a_b.x"])
def test_what_a_server_is_called_counts_for_more_than_anothers_prefix(spelling: str) -> None:
    """Ours: whoever writes `a_b.x` means the server a_b, though `a b` had to be listed under that prefix."""
    catalog = merged({"a b": ["x"], "a_b": ["x"]})
    route = catalog.find(spelling).route
    assert route is not None
    assert route.upstream == "a_b"


@pytest.mark.parametrize("spelling", ["gh__x", "gh:x", "gh.x"])
def test_a_chosen_prefix_is_spelled_in_three_ways_too(spelling: str) -> None:
    """docs/names.md#what-a-call-may-say: with the server's name or its prefix, in all three spellings."""
    catalog = merged({"github": ["x"]}, prefixes={"github": "gh"})
    assert list(catalog.routes) == ["gh__x"]
    assert catalog.find(spelling).route is catalog.routes["gh__x"]


@pytest.mark.parametrize("spelling", ["github__x", "github:x", "github.x"])
def test_the_configured_name_leads_to_a_tool_listed_under_another_prefix(spelling: str) -> None:
    """docs/names.md#what-a-call-may-say: with the server's name, whatever is listed."""
    for prefix in ("gh", ""):
        catalog = merged({"github": ["x"]}, prefixes={"github": prefix})
        assert catalog.find(spelling).route is next(iter(catalog.routes.values()))


def test_no_tool_disappears_even_if_another_is_called_like_its_hash() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: no server takes another one's name."""
    hashed = Naming().distinct("x", "second", "x")
    catalog = catalog_of(source("first", "x", hashed, prefix=""), source("second", "x", prefix=""))
    assert len(catalog.routes) == 3
    route = catalog.find(hashed).route
    assert route is not None
    assert route.upstream == "first"


# --- other alphabets ------------------------------------------------------------------------------


INVISIBLE = "\u115f\u1160\u3164\uffa0"
"""Fillers of Hangul: letters to Unicode, and hidden characters to those who read a name."""


@LAW
@given(
    st.text(
        st.characters(categories=("Lo", "Nd"), exclude_characters=f"0123456789{INVISIBLE}"), min_size=1, max_size=12
    )
)
def test_a_name_of_another_alphabet_is_more_than_underscores(name: str) -> None:
    """docs/names.md: legal for the model APIs, the same in every run, and told apart."""
    public = Naming().public("docs", name)
    assert re.fullmatch(r"docs__name_[0-9a-f]{8}", public)
    assert public == Naming().public("docs", name) != Naming().public("docs", name + name)
    assert Naming.of(".", None).public("docs", name) == f"docs.{name}"


def test_its_own_name_is_kept_as_title_and_can_be_called() -> None:
    """docs/names.md: for people, and for those who know it; a title of the server's own stays."""
    assert assign_prefixes(Naming(), {"工具": None})["工具"].startswith("name_")
    catalog = merged({"工具": ["查询", "plain"]})
    listed = [json.loads(bytes(route.definition)) for route in catalog.routes.values()]
    assert [tool.get("title") for tool in listed] == ["查询", None]
    for spelling in ("工具.查询", "工具__查询", "工具:查询", listed[0]["name"]):
        assert catalog.find(spelling).route is catalog.routes[listed[0]["name"]]


# --- gateways behind gateways ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mid.in.s.echo", "mid:in:s:echo", "mid.in__s__echo", "mid__in__s__echo"])
def test_one_separator_throughout_leads_through_two_gateways(name: str) -> None:
    """docs/names.md."""
    route = merged({"mid": ["in__s__echo", "other"]}).find(name).route
    assert route is not None
    assert route.native == "in__s__echo"


def test_a_tool_that_is_called_so_itself_comes_first() -> None:
    """Ours: a spelling that is exact for one tool is no guess for another."""
    route = merged({"mid": ["a__b", "a.b"]}).find("mid.a.b").route
    assert route is not None
    assert route.native == "a.b"
