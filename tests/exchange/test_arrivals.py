"""What is listed in the end does not depend on who arrives first."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.catalog.build import EVERYTHING, Exposure, Source, assign_prefixes
from muxway.catalog.model import Native
from muxway.catalog.naming import Naming
from tests.exchange.faking import FakeLink, World, member

LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")

names = st.lists(st.sampled_from(["a", "b", "A", "a__b", "x" * 60, "é"]), unique=True, max_size=4)
uris = st.lists(st.sampled_from(["u:1", "u:2", "file:///a"]), unique=True, max_size=3)
servers = st.lists(
    st.fixed_dictionaries(
        {
            "tools": names,
            "prompts": names,
            "resources": uris,
            "templates": st.lists(st.sampled_from(["u:{x}", "t:{x}"]), unique=True),
            "prefix": st.sampled_from([None, "", "p"]),
            "renames": st.booleans(),
        }
    ),
    min_size=1,
    max_size=4,
)


def configured(described: list[dict[str, Any]]) -> dict[str, Source]:
    """The sources that a configuration of these servers makes, in its order."""
    wanted = {f"s{number}": server["prefix"] for number, server in enumerate(described)}
    prefixes = assign_prefixes(Naming(), wanted)

    def natives(listed: list[str], **more: bytes) -> list[Native]:
        return [Native(name, {key: Raw(value) for key, value in more.items()}) for name in listed]

    return {
        upstream: Source(
            upstream=upstream,
            prefix=prefixes[upstream],
            asked=upstream if server["prefix"] is None else server["prefix"],
            tools=natives(server["tools"], inputSchema=b"{}"),
            prompts=natives(server["prompts"]),
            resources=natives(server["resources"], name=b'"n"'),
            templates=natives(server["templates"], name=b'"t"'),
            exposure=Exposure({name: "shared" if name == "a" else None for name in server["tools"]})
            if server["renames"]
            else EVERYTHING,
            reads=True,
        )
        for (upstream, server) in zip(wanted, described, strict=True)
    }


def shown(world: World) -> list[bytes | None]:
    return [world.ask(method).result for method in LISTS]


@given(described=servers, data=st.data())
def test_lists_do_not_depend_on_who_arrives_first(described: list[dict[str, Any]], data: st.DataObject) -> None:
    """docs/behaviour.md#lists: names, owners, order and bytes are the configuration's, clashes included."""
    sources = configured(described)
    members = {upstream: member(FakeLink()) for upstream in sources}
    at_once = World(members)
    at_once.runtime.publish([*sources.values()])
    one_by_one = World(members)
    # Each arrives once, and some go and come again meanwhile.
    there: set[str] = set()
    for upstream in data.draw(st.lists(st.sampled_from([*sources]), max_size=6)) + data.draw(
        st.permutations([*sources])
    ):
        there ^= {upstream}
        one_by_one.runtime.publish([source for name, source in sources.items() if name in there])
    for upstream in data.draw(st.permutations([name for name in sources if name not in there])):
        there.add(upstream)
        one_by_one.runtime.publish([source for name, source in sources.items() if name in there])
    assert shown(one_by_one) == shown(at_once)
    for former, latter in zip(_owners(one_by_one), _owners(at_once), strict=True):
        assert former == latter


def _owners(world: World) -> list[dict[str, tuple[str, str]]]:
    whole = world.runtime.snapshot.whole
    named = [
        {name: (route.upstream, route.native) for name, route in catalog.routes.items()}
        for catalog in (whole.tools, whole.prompts)
    ]
    places = [
        {uri: (entry.upstream, entry.native) for uri, entry in entries.items()}
        for entries in (whole.resources.resources, whole.resources.templates)
    ]
    return [*named, *places]
