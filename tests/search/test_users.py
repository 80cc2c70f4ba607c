"""Indexes where servers list something of their own for each user: kept for each, shared where equal, never crossed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Raw

from muxway.calls.call import LIBRARY, Call
from muxway.calls.identity import Identity
from muxway.catalog.build import Source
from muxway.catalog.model import NativeTool
from muxway.exchange import searching
from muxway.exchange.searching import Searches
from muxway.routing.snapshot import OwnLists
from tests.exchange.faking import FakeLink, World, member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.routing.snapshot import Visible
    from muxway.search.index import Segment

USERS = {name: Identity(issuer="https://id.example.com", subject=name) for name in ("ann", "bob", "cid")}
ANN, BOB, CID = USERS.values()


def source(server: str, **tools: str) -> Source:
    """What a server lists: names and what the tools do."""
    natives = [NativeTool(name, {"description": Raw(json.dumps(does).encode())}) for name, does in tools.items()]
    return Source(upstream=server, prefix=server, tools=natives)


class Users:
    """Users of `notes`, which is everybody's, and of `guarded`, which lists to each what is for them."""

    def __init__(self, **own: Mapping[str, str]) -> None:
        self._shown = source("notes", note="Write it down")
        self._world = World({name: member(FakeLink()) for name in ("notes", "guarded")}, self._shown)
        self.searches = Searches()
        self.own = {USERS[name].owner: {"guarded": source("guarded", **tools)} for name, tools in own.items()}
        self.publish()

    def publish(self) -> None:
        """Put in force what is listed."""
        self._world.runtime.publish([self._shown], own_lists=OwnLists(frozenset({"guarded"}), dict(self.own)))

    def sees(self, user: Identity) -> Visible:
        """What there is for a user."""
        return self._world.runtime.snapshot.seen(None, user)

    async def find(self, user: Identity, query: str, visible: Visible | None = None) -> str:
        """What a search of theirs answers, by what they see now or saw once."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        arguments: dict[str, Any] = {"arguments": Raw(json.dumps({"query": query}).encode())}
        call = Call(LIBRARY, "tools/call", arguments)
        self.searches.answer(None, visible or self.sees(user), call, answer.set_result, answer.set_result)
        return await asyncio.wait_for(answer, 10)

    def segments(self, user: Identity) -> Mapping[str, Segment]:
        """What is kept for a user."""
        return self.searches._views[None, user.owner].index.segments


async def test_no_user_is_found_what_another_ones_list_says() -> None:
    """docs/security.md: neither in hits nor in counts, whoever searched before and whatever tools are called."""
    users = Users(ann={"same": "Feed zebras", "hers": "Feed zebras twice"}, bob={"same": "Paint walls"})
    for _ in range(2):
        assert "guarded__hers" in await users.find(ANN, "zebras")
        told = await users.find(BOB, "zebras")
        assert told.startswith("No tool matches")
        assert "notes (1), guarded (1)" in told
        assert (await users.find(BOB, "paint")).startswith("guarded__same")
        assert (await users.find(ANN, "paint")).startswith("No tool matches")
        nothing = await users.find(CID, "zebras paint")
        assert "notes (1), guarded (0)" in nothing
        assert (await users.find(CID, "guarded__hers")).startswith("No tool matches")


async def test_users_in_turn_cost_nothing_again_and_equal_lists_are_one_segment() -> None:
    """docs/discovery.md#limits: each index stays, and what is the same in two of them is there once."""
    users = Users(ann={"a": "Feed zebras"}, bob={"b": "Paint walls"}, cid={"a": "Feed zebras"})
    for user in (ANN, BOB, CID):
        await users.find(user, "write")
    first = [dict(users.segments(user)) for user in (ANN, BOB, CID)]
    for user in (BOB, ANN, CID, ANN):
        await users.find(user, "write")
    assert [dict(users.segments(user)) for user in (ANN, BOB, CID)] == first
    hers, his, its = first
    assert hers["notes"] is his["notes"] is its["notes"]
    assert hers["guarded"] is its["guarded"]
    assert hers["guarded"] is not his["guarded"]


async def test_a_changed_list_of_one_user_rebuilds_that_alone() -> None:
    """docs/discovery.md#ranking: a list that changes costs its own server's tools, of its own user."""
    users = Users(ann={"a": "Feed zebras"}, bob={"b": "Paint walls"})
    for user in (ANN, BOB):
        await users.find(user, "write")
    before = [dict(users.segments(user)) for user in (ANN, BOB)]
    users.own[ANN.owner] = {"guarded": source("guarded", a="Feed lions")}
    users.publish()
    assert (await users.find(ANN, "lions")).startswith("guarded__a")
    assert (await users.find(BOB, "lions")).startswith("No tool matches")
    assert users.segments(ANN)["notes"] is before[0]["notes"]
    assert users.segments(ANN)["guarded"] is not before[0]["guarded"]
    assert dict(users.segments(BOB)) == before[1]


@pytest.mark.parametrize(("name", "most"), [("_MOST_OWNERS", 2), ("_MOST_TOOLS", 4)])
async def test_indexes_that_were_used_longest_ago_go(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: as many as users come are not kept."""
    monkeypatch.setattr(searching, name, most)
    users = Users(ann={"a": "Feed zebras"}, bob={"b": "Paint walls"}, cid={"c": "Dig holes"})
    for user, word in ((ANN, "zebras"), (BOB, "walls"), (ANN, "zebras"), (CID, "holes")):
        assert (await users.find(user, word)).startswith("guarded__")
    assert [owner for _, owner in users.searches._views] == [ANN.owner, CID.owner]
    assert (await users.find(BOB, "walls")).startswith("guarded__b")


async def test_each_of_many_searches_at_once_goes_by_what_its_caller_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: also while indexes are made, a step in each turn of the loop, and lists change."""
    monkeypatch.setattr(searching, "_TURN", 0.0)
    users = Users(ann={"a": "Feed zebras"}, bob={"b": "Paint walls"})
    old = users.sees(ANN)
    users.own[ANN.owner] = {"guarded": source("guarded", a="Feed lions")}
    users.publish()
    found = await asyncio.gather(
        *(users.find(ANN, word, seen) for seen in (old, None, old, None) for word in ("zebras", "lions")),
        *(users.find(BOB, word) for word in ("zebras", "lions", "walls")),
    )
    assert [text.startswith("guarded__") for text in found] == [
        *(True, False, False, True, True, False, False, True),
        *(False, False, True),
    ]
