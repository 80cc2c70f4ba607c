"""`muxway approvals` and `muxway explain --as`, with a gateway that really runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.control.conftest import Gateway, talker, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    Muxway = Callable[..., Result]
    Launch = Callable[..., Gateway]

RULES = [
    {"users": ["ann"], "do": "allow"},
    {"tools": ["talker__say"], "do": "ask"},
    {"tools": ["talker__die"], "do": "deny"},
]


def waiting(muxway: Muxway) -> list[dict[str, Any]]:
    """The calls that wait."""
    return json.loads(muxway("approvals", "--json").stdout)["waiting"]


def parked(gateway: Gateway, muxway: Muxway) -> dict[str, Any]:
    """A call that waits, of a client that cannot ask its user."""
    gateway.call("talker__say", wait=False, lines=["x"], token="t0p-secret")
    until(lambda: bool(waiting(muxway)), "the call")
    return waiting(muxway)[0]


def test_a_call_that_waits_is_shown_and_allowed(launch: Launch, muxway: Muxway) -> None:
    """docs/access.md#who-is-asked: `muxway approvals`, `muxway approvals allow ID`."""
    gateway = launch({"mcpServers": {"talker": talker()}, "access": RULES})
    gateway.settled()
    assert muxway("approvals").output == "✓ ok  no call waits to be approved\n"
    call = parked(gateway, muxway)
    assert (call["name"], call["client"], call["rule"]) == ("talker__say", "t", "access.1")
    assert call["arguments"] == {"lines": ["x"], "token": "***"}
    shown = muxway("approvals").output
    assert "somebody without credentials with t" in shown
    assert "t0p-secret" not in shown
    result = muxway("approvals", "allow", call["id"], "--remember", "1h")
    assert (result.exit_code, result.output) == (0, "✓ ok  allowed talker__say\n")
    assert gateway.process.stdout is not None
    answers = [json.loads(gateway.process.stdout.readline()) for _ in range(2)]
    assert answers[1]["result"]["content"][0]["text"] == "said"
    assert waiting(muxway) == []


def test_a_call_that_waits_is_denied(launch: Launch, muxway: Muxway) -> None:
    """docs/access.md#who-is-asked: `muxway approvals deny ID`; an id that is not there is told."""
    gateway = launch({"mcpServers": {"talker": talker()}, "access": RULES})
    gateway.settled()
    call = parked(gateway, muxway)
    unknown = muxway("approvals", "deny", "nothing")
    assert unknown.exit_code == 1
    assert 'there is no waiting call "nothing"' in unknown.stderr
    assert muxway("approvals", "deny", call["id"], "--remember", "1h").exit_code == 2
    assert muxway("approvals", "deny", call["id"]).output == "✓ ok  denied talker__say\n"
    assert gateway.process.stdout is not None
    answers = [json.loads(gateway.process.stdout.readline()) for _ in range(2)]
    assert "the operator of the gateway said no" in answers[1]["result"]["content"][0]["text"]


def test_of_several_gateways_the_one_answers_in_which_the_call_waits(launch: Launch, muxway: Muxway) -> None:
    """docs/access.md#who-is-asked: each client that launches muxway has a gateway of its own."""
    first = launch({"mcpServers": {"talker": talker()}, "access": RULES})
    second = launch({"mcpServers": {"talker": talker()}}, name="other.json")
    first.settled()
    second.settled()
    call = parked(first, muxway)
    unknown = muxway("approvals", "deny", "nothing")
    assert (unknown.exit_code, 'has a waiting call "nothing"' in unknown.stderr) == (1, True)
    assert muxway("approvals", "allow", call["id"]).output == "✓ ok  allowed talker__say\n"
    assert waiting(muxway) == []


def test_explain_names_the_rule(launch: Launch, muxway: Muxway) -> None:
    """docs/access.md#which-rule-it-was: `explain TOOL --as USER`, with its line."""
    launch({"mcpServers": {"talker": talker()}, "access": RULES}).settled()
    for tool, who, known, listed, said in (
        ("talker__die", (), "somebody without credentials", False, "denied by rule access.2"),
        ("talker:die", ("--as", "ann"), "ann, in no group", True, "allowed by rule access.0"),
        ("talker__say", ("--as", "bob", "--group", "eng"), "bob, in eng", True, "asked about by rule access.1"),
        ("talker__wait", ("--key", "ci"), "API key ci", True, "allowed, as no rule matches"),
    ):
        told = json.loads(muxway("explain", tool, *who, "--json").stdout)["tools"][0]
        facts = [fact for fact in told["facts"] if fact["about"] == "access"]
        assert (told["listed"], [fact["text"] for fact in facts]) == (listed, [said])
        assert (facts[0]["line"] is not None) == ("rule access" in said)
        (why,) = [fact["text"] for fact in told["facts"] if fact["about"] == "listed"]
        assert why.startswith("no, an access rule denies it to this caller") is not listed
        (caller,) = [fact["text"] for fact in told["facts"] if fact["about"] == "caller"]
        assert caller.startswith(known)
