"""The worst inputs for what a config may do with results: none holds the event loop (docs/behaviour.md#size-limits)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muxway.net.metronome import LONG

from .watched import Watched, hostile, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = ("rows", "items", "mails", "blocks", "members", "deepest blocks")
RULED = ("shaped", "redacting", "truncating")


def composed(**second: Any) -> dict[str, Any]:
    steps = {
        "first": {"tool": "plain__say", "arguments": {"kind": "${input.kind}"}},
        "second": {"tool": "plain__echo", **second},
    }
    schema = {"type": "object", "properties": {"kind": {"type": "string"}}}
    return {"description": "d", "inputSchema": schema, "steps": steps, "output": {"ok": "${steps.second.ok}"}}


TOOLS = {
    "Compares": composed(when="${steps.first.result} == 'x' or ${steps.first.result.rows[-1].a} > 5"),
    "Chooses": composed(
        forEach="${steps.first.result.rows}", maxItems=1000, when="${item.b} == 'y' and ${steps.first.result.rows} != 1"
    ),
    "Passes": composed(arguments={"x": "${steps.first.result}", "y": "it is ${steps.first.result}"}),
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Watched]:
    """With every rule that looks into results."""
    redact = {"use": "redact", "kinds": ["email", "aws_key", "credit_card", "ipv4"], "patterns": ["CUST-[0-9]{6,}"]}
    servers = {
        "plain": hostile(),
        "shaped": hostile() | {"shape": {"say": {"result": "rows[?a > `5`].{a: a, n: length(b)} | sort_by(@, &a)"}}},
        "redacting": hostile() | {"middleware": [redact]},
        "truncating": hostile() | {"middleware": [{"use": "truncate", "tokens": 500}]},
    }
    with watched(servers, tools=TOOLS) as running:
        session = running.session()
        for name in RULED:
            running.call(session, f"{name}__say", kind="rows")
        for name in TOOLS:
            running.call(session, name, kind="items")
        yield running


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("server", RULED)
def test_no_rule_for_results_holds_the_loop(server: str, kind: str, gateway: Watched) -> None:
    """Ours: 20 ms, whatever is picked, masked or cut out of the largest results."""
    session = gateway.session()

    def say() -> None:
        assert b"jsonrpc" in gateway.call(session, f"{server}__say", kind=kind)

    assert gateway.holds_for(LONG, say) < LONG


@pytest.mark.parametrize("kind", ["rows", "items", "deepest blocks"])
@pytest.mark.parametrize("tool", TOOLS)
def test_no_composed_tool_holds_the_loop(tool: str, kind: str, gateway: Watched) -> None:
    """Ours: 20 ms, whatever its conditions and arguments refer to."""
    session = gateway.session()

    def call() -> None:
        assert b"jsonrpc" in gateway.call(session, tool, kind=kind)

    assert gateway.holds_for(LONG, call) < LONG
