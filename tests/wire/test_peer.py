"""What one connection remembers, played through: it hears, it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.wire.peer import Peer


class Play:
    """A conversation with a peer. Fails with everything that was said so far."""

    def __init__(self) -> None:
        self.peer: Peer[str, str] = Peer()
        self._said: list[str] = []
        self._got: Any = None

    def asks(self, ticket: str) -> Play:
        """We make a request and remember it under a fresh id."""
        id_ = self.peer.mint()
        self.peer.ours[id_] = ticket
        return self._note(f"asks {ticket!r}", id_)

    def hears_answer(self, id_: bytes) -> Play:
        """An answer arrives."""
        return self._note(f"hears answer {id_!r}", self.peer.take(id_))

    def hears_progress(self, token: bytes | None) -> Play:
        """A progress notice arrives."""
        return self._note(f"hears progress {token!r}", self.peer.find(token))

    def hears_junk(self, line: bytes) -> Play:
        """A line arrives that cannot be read."""
        return self._note(f"hears junk {line!r}", self.peer.meant(line))

    def loses_the_connection(self) -> Play:
        """The other side is gone."""
        return self._note("loses the connection", list(self.peer.lost()))

    def gives(self, expected: object) -> Play:
        """What the last step must have come to."""
        assert self._got == expected, "\n".join([*self._said, f"expected {expected!r}"])
        return self

    def has_dropped(self, count: int) -> Play:
        """How many answers have led nowhere so far."""
        return self._note("has dropped", self.peer.dropped).gives(count)

    def _note(self, what: str, got: object) -> Play:
        self._got = got
        self._said.append(f"{what} → {got!r}")
        return self


def test_each_answer_finds_its_own_request_in_any_order() -> None:
    """JSON-RPC 2.0 §5: an answer has the id of its request, here one that we gave."""
    (
        Play()
        .asks("a").gives(1)
        .asks("b").gives(2)
        .asks("c").gives(3)
        .hears_answer(b"2").gives("b")
        .hears_answer(b"3").gives("c")
        .hears_answer(b"1").gives("a")
        .has_dropped(0)
    )  # fmt: skip


def test_a_second_answer_to_one_request_is_dropped() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: the first answer counts; a duplicate ends nobody else's call."""
    (
        Play()
        .asks("a").gives(1)
        .asks("b").gives(2)
        .hears_answer(b"1").gives("a")
        .hears_answer(b"1").gives(None)
        .has_dropped(1)
        .hears_answer(b"2").gives("b")
    )  # fmt: skip


def test_a_late_answer_is_dropped_after_its_request_was_given_up() -> None:
    """MCP 2025-11-25, basic/utilities/cancellation: an answer that comes after the cancellation is ignored."""
    play = Play().asks("a").gives(1)
    del play.peer.ours[1]
    play.hears_answer(b"1").gives(None).has_dropped(1).asks("b").gives(2).hears_answer(b"2").gives("b")


@pytest.mark.parametrize(
    "id_",
    [b"9", b'"nine"', b"-1", b"1.5", b"null", b"true", b"{}", b'""', b"99999999999999999999999999", '"²"'.encode()],
)
def test_an_answer_with_an_id_we_never_gave_is_dropped(id_: bytes) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: invented ids reach nobody."""
    Play().asks("a").hears_answer(id_).gives(None).has_dropped(1).hears_answer(b"1").gives("a")


def test_a_server_that_turns_our_integer_into_a_string_still_means_that_request() -> None:
    """Ours: some servers print ids as strings. Our ids are integers only, so there is no doubt."""
    Play().asks("a").hears_progress(b'"1"').gives("a").hears_answer(b'"1"').gives("a").has_dropped(0)


def test_ids_are_never_used_twice() -> None:
    """MCP 2025-11-25, basic/index: an id may not be reused within a session, answered or not."""
    Play().asks("a").gives(1).hears_answer(b"1").gives("a").asks("b").gives(2).loses_the_connection().gives(["b"]).asks(
        "c"
    ).gives(3)


def test_progress_finds_the_request_and_leaves_it_open() -> None:
    """MCP 2025-11-25, basic/utilities/progress: a token is unique among open requests; here it is the id."""
    (
        Play()
        .asks("a")
        .hears_progress(b"1").gives("a")
        .hears_progress(b"1").gives("a")
        .hears_progress(b"2").gives(None)
        .hears_progress(None).gives(None)
        .hears_answer(b"1").gives("a")
        .hears_progress(b"1").gives(None)
    )  # fmt: skip


def test_everything_open_is_given_back_once_when_the_connection_is_lost() -> None:
    """docs/behaviour.md#a-server-crashes: every waiting call fails at once."""
    (
        Play()
        .asks("a").asks("b").asks("c")
        .hears_answer(b"2").gives("b")
        .loses_the_connection().gives(["a", "c"])
        .loses_the_connection().gives([])
        .hears_answer(b"1").gives(None)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (b'{"jsonrpc":"2.0","id":2,"result":{"broken', 2),
        (b'{"jsonrpc":"2.0","id" : "2","result":{"broken', 2),
        (b'{"jsonrpc":"2.0","id":2,"result":{"id":99,', 2),
        (b'{"jsonrpc":"2.0","id":2,"result":{"id":1,', 2),
        (b'{"jsonrpc":"2.0","id":99,"result":{"id":1,', None),
        (b'{"result":{"id":1},"broken","jsonrpc":"2.0","id":2}', None),
        (b'{"result":{"id":1,"broken":{}},"jsonrpc":"2.0","id":2}\r', 2),
        (b'{"result":{"id":1,"broken":{}}, "id": "2"}', 2),
        (b'broken{"jsonrpc":"2.0","id":2,"result":{}}', 2),
        (b'{"jsonrpc":"2.0","id":99,"result":{', None),
        (b"Server listening on port 1", None),
    ],
)
def test_an_unreadable_line_ends_a_request_only_if_it_shows_whose_it_was(line: bytes, meant: int | None) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: junk fails at most the call it was meant for."""
    Play().asks("a").asks("b").hears_junk(line).gives(meant).loses_the_connection().gives(["a", "b"])


def test_an_answer_without_an_id_is_for_the_only_open_request() -> None:
    """MCP 2025-11-25, schema, JSONRPCErrorResponse: an error may lack its id. With two open, nobody can tell."""
    peer: Peer[str, str] = Peer()
    assert peer.take_only() is None
    peer.ours[peer.mint()] = "a"
    peer.ours[peer.mint()] = "b"
    assert peer.take_only() is None
    assert peer.take(b"1") == "a"
    assert peer.take_only() == "b"
    assert peer.take_only() is None


def test_their_ids_of_either_type_are_two_requests() -> None:
    """docs/behaviour.md#what-passes-untouched: `1` is not `"1"`."""
    peer: Peer[str, str] = Peer()
    peer.theirs[b"1"] = "integer"
    peer.theirs[b'"1"'] = "string"
    assert peer.theirs == {b"1": "integer", b'"1"': "string"}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.just("ask"), st.integers(0, 12), st.just("lose")), max_size=40))
def test_every_request_is_given_back_at_most_once(steps: list[str | int]) -> None:
    """Ours: exactly one outcome per call, whatever a server sends and however often."""
    peer: Peer[str, str] = Peer()
    asked: list[str] = []
    given_back: list[str] = []
    for step in steps:
        if step == "ask":
            id_ = peer.mint()
            peer.ours[id_] = f"call {id_}"
            asked.append(f"call {id_}")
        elif step == "lose":
            given_back += peer.lost()
        else:
            ticket = peer.take(b"%d" % step)
            given_back += [] if ticket is None else [ticket]
    assert len(set(given_back)) == len(given_back)
    assert sorted(given_back + list(peer.ours.values())) == sorted(asked)
