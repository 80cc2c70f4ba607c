"""Resources of many servers in one list, and the way from any URI to the one server it belongs to."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from muxway.catalog.build import read_listing
from muxway.catalog.kinds import RESOURCES, TEMPLATES
from muxway.catalog.resources import Place, ResourceCatalog, build_resources
from muxway.catalog.uris import wrap, wrap_template

from .making import reading, tool

if TYPE_CHECKING:
    from muxway.catalog.build import Source

LAW = settings(max_examples=150, deadline=None)


def resources_of(*sources: Source, before: ResourceCatalog | None = None, configured: str = "") -> ResourceCatalog:
    """The resources of these sources; `configured` are the names of all servers, if some are away."""
    return build_resources(sources, configured.split() or [source.upstream for source in sources], before)


# --- listings -----------------------------------------------------------------------------------


def test_names_say_whose_a_resource_is_and_all_else_stays_as_it_came() -> None:
    """docs/resources.md#resources: the name becomes `[server] Name`; URIs and schemes are kept."""
    raw = b'{"name":"Notes","uri":"note:1","size":1E3,"x":null,"title":"T"}'
    natives, findings = read_listing(RESOURCES, "my desk", [Raw(raw), Raw(b'{"uri":"note:2"}'), Raw(b'{"uri":7}')])
    assert [str(finding) for finding in findings] == ["my desk: resource '#3': left out: it has no uri"]
    source = reading("my desk")
    catalog = resources_of(type(source)(upstream="my desk", prefix="d", resources=natives))
    assert catalog.pages[RESOURCES].page() == (
        b'{"uri":"note:1","name":"[my desk] Notes","size":1E3,"x":null,"title":"T"},'
        b'{"uri":"note:2","name":"[my desk] note:2"}'
    )


def test_only_what_collides_is_wrapped_and_only_for_the_later_server() -> None:
    """docs/resources.md#resources: URIs kept where unique, wrapped only on collision; reported once."""
    catalog = resources_of(
        reading("a", "file:///x", "a:1", templates=["file:///{path}", "a:{x}"]),
        reading("b", "file:///x", "b:1", "ui://app", templates=["file:///{other}", "b:{x}"]),
        reading("c", "file:///x", "ui://app"),
    )
    assert list(catalog.resources) == [
        "file:///x",
        "a:1",
        "muxway://b/file%3A%2F%2F%2Fx",
        "b:1",
        "ui://app",
        "muxway://c/file%3A%2F%2F%2Fx",
        "ui://c/ui%3A%2F%2Fapp",
    ]
    assert list(catalog.templates) == ["file:///{path}", "a:{x}", "muxway://b/+file:///{other}", "b:{x}"]
    assert json.loads(catalog.templates["muxway://b/+file:///{other}"].definition)["name"] == "[b] t"
    same = "because another server has the same"
    assert [str(finding) for finding in catalog.findings] == [
        f"b: resource 'file:///x': listed as 'muxway://b/file%3A%2F%2F%2Fx' {same}",
        f"b: resource template 'file:///{{other}}': listed as 'muxway://b/+file:///{{other}}' {same}",
        f"c: resource 'file:///x': listed as 'muxway://c/file%3A%2F%2F%2Fx', and 1 more likewise, {same}",
    ]


_uris = st.sampled_from(
    ("file:///a", "file:///b", "ui://x", "muxway://a/file%3A%2F%2F%2Fa", "muxway://b/x", "ui://a/ui%3A%2F%2Fx", "n:1")
)
_offers = st.dictionaries(st.sampled_from(("a", "b", "c", "a b")), st.lists(_uris, unique=True, max_size=5), max_size=4)


@LAW
@given(_offers)
def test_every_resource_has_one_uri_and_every_uri_one_resource(offers: dict[str, list[str]]) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: no two become one; none can claim another one's."""
    catalog = resources_of(*(reading(name, *uris) for name, uris in offers.items()))
    every = {(name, uri) for name, uris in offers.items() for uri in uris}
    assert {(entry.upstream, entry.native) for entry in catalog.resources.values()} == every
    assert len(catalog.resources) == len(every)
    for public, entry in catalog.resources.items():
        assert catalog.find(public) == Place(entry.upstream, entry.native)
        assert catalog.public_uri(entry.upstream, entry.native) == public
        assert catalog.find(wrap(entry.upstream, entry.native)) == Place(entry.upstream, entry.native)


def test_the_uris_do_not_depend_on_who_came_first_or_how_often_the_gateway_was_started() -> None:
    """docs/resources.md#resources: clients keep URIs; the order of the configuration decides."""
    parts = {name: reading(name, "u:1", f"{name}:1", templates=["u:{x}"]) for name in ("a", "b", "c")}
    seen: set[tuple[str, ...]] = set()
    for arrival in itertools.permutations(parts):
        catalog: ResourceCatalog | None = None
        for count in range(1, 4):
            there = [parts[name] for name in parts if name in arrival[:count]]
            catalog = resources_of(*there, before=catalog, configured="a b c")
        assert catalog is not None
        seen.add((*catalog.resources, *catalog.templates))
    assert len(seen) == 1


# --- the way to a server ------------------------------------------------------------------------


def test_unlisted_uris_are_sought_in_order() -> None:
    """docs/resources.md#which-server-a-uri-goes-to: listed, linked, template (most specific), owner of the scheme."""
    catalog = resources_of(
        reading("a", "git:a", "x:listed", templates=["x:{+p}"]),
        reading("b", "b:1", templates=["x:docs/{p}"]),
        reading("c", "c:1", "b:2"),
    )
    assert catalog.find("x:listed") == Place("a", "x:listed")
    assert catalog.find("x:docs/1") == Place("b", "x:docs/1"), "the most specific template"
    assert catalog.find("x:docs/1/2") == Place("a", "x:docs/1/2")
    assert catalog.find("git:other") == Place("a", "git:other"), "the only one with this scheme"
    assert catalog.find("GIT:other") == Place("a", "GIT:other"), "schemes have no case"
    assert catalog.find("b:3") is None, "two have this scheme"
    assert catalog.find("nobody:1") is None
    assert catalog.find("no scheme") is None
    assert catalog.public_uri("c", "nobody:1") == "nobody:1"
    assert catalog.find("nobody:1") == Place("c", "nobody:1"), "learned"


def test_what_one_server_links_to_never_becomes_another_ones() -> None:
    """docs/resources.md#which-server-a-uri-goes-to: what would lead elsewhere is wrapped; the rest is the first's."""
    catalog = resources_of(reading("a", "a:1", templates=["t:{x}"]), reading("b", "b:1"), reading("c", "c:1"))
    for uri in ("a:1", "a:unlisted", "t:1"):
        assert catalog.public_uri("b", uri) == wrap("b", uri)
        assert catalog.find(wrap("b", uri)) == Place("b", uri)
        assert catalog.find(uri) == Place("a", uri)
    assert catalog.public_uri("b", "z:1") == "z:1"
    assert catalog.public_uri("c", "z:1") == wrap("c", "z:1")
    assert catalog.find("z:1") == Place("b", "z:1")
    assert catalog.public_uri("b", "b:unlisted") == "b:unlisted"


_any_uri = st.one_of(
    _uris,
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    st.sampled_from(("file:///s/1", "file:///%73/1", "file:///x/../s/1", "t:1", "t:a/b", "MUXWAY:x", "z:1", "z:2")),
    st.tuples(st.sampled_from(("a", "b", "c", "nobody")), st.sampled_from(("file:///s/1", "z:1", "t:1", "n:1"))).map(
        lambda pair: wrap(*pair)
    ),
)


@LAW
@given(st.lists(st.tuples(st.sampled_from("abc"), _any_uri), max_size=12))
def test_whatever_a_server_links_to_leads_back_to_it_or_nowhere(links: list[tuple[str, str]]) -> None:
    """docs/resources.md#which-server-a-uri-goes-to: in any order, whatever servers write, never to what is hidden."""
    catalog = resources_of(
        reading("a", "file:///a", "n:1", templates=["t:{x}", "file:///{+p}"], hidden=("file:///s/*",)),
        reading("b", "file:///a", "ui://x", templates=["t:{y}"]),
        reading("c", "n:1", exposed=("n:*", "z:*")),
    )
    shown = [(upstream, uri, catalog.public_uri(upstream, uri)) for upstream, uri in links if uri]
    for upstream, uri, public in shown:
        place = catalog.find(public)
        if upstream == "b":
            assert place == Place("b", uri), "b hides nothing"
        else:
            assert place in (None, Place(upstream, uri))
        if upstream == "c" and not uri.startswith(("n:", "z:")):
            assert place is None
        if upstream == "a" and any(secret in uri for secret in ("s/1", "%73", "s%2F1")):
            assert place is None


def test_what_was_learned_survives_a_change_but_not_its_server() -> None:
    """Ours: a link in an old answer stays good while its server is configured."""
    sources = reading("a", "a:1"), reading("b", "b:1")
    first = resources_of(*sources)
    assert first.public_uri("a", "z:1") == "z:1"
    second = resources_of(*sources, reading("c", "c:1"), before=first)
    assert second.find("z:1") == Place("a", "z:1")
    third = resources_of(sources[1], reading("c", "c:1"), before=second, configured="b c")
    assert third.find("z:1") is None


def test_only_so_much_is_learned_from_one_server() -> None:
    """Ours: memory is bounded, and a talkative server costs only its own links."""
    catalog = resources_of(reading("a", "a:1"), reading("b", "b:1"))
    catalog.public_uri("b", "old:b")
    for number in range(10_001):
        catalog.public_uri("a", f"z:{number}")
    catalog.public_uri("a", "long:" + "x" * 5000)
    assert catalog.find("z:0") is None
    assert catalog.find("z:10000") == Place("a", "z:10000")
    assert catalog.find("old:b") == Place("b", "old:b")
    assert catalog.find("long:" + "x" * 5000) is None


def test_with_one_server_every_uri_is_its_own_and_nothing_is_rewritten() -> None:
    """docs/resources.md#which-server-a-uri-goes-to: nothing need be learned where there is no choice."""
    catalog = resources_of(reading("a", "a:1"))
    assert catalog.find("any:thing") == Place("a", "any:thing")
    assert catalog.rewriters == {}
    assert catalog.contents_rewriter("a:1", Place("a", "a:1")) is None
    assert resources_of().find("any:thing") is None


@pytest.mark.parametrize(
    "uri",
    [
        "muxway://nobody/a%3A1",
        "muxway://b/a%3A1/../x",
        "muxway://b/A%3A1%2f",
        "muxway://b/" + "muxway%3A%2F%2Fb%2Fb%253A1",
        "muxway://nobody/+a:1",
        "muxway:a:1",
        "MUXWAY://b/b%3A1",
        "ui://b/ui%3A%2F%2Fx%2f",
        "",
    ],
)
def test_wrapped_uris_that_lead_nowhere_are_not_found(uri: str) -> None:
    """docs/errors.md: not found: wrapped twice, for a server that does not exist, spelled otherwise."""
    assert resources_of(reading("a", "a:1"), reading("b", "b:1")).find(uri) is None


def test_a_gateway_behind_the_gateway_keeps_its_own_wrapped_uris() -> None:
    """docs/behaviour.md#resources-and-prompts: two muxways in a row. What the inner one wrapped is its own URI here."""
    inner = "muxway://fs/file%3A%2F%2F%2Fa"
    catalog = resources_of(reading("fs", "file:///a"), reading("inner", inner, templates=["muxway://fs/+x:{y}"]))
    assert list(catalog.resources) == ["file:///a", wrap("inner", inner)]
    assert list(catalog.templates) == [wrap_template("inner", "muxway://fs/+x:{y}")]
    assert catalog.find(inner) == Place("fs", "file:///a"), "ours, not the inner one's"
    assert catalog.find(wrap("inner", inner)) == Place("inner", inner)
    assert catalog.find("muxway://inner/+muxway://fs/+x:1") == Place("inner", "muxway://fs/+x:1")
    linked = "muxway://other/z%3A1"
    assert catalog.find(wrap("inner", linked)) is None
    assert catalog.public_uri("inner", linked) == wrap("inner", linked)
    assert catalog.find(wrap("inner", linked)) == Place("inner", linked)


# --- servers that are away ----------------------------------------------------------------------


def test_nobody_gets_what_a_server_has_that_is_away() -> None:
    """docs/resources.md#resources: a client with an old list must not be given another server's resource."""
    a, b = reading("a", "u:1", templates=["t:{x}"]), reading("b", "u:1", templates=["t:{y}"])
    both = resources_of(a, b)
    only_b = resources_of(b, before=both, configured="a b")
    assert list(only_b.resources) == [wrap("b", "u:1")], "a's are not listed, b's are not renamed"
    assert only_b.find("u:1") == Place("a", "u:1")
    assert only_b.find("t:1") == Place("a", "t:1")
    assert only_b.find("u:unlisted") is None, "there are still two with this scheme"
    removed = resources_of(b, before=only_b, configured="b")
    assert list(removed.resources) == ["u:1"]
    assert removed.find("u:1") == Place("b", "u:1")


def test_an_earlier_server_takes_its_uri_also_while_a_later_one_is_away() -> None:
    """Ours: the order of the configuration decides, not who was there first."""
    later = resources_of(reading("b", "u:1"), configured="a b")
    assert list(later.resources) == ["u:1"]
    earlier = resources_of(reading("a", "u:1"), before=later, configured="a b")
    assert list(earlier.resources) == ["u:1"]
    assert earlier.find("u:1") == Place("a", "u:1")


# --- filters ------------------------------------------------------------------------------------


def test_what_is_hidden_cannot_be_reached_by_any_way() -> None:
    """docs/resources.md#hide-some: not by template, scheme, link, wrapping or another server."""
    a = reading("a", "file:///open", "file:///secret", templates=["file:///{+p}"], hidden=("file:///secret*",))
    catalog = resources_of(a, reading("b", "b:1"))
    assert list(catalog.resources) == ["file:///open", "b:1"]
    catalog.public_uri("a", "file:///secret2")
    for uri in ("file:///secret", "file:///secret2", "file:///x/../secret", "file:///%73ecret", "FILE:///secret"):
        assert catalog.find(uri) is None, uri
        assert catalog.find(wrap("a", uri)) is None, uri
        assert catalog.find(wrap_template("a", uri)) is None, uri
    assert resources_of(a).find("file:///secret") is None, "not even when it is the only server"
    other = resources_of(a, reading("b", "file:///secret"))
    assert other.find("file:///secret") == Place("b", "file:///secret"), "b's own of that name"


def test_only_what_is_exposed_is_listed_and_found() -> None:
    """docs/resources.md#hide-some: by glob; templates by their own text."""
    catalog = resources_of(
        reading("a", "d:1", "d:2", "e:1", templates=["d:{x}", "e:{x}"], exposed=("d:*",), hidden=("d:2",))
    )
    assert (list(catalog.resources), list(catalog.templates)) == (["d:1"], ["d:{x}"])
    assert catalog.find("d:3") == Place("a", "d:3")
    assert [catalog.find(uri) for uri in ("d:2", "e:1", "e:2")] == [None] * 3


# --- results ------------------------------------------------------------------------------------


def two() -> ResourceCatalog:
    """Two servers with one URI in common."""
    return resources_of(reading("a", "u:1", "a:1"), reading("b", "u:1", "b:1"))


def test_links_and_embedded_resources_are_put_in_our_words() -> None:
    """docs/resources.md#which-server-a-uri-goes-to: resource_link.uri and resource.resource.uri, nothing else."""
    rewrite = two().rewriters["b"]
    result = (
        b'{"content":[{"type":"resource_link","name":"n","uri":"u:1","size":1E3},'
        b'{"type":"text","text":"u:1","uri":"u:1"},{"type":"resource","resource":{"uri":"u:1","blob":"AA=="}}],'
        b'"structuredContent":{"uri":"u:1"},"x":-0}'
    )
    wrapped = b'"muxway://b/u%3A1"'
    link, embedded = b'"name":"n","uri":"u:1"', b'"resource":{"uri":"u:1"'
    expected = result.replace(link, link.replace(b'"u:1"', wrapped))
    assert rewrite(result) == expected.replace(embedded, embedded.replace(b'"u:1"', wrapped))
    prompt = b'{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"u:1","text":"t"}}}]}'
    assert rewrite(prompt) == prompt.replace(b'"u:1"', wrapped)


@pytest.mark.parametrize(
    "result",
    [
        b'{ "content" : [ {"type":"text","text":"u:1"} ] }',
        b'{"content":[{"type":"resource_link","uri":"b:1"}]}',
        b'{"content":[{"type":"resource_link","uri":7},{"type":"resource","resource":[]},{"type":"resource"},7]}',
        b'{"content":"uri","messages":{"uri":1}}',
        b'{"contents":[{"uri":"u:1"}]}',
        b"{}",
    ],
)
def test_a_result_with_nothing_to_rewrite_is_the_very_object_that_came(result: bytes) -> None:
    """docs/design/decisions/0001-raw-payloads.md."""
    assert two().rewriters["b"](result) is result


def test_contents_come_back_under_the_uri_that_was_asked_for() -> None:
    """docs/behaviour.md#what-passes-untouched: in contents, too; others of the same read are mapped and learned."""
    catalog = two()
    uri = wrap("b", "u:1")
    rewrite = catalog.contents_rewriter(uri, Place("b", "u:1"))
    assert rewrite is not None
    read = b'{"contents":[{"uri":"u:1","blob":"AA=="},{"uri":"z:sub","text":"t"},{"uri":"a:1","text":"t"}]}'
    assert json.loads(bytes(rewrite(read)))["contents"] == [
        {"uri": uri, "blob": "AA=="},
        {"uri": "z:sub", "text": "t"},
        {"uri": wrap("b", "a:1"), "text": "t"},
    ]
    assert catalog.find("z:sub") == Place("b", "z:sub")
    plain = catalog.contents_rewriter("b:1", Place("b", "b:1"))
    untouched = b'{ "contents":[{"uri":"b:1","blob":"AA=="}]}'
    assert plain is not None
    assert plain(untouched) is untouched


def test_tools_name_their_apps_by_the_uris_these_have_here() -> None:
    """docs/resources.md#apps: `_meta.ui.resourceUri` and the older key, when the URI was wrapped."""
    meta = b'{"ui":{"resourceUri":"ui://app","x":1E3},"ui/resourceUri":"ui://app","other":"ui://app"}'
    a, b = (reading(name, "ui://app") for name in "ab")
    b = type(b)(upstream="b", prefix="b", resources=b.resources, tools=[tool("t", _meta=meta), tool("u")])
    catalog = resources_of(a, b)
    renamed = catalog.with_apps(b)
    assert bytes(renamed.tools[0].members["_meta"]) == meta.replace(b'":"ui://app"', b'":"ui://b/ui%3A%2F%2Fapp"', 2)
    assert renamed.tools[1] is b.tools[1]
    assert catalog.with_apps(a) is a
    assert resources_of(b).with_apps(b) is b


def test_templates_are_found_by_their_listed_text() -> None:
    """docs/resources.md#completion: the listed text leads to the template as its server wrote it."""
    catalog = resources_of(reading("a", templates=["t:{x}"]), reading("b", templates=["t:{y}"]))
    assert catalog.find_template("t:{x}") == Place("a", "t:{x}")
    assert catalog.find_template("muxway://b/+t:{y}") == Place("b", "t:{y}")
    assert catalog.find_template("t:{y}") is None
    assert len(catalog.pages[TEMPLATES]) == 2
