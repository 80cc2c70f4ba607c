"""Which slot of a server's pool a caller gets."""

from __future__ import annotations

import pytest
from msgspec import Raw

from muxway.calls.call import Caller
from muxway.servers.pool import Sharing
from muxway.servers.slot import FIRST, SESSIONS, SlotKey
from muxway.wire.revisions import NEWEST, NEWEST_HANDSHAKE

ANN, BOB = b"ann", b"bob"
SESSION, OTHER = object(), object()
ASKABLE = Raw(b'{"elicitation":{}}')


def caller(principal: bytes = b"", party: object = SESSION, *, stateless: bool = False, asks: bool = False) -> Caller:
    revision = NEWEST if stateless else NEWEST_HANDSHAKE
    return Caller(revision=revision, principal=principal, party=party, capabilities=ASKABLE if asks else None)


def key(sharing: Sharing, one: Caller, *, stateless: bool) -> SlotKey:
    """The slot of a caller at a server whose first connection is stateless, or is not."""
    return sharing.key(one, stateless=stateless, crosses=sharing.crosses(one, stateless=stateless))


@pytest.mark.parametrize("first_is_stateless", [False, True])
@pytest.mark.parametrize("stateless", [False, True])
def test_whom_nothing_keeps_apart_shares_the_first(first_is_stateless: bool, stateless: bool) -> None:
    """docs/questions.md#who-shares-a-server: `shared` means all of them."""
    sharing = Sharing("shared", keeps_state=True)
    for principal in (b"", ANN, BOB):
        assert key(sharing, caller(principal, stateless=stateless), stateless=first_is_stateless) is FIRST


def test_a_server_of_both_eras_has_one_more_for_sessions() -> None:
    """docs/questions.md#who-shares-a-server: a server of both eras is used in its caller's."""
    sharing = Sharing("shared", match_era=True)
    assert key(sharing, caller(), stateless=True) == SESSIONS
    assert key(sharing, caller(stateless=True), stateless=True) is FIRST
    assert key(sharing, caller(), stateless=False) is FIRST


def test_a_program_is_told_apart_from_stateless_callers_only_if_it_can_be_asked() -> None:
    """Ours: it hears nothing but results, so only a question makes a difference."""
    sharing = Sharing("shared", match_era=True)
    assert key(sharing, caller(party=None), stateless=True) is FIRST
    assert key(sharing, caller(party=None, asks=True), stateless=True) == SESSIONS


def test_the_first_principal_needs_no_second_process() -> None:
    """docs/questions.md#who-shares-a-server: `principal`, the default."""
    sharing = Sharing("principal", keeps_state=True)
    assert key(sharing, caller(ANN), stateless=False) is FIRST
    assert key(sharing, caller(ANN, OTHER), stateless=False) is FIRST
    assert key(sharing, caller(BOB), stateless=False).owner == BOB
    assert key(sharing, caller(BOB), stateless=True) == SlotKey("modern", BOB)


def test_what_callers_can_do_tells_their_connections_apart() -> None:
    """Ours: a handshake declares capabilities once, for the whole connection."""
    sharing = Sharing("principal", keeps_state=True, principal=ANN)
    silent, askable = caller(BOB), caller(BOB, asks=True)
    assert key(sharing, silent, stateless=False) != key(sharing, askable, stateless=False)
    assert key(sharing, silent, stateless=True) == key(sharing, askable, stateless=True)


def test_every_session_has_its_own_and_none_the_first() -> None:
    """docs/questions.md#who-shares-a-server: `session`; something may stay behind in the first."""
    sharing = Sharing("session", keeps_state=True)
    assert key(sharing, caller(ANN), stateless=False).owner is SESSION
    assert key(sharing, caller(ANN, OTHER), stateless=False).owner is OTHER


@pytest.mark.parametrize("isolation", ["principal", "session"])
def test_a_stateless_server_elsewhere_keeps_nobody_apart(isolation: str) -> None:
    """docs/questions.md#who-shares-a-server: its requests carry all there is."""
    sharing = Sharing(isolation, principal=ANN)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert key(sharing, caller(BOB, stateless=True), stateless=True) is FIRST


def test_an_only_client_is_kept_apart_from_nobody() -> None:
    """docs/questions.md: under `muxway stdio` there is one process."""
    assert key(Sharing("session", keeps_state=True, alone=True), caller(ANN), stateless=False) is FIRST
