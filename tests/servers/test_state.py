"""The states of a slot: the table, and what goes with a state."""

from __future__ import annotations

import asyncio

import pytest

from muxway.servers.state import TRANSITIONS, Event, SlotState, State, Status, advance

# What a slot in each state becomes; where nothing stands it cannot happen.
TABLE = """
              started     ready    lost    looped  locked_out    laid_down  renewed   retired
starting      -           running  failed  failed  login_needed  sleeping   renewing  stopped
running       -           -        lost    failed  -             sleeping   renewing  stopped
lost          restarting  -        -       -       -             -          renewing  stopped
restarting    -           running  failed  failed  login_needed  sleeping   renewing  stopped
sleeping      starting    -        -       -       -             -          renewing  stopped
login_needed  starting    -        -       -       -             -          renewing  stopped
failed        restarting  -        -       -       -             -          renewing  stopped
renewing      starting    -        -       -       -             -          renewing  stopped
stopped       starting    -        -       -       -             sleeping   -         stopped
"""

HEAD, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [(row[0], event, becomes) for row in ROWS for event, becomes in zip(HEAD, row[1:], strict=True)]


@pytest.mark.parametrize(("state", "event", "becomes"), CELLS)
def test_every_state_knows_every_event(state: str, event: str, becomes: str) -> None:
    """docs/design/README.md#words: one table of states, in the slot."""
    before, what = State[state.upper()], Event[event.upper()]
    if becomes == "-":
        with pytest.raises(AssertionError, match=f"a slot that is {before} cannot be {what}"):
            advance(before, what)
    else:
        assert advance(before, what) is State[becomes.upper()]


def test_the_table_above_is_whole() -> None:
    """Ours: whoever adds a state or an event says what becomes of it."""
    assert {(state, event) for state, event, _ in CELLS} == {
        (state.name.lower(), event.name.lower()) for state in State for event in Event
    }
    assert len(TRANSITIONS) == sum(becomes != "-" for *_, becomes in CELLS)


def test_a_start_is_under_way_in_three_states_and_no_other() -> None:
    """Ours: nobody else says whether a server is being started."""
    assert {state for state in State if state.starting} == {State.STARTING, State.RESTARTING, State.RENEWING}


def test_every_state_has_a_public_word() -> None:
    """docs/library.md: `Server.status`."""
    assert {state: state.status for state in State} == {
        State.STARTING: Status.INITIALIZING,
        State.RUNNING: Status.RUNNING,
        State.LOST: Status.RESTARTING,
        State.RESTARTING: Status.RESTARTING,
        State.SLEEPING: Status.SLEEPING,
        State.LOGIN_NEEDED: Status.LOGIN_NEEDED,
        State.FAILED: Status.FAILED,
        State.RENEWING: Status.STOPPED,
        State.STOPPED: Status.STOPPED,
    }


def test_what_was_wrong_is_shown_until_it_is_right() -> None:
    """Ours: a server that is tried again still says why it failed."""
    state = SlotState()
    state.meet(Event.STARTED, 1.0)
    state.meet(Event.LOST, 3.0, reason="no such file", retry_at=4.0)
    assert (state.now, state.reason, state.retry_at, state.took) == (State.FAILED, "no such file", 4.0, 2.0)
    state.meet(Event.STARTED, 4.0)
    assert (state.now, state.reason, state.retry_at, state.took) == (State.RESTARTING, "no such file", None, None)
    state.meet(Event.READY, 4.5)
    assert (state.now, state.reason, state.ready_at, state.took) == (State.RUNNING, None, 4.5, 0.5)


@pytest.mark.parametrize("event", [Event.LOST, Event.LOOPED, Event.LAID_DOWN, Event.RENEWED, Event.RETIRED])
def test_how_long_a_start_took_is_known_after_its_connection_has_gone(event: Event) -> None:
    """docs/library.md: `Server.seconds` is about the last start."""
    state = SlotState()
    state.meet(Event.STARTED, 1.0)
    state.meet(Event.READY, 3.0)
    state.meet(event, 9.0)
    assert (state.ready_at, state.took) == (None, 2.0)


def test_a_sleeper_has_no_reason_unless_there_was_no_room() -> None:
    """Ours: that there is no room is no fault of a server, but worth telling."""
    state = SlotState()
    state.meet(Event.LAID_DOWN, 0.0)
    assert (state.now, state.reason, state.retry_at) == (State.SLEEPING, None, None)
    state.meet(Event.STARTED, 1.0)
    state.meet(Event.LAID_DOWN, 2.0, reason="64 processes run", retry_at=3.0)
    assert (state.now, state.reason, state.retry_at) == (State.SLEEPING, "64 processes run", 3.0)


async def test_whoever_waits_for_a_start_waits_for_its_end() -> None:
    """Ours: also when it is ended to be started anew meanwhile."""
    state = SlotState()
    async with asyncio.timeout(30):
        await state.settled()
    state.meet(Event.STARTED, 1.0)
    waiting = asyncio.ensure_future(state.settled())
    state.meet(Event.RENEWED, 2.0)
    state.meet(Event.STARTED, 3.0)
    await asyncio.sleep(0)
    assert not waiting.done()
    state.meet(Event.READY, 4.0)
    async with asyncio.timeout(30):
        await waiting
