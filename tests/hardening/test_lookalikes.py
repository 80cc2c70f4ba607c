"""Names that could be taken for another server's (docs/names.md#collisions-and-names-that-do-not-fit)."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from muxway.catalog.build import Source, assign_prefixes, build
from muxway.catalog.kinds import PROMPTS
from muxway.catalog.lookalikes import skeleton
from muxway.catalog.model import Catalog, Native
from muxway.catalog.naming import Naming
from muxway.testing import ScriptedServer
from tests.catalog.making import catalog_of, source
from tests.conftest import a_world

law = settings(deadline=None)
"""A busy machine is no fault."""

PLAIN = Naming.of(":", None)
TWINS = {
    "Cyrillic": "sеаrсh",
    "Greek capitals": "SΕΑRCΗ",
    "capitals": "SEARCH",
    "full width": "ｓｅａｒｃｈ",
    "mathematical": "𝐬𝐞𝐚𝐫𝐜𝐡",
    "a ligature": "ﬁnd",
    "a dash": "do‐it",
}  # fmt: skip
MEANT = {"a ligature": "find", "a dash": "do-it"}


@pytest.mark.parametrize("kind", TWINS)
def test_the_later_one_of_two_names_that_look_the_same_gets_another(kind: str) -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit.

    NFKC, capitals and look-alike letters; a hash tells them apart, and it is reported.
    """
    name, twin = MEANT.get(kind, "search"), TWINS[kind]
    catalog = catalog_of(source("first", name, prefix=""), source("second", twin, prefix=""), naming=PLAIN)
    [kept, changed] = catalog.routes
    assert (kept, catalog.routes[kept].upstream) == (name, "first")
    assert changed.startswith(f"{twin}_")
    assert f"because {name!r}, which {twin!r} looks like, is already 'first''s {name!r}" in str(catalog.findings[-1])


def test_the_order_of_the_configuration_decides_not_who_was_first() -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit.

    The order of start does not matter, and a twin does not push out the one it imitates.
    """
    good, evil = source("good", "pay", prefix=""), source("evil", "pаy", prefix="")
    alone = build(PLAIN, [evil])
    assert [*alone.routes] == ["pаy"]
    for before in (alone, catalog_of(good, naming=PLAIN)):
        both = build(PLAIN, [good, evil], before)
        assert both.routes["pay"].upstream == "good"
        assert "pаy" not in both.routes


def test_what_is_not_listed_cannot_be_called_by_its_look() -> None:
    """Ours: looks are compared to tell names apart, never to find a tool."""
    catalog = catalog_of(source("good", "pay", prefix=""), source("evil", "pаy", prefix=""), naming=PLAIN)
    assert catalog.find("pаy").route is None
    assert catalog.find("PAY").route is None


def test_a_server_may_tell_its_own_tools_apart_as_it_likes() -> None:
    """Ours: there is nobody to imitate but itself."""
    catalog = catalog_of(source("s", "get", "Get"), naming=PLAIN)
    assert [*catalog.routes] == ["s:get", "s:Get"]
    assert catalog.findings == ()


@pytest.mark.parametrize("naming", [Naming(), PLAIN], ids=["portable", "plain"])
def test_two_servers_whose_names_look_the_same_get_different_prefixes(naming: Naming) -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: the same for server names."""
    prefixes = assign_prefixes(naming, {"github": None, "GitHub": None, "gіthub": None, "other": None})
    assert prefixes["github"] == "github"
    assert len({skeleton(prefix) for prefix in prefixes.values()}) == 4


def test_prompts_are_told_apart_as_tools_are() -> None:
    """docs/names.md#prompts-and-resources: the same for prompts."""
    sources = [
        Source(upstream=name, prefix="", prompts=[Native(prompt, {"description": Raw(b'"d"')})])
        for name, prompt in (("good", "pay"), ("evil", "pаy"))
    ]
    catalog = build(PLAIN, sources, Catalog(0, {}, kind=PROMPTS))
    assert catalog.routes["pay"].upstream == "good"
    assert len({skeleton(name) for name in catalog.routes}) == 2


letters = st.sampled_from("aаαAАbеeEΕ_-‐:.1lİıßſﬁﬀ")
names = st.text(letters, min_size=1, max_size=4)


@law
@given(st.lists(st.lists(names, max_size=4, unique=True), min_size=2, max_size=4), st.sampled_from([Naming(), PLAIN]))
def test_no_two_servers_ever_list_names_that_look_the_same(offers: list[list[str]], naming: Naming) -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: of generated pairs no two look the same in a list."""
    catalog = catalog_of(*(source(f"s{n}", *tools, prefix="") for n, tools in enumerate(offers)), naming=naming)
    looks: dict[str, set[str]] = {}
    for route in catalog.routes.values():
        looks.setdefault(skeleton(route.public), set()).add(route.upstream)
    assert [look for look, owners in looks.items() if len(owners) > 1] == []
    assert sum(map(len, offers)) == len(catalog.routes)


@law
@given(st.lists(names, min_size=3, max_size=3, unique=True))
def test_whoever_is_there_names_follow_the_configuration(servers: list[str]) -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: prefixes are decided before anybody has started."""
    prefixes = assign_prefixes(PLAIN, dict.fromkeys(servers))
    listings = set()
    for order in permutations(servers):
        catalog = Catalog(0, {})
        for there in range(1, 4):
            present = order[:there]
            catalog = build(
                PLAIN, [source(name, "t", prefix=prefixes[name]) for name in servers if name in present], catalog
            )
        listings.add(tuple(catalog.routes))
    assert len(listings) == 1


async def test_a_twin_of_a_tool_is_reported_to_the_owner() -> None:
    """docs/names.md#collisions-and-names-that-do-not-fit: renamed, and told."""
    servers = {"good": ScriptedServer(tools={"pay": None}), "evil": ScriptedServer(tools={"pаy": None})}
    entries = {"good": {"prefix": ""}, "evil": {"prefix": ""}}
    async with a_world(servers, entries=entries, gateway={"separator": ":"}) as world:
        client = await world.client()
        listed = await client.tools()
        assert listed[0] == "pay"
        assert listed[1].startswith("pаy_")
        evil = next(server for server in world.gateway.servers() if server.name == "evil")
        assert any("looks like" in note for note in evil.notes)
