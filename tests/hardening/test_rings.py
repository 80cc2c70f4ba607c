"""Gateways that list each other (docs/security.md)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from msgspec import Raw

from muxway.catalog.build import Source, assign_prefixes, build, read_listing
from muxway.catalog.kinds import RESOURCES, TOOLS
from muxway.catalog.model import Catalog
from muxway.catalog.naming import Naming, Separator, goes_round
from muxway.catalog.resources import ResourceCatalog, build_resources
from muxway.testing import ScriptedServer
from tests.catalog.making import source
from tests.pace import crowding
from tests.serve.harness import a_web

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import World

ROUNDS = 40


class Gateway:
    """One of a ring: a server of its own, and the next gateway."""

    def __init__(self, own: str, neighbour: str, separator: Separator) -> None:
        self._own, self._neighbour = own, neighbour
        self._naming = Naming.of(separator, None)
        self.tools = Catalog(0, {})
        self.resources: ResourceCatalog = build_resources()

    def hear(self, other: Gateway) -> bool:
        """Take over what the other one lists now; whether that changes what this one lists."""
        before = [self.tools.page(0, None), *self.resources.resources]
        prefixes = assign_prefixes(self._naming, {self._own: None, self._neighbour: None})
        tools, _ = read_listing(
            TOOLS, self._neighbour, [Raw(route.definition) for route in other.tools.routes.values()]
        )
        listed = [Raw(entry.definition) for entry in other.resources.resources.values()]
        resources, _ = read_listing(RESOURCES, self._neighbour, listed)
        mine = _definition(f"file:///{self._own}")
        sources = [
            Source(
                upstream=self._own,
                prefix=prefixes[self._own],
                tools=source(self._own, "now", "convert").tools,
                resources=read_listing(RESOURCES, self._own, [mine])[0],
            ),
            Source(
                upstream=self._neighbour, prefix=prefixes[self._neighbour], tools=tools, resources=resources, reads=True
            ),
        ]
        self.tools = build(self._naming, sources, self.tools)
        self.resources = build_resources(sources, prefixes, self.resources)
        return before != [self.tools.page(0, None), *self.resources.resources]


def _definition(uri: str) -> Raw:
    return Raw(json.dumps({"uri": uri, "name": "n"}).encode())


def settle(gateways: Sequence[Gateway]) -> int:
    """Let each hear the next one until nothing changes; how many rounds that took."""
    for number in range(ROUNDS):
        changes = [one.hear(gateways[(index + 1) % len(gateways)]) for index, one in enumerate(gateways)]
        if not any(changes):
            return number
    return ROUNDS


@pytest.mark.parametrize("separator", ["__", ":"])
@pytest.mark.parametrize(
    "names",
    [
        ("a",), ("a", "b"), ("a", "b", "c"), ("self-service",), ("production-gateway", "testing-gateway"),
        ("the-gateway-of-the-first-department", "the-gateway-of-the-second-department"),
    ],
    ids=len,
)  # fmt: skip
def test_a_ring_of_gateways_comes_to_rest_and_is_reported(names: tuple[str, ...], separator: Separator) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Without an end to it, each would list more with each change of the other, for ever.
    """
    ring = [Gateway(f"own{index}", names[(index + 1) % len(names)], separator) for index in range(len(names))]
    assert settle(ring) < ROUNDS
    for gateway in ring:
        assert len(gateway.tools.routes) < 60
        assert len(gateway.resources.resources) < 60
        assert any("round in a ring" in str(finding) for finding in gateway.tools.findings)
        assert "own" in next(iter(gateway.tools.routes))


@pytest.mark.parametrize(
    ("prefix", "native", "round_"),
    [
        ("b", "a__b__a__b__x", True),
        ("b", "b__b__x", True),
        ("b", "a:b:a:b:x", True),
        ("b", "a__b__x", False),
        ("github", "github__search", False),
        ("a", "get_a_list_of_a_thing", False),
        ("", "a__a__a", False),
        ("list", "list_list_list", False),
        ("a", "a.b", False),
    ],
)
def test_only_what_has_passed_twice_goes_round(prefix: str, native: str, round_: bool) -> None:
    """Ours: gateways behind gateways are fine, also if both call a server the same."""
    assert goes_round(prefix, native) is round_


async def test_two_gateways_in_a_ring_start_list_at_once_and_report_it() -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Over HTTP. Both start, both answer within 2 s, the ring is told, and calls arrive.
    """
    own = {name: ScriptedServer(tools={"echo": None}) for name in ("one", "two")}
    async with asyncio.timeout(60), a_web({"here": own["one"]}) as one, a_web({"here": own["two"]}) as two:
        await one.world.gateway.add("two", url=f"http://{two.host}/mcp")
        await two.world.gateway.add("one", url=f"http://{one.host}/mcp")
        while not all(_told(gateway.world) for gateway in (one, two)):
            await asyncio.sleep(0.05)
        for web, neighbour in ((one, "two"), (two, "one")):
            client = await web.session()
            began = asyncio.get_running_loop().time()
            # Each asks the other for its list for sessions: the answer may come as an event.
            listed = (await client.ask("tools/list")).outcome["result"]["tools"]
            assert asyncio.get_running_loop().time() - began < 2 + crowding()
            names = [tool["name"] for tool in listed]
            assert {"here__echo", f"{neighbour}__here__echo"} <= {*names}
            assert len(names) < 20
            call = {"name": f"{neighbour}__here__echo", "arguments": {"x": 1}}
            assert (await client.ask("tools/call", call)).json["result"]["structuredContent"] == {"x": 1}


def _told(world: World) -> bool:
    return any("round in a ring" in note for server in world.gateway.servers() for note in server.notes)
