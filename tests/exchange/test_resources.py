"""Resources, prompts and completion through the middle: what is listed, where requests go, what comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import Raw

from muxway.calls.call import Caller
from muxway.calls.identity import Identity
from muxway.catalog.build import Source
from muxway.catalog.kinds import RESOURCES
from muxway.catalog.model import Hint, Native
from muxway.catalog.naming import Naming
from muxway.catalog.selection import Selection
from muxway.catalog.uris import wrap
from muxway.composed.own_tools import source
from muxway.config.model import CustomTool, SubTool
from muxway.errors import InvalidParams, UpstreamError, UpstreamSaid
from muxway.routing.instructions import merged
from muxway.routing.snapshot import OwnLists
from muxway.wire.revisions import REVISIONS

from .faking import HANDSHAKE, STATELESS, FakeLink, World, answers, member, offer, shows

CALLERS = [Caller(revision=revision) for revision in REVISIONS.values()]
every_caller = pytest.mark.parametrize("caller", CALLERS, ids=list(REVISIONS))
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def quoted(text: str) -> bytes:
    """A text as JSON."""
    return json.dumps(text).encode()


def two(link: FakeLink | None = None, other: FakeLink | None = None) -> World:
    """Servers `a` and `b` with some things in common."""
    members = {"a": member(link or FakeLink(answers(b"{}"))), "b": member(other or FakeLink(answers(b"{}")))}
    part: dict[str, Any] = {"prompts": ("p",), "resources": ("u:1",), "templates": ("t:{x}",)}
    return World(members, shows("a", **part, completes=True), shows("b", **part))


# --- listings -----------------------------------------------------------------------------------


@every_caller
def test_every_list_is_one_of_all_servers(caller: Caller) -> None:
    """docs/resources.md: one list of each kind."""
    world = two()
    lists = {method: world.ask(method, {}, caller).value[key] for method, key in LISTS.items()}
    assert lists == {
        "tools/list": [],
        "prompts/list": [
            {"name": "a__p", "description": "[a] ?"},
            {"name": "b__p", "description": "[b] ?"},
        ],
        "resources/list": [{"uri": "u:1", "name": "[a] n"}, {"uri": "muxway://b/u%3A1", "name": "[b] n"}],
        "resources/templates/list": [
            {"uriTemplate": "t:{x}", "name": "[a] t"},
            {"uriTemplate": "muxway://b/+t:{x}", "name": "[b] t"},
        ],
    }


def test_a_list_is_encoded_once_for_all_who_understand_it() -> None:
    """Ours: listing 10,000 resources costs no more than listing 10,000 tools."""
    uris = tuple(f"u:{number}" for number in range(10_000))
    world = World({}, shows("a", resources=uris))
    first = world.runtime.snapshot.whole.resources.pages
    caller = world.ask("resources/list")
    assert len(caller.value["resources"]) == 10_000
    world.runtime.publish([shows("a", resources=uris), offer("b", "x")])
    again = world.ask("resources/list", {}, CALLERS[0])
    assert again.result == caller.result
    assert first.keys() == world.runtime.snapshot.whole.resources.pages.keys()


def test_definitions_are_given_in_the_words_of_the_callers_revision() -> None:
    """docs/compatibility.md#what-crosses: title from 2025-06-18 on, icons from 2025-11-25 on."""
    extra = {"title": Raw(b'"T"'), "icons": Raw(b"[]"), "size": Raw(b"1E3")}
    source = Source(
        upstream="a",
        prefix="a",
        prompts=[Native("p", extra)],
        resources=[Native("u:1", extra)],
        templates=[Native("t:{x}", extra)],
    )
    world = World({}, source)
    for caller in CALLERS:
        for method, key in list(LISTS.items())[1:]:
            heard = world.ask(method, {}, caller)
            (shown,) = heard.value[key]
            assert ("title" in shown, "icons" in shown) == (caller.revision.titles, caller.revision.icons)
            assert b"1E3" in (heard.result or b"")


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("caller", [HANDSHAKE, STATELESS], ids=["handshake", "stateless"])
def test_pages_of_every_kind_are_read_with_cursors_of_our_own(method: str, caller: Caller) -> None:
    """docs/resources.md#pages-and-changes: a cursor of one list is none of another."""
    names = tuple(f"n:{number}" for number in range(5))
    world = World(
        {},
        offer("t", *names),
        shows("a", prompts=names, resources=names, templates=tuple(f"{name}/{{x}}" for name in names)),
        page_size=2,
    )
    seen = 0
    cursor: str | None = ""
    while cursor is not None:
        page = world.ask(method, {"cursor": quoted(cursor)}, caller).value
        seen += len(page[LISTS[method]])
        cursor = page.get("nextCursor")
        if cursor is not None:
            for other in LISTS:
                heard = world.ask(other, {"cursor": quoted(cursor)}, caller)
                assert isinstance(heard.error, InvalidParams) == (other != method), (other, cursor)
    assert seen == 5


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("cursor", [b'"1.2"', b'"tools-1.1"', b'"tools-9.2"', b'"zz-1.2"', b'"prompts-1.99"', b"{}"])
def test_a_cursor_that_is_not_ours_is_refused_for_every_kind(method: str, cursor: bytes) -> None:
    """MCP 2025-11-25, server/utilities/pagination: an invalid cursor → -32602."""
    world = World({}, offer("t", "a", "b", "c"), shows("a", prompts=("a", "b", "c")), page_size=2)
    assert world.ask(method, {"cursor": cursor}).refusal.code == -32602


def test_a_list_holds_as_long_as_all_its_parts_do() -> None:
    """docs/resources.md#pages-and-changes: ttlMs is the least of all parts, cacheScope is private if one of them is."""

    def hinted(name: str, ttl: int, *, public: bool) -> Source:
        return shows(name, resources=(f"{name}:1",), hints={"resources": Hint(ttl, public)})

    def hint(*sources: Source) -> tuple[int, str]:
        listed = World({}, *sources).ask("resources/list", {}, STATELESS).value
        return listed["ttlMs"], listed["cacheScope"]

    long, short = hinted("a", 9000, public=True), hinted("b", 10, public=True)
    assert hint(long) == (9000, "public")
    assert hint(long, short) == (10, "public")
    assert hint(long, short, hinted("c", 500, public=False)) == (10, "private")
    assert hint(long, shows("d")) == (9000, "public"), "one that lists none has no say"
    assert hint() == (0, "private")
    assert "ttlMs" not in World({}, long).ask("resources/list").value


def test_a_list_is_for_one_user_alone_where_others_may_get_another() -> None:
    """MCP 2026-07-28, server/utilities/caching: also if all that is in it is everybody's, as this user has no login."""
    listed = shows("a", resources=("a:1",), hints={"resources": Hint(9000, public=True)})
    world = World({"a": member(FakeLink(answers(b"{}")))}, listed)
    ann, runtime = Identity(issuer="https://id.example.com", subject="ann"), world.runtime
    assert runtime.snapshot.seen(None, ann).lists[True][RESOURCES].hint == (9000, True)
    runtime.publish(runtime.snapshot.given, own_lists=OwnLists(frozenset({"guarded"})))
    assert runtime.snapshot.seen(None, ann).lists[True][RESOURCES].hint == (9000, False)


def test_what_a_server_lists_for_others_is_nothing_to_a_user_for_whom_it_lists_nothing() -> None:
    """docs/security.md: not even that it is there."""
    world = World(
        {name: member(FakeLink(answers(b"{}"))) for name in ("a", "guarded")},
        shows("a", resources=("u:1",)),
        shows("guarded", resources=("secret:operator",)),
    )
    runtime = world.runtime
    runtime.publish(runtime.snapshot.given, own_lists=OwnLists(frozenset({"guarded"})))
    bob = Identity(issuer="https://id.example.com", subject="bob")
    everybodys, his = (runtime.snapshot.seen(None, who).resources for who in (None, bob))
    # To a user with one server all that nobody lists is of that one.
    found = [seen.find("secret:operator") for seen in (everybodys, his)]
    assert [place.upstream for place in found if place is not None] == ["guarded", "a"]


def test_what_one_user_has_read_leads_nobody_else_anywhere_in_a_view_either() -> None:
    """docs/security.md: a URI that nobody lists is known to whom a server gave it."""
    world = World(
        {name: member(FakeLink(answers(b"{}"))) for name in "ab"},
        shows("a", resources=("u:1",)),
        shows("b", resources=("w:1",)),
    )
    runtime = world.runtime
    settings = replace(runtime.snapshot.settings, selections={"v": Selection(view="v", servers=frozenset("ab"))})
    runtime.publish(runtime.snapshot.given, settings, OwnLists(frozenset({"guarded"})))
    ann, bob = (Identity(issuer="https://id.example.com", subject=name) for name in ("ann", "bob"))
    everybodys, hers, his = (runtime.snapshot.seen("v", who).resources for who in (None, ann, bob))
    everybodys.public_uri("b", "x:of-nobody")
    runtime.snapshot.seen(None, ann).resources.public_uri("b", "x:of-ann")
    assert [bool(seen.find("x:of-nobody")) for seen in (everybodys, hers, his)] == [True, False, False]
    assert [bool(seen.find("x:of-ann")) for seen in (everybodys, hers, his)] == [False, True, False]


def test_listeners_hear_what_kind_of_thing_has_changed() -> None:
    """docs/subscriptions.md#lists: told only of a real difference, of its kind."""
    world = World({}, offer("t", "x"))
    heard: list[set[str]] = []
    tools: list[int] = []
    stop = world.runtime.dispatcher().listen(lambda kinds: heard.append({*kinds}))
    world.runtime.dispatcher().listen(lambda kinds: tools.append(1) if "tools" in kinds else None)
    world.runtime.publish([offer("t", "x"), shows("a", prompts=("p",))])
    world.runtime.publish([offer("t", "x"), shows("a", prompts=("p",), resources=("u:1",))])
    world.runtime.publish([offer("t", "x"), shows("a", prompts=("p",), resources=("u:1",), templates=("t:{x}",))])
    world.runtime.publish([offer("t", "x"), shows("a", prompts=("p",), resources=("u:1",), templates=("t:{x}",))])
    assert heard == [{"prompts"}, {"resources"}, {"resources"}]
    assert tools == []
    world.runtime.publish([offer("t", "y")])
    assert heard[3:] == [{"tools", "prompts", "resources"}]
    assert tools == [1]
    stop()
    world.runtime.publish([])
    assert len(heard) == 4


async def test_every_list_waits_while_the_servers_start() -> None:
    """Decision 0008: a listing right after the start waits a moment; for every kind."""
    world = two()
    world.runtime.listings.shut()
    waiting = [world.ask(method) for method in LISTS]
    assert [(heard.result, heard.error) for heard in waiting] == [(None, None)] * 4
    world.runtime.listings.open()
    assert [len(heard.value[key]) for heard, key in zip(waiting, LISTS.values(), strict=True)] == [0, 2, 2, 2]


@every_caller
def test_capabilities_are_those_of_the_callers_revision(caller: Caller) -> None:
    """MCP 2025-03-26, changelog: it brought the capability for completions. The others are always there."""
    offered = two().runtime.snapshot.whole.offered(caller.revision)
    assert ("completions" in offered) == (caller.revision.date != "2024-11-05")
    assert offered["resources"] == {"subscribe": True, "listChanged": True}
    assert offered["tools"] == offered["prompts"] == {"listChanged": True}
    assert offered["logging"] == {}


# --- reading ------------------------------------------------------------------------------------


def test_a_read_goes_out_under_the_native_uri_and_comes_back_under_the_one_asked_for() -> None:
    """docs/resources.md#resources: the same words in requests and contents."""
    link = FakeLink(answers(b'{"contents":[{"uri":"u:1","blob":"AA==","x":1E3}]}'))
    world = two(other=link)
    heard = world.ask("resources/read", {"uri": b'"muxway://b/u%3A1"', "vendor": b"[1.0]"})
    assert link.sent[0].params == {"uri": b'"u:1"', "vendor": b"[1.0]"}
    assert heard.result == b'{"contents":[{"uri":"muxway://b/u%3A1","blob":"AA==","x":1E3}]}'


def test_a_read_of_what_is_not_wrapped_passes_byte_for_byte() -> None:
    """docs/behaviour.md#what-passes-untouched."""
    raw = b'{ "contents" : [ {"uri":"u:1", "blob":"AA=="} ] }'
    world = two(FakeLink(answers(raw)))
    assert world.ask("resources/read", {"uri": b'"u:1"'}).result == raw


@every_caller
def test_a_resource_that_nobody_has_is_not_found_in_the_words_of_the_revision(caller: Caller) -> None:
    """docs/errors.md: -32002 in the handshake revisions, -32602 in 2026-07-28 (there server/resources)."""
    for uri in ("nobody:1", "", wrap("nobody", "u:1"), wrap("a", wrap("b", "u:1"))):
        refusal = two().ask("resources/read", {"uri": quoted(uri)}, caller).refusal
        assert refusal.code == (-32602 if caller.revision.stateless else -32002)
        assert refusal.message == f"Resource not found: {uri}"
        assert refusal.data == {"uri": uri}


@pytest.mark.parametrize("uri", [None, b"7", b"null", b"{}", b'["u:1"]'])
def test_a_read_without_a_uri_is_refused(uri: bytes | None) -> None:
    """docs/errors.md: `params.uri must be a string`."""
    heard = two().ask("resources/read", {} if uri is None else {"uri": uri})
    assert isinstance(heard.refusal, InvalidParams)


@pytest.mark.parametrize(
    ("caller", "upstream", "code", "message", "seen"),
    [
        (HANDSHAKE, "2025-11-25", -32002, "Resource not found", -32002),
        (STATELESS, "2025-11-25", -32002, "gone", -32602),
        (HANDSHAKE, "2026-07-28", -32602, "Resource not found: u:1", -32002),
        (HANDSHAKE, "2026-07-28", -32602, "params.uri is too long", -32602),
        (HANDSHAKE, "2025-11-25", -32602, "Resource not found: u:1", -32602),
        (STATELESS, "2026-07-28", -32602, "Resource not found", -32602),
        (STATELESS, "2025-11-25", -32000, "busy", -32000),
    ],
)
def test_an_upstreams_not_found_has_the_code_of_the_callers_era(
    caller: Caller, upstream: str, code: int, message: str, seen: int
) -> None:
    """MCP 2026-07-28, server/resources: -32602 for -32002, if it clearly says so. All else stays as it was said."""
    raw = b'{"code":%d,"message":%b,"data":{"n":1E3}}' % (code, quoted(message))
    said = UpstreamSaid(raw, message, code, {"n": 1e3})
    world = two(FakeLink(lambda sink: sink.failed(said), REVISIONS[upstream]))
    refusal = world.ask("resources/read", {"uri": b'"u:1"'}, caller).refusal
    assert isinstance(refusal, UpstreamSaid)
    assert refusal.code == seen
    assert refusal.raw == raw.replace(b"%d" % code, b"%d" % seen)
    assert (refusal is said) == (code == seen)


def test_a_not_found_is_judged_by_the_connection_that_said_it() -> None:
    """docs/design/decisions/0017: a session's requests go over the handshake side of a server of both eras."""
    said = UpstreamSaid(b'{"code":-32602,"message":"Unknown resource"}', "Unknown resource", -32602, None)
    first, handshake = FakeLink(revision=REVISIONS["2026-07-28"]), FakeLink(lambda sink: sink.failed(said))
    world = two(first)
    world.members["a"].choose = lambda call: first if call.caller.revision.stateless else handshake
    assert world.ask("resources/read", {"uri": b'"u:1"'}).refusal is said


def test_a_completion_is_worded_for_the_connection_it_goes_over() -> None:
    """docs/design/decisions/0017: that of the caller's era, which may be an older one than the first."""
    old = FakeLink(answers(b"{}"), REVISIONS["2025-03-26"])
    world = two(FakeLink(revision=REVISIONS["2026-07-28"]))
    world.members["a"].choose = lambda _: old
    world.ask(
        "completion/complete", {"ref": b'{"type":"ref/prompt","name":"a__p"}', "argument": b"{}", "context": b"{}"}
    )
    assert "context" not in old.sent[0].params


@pytest.mark.parametrize(
    ("revision", "result", "hint"),
    [
        ("2025-11-25", b'{"contents":[]}', (0, "private")),
        ("2025-11-25", b'{"contents":[{"uri":"u:1","text":"\\"ttlMs\\""}]}', (0, "private")),
        ("2026-07-28", b'{"resultType":"complete","contents":[],"ttlMs":50,"cacheScope":"public"}', (50, "public")),
        ("2026-07-28", b'{"resultType":"complete","contents":[]}', (0, "private")),
    ],
)
def test_a_stateless_reader_is_told_how_long_a_resource_holds(
    revision: str, result: bytes, hint: tuple[int, str]
) -> None:
    """MCP 2026-07-28, server/utilities/caching: hints on `resources/read` too; for handshake readers none."""
    world = two(FakeLink(answers(result), REVISIONS[revision]))
    value = world.ask("resources/read", {"uri": b'"u:1"'}, STATELESS).value
    assert (value["ttlMs"], value["cacheScope"], value["resultType"]) == (*hint, "complete")
    assert "ttlMs" not in world.ask("resources/read", {"uri": b'"u:1"'}).value


def test_a_resource_of_a_server_that_is_away_is_not_called_unknown() -> None:
    """docs/resources.md#resources: what happened, to whom. Nobody else is asked for it meanwhile."""
    link = FakeLink(answers(b"{}"))
    world = two(other=link)
    world.members["a"].settle(None, "it exited with status 1")
    world.runtime.publish([shows("b", resources=("u:1",))])
    for uri in ("u:1", wrap("a", "u:1"), wrap("a", "z:1")):
        refusal = world.ask("resources/read", {"uri": quoted(uri)}).refusal
        assert isinstance(refusal, UpstreamError)
        assert refusal.message == 'server "a" is not running: it exited with status 1'
    assert not link.sent
    assert world.ask("resources/read", {"uri": quoted(wrap("b", "u:1"))}).value == {}


async def test_a_read_that_comes_too_early_waits_for_the_servers() -> None:
    """Decision 0007: whose a URI is cannot be told before all are there."""
    world = World({"a": member(starting=True), "b": member(starting=True)})
    heard = [world.ask("resources/read", {"uri": quoted(uri)}) for uri in ("u:1", "z:1", wrap("b", "u:2"))]
    links = {name: FakeLink(answers(b'{"contents":[]}')) for name in "ab"}
    world.members["a"].settle(links["a"], "")
    world.runtime.publish([shows("a", resources=("u:1",))])
    world.members["a"].release()
    assert heard[0].value == {"contents": []}
    assert [(one.result, one.error) for one in heard[1:]] == [(None, None)] * 2
    world.members["b"].settle(links["b"], "")
    world.runtime.publish([shows("a", resources=("u:1",)), shows("b", resources=("u:2",))])
    world.members["b"].release()
    assert heard[1].refusal.message == "Resource not found: z:1"
    assert heard[2].value == {"contents": []}
    assert [sent.params["uri"] for sent in links["b"].sent] == [b'"u:2"']


def test_a_removed_servers_resources_are_not_found() -> None:
    """Ours: once nobody has it configured, a server is not away but unknown."""
    world = two()
    world.runtime.publish([shows("b", resources=("u:1",))])
    assert world.ask("resources/list").value["resources"][0]["uri"] == "muxway://b/u%3A1"
    del world.members["a"]
    world.runtime.publish([shows("b", resources=("u:1",))])
    assert world.ask("resources/list").value["resources"][0]["uri"] == "u:1"


# --- prompts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["b__p", "b:p", "b.p"])
def test_a_prompt_goes_to_its_server_with_its_arguments_as_they_came(spelling: str) -> None:
    """docs/resources.md#prompts: names as for tools."""
    link = FakeLink(answers(b'{"messages":[]}'))
    heard = two(other=link).ask("prompts/get", {"name": quoted(spelling), "arguments": b'{ "a":"1" }'})
    assert heard.result == b'{"messages":[]}'
    assert link.sent[0].params == {"name": b'"p"', "arguments": b'{ "a":"1" }'}


@every_caller
def test_a_prompt_that_nobody_has_is_refused_with_the_nearest_names(caller: Caller) -> None:
    """MCP 2025-11-25, server/prompts: an unknown prompt is -32602, in every revision."""
    refusal = two().ask("prompts/get", {"name": b'"a__q"'}, caller).refusal
    assert isinstance(refusal, InvalidParams)
    assert refusal.message == "Prompt not found: a__q"
    assert refusal.data == {"muxway": {"nearest": ["a__p"]}}


@pytest.mark.parametrize("params", [{}, {"name": b"7"}, {"name": b'"a__p"', "arguments": b"[]"}])
def test_a_prompt_with_wrong_params_is_refused(params: dict[str, bytes]) -> None:
    """MCP 2025-11-25, server/prompts: wrong params are -32602."""
    link = FakeLink()
    assert two(link).ask("prompts/get", params).refusal.code == -32602
    assert not link.sent


async def test_a_prompt_of_a_server_that_is_away_is_not_called_unknown() -> None:
    """docs/errors.md#-32603-the-server-gave-no-usable-answer: `not_running`."""
    world = World({"a": member(absence="it is gone")})
    assert world.ask("prompts/get", {"name": b'"a__p"'}).refusal.message == 'server "a" is not running: it is gone'
    starting = World({"a": member(starting=True)})
    heard = starting.ask("prompts/get", {"name": b'"a:p"'})
    starting.members["a"].settle(FakeLink(answers(b"{}")), "")
    starting.runtime.publish([shows("a", prompts=("p",))])
    starting.members["a"].release()
    assert heard.value == {}


def message(content: str) -> bytes:
    """A result with one message."""
    return b'{"messages":[{"role":"user","content":' + content.encode() + b"}]}"


@every_caller
def test_messages_are_given_in_the_words_of_the_callers_revision(caller: Caller) -> None:
    """docs/compatibility.md#results: sound is an embedded resource to 2024-11-05, a link text before 2025-06-18."""
    sound = two(FakeLink(answers(message('{"type":"audio","data":"AA==","mimeType":"audio/wav"}'))))
    (said,) = sound.ask("prompts/get", {"name": b'"a__p"'}, caller).value["messages"]
    assert said["content"]["type"] == ("audio" if caller.revision.audio else "resource")
    assert (said["content"].get("data") or said["content"]["resource"]["blob"]) == "AA=="
    link = two(other=FakeLink(answers(message('{"type":"resource_link","name":"n","uri":"u:1"}'))))
    (said,) = link.ask("prompts/get", {"name": b'"b__p"'}, caller).value["messages"]
    if caller.revision.resource_links:
        assert said["content"] == {"type": "resource_link", "name": "n", "uri": "muxway://b/u%3A1"}
    else:
        assert said["content"] == {"type": "text", "text": "n: muxway://b/u%3A1"}, "the URI it can be read by"


def test_messages_with_nothing_to_change_pass_byte_for_byte() -> None:
    """docs/behaviour.md#what-passes-untouched."""
    raw = b'{ "messages":[ {"role":"user","content":{"type":"text","text":"audio uri","n":1E3}} ] }'
    world = two(FakeLink(answers(raw)))
    for caller in CALLERS[:-1]:
        assert world.ask("prompts/get", {"name": b'"a__p"'}, caller).result == raw


# --- links in the results of tools --------------------------------------------------------------


def test_links_in_the_results_of_tools_can_be_read() -> None:
    """docs/resources.md#which-server-a-uri-goes-to: links lead to their own server; what nobody lists is remembered."""
    result = b'{"content":[{"type":"resource_link","uri":"u:1"},{"type":"resource_link","uri":"z:1"}]}'
    links = {name: FakeLink(answers(result)) for name in "ab"}
    world = World(
        {name: member(link) for name, link in links.items()},
        *(
            Source(
                upstream=name,
                prefix=name,
                tools=offer(name, "t").tools,
                resources=shows(name, resources=("u:1",)).resources,
            )
            for name in "ab"
        ),
    )
    assert world.ask("resources/read", {"uri": b'"z:1"'}).refusal.code == -32002
    shown = [block["uri"] for block in world.call("b__t").value["content"]]
    assert shown == ["muxway://b/u%3A1", "z:1"]
    world.ask("resources/read", {"uri": b'"z:1"'})
    assert links["b"].sent[-1].params == {"uri": b'"z:1"'}
    assert [block["uri"] for block in world.call("a__t").value["content"]] == ["u:1", "muxway://a/z%3A1"]


def test_links_are_in_our_words_for_old_callers_and_from_compound_tools_too() -> None:
    """docs/compatibility.md#results: before 2025-06-18 a link is text, with the URI it can be read by."""
    result = b'{"content":[{"type":"resource_link","name":"n","uri":"u:1"}]}'
    custom = CustomTool(name="Both", description="", subtools={"b": (SubTool(name="t"),)})
    parts = [
        Source(
            upstream=name,
            prefix=name,
            tools=offer(name, "t").tools,
            resources=shows(name, resources=("u:1",)).resources,
        )
        for name in "ab"
    ]
    members = {name: member(FakeLink(answers(result))) for name in "ab"}
    world = World(members, source([custom]), *parts, tools={"Both": custom})
    assert world.call("b__t", CALLERS[0]).value["content"] == [{"type": "text", "text": "n: muxway://b/u%3A1"}]
    for caller in (HANDSHAKE, STATELESS):
        content = world.call("Both", caller, arguments=b'{"server":"b","tool":"t"}').value["content"]
        assert content[0]["uri"] == "muxway://b/u%3A1"


def test_two_gateways_in_one_process_learn_nothing_of_each_other() -> None:
    """Ours: what one gateway learned is its own."""
    one, other = two(), two()
    assert one.runtime.snapshot.whole.resources.public_uri("a", "z:1") == "z:1"
    assert one.runtime.snapshot.whole.resources.find("z:1") is not None
    assert other.runtime.snapshot.whole.resources.find("z:1") is None


def test_where_one_server_has_resources_the_callers_own_sink_is_used() -> None:
    """docs/resources.md#which-server-a-uri-goes-to: with one server nothing is looked at, so nothing is paid."""
    link = FakeLink()
    world = World({"a": member(link)}, shows("a", resources=("u:1",)), offer("t", "x"))
    world.members["t"] = member(link)
    heard = world.call("t__x")
    assert link.sent[0].sink is heard


# --- apps ---------------------------------------------------------------------------------------


def app(upstream: str, *tools: str, ui: bool = True) -> Source:
    """A server whose first tool has an app."""
    natives = [Native(name, {"inputSchema": Raw(b"{}")}) for name in tools]
    if ui:
        natives[0].members["_meta"] = Raw(b'{"ui":{"resourceUri":"ui://x"}}')
    return Source(upstream=upstream, prefix=upstream, tools=natives)


def test_an_app_may_call_tools_by_their_own_names_where_that_is_unambiguous() -> None:
    """docs/resources.md#apps: the app's HTML knows no prefix."""
    links = {name: FakeLink(answers(b"{}")) for name in ("a", "b", "c")}
    world = World(
        {name: member(link) for name, link in links.items()},
        app("a", "show", "refresh", "both"),
        app("b", "both"),
        app("c", "refresh", "plain", ui=False),
    )
    for name in world.members:
        world.members[name].prefix = name
    assert world.call("refresh").value == {}
    assert [len(link.sent) for link in links.values()] == [1, 0, 0], "c has no apps"
    for name in ("both", "plain"):
        assert world.call(name).refusal.message == f"Tool name must be prefixed with server key: {name}"


# --- completion ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "native"),
    [
        ({"type": "ref/prompt", "name": "a__p", "title": "T"}, {"type": "ref/prompt", "name": "p", "title": "T"}),
        ({"type": "ref/resource", "uri": "t:{x}"}, {"type": "ref/resource", "uri": "t:{x}"}),
        ({"type": "ref/resource", "uri": "muxway://a/u%3A1"}, {"type": "ref/resource", "uri": "u:1"}),
    ],
)
def test_a_completion_goes_out_in_the_words_of_its_server(ref: dict[str, str], native: dict[str, str]) -> None:
    """docs/resources.md#completion: ref.name or ref.uri in the server's words, the argument passed."""
    link = FakeLink(answers(b'{"completion":{"values":["x"]}}'))
    params = {"ref": json.dumps(ref).encode(), "argument": b'{"name":"x","value":"1"}', "context": b'{"arguments":{}}'}
    heard = two(link).ask("completion/complete", params)
    assert heard.result == b'{"completion":{"values":["x"]}}'
    sent = link.sent[0].params
    assert json.loads(sent.pop("ref")) == native
    assert sent == {"argument": b'{"name":"x","value":"1"}', "context": b'{"arguments":{}}'}


@every_caller
def test_the_context_goes_only_to_servers_that_know_it(caller: Caller) -> None:
    """docs/resources.md#completion: from 2025-06-18 on."""
    link = FakeLink(answers(b"{}"), caller.revision)
    params = {"ref": b'{"type":"ref/prompt","name":"a__p"}', "argument": b"{}", "context": b"{}"}
    two(link).ask("completion/complete", params)
    assert ("context" in link.sent[0].params) == caller.revision.completion_context


@every_caller
def test_a_server_that_cannot_complete_is_not_asked(caller: Caller) -> None:
    """docs/resources.md#completion: it proposes nothing."""
    link = FakeLink()
    heard = two(other=link).ask("completion/complete", {"ref": b'{"type":"ref/prompt","name":"b__p"}'}, caller)
    assert heard.value["completion"] == {"values": [], "hasMore": False}
    assert heard.value.get("resultType") == ("complete" if caller.revision.stateless else None)
    assert not link.sent


def test_a_server_that_does_not_know_the_method_has_nothing_to_propose() -> None:
    """MCP 2024-11-05 has no capability for completion, so it is tried."""
    said = UpstreamSaid(b'{"code":-32601,"message":"?"}', "?", -32601)
    world = two(FakeLink(lambda sink: sink.failed(said), REVISIONS["2024-11-05"]))
    heard = world.ask("completion/complete", {"ref": b'{"type":"ref/prompt","name":"a__p"}'})
    assert heard.value == {"completion": {"values": [], "hasMore": False}}


def test_no_more_than_a_hundred_values_are_given() -> None:
    """MCP 2025-11-25, server/utilities/completion: at most 100 values."""
    values = json.dumps([str(number) for number in range(150)]).encode()
    world = two(FakeLink(answers(b'{"completion":{"values":' + values + b',"total":150},"x":1}')))
    value = world.ask("completion/complete", {"ref": b'{"type":"ref/prompt","name":"a__p"}'}).value
    assert (len(value["completion"]["values"]), value["completion"]["hasMore"], value["x"]) == (100, True, 1)
    assert value["completion"]["total"] == 150


@pytest.mark.parametrize(
    "ref",
    [
        None,
        b"7",
        b"{}",
        b'{"type":"ref/tool","name":"a__p"}',
        b'{"type":"ref/prompt"}',
        b'{"type":"ref/prompt","name":"a__q"}',
        b'{"type":"ref/resource"}',
        b'{"type":"ref/resource","uri":"nobody:{x}"}',
        b'{"type":"ref/resource","uri":"muxway://nobody/+t:{x}"}',
    ],
)
@pytest.mark.parametrize("caller", [HANDSHAKE, STATELESS], ids=["handshake", "stateless"])
def test_a_completion_for_what_nobody_has_is_refused(ref: bytes | None, caller: Caller) -> None:
    """MCP 2025-11-25, server/utilities/completion: -32602."""
    assert two().ask("completion/complete", {} if ref is None else {"ref": ref}, caller).refusal.code == -32602


# --- instructions -------------------------------------------------------------------------------


def told(name: str, text: str, prefix: str | None = None) -> Source:
    """A server with instructions."""
    return Source(upstream=name, prefix=name if prefix is None else prefix, instructions=text)


def test_instructions_of_all_servers_are_merged_under_headings() -> None:
    """docs/resources.md#instructions: in the order of the configuration, with the prefix rule; empties dropped."""
    text = merged([told("a", "Be kind.\n"), told("b", " \n"), told("c", "Be quick.", "")], Naming())
    assert text == (
        "Several MCP servers stand behind this one.\n\n"
        "## a\n\nIts names begin with `a__` here.\n\nBe kind.\n\n"
        "## c\n\nIts names stand here as they are.\n\nBe quick."
    )
    assert merged([told("b", "")], Naming()) == ""
    world = World({}, told("a", "Be kind."))
    assert "Be kind." in world.runtime.snapshot.whole.instructions
    assert (
        world.ask("server/discover", {}, STATELESS).value["instructions"] == world.runtime.snapshot.whole.instructions
    )
    assert "instructions" not in World().ask("server/discover", {}, STATELESS).value


def test_long_instructions_are_cut_and_leave_room_for_the_others() -> None:
    """docs/resources.md#instructions: with a cap; the cut is marked."""
    text = merged([told("a", "é" * 20_000), told("b", "short"), told("c", "x" * 20_000)], Naming())
    assert 8000 < len(text.encode()) <= 8192
    assert "short" in text
    assert text.count("… (cut)") == 2
    assert 0.9 < text.count("é") * 2 / text.count("x") < 1.1
    many = merged([told(f"server{number}", "text") for number in range(1000)], Naming())
    assert len(many.encode()) <= 8192
    assert many.endswith("… (cut)")
