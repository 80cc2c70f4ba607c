"""What a search view lists, whatever its servers are called and have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.search.listing import Discovery, tier_of

AROUND = 180
"""Bytes that the answer of a stateless revision has around the tools."""


def size(servers: list[str], *, tiers: bool) -> int:
    """Bytes of the whole answer."""
    return sum(len(one.definition) + 1 for one in Discovery(tiers=tiers).tools(servers).values()) + AROUND


@pytest.mark.parametrize("tiers", [False, True])
@pytest.mark.parametrize("count", [0, 1, 10, 100, 10_000])
@pytest.mark.parametrize("name", ["s{}", "a-server-of-a-long-name-{}", "サーバー{}", 'quo"ted-{}'])
def test_its_list_has_at_most_2400_bytes_however_many_servers_there_are(name: str, count: int, tiers: bool) -> None:
    """docs/discovery.md#what-a-model-sees: names that do not fit are counted."""
    servers = [name.format(number) for number in range(count)]
    assert size(servers, tiers=tiers) <= 2400
    described = json.loads(Discovery(tiers=tiers).tools(servers)["search_tools"].definition)["description"]
    assert len(described.encode()) <= 2048
    if count == 10_000:
        assert described.endswith(" more")
    elif 0 < count <= 10:
        assert described.endswith("Servers: " + ", ".join(servers))


@given(st.lists(st.text(min_size=1, max_size=64), max_size=60), st.booleans())
def test_no_name_makes_it_longer(servers: list[str], tiers: bool) -> None:
    """docs/discovery.md#what-a-model-sees."""
    assert size([one.encode("utf-8", "replace").decode() for one in servers], tiers=tiers) <= 2400


@pytest.mark.parametrize(
    ("definition", "tier"),
    [
        ({}, "destructive"),
        ({"annotations": None}, "destructive"),
        ({"annotations": {}}, "destructive"),
        ({"annotations": {"readOnlyHint": True, "destructiveHint": True}}, "read"),
        ({"annotations": {"readOnlyHint": "true"}}, "destructive"),
        ({"annotations": {"readOnlyHint": False}}, "destructive"),
        ({"annotations": {"destructiveHint": False}}, "write"),
        ({"annotations": {"destructiveHint": 0}}, "destructive"),
    ],
)
def test_a_tool_is_in_the_tier_that_it_says(definition: dict[str, Any], tier: str) -> None:
    """docs/discovery.md#tiers; MCP 2025-11-25, schema: destructiveHint is true where nothing is said."""
    assert tier_of(definition) == tier
