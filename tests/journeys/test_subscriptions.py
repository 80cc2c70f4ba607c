"""Subscriptions to resources: any number of clients of either era, one subscription at the server, also of either."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from muxway.net.metronome import LONG
from muxway.testing import RawClient
from tests.conftest import HANDSHAKE_REVISIONS, REVISIONS, a_world
from tests.noting import MODERN, SUBSCRIPTION, NoteServer, notes, until
from tests.pace import watching

if TYPE_CHECKING:
    from tests.conftest import World

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ERAS = ["2025-11-25", MODERN]


async def subscribe(client: RawClient, *uris: str, id_: Any = "L") -> list[str]:
    """Subscribe in the way of the client's revision. Returns what was agreed to."""
    if client.stateless:
        client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": list(uris)}}, id_=id_)
        return (await client.notice(ACKNOWLEDGED))["params"]["notifications"]["resourceSubscriptions"]
    return [uri for uri in uris if (await client.ask("resources/subscribe", {"uri": uri})).message.get("result") == {}]


async def unsubscribe(client: RawClient, uri: str, id_: Any = "L") -> None:
    """The opposite."""
    if client.stateless:
        client.tell("notifications/cancelled", {"requestId": id_})
    else:
        assert (await client.ask("resources/unsubscribe", {"uri": uri})).result == {}


async def news(client: RawClient) -> str:
    """The URI of the next update."""
    return (await client.notice(UPDATED))["params"]["uri"]


async def silence(world: World, *clients: RawClient) -> None:
    """See that nothing more has come for these clients, after something that takes as long as news does."""
    for client in clients:
        await client.tools()
        assert client.notices == []


async def crash(world: World, name: str) -> None:
    """Have a server go, and wait until it is back."""
    world.servers[name].crash()

    def is_back() -> bool:
        server = next(server for server in world.gateway.servers() if server.name == name)
        return server.restarts > 0 and str(server.status) == "running"

    await until(is_back)


# --- the usual ------------------------------------------------------------------------------------


@pytest.mark.parametrize("server_revision", REVISIONS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_hears_of_what_it_subscribed_to(revision: str, server_revision: str) -> None:
    """docs/behaviour.md#changes-and-subscriptions: subscribe, update, unsubscribe, between all pairs of revisions."""
    server = notes(server_revision)
    async with a_world({"up": server}) as world:
        client, other = await world.client(revision), await world.client()
        assert await subscribe(client, "note://a") == ["note://a"]
        assert server.watched == {"note://a"}
        server.update("note://b")
        server.update("note://a")
        notice = await client.notice(UPDATED)
        stamp = {"_meta": {SUBSCRIPTION: "L"}} if client.stateless else {}
        assert notice["params"] == {**stamp, "uri": "note://a"}
        await unsubscribe(client, "note://a")
        await until(lambda: not server.watched)
        server.update("note://a")
        await silence(world, client, other)


async def test_a_client_is_answered_after_its_server_has_agreed() -> None:
    """docs/subscriptions.md#resources: reply after the server confirmed."""
    server = notes(silent=frozenset(("resources/subscribe",)))
    async with a_world({"up": server}) as world:
        client = await world.client()
        waiting = client.start("resources/subscribe", {"uri": "note://a"})
        await until(lambda: server.times("resources/subscribe"))
        await client.tools()
        assert client._answers == {}
        server.reply(server.heard[-1], {})
        assert (await client.answer(waiting)).result == {}


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_unsubscribed_knows_that_its_server_knows(era: str) -> None:
    """2025-11-25, server/resources: the answer to `resources/unsubscribe` is the server's word."""
    server = notes(era)
    async with a_world({"up": server}) as world:
        client = await world.client("2025-06-18")
        await subscribe(client, "note://a")
        assert (await client.ask("resources/unsubscribe", {"uri": "note://a"})).result == {}
        if era == MODERN:
            # A stream that is ended is not answered: what can be known is that it was told.
            await until(lambda: not server.watched)
        assert server.watched == set()
        assert (await client.ask("resources/unsubscribe", {"uri": "note://a"})).result == {}


async def test_a_server_that_says_nothing_does_not_keep_a_client_subscribed() -> None:
    """Ours: it waits two seconds at most, and hears nothing more (docs/subscriptions.md)."""
    server = notes(silent=frozenset(("resources/unsubscribe",)))
    async with a_world({"up": server}) as world:
        client, other = await world.client(), await world.client()
        await subscribe(client, "note://a")
        waiting = client.start("resources/unsubscribe", {"uri": "note://a"})
        await until(lambda: server.times("resources/unsubscribe"))
        await client.tools()
        assert client._answers == {}
        assert (await client.answer(waiting)).result == {}
        server.update("note://a")
        await silence(world, client, other)


@pytest.mark.parametrize("era", ERAS)
async def test_two_clients_make_one_subscription_and_the_last_one_ends_it(era: str) -> None:
    """docs/subscriptions.md#resources: reference counts."""
    server = notes(era)
    async with a_world({"up": server}) as world:
        one, two = await world.client("2025-06-18"), await world.client(MODERN)
        await subscribe(one, "note://a")
        asked = (server.times("resources/subscribe"), server.times("subscriptions/listen"))
        await subscribe(two, "note://a")
        await subscribe(one, "note://a")
        assert (server.times("resources/subscribe"), server.times("subscriptions/listen")) == asked
        server.update("note://a")
        assert [await news(one), await news(two)] == ["note://a"] * 2
        await unsubscribe(one, "note://a")
        server.update("note://a")
        assert await news(two) == "note://a"
        await silence(world, one)
        assert server.watched == {"note://a"}
        await unsubscribe(two, "note://a")
        await until(lambda: not server.watched)
        assert server.times("resources/unsubscribe") == (era != MODERN)


@pytest.mark.parametrize("era", ERAS)
async def test_the_end_of_a_client_releases_everything(era: str) -> None:
    """docs/subscriptions.md#resources: the end of a session ends its subscriptions."""
    server = notes(era)
    async with a_world({"up": server}) as world:
        for revision in ("2025-03-26", MODERN):
            door = world.gateway.memory_door()
            client = RawClient(door, revision=revision)
            await client.hello()
            await subscribe(client, "note://a", "note://b")
            await until(lambda: server.watched == {"note://a", "note://b"})
            await door.close()
            await until(lambda: not server.watched)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("revision", ERAS)
async def test_a_part_of_what_was_subscribed_to_counts(era: str, revision: str) -> None:
    """MCP 2025-11-25, schema: the URI of an update may be a sub-resource."""
    server = notes(era, "note://a", "note://ab", "dir:///x/")
    async with a_world({"up": server}) as world:
        client = await world.client(revision)
        await subscribe(client, "note://a", "dir:///x/")
        parts = ["note://a#p2", "note://a/b/c", "note://a?v=1", "dir:///x/y"]
        for part in parts:
            server.update(part)
        assert [await news(client) for _ in parts] == parts
        for other in ("note://ab", "note:/", "note://", "dir:///xy", "dir:///"):
            server.update(other)
        await silence(world, client)


async def test_a_client_of_the_whole_and_the_part_hears_of_the_part_once() -> None:
    """Ours: several subscriptions of one client match one update."""
    server = notes("2025-11-25", "note://a", "note://a/b")
    async with a_world({"up": server}) as world:
        client = await world.client()
        await subscribe(client, "note://a", "note://a/b")
        server.update("note://a/b")
        assert await news(client) == "note://a/b"
        await silence(world, client)


async def test_updates_carry_the_uris_that_clients_know() -> None:
    """docs/subscriptions.md#resources: exposed URIs; what two servers have is told apart, also here."""
    first, second = notes(), notes(MODERN)
    async with a_world({"one": first, "two": second}) as world:
        client = await world.client()
        wrapped = next(entry.uri for entry in world.gateway.resources() if entry.server == "two")
        assert wrapped == "muxway://two/note%3A%2F%2Fa"
        await subscribe(client, "note://a", wrapped)
        assert (first.watched, second.watched) == ({"note://a"}, {"note://a"})
        second.update("note://a")
        assert await news(client) == wrapped
        first.update("note://a")
        assert await news(client) == "note://a"
        second.update("note://a/part")
        part = await news(client)
        assert part == "muxway://two/note%3A%2F%2Fa%2Fpart"
        await silence(world, client)


async def test_a_server_cannot_speak_for_another_ones_resources() -> None:
    """docs/subscriptions.md#resources: another server's URI; nothing crossed."""
    first, second = notes("2025-11-25", "note://a"), notes("2025-11-25", "memo://m")
    async with a_world({"one": first, "two": second}) as world:
        client = await world.client()
        await subscribe(client, "note://a")
        second.update("note://a")
        second.update("note://a/b")
        await silence(world, client)


async def test_what_is_hidden_stays_hidden_in_news() -> None:
    """docs/subscriptions.md#resources: hiddenResources; the part that may not be seen is told of as the whole."""
    server = notes("2025-11-25", "note://a")
    async with a_world({"up": server}, entries={"up": {"hiddenResources": ["*secret*"]}}) as world:
        client = await world.client()
        await subscribe(client, "note://a")
        server.update("note://a/secret")
        assert await news(client) == "note://a"
        assert (await client.ask("resources/subscribe", {"uri": "note://a/secret"})).error["code"] == -32002


# --- what cannot be ---------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{}, {"uri": 5}, {"uri": None}, {"uri": ["note://a"]}])
async def test_a_subscription_needs_a_uri(params: dict[str, Any]) -> None:
    """docs/errors.md#errors: bad params."""
    async with a_world({"up": notes()}) as world:
        client = await world.client()
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert (await client.ask(method, params)).error["code"] == -32602


async def test_what_was_never_subscribed_to_can_be_unsubscribed_from() -> None:
    """Ours: `{}`; and no server is bothered."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client()
        for uri in ("note://a", "no://such"):
            assert (await client.ask("resources/unsubscribe", {"uri": uri})).result == {}
        assert server.times("resources/unsubscribe") == 0


async def test_what_nobody_has_cannot_be_subscribed_to() -> None:
    """docs/errors.md#errors: not found by revision; a stream honours the rest."""
    servers = {"one": notes("2025-11-25", "note://a"), "two": notes("2025-11-25", "memo://m")}
    async with a_world(servers) as world:
        client = await world.client()
        error = (await client.ask("resources/subscribe", {"uri": "no://such"})).error
        assert (error["code"], error["data"]) == (-32002, {"uri": "no://such"})
        assert await subscribe(await world.client(MODERN), "no://such", "memo://m") == ["memo://m"]
        assert servers["two"].watched == {"memo://m"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_without_subscriptions_is_not_asked(era: str) -> None:
    """docs/subscriptions.md#resources: -32602 where the server has no such capability."""
    server = notes(era, capabilities={"resources": {}})
    async with a_world({"up": server}) as world:
        client = await world.client()
        error = (await client.ask("resources/subscribe", {"uri": "note://a"})).error
        assert (error["code"], error["message"]) == (-32602, 'server "up" does not offer subscriptions')
        assert await subscribe(await world.client(MODERN), "note://a") == []
        assert server.times("resources/subscribe") == server.times("subscriptions/listen") == 0


async def test_the_first_servers_declared_nothing_and_are_asked_all_the_same() -> None:
    """Ours: what a server of 2024-11-05 can do may be more than it says."""
    server = notes("2024-11-05", capabilities={})
    async with a_world({"up": server}) as world:
        assert await subscribe(await world.client(), "note://a") == ["note://a"]


async def test_a_servers_refusal_is_passed_on() -> None:
    """docs/errors.md#errors: its error; and it may be tried again."""
    server = notes(unknown=frozenset(("note://a",)))
    async with a_world({"up": server}) as world:
        client = await world.client()
        for _ in range(2):
            error = (await client.ask("resources/subscribe", {"uri": "note://a"})).error
            assert (error["code"], error["message"]) == (-32002, "Resource not found: note://a")
        assert await subscribe(await world.client(MODERN), "note://b", "note://a") == ["note://b"]
        server.unknown = frozenset()
        assert await subscribe(client, "note://a") == ["note://a"]


async def test_what_a_stateless_server_does_not_acknowledge_fails() -> None:
    """docs/errors.md#errors: a URI missing from the ack → -32602; the others are not touched by it."""
    server = notes(MODERN, unknown=frozenset(("note://b",)))
    async with a_world({"up": server}) as world:
        client = await world.client()
        assert await subscribe(client, "note://a") == ["note://a"]
        error = (await client.ask("resources/subscribe", {"uri": "note://b"})).error
        assert (error["code"], error["message"]) == (-32602, 'server "up" does not offer a subscription to note://b')
        await until(lambda: server.watched == {"note://a"} and len(server.listens) == 1)
        server.update("note://a")
        assert await news(client) == "note://a"
        server.unknown = frozenset()
        assert await subscribe(client, "note://b") == ["note://b"]


class Picky(NoteServer):
    """Refuses a whole stream for one URI that it does not know, as the book does not ask."""

    def _listen(self, message: dict[str, Any], wanted: dict[str, Any]) -> None:
        if self.unknown & set(wanted.get("resourceSubscriptions", ())):
            self.fail(message, -32602, "unknown resource")
        else:
            super()._listen(message, wanted)


async def test_one_bad_uri_of_one_client_does_not_fail_those_of_others() -> None:
    """Ours: what many ask for at once goes to the server in one stream."""
    uris = [f"note://{n}" for n in range(20)]
    server = Picky(
        revision=MODERN, resources=dict.fromkeys((*uris, "note://bad"), "x"), unknown=frozenset(("note://bad",))
    )
    async with a_world({"up": server}) as world:
        good, bad = await world.client(), await world.client()
        waiting = [good.start("resources/subscribe", {"uri": uri}) for uri in uris]
        refused = bad.start("resources/subscribe", {"uri": "note://bad"})
        assert [(await good.answer(id_)).result for id_ in waiting] == [{}] * 20
        error = (await bad.answer(refused)).error
        assert (error["code"], error["message"]) == (-32602, "unknown resource")
        assert server.watched == set(uris)


async def test_a_stateless_server_that_knows_no_streams_is_left_alone() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: -32601 to listen."""

    class Deaf(NoteServer):
        def _listen(self, message: dict[str, Any], wanted: dict[str, Any]) -> None:
            self.fail(message, -32601, "no method subscriptions/listen")

    server = Deaf(revision=MODERN, resources={"note://a": "x"}, tools={"echo": None})
    async with a_world({"up": server}) as world:
        client = await world.client()
        for _ in range(2):
            error = (await client.ask("resources/subscribe", {"uri": "note://a"})).error
            assert (error["code"], error["message"]) == (-32602, 'server "up" does not offer subscriptions')
        assert server.times("subscriptions/listen") == 1
        assert await client.tools() == ["up__echo"]


async def test_handshake_methods_are_unknown_to_stateless_callers_and_the_other_way_round() -> None:
    """MCP 2026-07-28, changelog: subscribe is of the handshake revisions, listen of 2026-07-28."""
    async with a_world({"up": notes()}) as world:
        modern, old = await world.client(MODERN), await world.client()
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert (await modern.ask(method, {"uri": "note://a"})).error["code"] == -32601
        assert (await old.ask("subscriptions/listen", {"notifications": {}})).error["code"] == -32601


# --- streams of stateless clients -------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        5,
        [],
        {"toolsListChanged": "yes"},
        {"promptsListChanged": 1},
        {"resourcesListChanged": {}},
        {"resourceSubscriptions": "note://a"},
        {"resourceSubscriptions": {}},
        {"resourceSubscriptions": ["note://a", 5]},
        {"resourceSubscriptions": ["note://a", None]},
    ],
)
async def test_a_filter_of_the_wrong_shape_is_refused(wanted: object) -> None:
    """docs/errors.md#errors: bad params; nothing is left behind."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client(MODERN)
        params = {} if wanted is None else {"notifications": wanted}
        assert (await client.ask("subscriptions/listen", params)).error["code"] == -32602
        assert server.watched == set()
        assert client.notices == []


async def test_a_filter_may_want_nothing_or_what_nobody_knows() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: the honoured subset is told."""
    async with a_world({"up": notes()}) as world:
        client = await world.client(MODERN)
        nothing = {"toolsListChanged": False, "promptsListChanged": None, "resourceSubscriptions": None}
        for id_, wanted in enumerate(({}, {"other": 5}, nothing)):
            client.start("subscriptions/listen", {"notifications": wanted}, id_=f"L{id_}")
            assert (await client.notice(ACKNOWLEDGED))["params"]["notifications"] == {}
        undeclared = await client.ask("subscriptions/listen", {"notifications": {"taskIds": ["t"]}})
        assert undeclared.error["code"] == -32021
        assert await subscribe(client, id_="L3") == []
        assert await subscribe(client, "note://a", "note://a", id_="L4") == ["note://a"]


async def test_the_acknowledgement_comes_first_whatever_happens_meanwhile() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions.

    No notification before the ack; what happened until then is told after it.
    """
    server = notes(silent=frozenset(("resources/subscribe",)))
    async with a_world({"up": server}) as world:
        client = await world.client(MODERN)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a", "note://b"]}
        client.start("subscriptions/listen", {"notifications": wanted}, id_=7)
        await until(lambda: server.times("resources/subscribe") == 2)
        first, second = [m for m in server.heard if m.get("method") == "resources/subscribe"]
        server.reply(first, {})
        server.update("note://a")
        await world.gateway.add("other", server=notes("2025-11-25", "memo://m", tools={"t": None}))
        assert (await client.tools(), client.notices) == (["other__t"], [])
        server.reply(second, {})
        ack = await client.notice(ACKNOWLEDGED)
        assert ack["params"] == {"_meta": {SUBSCRIPTION: 7}, "notifications": wanted}
        assert await news(client) == "note://a"
        await client.notice("notifications/tools/list_changed")
        await silence(world, client)


async def test_a_stream_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions.

    The client may end it at any time; what is cancelled is not answered.
    """
    server = notes(silent=frozenset(("resources/subscribe",)))
    async with a_world({"up": server}) as world:
        client = await world.client(MODERN)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}
        client.start("subscriptions/listen", {"notifications": wanted}, id_="L")
        await until(lambda: server.times("resources/subscribe"))
        client.tell("notifications/cancelled", {"requestId": "L"})
        server.reply(server.heard[-1], {})
        await until(lambda: server.times("resources/unsubscribe") == 1)
        await world.gateway.add("two", server=notes("2025-11-25", "memo://m", tools={"t": None}))
        await silence(world, client)


async def test_streams_of_one_client_are_told_apart() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: several may coexist; each notice is stamped with its own."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client(MODERN)
        await subscribe(client, "note://a", id_="L1")
        await subscribe(client, "note://a", "note://b", id_=1)
        server.update("note://a")
        stamps = [(await client.notice(UPDATED))["params"]["_meta"][SUBSCRIPTION] for _ in range(2)]
        assert stamps == ["L1", 1]
        await unsubscribe(client, "", id_=1)
        await until(lambda: server.watched == {"note://a"})
        server.update("note://a")
        assert (await client.notice(UPDATED))["params"]["_meta"][SUBSCRIPTION] == "L1"
        await silence(world, client)


# --- links come and go ------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_comes_back_is_subscribed_to_again(era: str) -> None:
    """docs/subscriptions.md#resources.

    Re-subscription after a reconnect; there is no replay, so clients are told to look.
    """
    server = notes(era)
    async with a_world({"up": server}) as world:
        old, modern = await world.client(), await world.client(MODERN)
        await subscribe(old, "note://a")
        await subscribe(modern, "note://a")
        server.subscribed.clear()
        server.listens.clear()
        await crash(world, "up")
        assert [await news(old), await news(modern)] == ["note://a"] * 2
        assert server.watched == {"note://a"}
        server.update("note://a")
        assert [await news(old), await news(modern)] == ["note://a"] * 2


class Late(NoteServer):
    """Greets when it is told to."""

    go: asyncio.Event

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        if message.get("method") == "initialize":
            await self.go.wait()
        await super()._handle(message, line)


@pytest.mark.parametrize("revision", ERAS)
async def test_a_subscription_waits_for_a_server_that_is_starting(revision: str) -> None:
    """docs/design/decisions/0007-hold-calls-while-starting.md: and so are these."""
    server = Late(resources={"note://a": "x"})
    server.go = asyncio.Event()
    async with a_world({"one": notes("2025-11-25", "memo://m")}) as world:
        adding = asyncio.ensure_future(world.gateway.add("late", server=server))
        await until(lambda: server.times("initialize"))
        client = await world.client(revision)
        waiting = asyncio.ensure_future(subscribe(client, "note://a", "memo://m"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        server.go.set()
        assert await waiting == ["note://a", "memo://m"]
        await adding


async def test_a_server_that_is_away_takes_no_subscriptions() -> None:
    """docs/errors.md#-32603-the-server-gave-no-usable-answer: a reason, and at once."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client()
        server.end()
        await until(lambda: world.gateway.servers()[0].status == "failed")
        error = (await client.ask("resources/subscribe", {"uri": "note://a"})).error
        assert error["data"]["muxway"] == {"reason": "not_running", "upstream": "up"}


async def test_a_server_that_goes_fails_what_waits_for_it_to_agree() -> None:
    """docs/errors.md#-32603-the-server-gave-no-usable-answer: nobody waits for ever."""
    server = notes(silent=frozenset(("resources/subscribe",)))
    async with a_world({"up": server}) as world:
        client = await world.client()
        waiting = client.start("resources/subscribe", {"uri": "note://a"})
        await until(lambda: server.times("resources/subscribe"))
        server.end()
        assert (await client.answer(waiting)).error["data"]["muxway"]["reason"] == "lost"


async def test_a_server_that_is_removed_takes_its_subscriptions_along() -> None:
    """Ours: its URIs may be another one's later."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client()
        await subscribe(client, "note://a")
        await world.gateway.remove("up")
        assert (await client.ask("resources/unsubscribe", {"uri": "note://a"})).result == {}
        again = notes()
        await world.gateway.add("up", server=again)
        await subscribe(client, "note://a")
        again.update("note://a")
        assert await news(client) == "note://a"


@pytest.mark.parametrize("politely", [True, False])
async def test_a_stream_that_ends_is_opened_again_and_the_lists_are_read_again(politely: bool) -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions.

    A result, a cancellation or neither; re-listen, refetch, as nothing is replayed.
    """
    server = notes(MODERN, tools={"a": None})
    async with a_world({"up": server}) as world:
        client = await world.client()
        await subscribe(client, "note://a")
        await until(lambda: server.times("tools/list") == 2)
        server.tools["b"] = None
        server.hang_up(politely=politely)
        await client.notice("notifications/tools/list_changed")
        assert await client.tools() == ["up__a", "up__b"]
        assert await news(client) == "note://a"
        assert server.watched == {"note://a"}
        server.update("note://a")
        assert await news(client) == "note://a"


async def test_a_wider_stream_is_open_before_the_narrower_one_is_ended() -> None:
    """docs/subscriptions.md#changes-and-subscriptions.

    Open, wait for the ack, then cancel; nothing is lost or told twice meanwhile.
    """
    told: list[str] = []

    class Chatty(NoteServer):
        def _listen(self, message: dict[str, Any], wanted: dict[str, Any]) -> None:
            self.update("note://a")
            super()._listen(message, wanted)
            self.update("note://a")
            told.append(f"{len(self.listens)} open")

    server = Chatty(revision=MODERN, resources={"note://a": "x", "note://b": "x"})
    async with a_world({"up": server}) as world:
        client = await world.client()
        await subscribe(client, "note://a")
        assert await news(client) == "note://a"
        await subscribe(client, "note://b")
        assert [await news(client), await news(client)] == ["note://a"] * 2
        await silence(world, client)
        assert told[-1] == "2 open"
        await until(lambda: len(server.listens) == 1)


async def test_a_stream_asks_only_for_what_the_server_can_tell() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: per its capabilities."""
    server = notes(MODERN, capabilities={"tools": {"listChanged": True}, "prompts": {}, "resources": {}})
    quiet = NoteServer(revision=MODERN, tools={"t": None}, capabilities={"tools": {}})
    async with a_world({"up": server, "quiet": quiet}):
        await until(lambda: server.listens)
        assert [*server.listens.values()] == [{"toolsListChanged": True}]
        assert quiet.times("subscriptions/listen") == 0


async def test_an_open_stream_is_not_taken_for_a_call_that_waits() -> None:
    """Ours: an error without an id still belongs to the only call there is."""

    def nameless(server: Any, request: dict[str, Any]) -> None:
        server.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "oh"}})

    server = notes(MODERN, tools={"bad": nameless})
    async with a_world({"up": server}) as world:
        client = await world.client()
        await subscribe(client, "note://a")
        assert (await client.call("up__bad")).error["message"] == "oh"
        server.update("note://a")
        assert await news(client) == "note://a"


# --- too much ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_flood_of_subscriptions_has_a_limit_and_hurts_nobody(era: str) -> None:
    """docs/subscriptions.md#limits: subscribe floods. 1,000 URIs a client; the others go on."""
    server = notes(era, "note://a", tools={"echo": None})
    async with a_world({"up": server}) as world:
        bad, good = await world.client(), await world.client()
        ids = [bad.start("resources/subscribe", {"uri": f"note://{n}"}) for n in range(5000)]
        assert (await good.call("up__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        assert await subscribe(good, "note://a") == ["note://a"]
        outcomes = [(await bad.answer(id_)).message for id_ in ids]
        assert [outcome.get("result") for outcome in outcomes[:1000]] == [{}] * 1000
        assert {outcome["error"]["code"] for outcome in outcomes[1000:]} == {-32602}
        assert len(server.watched) == 1001
        assert (await bad.ask("resources/unsubscribe", {"uri": "note://5"})).result == {}
        assert (await bad.ask("resources/subscribe", {"uri": "note://4999"})).result == {}
        if era == MODERN:
            # What comes while the server thinks goes into one stream.
            assert server.times("subscriptions/listen") < 20


@pytest.mark.parametrize("era", ERAS)
async def test_a_uri_that_is_kept_has_a_limit(era: str) -> None:
    """docs/subscriptions.md#limits: 1,000 URIs as long as a message may be would fill the memory."""
    server = notes(era, "note://a")
    async with a_world({"up": server}) as world:
        client = await world.client()
        longest = "note://".ljust(4096, "x")
        assert await subscribe(client, longest) == [longest]
        refused = (await client.ask("resources/subscribe", {"uri": f"{longest}x"})).error
        assert refused["code"] == -32602
        assert "4096 characters" in refused["message"]
        assert len(refused["message"]) < 500
        assert not any(longest + "x" in repr(message) for message in server.heard)
        stateless = await world.client(MODERN)
        assert await subscribe(stateless, longest + "x", "note://a") == ["note://a"]


async def test_a_flood_of_streams_has_a_limit() -> None:
    """Ours: the limit counts over all streams of a client, and so do the streams."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client(MODERN)
        uris = [f"note://{n}" for n in range(600)]
        assert await subscribe(client, *uris, id_="one") == uris
        params = {"notifications": {"resourceSubscriptions": uris}}
        assert (await client.ask("subscriptions/listen", params)).error["code"] == -32602
        await unsubscribe(client, "", id_="one")
        for n in range(100):
            await subscribe(client, id_=f"L{n}")
        assert (await client.ask("subscriptions/listen", {"notifications": {}})).error["code"] == -32600
        client.tell("notifications/cancelled", {"requestId": "L7"})
        assert await subscribe(client, *uris, id_="again") == uris


async def test_on_and_off_in_a_flood_ends_as_the_last_word_says() -> None:
    """Ours: what the server knows is brought in line with what is wanted, whatever came in between."""
    for era in ERAS:
        server = notes(era)
        async with a_world({"up": server}) as world:
            client = await world.client()
            ids: list[Any] = []
            for _ in range(500):
                ids.append(client.start("resources/subscribe", {"uri": "note://a"}))
                ids.append(client.start("resources/unsubscribe", {"uri": "note://a"}))
            ids.append(client.start("resources/subscribe", {"uri": "note://b"}))
            assert [(await client.answer(id_)).result for id_ in ids] == [{}] * 1001
            await until(lambda server=server: server.watched == {"note://b"})
            assert len(server.heard) < 50


@pytest.mark.parametrize("era", ERAS)
async def test_off_and_on_again_is_on(era: str) -> None:
    """Ours: before the server has heard of the first of the two."""
    server = notes(era)
    async with a_world({"up": server}) as world:
        client = await world.client()
        await subscribe(client, "note://a")
        off = client.start("resources/unsubscribe", {"uri": "note://a"})
        on = client.start("resources/subscribe", {"uri": "note://a"})
        assert [(await client.answer(id_)).result for id_ in (off, on)] == [{}, {}]
        await asyncio.sleep(0.02)
        assert server.watched == {"note://a"}
        server.update("note://a")
        assert await news(client) == "note://a"


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_clients_do_servers_know_what_is_wanted_in_the_end(seed: int) -> None:
    """Ours: at rest, what each server is to tell of is just what its clients are subscribed to."""
    dice = random.Random(seed)
    servers = {"old": notes("2025-06-18", "old://"), "new": notes(MODERN, "new://")}
    uris = [f"{name}://{n}" for name in servers for n in range(6)]
    async with a_world(servers) as world:
        clients = [await world.client(dice.choice(HANDSHAKE_REVISIONS)) for _ in range(4)]
        wanted: list[set[str]] = [set() for _ in clients]
        modern = await world.client(MODERN)
        streams: dict[str, list[str]] = {}
        for step in range(300):
            number, uri = dice.randrange(4), dice.choice(uris)
            action = dice.random()
            if action < 0.45:
                clients[number].start("resources/subscribe", {"uri": uri})
                wanted[number].add(uri)
            elif action < 0.8:
                clients[number].start("resources/unsubscribe", {"uri": uri})
                wanted[number].discard(uri)
            elif action < 0.9:
                streams[f"L{step}"] = dice.sample(uris, 3)
                filter_ = {"resourceSubscriptions": streams[f"L{step}"]}
                modern.start("subscriptions/listen", {"notifications": filter_}, id_=f"L{step}")
            elif streams:
                ended = dice.choice(list(streams))
                del streams[ended]
                modern.tell("notifications/cancelled", {"requestId": ended})
            if action > 0.97:
                servers["new"].hang_up()
            if dice.random() < 0.2:
                await asyncio.sleep(dice.random() * 0.02)
        left = set().union(*wanted, *streams.values())
        for name, server in servers.items():
            await until(lambda name=name, server=server: server.watched == {u for u in left if u.startswith(name)})
        for uri in left:
            servers[uri[:3]].update(uri)
        for number, client in enumerate(clients):
            heard: set[str] = set()
            while not wanted[number] <= heard:
                heard.add(await news(client))


async def test_a_server_that_never_agrees_costs_only_those_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a time limit for a server's agreement; a stream does without what is not agreed to by then."""
    monkeypatch.setattr("muxway.servers.notifications._CONFIRM", 0.2)
    monkeypatch.setattr("muxway.clients.listen_request._PATIENCE", 0.1)
    for server in (
        notes(silent=frozenset(("resources/subscribe",))),
        notes(MODERN, silent=frozenset(("subscriptions/listen",))),
    ):
        async with a_world({"up": server, "fine": notes("2025-11-25", "memo://m")}) as world:
            client, modern = await world.client(), await world.client(MODERN)
            waiting = client.start("resources/subscribe", {"uri": "note://a"})
            assert await subscribe(modern, "note://a", "memo://m") == ["memo://m"]
            assert (await client.answer(waiting)).error["data"]["muxway"]["reason"] == "timeout"


async def test_a_server_that_ends_every_stream_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/subscriptions.md#resources: back-off; meanwhile nobody waits for a stream that will not come soon."""
    monkeypatch.setattr("muxway.servers.notifications._PAUSE", 0.02)
    monkeypatch.setattr("muxway.servers.notifications._SOON", 0.2)

    class Rude(NoteServer):
        def _listen(self, message: dict[str, Any], wanted: dict[str, Any]) -> None:
            self.reply(message, {})

    server = Rude(revision=MODERN, resources={"note://a": "x"}, tools={"echo": None})
    async with a_world({"up": server}) as world:
        client = await world.client()
        await until(lambda: server.times("subscriptions/listen") == 5)
        await asyncio.sleep(0.05)
        error = (await client.ask("resources/subscribe", {"uri": "note://a"})).error
        assert error["data"]["muxway"] == {"reason": "lost", "upstream": "up"}
        assert server.times("subscriptions/listen") == 5
        assert (await client.call("up__echo", {"x": 1})).result


async def test_a_slow_reader_gets_the_last_word_and_not_all_of_them() -> None:
    """docs/subscriptions.md#resources: coalescing. What waits is bounded by what was subscribed to."""
    from muxway.clients.unsent import Unsent

    said: list[bytes] = []
    waiting = 1e6
    box = Unsent(lambda frame: said.append(b"".join(frame)), lambda: waiting)
    box.open()
    for n in range(1000):
        box.updated("note://a", "note://a")
        box.updated("note://b", f"note://b/{n}")
        box.updated("note://c", "note://c/1")
        box.lists_changed(["tools", "prompts"])
    assert said == []
    waiting = 0.0
    await until(lambda: len(said) == 5)
    assert [line.count(word) for line, word in zip(said, (b"tools", b"prompts"), strict=False)] == [1, 1]
    # Of many parts of one thing, the thing itself is left.
    assert [b'"note://a"' in said[2], b'"note://b"' in said[3], b'"note://c/1"' in said[4]] == [True] * 3
    box.close()


# --- log messages -----------------------------------------------------------------------------------


async def test_what_a_server_logs_outside_any_call_is_for_the_only_client() -> None:
    """docs/subscriptions.md#log-messages: with a second session nobody can tell whose it is."""
    server = notes(tools={"echo": None})
    said = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hm"}}
    async with a_world({"up": server}) as world:
        server.say(said)
        await asyncio.sleep(0.01)
        client = await world.client()
        server.say(said)
        notice = await client.notice("notifications/message")
        assert notice["params"] == {"level": "info", "data": "hm", "logger": "up"}
        assert (await client.ask("logging/setLevel", {"level": "warning"})).result == {}
        server.say(said)
        await silence(world, client)
        other = await world.client()
        server.say({**said, "params": {"level": "alert", "data": "hm"}})
        await silence(world, client, other)
        assert world.gateway.runtime.sessions.dropped == 2


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_a_clients_roots_are_no_servers_business(revision: str) -> None:
    """docs/behaviour.md#questions-of-servers: links are shared, so a server could not know whose roots changed."""
    server = notes(revision, tools={"echo": None})
    async with a_world({"up": server}) as world:
        client = await world.client(revision)
        client.tell("notifications/roots/list_changed")
        await client.call("up__echo")
        assert server.times("notifications/roots/list_changed") == 0


@pytest.mark.parametrize("server_revision", ERAS)
async def test_a_stream_for_many_uris_is_opened_without_holding_up_others(server_revision: str) -> None:
    """docs/behaviour.md#size-limits: nothing that a client sends holds the event loop for over 20 ms."""
    templates: dict[str, Any] = {"x://" + "{a}b" * 7 + str(number): None for number in range(100)}
    uris = [f"x://{'b' * 500}{number}" for number in range(100, 400)]
    server = notes(server_revision, templates={**templates, "x://{+rest}": None})
    async with asyncio.timeout(30), a_world({"up": server}) as world:
        client = await world.client(MODERN)
        assert await subscribe(client, *uris[:2], id_="first") == uris[:2]
        async with watching(world.gateway.metronome) as seen:
            assert await subscribe(client, *uris[2:]) == uris[2:]
        assert seen.turn < LONG


async def test_a_stream_is_opened_however_its_id_is_spelled() -> None:
    """RFC 8259 §8.3: strings are equal by value; JSON-RPC 2.0 §4: any string is an id."""
    async with asyncio.timeout(30), a_world({"up": notes()}) as world:
        client = await world.client(MODERN)
        client.say(
            b'{"jsonrpc":"2.0","id":"\\u0078\\/y","method":"subscriptions/listen","params":{"notifications":'
            b'{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
        )
        opened = await client.notice(ACKNOWLEDGED)
        assert opened["params"]["_meta"][SUBSCRIPTION] == "x/y"
