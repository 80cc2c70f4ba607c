"""A child that floods, from end to end (docs/behaviour.md#a-server-talks-nonsense)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from muxway.net.metronome import LONG
from muxway.servers.transports import intake
from tests.servers import flooding

from .watched import hostile, watched

if TYPE_CHECKING:
    import pytest


def test_a_child_that_floods_is_ended_with_the_reason_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours: `y` without end costs its own calls, and nobody else's."""
    monkeypatch.setattr(intake, "_BURST", 0.02)
    monkeypatch.setattr(intake, "FLOOD_SECONDS", 0.5)
    floods = {"command": sys.executable, "args": [flooding.__file__, "short"]}
    with watched({"s": hostile(), "up": floods}) as gateway:
        session = gateway.session()
        gateway.call(session, "s__say", kind="")
        gateway.longest(anew=True)
        # Its first call is answered, and begins the flood; the second one has its answer behind it.
        assert b"done" in gateway.call(session, "up__echo")
        caller = gateway.caller(session, "up__echo")
        calls = gateway.served_during(caller, session, "s__say")
        assert b"flooded its output" in caller.answer
        assert calls >= 2
        assert gateway.longest() < LONG
    assert "flooded its output" in caplog.text
