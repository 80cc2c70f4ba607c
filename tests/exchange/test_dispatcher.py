"""Everything the gateway answers itself, and where it sends the rest."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from muxway.calls.call import Call, Caller
from muxway.catalog.selection import Selection
from muxway.errors import InvalidParams, MethodNotFound, ToolNotFound, UpstreamError, UpstreamSaid
from muxway.wire.revisions import NEWEST, REVISIONS, SERVER_INFO

from .faking import HANDSHAKE, STATELESS, FakeLink, Heard, World, answers, member, offer, shows

CALLERS = [Caller(revision=revision) for revision in REVISIONS.values()]
BY_DATE = [caller.revision.date for caller in CALLERS]
every_caller = pytest.mark.parametrize("caller", CALLERS, ids=BY_DATE)


def one_server(link: FakeLink | None = None, *tools: str) -> World:
    """A world with one server `up`."""
    return World({"up": member(link or FakeLink(answers(b"{}")))}, offer("up", *(tools or ("x",))))


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["up__read file", "up:read file", "up.read file", "up__read_file"])
def test_a_call_goes_to_its_upstream_under_the_native_name(spelling: str) -> None:
    """docs/behaviour.md#what-passes-untouched: only the name changes."""
    link = FakeLink(answers(b'{"content":[],"x":1E5}'))
    world = World({"up": member(link), "other": member(FakeLink())}, offer("up", "read file"), offer("other", "read"))
    heard = world.call(spelling, arguments=b'{ "n" : -0,"\xc3\xa9":null }', vendor=b"[1.0]")
    assert heard.result == b'{"content":[],"x":1E5}'
    (sent,) = link.sent
    assert sent.params == {"name": b'"read file"', "arguments": b'{ "n" : -0,"\xc3\xa9":null }', "vendor": b"[1.0]"}
    assert (sent.idle, sent.limit) == (60, 600)


def test_a_call_under_way_can_be_cancelled_by_what_handle_returns() -> None:
    """docs/behaviour.md#cancel-and-progress."""
    link = FakeLink()
    world = one_server(link)
    heard = world.call("up__x")
    assert heard.result is None
    world.running.cancel("changed my mind")
    assert link.sent[0].cancelled == ["changed my mind"]


def test_an_error_of_the_upstream_arrives_as_it_was_said() -> None:
    """docs/behaviour.md#what-passes-untouched: a server's error is unchanged, between eras too."""
    said = UpstreamSaid(b'{"code":-1,"message":"no", "data":1E5}', "no", -1, 1e5)
    for caller in CALLERS:
        for revision in REVISIONS.values():
            world = one_server(FakeLink(lambda sink: sink.failed(said), revision))
            assert world.call("up__x", caller).refusal is said


@pytest.mark.parametrize("name", [None, b"7", b"null", b"{}", b'["up__x"]'])
def test_a_call_without_a_name_is_refused(name: bytes | None) -> None:
    """docs/errors.md: `params.name must be a string`."""
    heard = one_server().ask("tools/call", {} if name is None else {"name": name})
    assert isinstance(heard.refusal, InvalidParams)
    assert "params.name must be a string" in heard.refusal.message


@pytest.mark.parametrize("arguments", [b"[]", b'"{}"', b"7", b"true"])
def test_arguments_that_are_no_object_are_refused(arguments: bytes) -> None:
    """docs/errors.md: wrong params never reach a server."""
    link = FakeLink()
    heard = one_server(link).call("up__x", arguments=arguments)
    assert isinstance(heard.refusal, InvalidParams)
    assert heard.refusal.message == "params.arguments of up__x must be an object"
    assert not link.sent


@every_caller
def test_an_unknown_tool_has_the_code_of_the_callers_revision(caller: Caller) -> None:
    """docs/errors.md: handshake -32601, 2026-07-28 -32602 as its server/tools says."""
    heard = one_server().call("up__nope", caller)
    assert isinstance(heard.refusal, ToolNotFound)
    assert heard.refusal.message == "Tool not found: up__nope"
    assert heard.refusal.code == (-32602 if caller.revision.stateless else -32601)


def test_an_unknown_tool_is_answered_with_the_nearest_names() -> None:
    """docs/errors.md: `data.muxway.nearest` has like names."""
    heard = one_server(None, "create_issue").call("up__creat_issue")
    assert heard.refusal.data == {"muxway": {"nearest": ["up__create_issue"]}}
    assert one_server().call("zz__zzzzzz").refusal.data is None


@every_caller
def test_a_bare_name_is_told_to_name_its_server(caller: Caller) -> None:
    """docs/names.md#what-a-call-may-say: -32602 in every revision."""
    heard = one_server().call("x", caller)
    assert isinstance(heard.refusal, InvalidParams)
    assert heard.refusal.code == -32602
    assert heard.refusal.message == "Tool name must be prefixed with server key: x"


def test_a_name_that_could_be_two_tools_is_refused_with_both() -> None:
    """docs/names.md#what-a-call-may-say: a spelling that could be two tools is refused, and both are named."""
    members = {"a": member(FakeLink()), "a.b": member(FakeLink())}
    world = World(members, offer("a", "b.c", prefix="p"), offer("a.b", "c", prefix="q"))
    heard = world.call("a.b.c")
    assert heard.refusal.message == "Tool name is ambiguous: a.b.c may be p__b_c or q__c"


@pytest.mark.parametrize("spelling", ["down__x", "down:x", "down.x"])
@every_caller
def test_a_tool_of_a_server_that_is_away_is_not_called_unknown(caller: Caller, spelling: str) -> None:
    """docs/errors.md#-32603-the-server-gave-no-usable-answer: what happened, to whom."""
    world = World({"down": member(absence="it exited with status 127"), "up": member(FakeLink())}, offer("up", "x"))
    heard = world.call(spelling, caller)
    assert isinstance(heard.refusal, UpstreamError)
    assert heard.refusal.code == -32603
    assert heard.refusal.message == 'server "down" is not running: it exited with status 127'
    assert heard.refusal.data == {"muxway": {"reason": "not_running", "upstream": "down"}}


@pytest.mark.parametrize(
    ("upstream", "prefix", "name"),
    [("github", "gh", "gh__x"), ("my server", "my_server", "my_server__x"), ("plain", "", "x")],
)
def test_a_tool_of_a_server_that_has_gone_is_not_called_unknown_under_the_name_it_was_listed_with(
    upstream: str, prefix: str, name: str
) -> None:
    """Ours: a client that still has the old list hears that the server is gone, not that it erred."""
    world = World({upstream: member(FakeLink(answers(b"{}")))}, offer(upstream, "x", prefix=prefix))
    assert world.call(name).value == {}
    world.members[upstream].settle(None, "it exited with status 1")
    world.runtime.publish([])
    assert world.call(name).refusal.message == f'server "{upstream}" is not running: it exited with status 1'


def test_a_server_that_is_away_is_not_blamed_for_another_ones_unknown_tool() -> None:
    """Ours: to whom. `a__b` runs and lacks the tool; that `a` is away is beside the point."""
    world = World({"a": member(), "a__b": member(FakeLink())}, offer("a__b", "c"))
    assert world.call("a__b__zz").refusal.message == "Tool not found: a__b__zz"


async def test_a_listed_tool_whose_link_has_just_gone_fails_with_the_reason() -> None:
    """docs/behaviour.md#a-server-crashes: fails at once, naming the server."""
    world = one_server()
    world.members["up"].settle(None, "it was lost")
    world.members["up"].release()
    assert world.call("up__x").refusal.message == 'server "up" is not running: it was lost'
    del world.members["up"]
    assert world.call("up__x").refusal.message == 'server "up" is not running: it is not configured or disabled'


# --- calls that come too early ------------------------------------------------------------------


def starting_up() -> World:
    """A world whose one server `up` is still being started."""
    return World({"up": member(starting=True)})


async def test_a_call_that_comes_too_early_is_held_until_its_server_is_up() -> None:
    """Ours: a client that remembers a tool from last time need not fail for being quick."""
    world, link = starting_up(), FakeLink(answers(b'{"a":1}'))
    heard = world.call("up__x", arguments=b'{"n":1E5}')
    assert (heard.result, heard.error) == (None, None)
    world.runtime.publish([offer("up", "x")])
    assert (heard.result, heard.error) == (None, None)
    world.members["up"].settle(link, "")
    world.members["up"].release()
    assert heard.value == {"a": 1}
    assert link.sent[0].params == {"name": b'"x"', "arguments": b'{"n":1E5}'}


@pytest.mark.parametrize("spelling", ["up:x", "up.x"])
async def test_held_calls_may_be_spelled_in_any_way(spelling: str) -> None:
    """docs/names.md#what-a-call-may-say: all three spellings, whenever the call comes."""
    world = starting_up()
    heard = world.call(spelling)
    world.runtime.publish([offer("up", "x")])
    world.members["up"].settle(FakeLink(answers(b"{}")), "")
    world.members["up"].release()
    assert heard.value == {}


async def test_a_held_call_fails_with_the_reason_when_its_server_does_not_come_up() -> None:
    """docs/behaviour.md#start: who waited for a start that fails gets the reason."""
    world = starting_up()
    heard = [world.call("up__x"), world.call("up__y")]
    world.members["up"].settle(None, "it exited with status 1")
    world.members["up"].release()
    for each in heard:
        assert each.refusal.message == 'server "up" is not running: it exited with status 1'


async def test_a_held_call_to_a_tool_that_does_not_exist_after_all_is_told_so() -> None:
    """docs/behaviour.md#lists: refused once that is known."""
    world = starting_up()
    heard = world.call("up__zz")
    world.runtime.publish([offer("up", "x")])
    world.members["up"].settle(FakeLink(), "")
    world.members["up"].release()
    assert heard.refusal.message == "Tool not found: up__zz"


async def test_a_held_call_that_was_cancelled_is_never_sent() -> None:
    """calls.ports: after `cancel` the sink hears nothing more."""
    world, link = starting_up(), FakeLink(answers(b"{}"))
    heard = world.call("up__x")
    world.running.cancel("changed my mind")
    world.runtime.publish([offer("up", "x")])
    world.members["up"].settle(link, "")
    world.members["up"].release()
    assert not link.sent
    assert (heard.result, heard.error) == (None, None)


async def test_a_held_call_can_still_be_cancelled_once_it_is_on_its_way() -> None:
    """calls.ports: the handle a caller got stays good."""
    world, link = starting_up(), FakeLink()
    world.call("up__x")
    handle = world.running
    world.runtime.publish([offer("up", "x")])
    world.members["up"].settle(link, "")
    world.members["up"].release()
    handle.cancel("too slow")
    assert link.sent[0].cancelled == ["too slow"]


def test_only_calls_for_the_starting_server_are_held() -> None:
    """docs/design/decisions/0007-hold-calls-while-starting.md: everyone else goes on."""
    world = World({"up": member(starting=True), "ready": member(FakeLink(answers(b"{}")))}, offer("ready", "x"))
    assert world.call("ready__x").value == {}
    assert world.call("other__x").refusal.message == "Tool not found: other__x"
    assert not world.members["up"].held


# --- between eras -------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", CALLERS[2:-1], ids=BY_DATE[2:-1])
@pytest.mark.parametrize("upstream", list(REVISIONS.values())[:-1], ids=BY_DATE[:-1])
def test_between_handshake_revisions_the_callers_own_sink_is_used(caller: Caller, upstream: object) -> None:
    """docs/design/decisions/0001-raw-payloads.md: nothing stands in the way of a result that needs no change."""
    link = FakeLink(None, upstream)  # type: ignore[arg-type]
    heard = one_server(link).call("up__x", caller)
    assert link.sent[0].sink is heard


@pytest.mark.parametrize("caller", CALLERS[:2], ids=BY_DATE[:2])
@pytest.mark.parametrize("upstream", list(REVISIONS.values())[:-1], ids=BY_DATE[:-1])
def test_an_older_callers_result_passes_unchanged_unless_it_cannot_parse_it(caller: Caller, upstream: object) -> None:
    """docs/compatibility.md#what-crosses: converted by revision; what a client can parse passes byte for byte."""
    plain = FakeLink(answers(b'{ "content":[1E5]', b" }"), upstream)  # type: ignore[arg-type]
    assert one_server(plain).call("up__x", caller).result == b'{ "content":[1E5] }'
    linking = FakeLink(answers(b'{"content":[{"type":"resource_link","uri":"u:1"}]}'), upstream)  # type: ignore[arg-type]
    assert one_server(linking).call("up__x", caller).value == {"content": [{"type": "text", "text": "u:1"}]}


def test_a_stateless_caller_gets_a_stateless_result_from_a_handshake_upstream() -> None:
    """MCP 2026-07-28, basic/index: resultType is a must; the result may come in pieces."""
    heard = one_server(FakeLink(answers(b'{"content":', b"[1E5]}"))).call("up__x", STATELESS)
    assert heard.value == {
        "resultType": "complete",
        "content": [1e5],
        "_meta": {SERVER_INFO: {"name": "gate", "version": "1.2"}},
    }
    assert b"[1E5]" in (heard.result or b"")


def test_a_handshake_caller_gets_a_handshake_result_from_a_stateless_upstream() -> None:
    """docs/compatibility.md#results: without what only 2026-07-28 knows."""
    result = b'{"resultType":"complete","content":[-0],"_meta":{"%s":{"name":"s"}}}' % SERVER_INFO.encode()
    heard = one_server(FakeLink(answers(result), NEWEST)).call("up__x")
    assert heard.result == b'{"content":[-0]}'


@pytest.mark.parametrize("caller", [HANDSHAKE, STATELESS], ids=["handshake", "stateless"])
def test_progress_passes_a_converting_sink_as_it_is(caller: Caller) -> None:
    """docs/behaviour.md#cancel-and-progress: before the outcome, in order."""

    def script(sink: object) -> None:
        for number in (1, 2):
            sink.progress({"progress": b"%d" % number, "message": b'"m"'})  # type: ignore[attr-defined]
        sink.done(b"{}")  # type: ignore[attr-defined]

    heard = one_server(FakeLink(script, NEWEST)).call("up__x", caller)
    assert heard.progressed == [{"progress": b"1", "message": b'"m"'}, {"progress": b"2", "message": b'"m"'}]
    assert heard.result is not None


# --- listings -----------------------------------------------------------------------------------


def test_a_handshake_listing_has_tools_and_nothing_more() -> None:
    """docs/compatibility.md#results: cache hints and resultType belong to the other era."""
    heard = one_server(None, "a", "b").ask("tools/list")
    assert list(heard.value) == ["tools"]
    assert [tool["name"] for tool in heard.value["tools"]] == ["up__a", "up__b"]


def test_a_stateless_listing_says_how_long_it_holds_and_whose_it_is() -> None:
    """MCP 2026-07-28, server/utilities/caching: ttlMs and cacheScope; basic/index: resultType and serverInfo."""
    listing = one_server().ask("tools/list", {}, STATELESS).value
    assert listing.pop("tools")[0]["name"] == "up__x"
    assert listing == {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: {"name": "gate", "version": "1.2"}},
    }


@every_caller
def test_a_gateway_whose_servers_are_all_starting_lists_nothing_at_once(caller: Caller) -> None:
    """Ours: who asks the catalog itself gets what is ready, at once."""
    assert World().ask("tools/list", {}, caller).value["tools"] == []


def test_what_is_discovered_is_what_is_offered() -> None:
    """MCP 2026-07-28, server/discover: serverInfo only in `_meta`. Ours: all five revisions, newest first."""
    assert World().ask("server/discover", {}, STATELESS).value == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
        "capabilities": {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
            "completions": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: {"name": "gate", "version": "1.2"}},
    }


@pytest.mark.parametrize(
    ("method", "caller"),
    [
        ("server/discover", HANDSHAKE),
        ("resources/write", HANDSHAKE),
        ("prompts/List", STATELESS),
        ("initialize", STATELESS),
        ("ping", STATELESS),
        ("logging/setLevel", STATELESS),
        ("", HANDSHAKE),
        ("tools/Call", HANDSHAKE),
    ],
)
def test_a_method_that_is_not_offered_is_refused_by_name_and_revision(method: str, caller: Caller) -> None:
    """docs/errors.md: -32601, unknown in this revision or not offered."""
    heard = one_server().ask(method, {}, caller)
    assert isinstance(heard.refusal, MethodNotFound)
    assert heard.refusal.code == -32601
    assert heard.refusal.message == f"method {method} is not offered in revision {caller.revision.date}"


# --- cursors ------------------------------------------------------------------------------------


def walk(world: World, caller: Caller = HANDSHAKE) -> list[str]:
    """Every name, page after page, as a client reads them."""
    names: list[str] = []
    params: dict[str, bytes] = {}
    for _ in range(100):
        page = world.ask("tools/list", params, caller).value
        names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            return names
        params = {"cursor": json.dumps(page["nextCursor"]).encode()}
    raise AssertionError("the pages have no end")


@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 25), size=st.integers(1, 9), caller=st.sampled_from(CALLERS))
def test_pages_read_one_after_the_other_are_the_whole_list(count: int, size: int, caller: Caller) -> None:
    """docs/resources.md#pages-and-changes: cursors of our own when pageSize is set."""
    tools = [f"t{index}" for index in range(count)]
    world = World({}, offer("up", *tools), page_size=size)
    assert walk(world, caller) == [f"up__{name}" for name in tools]


def test_a_client_half_way_goes_on_in_the_list_it_began_with() -> None:
    """Ours: a list that changes between two pages must not lose a tool or show one twice."""
    world = World({}, offer("up", "a", "b", "c"), page_size=2)
    first = world.ask("tools/list").value
    assert [tool["name"] for tool in first["tools"]] == ["up__a", "up__b"]
    world.runtime.publish([offer("up", "b", "c", "d", "e")])
    rest = world.ask("tools/list", {"cursor": json.dumps(first["nextCursor"]).encode()}).value
    assert [tool["name"] for tool in rest["tools"]] == ["up__c"]
    assert "nextCursor" not in rest
    assert walk(world) == ["up__b", "up__c", "up__d", "up__e"]


def test_a_cursor_stays_good_when_nothing_a_client_sees_has_changed() -> None:
    """Ours: a link that came back with the same tools is no new list."""
    world = World({}, offer("up", "a", "b"), page_size=1)
    cursor = json.dumps(world.ask("tools/list").value["nextCursor"]).encode()
    for _ in range(20):
        world.runtime.publish([offer("up", "a", "b")])
    assert world.names(cursor=cursor) == ["up__b"]


def test_a_cursor_of_long_ago_has_expired() -> None:
    """docs/errors.md: an expired cursor → -32602, the client starts again. Old lists are not kept for ever."""
    world = World({}, offer("up", "a", "b"), page_size=1)
    cursor = json.dumps(world.ask("tools/list").value["nextCursor"]).encode()
    for index in range(9):
        world.runtime.publish([offer("up", "a", f"b{index}")])
    heard = world.ask("tools/list", {"cursor": cursor})
    assert isinstance(heard.refusal, InvalidParams)
    assert heard.refusal.message == "params.cursor is not one of ours or has expired: list again without a cursor"


@pytest.mark.parametrize(
    "cursor",
    [
        b'"garbage"',
        b'"1"',
        b'"1.2.3"',
        b'"-1.0"',
        b'"1.99"',
        b'"7.1"',
        b'"1.1 "',
        b'" 1.1"',
        b'"' + b"9" * 400 + b'.1"',
        b"1.1",
        b"7",
        b"{}",
        b"[]",
        b"true",
    ],
)
def test_a_cursor_that_is_not_ours_is_refused(cursor: bytes) -> None:
    """MCP 2025-11-25, server/utilities/pagination: an invalid cursor → -32602."""
    world = World({}, offer("up", "a", "b"), page_size=1)
    assert isinstance(world.ask("tools/list", {"cursor": cursor}).refusal, InvalidParams)


def test_without_pages_there_is_no_cursor_to_give_back() -> None:
    """Ours: no pageSize, no cursor."""
    heard = World({}, offer("up", "a", "b")).ask("tools/list", {"cursor": b'"1.1"'})
    assert isinstance(heard.refusal, InvalidParams)


# --- publishing ---------------------------------------------------------------------------------


def test_listeners_hear_of_a_real_difference_only() -> None:
    """docs/subscriptions.md#lists: told only if what clients see has changed."""
    world = World({}, offer("up", "a"))
    heard: list[int] = []
    stop = world.runtime.dispatcher().listen(lambda _: heard.append(world.runtime.snapshot.whole.tools.version))
    world.runtime.publish([offer("up", "a")])
    assert heard == []
    world.runtime.publish([offer("up", "a", "b")])
    assert heard == [2]
    world.runtime.publish([offer("up", "a", "b", description=b'"other words"')])
    assert heard == [2, 3]
    world.runtime.publish([offer("up", "a", "b", description=b'"other words"'), offer("new")])
    assert heard == [2, 3], "a server without tools changes nothing"
    stop()
    stop()
    world.runtime.publish([])
    assert heard == [2, 3]


def test_every_listener_hears_and_one_may_leave_while_told() -> None:
    """Ours: a client that goes away at the news must not cost others theirs."""
    world = World()
    heard: list[str] = []
    stops = [world.runtime.dispatcher().listen(lambda _: (heard.append("first"), stops[0]())[0])]
    world.runtime.dispatcher().listen(lambda _: heard.append("second"))
    world.runtime.publish([offer("up", "a")])
    world.runtime.publish([offer("up", "b")])
    assert heard == ["first", "second", "second"]


def test_listeners_already_see_the_new_list_when_they_are_told() -> None:
    """Ours: whoever lists at once because of the notice gets the new list."""
    world = World()
    seen: list[list[str]] = []
    world.runtime.dispatcher().listen(lambda _: seen.append(world.names()))
    world.runtime.publish([offer("up", "a")])
    assert seen == [["up__a"]]


def test_new_links_behind_an_unchanged_list_are_used_at_once() -> None:
    """docs/behaviour.md#a-server-crashes: a restarted server, same tools; calls go to the new link."""
    old, new = FakeLink(answers(b'{"old":1}')), FakeLink(answers(b'{"new":1}'))
    world = one_server(old)
    world.members["up"].connection = new
    world.runtime.publish([offer("up", "x")])
    assert world.call("up__x").value == {"new": 1}
    assert not old.sent


def test_the_list_does_not_depend_on_who_was_ready_first() -> None:
    """docs/behaviour.md#lists: whoever was ready first; the order of the configuration is what counts."""
    parts = {"a": offer("a", "b__c", "x"), "a__b": offer("a__b", "c"), "bare": offer("bare", "a__x", "y", prefix="")}
    listings: set[tuple[str, ...]] = set()
    for arrival in itertools.permutations(parts):
        world = World()
        there: set[str] = set()
        for name in arrival:
            there.add(name)
            world.runtime.publish([part for upstream, part in parts.items() if upstream in there])
        listings.add(tuple(world.names()))
    assert len(listings) == 1


def test_a_request_lives_in_the_catalog_it_began_with() -> None:
    """Ours: a change of the list ends no call under way."""
    link = FakeLink()
    world = one_server(link)
    heard = world.call("up__x")
    world.runtime.publish([])
    link.sent[0].sink.done(b'{"late":1}')
    assert heard.value == {"late": 1}


def test_a_call_keeps_its_meta_for_the_link_to_rewrite() -> None:
    """docs/behaviour.md#what-passes-untouched: `_meta` is rebuilt where the hop is known; here it is passed on."""
    link, heard = FakeLink(), Heard()
    meta = {"progressToken": Raw(b'"p"'), "traceparent": Raw(b'"00"')}
    call = Call(HANDSHAKE, "tools/call", {"name": Raw(b'"up__x"')}, meta)
    one_server(link).runtime.dispatcher().handle(call, heard)
    assert link.sent[0].call is call
    assert bytes(call.progress_token or b"") == b'"p"'
    assert Call(HANDSHAKE, "tools/call", {}).progress_token is None


# --- views --------------------------------------------------------------------------------------


def with_view(world: World, **selection: object) -> None:
    """Have a view "v" that shows this; without anything, none."""
    selections = {"v": Selection(view="v", **selection)} if selection else {}  # type: ignore[arg-type]
    settings = replace(world.runtime.snapshot.settings, selections=selections)
    world.runtime.publish(world.runtime.snapshot.given, settings)


def test_who_sees_a_view_hears_of_its_lists_only_and_of_its_end_once() -> None:
    """docs/subscriptions.md#lists: told only if what clients see has changed."""
    world = World({}, offer("up", "a"), offer("other", "b"))
    with_view(world, servers=frozenset({"up"}))
    view, heard = world.runtime.dispatcher("v"), list[frozenset[str]]()
    view.listen(heard.append)
    world.runtime.publish([offer("up", "a"), offer("other", "c")])
    assert heard == []
    world.runtime.publish([offer("up", "a", "z"), offer("other", "c")])
    assert heard == [frozenset({"tools"})]
    with_view(world)
    assert heard == [frozenset({"tools"})] * 2
    assert [*view.visible.tools.routes] == []
    world.runtime.publish([offer("up", "y"), offer("other", "c")])
    assert heard == [frozenset({"tools"})] * 2, "nothing is what it was"
    with_view(world, servers=frozenset({"up"}))
    assert [*view.visible.tools.routes] == ["up__y"], "it is known by its name"


def test_a_snapshot_shares_with_the_one_before_what_has_not_changed() -> None:
    """Ours: a change of one list costs that list (docs/design/decisions/0035-one-snapshot.md)."""
    world = World({"up": member(FakeLink(answers(b"{}")))}, offer("up", "a"))
    with_view(world, servers=frozenset({"up"}))
    world.call("up__a")
    before = world.runtime.snapshot
    world.runtime.publish([*before.given, shows("more", prompts=("p",))])
    now = world.runtime.snapshot
    assert now.whole.tools is before.whole.tools
    assert now.whole.targets is before.whole.targets
    assert now.views["v"].tools is before.views["v"].tools
    assert now.whole.prompts is not before.whole.prompts
    assert [*before.whole.prompts.routes] == [], "and whoever holds the old one sees what it saw"


def test_lists_of_the_same_bytes_have_the_same_cursors() -> None:
    """Ours: two processes of one configuration go on in each other's pages."""
    one, other = (World({}, offer("up", "a", "b", "c"), page_size=1) for _ in range(2))
    other.runtime.publish([offer("up", "x", "y")])
    other.runtime.publish([offer("up", "a", "b", "c")])
    cursor = json.dumps(one.ask("tools/list").value["nextCursor"]).encode()
    assert other.names(cursor=cursor) == ["up__b"]
