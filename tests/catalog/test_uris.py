"""Laws of wrapped URIs and templates, and of the filters that hide them."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.catalog.uri_templates import Template
from muxway.catalog.uris import UriFilter, looks_wrapped, scheme_of, unwrap, wrap, wrap_template

LAW = settings(max_examples=200, deadline=None)

_text = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
_tricky = st.sampled_from(
    (
        "file:///a",
        "file:///a%20b",
        "file:///a/../b",
        "ui://app/x?y#z",
        "muxway://b/file%3A%2F%2F%2Fa",
        "muxway://b/+file:///a",
        "ui://b/ui%3A%2F%2Fx",
        "+x",
        "a/b",
        "%",
        "é:ü",
        "..",
    )
)
uris = st.one_of(_tricky, _text)
upstreams = st.one_of(st.sampled_from(("a", "my server", "a/b", "a%2Fb", "é", "..", "+", "ui")), _text)


@LAW
@given(upstreams, uris)
def test_a_wrapped_uri_leads_back_to_what_it_was_made_of(upstream: str, uri: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: wrapping is reversible."""
    wrapped = wrap(upstream, uri)
    assert unwrap(wrapped) == (upstream, uri)
    assert looks_wrapped(wrapped)
    assert re.fullmatch(r"(muxway|ui)://[A-Za-z0-9%._~-]+/[A-Za-z0-9%._~-]+", wrapped)


@LAW
@given(upstreams, uris, upstreams, uris)
def test_two_uris_are_never_wrapped_to_one(one: str, uri: str, other: str, second: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: no two become one."""
    assert (wrap(one, uri) == wrap(other, second)) == ((one, uri) == (other, second))
    assert wrap(one, uri) != wrap_template(other, second)


_holes = st.sampled_from(["{x}", "{+x}", "{#x}", "{/x*}", "{.x}", "{;x}", "{?x,y}", "{&x}"])
_literals = st.text(alphabet="abcXYZ019-._~:/?#[]@!$&'()*+,;=%", max_size=8)
_expansions = st.text(alphabet="abcXYZ019-._~:/?#[]@!$&'()*+,;=%", max_size=8)


@LAW
@given(upstreams, st.lists(st.tuples(_literals, _holes, _expansions), min_size=1, max_size=4))
def test_what_a_wrapped_template_becomes_leads_back_to_what_the_template_becomes(
    upstream: str, pieces: list[tuple[str, str, str]]
) -> None:
    """RFC 6570: expressions stay intact; docs/resources.md#resources: whatever is put in their place leads back."""
    template = "file:///" + "".join(literal + hole for literal, hole, _ in pieces)
    expanded = "file:///" + "".join(literal + value for literal, _, value in pieces)
    wrapped = wrap_template(upstream, template)
    assert re.findall(r"\{[^}]*\}", wrapped) == [hole for _, hole, _ in pieces]
    front = wrapped.removesuffix(template)
    assert unwrap(front + expanded) == (upstream, expanded)


@pytest.mark.parametrize("uri", ["ui://app/x", "UI://app/x", "ui:x"])
def test_apps_stay_in_their_scheme(uri: str) -> None:
    """docs/resources.md#resources: `ui://` stays inside `ui`, because clients know apps by it."""
    assert wrap("weather", uri).startswith("ui://weather/")
    assert wrap_template("weather", uri).startswith("ui://weather/+")
    assert unwrap(wrap("weather", uri)) == ("weather", uri)


@pytest.mark.parametrize(
    "uri",
    [
        "ui://app/x",
        "ui://app/",
        "muxway://",
        "muxway://b",
        "muxway://b/",
        "muxway:///file%3A%2F%2F%2Fa",
        "MUXWAY://b/file%3A%2F%2F%2Fa",
        "muxway://b/file%3a%2f%2f%2fa",
        "muxway://b/file:///a",
        "muxway://b/file%3A%2F%2F%2Fa/../c",
        "muxway://b/%FF",
        "muxway://%FF/a",
        "muxway://b/a?x",
        "muxway://b/a#x",
        "muxway://b/ui%3A%2F%2Fapp",
        "ui://b/file%3A%2F%2F%2Fa",
        "muxway://b%2fc/a",
        " muxway://b/a",
        "file:///a",
        "",
    ],
)
def test_only_our_own_spelling_is_taken_for_wrapped(uri: str) -> None:
    """docs/resources.md#resources: one URI has one wrapped form, so no filter is evaded by another."""
    assert unwrap(uri) is None


def test_whatever_has_our_scheme_is_ours() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: a server cannot claim what stands for another one's."""
    assert looks_wrapped("muxway:anything")
    assert looks_wrapped("MuxWay://b/x")
    assert looks_wrapped("ui://b/ui%3A%2F%2Fx")
    assert not looks_wrapped("ui://b/x")
    assert not looks_wrapped("muxways://b/x")
    assert scheme_of("no scheme: here") == ""


# --- templates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "uri", "matches"),
    [
        ("file:///{p}", "file:///a", True),
        ("file:///{p}", "file:///", True),
        ("file:///{p}", "file:///a%2Fb", True),
        ("file:///{p}", "file:///a/b", False),
        ("file:///{p}", "file:///a?b", False),
        ("file:///{+p}", "file:///a/b/../c?d#e", True),
        ("file:///{+p}", "files:///a", False),
        ("file:///{+p}", "FILE:///a", False),
        ("a://{x}/b/{y}", "a://1/b/2", True),
        ("a://{x}/b/{y}", "a://1/c/2", False),
        ("a://{x}-{y}", "a://1-2-3", True),
        ("a://{+x}x{y}", "a://1x/2x3", True),
        ("a://h{/path*}", "a://h/1/2", True),
        ("a://h{/path*}", "a://h", True),
        ("a://h{/path*}", "a://host", False),
        ("a://h/s{?q,r}", "a://h/s?q=1&r=2", True),
        ("a://h/s{?q,r}", "a://h/s", True),
        ("a://h/s{?q,r}", "a://h/s/t", False),
        ("a://h?f=1{&q}", "a://h?f=1&q=2", True),
        ("a://h{#f}", "a://h#x/y?z", True),
        ("a://h{.ext}", "a://h.txt", True),
        ("a://h{;v}", "a://h;v=1", True),
        ("a://{x", "a://{x", True),
        ("a://{x", "a://1", False),
        ("a://x}", "a://x}", True),
        ("{+url}", "https://anything/at?all", True),
        ("a://fixed", "a://fixed", True),
        ("a://fixed", "a://fixed2", False),
    ],
)
def test_which_uris_a_template_may_become(template: str, uri: str, matches: bool) -> None:
    """RFC 6570, levels 1 to 4."""
    assert Template(template).matches(uri) is matches


def test_matching_takes_no_time_whatever_servers_and_callers_write() -> None:
    """Ours: a hostile template with a hostile URI must not hold everybody up."""
    began = time.thread_time()
    for hole in ("{x}", "{+x}", "{x}a", "{+x}a", "{.x}", "{/x}"):
        assert not Template("a://" + hole * 50 + "!").matches("a://" + "a./" * 2000)
    assert not Template("a://{+x}").matches("a://" + "a" * 10_000), "nobody needs one that long"
    assert time.thread_time() - began < 2


def test_the_more_a_template_says_the_more_specific_it_is() -> None:
    """docs/resources.md#which-server-a-uri-goes-to: of several templates the one that says most."""
    texts = ["{+u}", "file:///{+p}", "file:///docs/{+p}", "file:///docs/{x}/{y}", "file:///docs/{x}/index"]
    ranked = sorted(map(Template, reversed(texts)), key=lambda template: template.rank)
    assert [template.text for template in ranked] == [texts[4], texts[3], texts[2], texts[1], texts[0]]
    assert Template("a:{x}/{y}").shape == Template("a:{foo}/{bar,baz}").shape
    assert Template("a:{x}").shape != Template("a:{+x}").shape
    assert (Template("a:{x}").scheme, Template("{x}:a").scheme, Template("").scheme) == ("a", "", "")


# --- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "file:///secret/key",
        "file:///%73ecret/key",
        "file:///%2573ecret/key",
        "file:///open/../secret/key",
        "file:///open/%2e%2e/secret/key",
        "file:///open/..%2Fsecret/key",
        "file:///open/..%252fsecret/key",
        "file:///open\\..\\secret\\key",
        "file:////secret/key",
        "file:///./secret//key",
        "FILE:///secret/key",
        "file://localhost/secret/key",
        "file://LOCALHOST/secret/key",
        "file:///secret/key?x=1",
        "file:///secret/key#top",
        wrap("inner", "file:///secret/key"),
        wrap("outer", wrap("inner", "file:///secret/key")),
        wrap_template("inner", "file:///open/../secret/key"),
        "file:///" + "%25" * 3 + "2525252573ecret/key",
    ],
)
def test_no_spelling_of_a_hidden_uri_gets_around_the_filter(uri: str) -> None:
    """docs/resources.md#hide-some: `..`, encoded slashes, wrapped twice."""
    hidden = UriFilter(hidden=("file:///secret/*",))
    assert not hidden.shows(uri)
    assert hidden.shows("file:///open/key")
    assert hidden.shows("file:///open/secret/key")


def test_only_what_is_exposed_can_be_reached() -> None:
    """docs/resources.md#hide-some: by glob; the case of a host may matter to a server."""
    only = UriFilter(exposed=("docs://Team/*", "note:?"))
    for uri in ("docs://Team/a", "docs://Team/", "docs://Team/a%20b?x#y", "note:1", "docs://Team/{id}"):
        assert only.shows(uri), uri
    for uri in ("docs://team/a", "docs://Team", "docs://Other/a", "note:12", "file:///docs://Team/a"):
        assert not only.shows(uri), uri
    assert not UriFilter(exposed=("file:///open/*",)).shows("file:///open/../secret")
    assert not UriFilter(exposed=()).shows("a:b")
    assert not UriFilter(exposed=("a:*",), hidden=("a:b",)).shows("a:b")
    assert UriFilter().shows("anything")
