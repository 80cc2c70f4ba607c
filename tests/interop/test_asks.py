"""Every SDK as client in front of every SDK as server, for everything that both ends can express.

Each client comes once over each transport, walks through all servers and all subjects, and answers what it is asked.
Over HTTP it uses servers of both transports; over stdio the gateway is its own, and so are its servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from . import asking, drive, serving, world
from .asking import SUBJECTS, UPSTREAMS, Pair, Upstream
from .drive import MODERN, NEWEST_HANDSHAKE, Client, Server, Site, Step, Taken

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Way:
    """A client and the transport it takes to the gateway."""

    client: Client
    transport: str

    @property
    def name(self) -> str:
        return f"{self.client.name}-{self.transport}"

    @property
    def revision(self) -> str:
        """What it and the gateway agree on."""
        if self.client.is_modern:
            return MODERN
        return NEWEST_HANDSHAKE if self.client.mode == "legacy" else self.client.mode

    @property
    def upstreams(self) -> list[Upstream]:
        return [upstream for upstream in UPSTREAMS if self.transport in ("http", upstream.transport)]

    def pair(self, upstream: Upstream) -> Pair:
        return Pair(self.client, upstream, self.name.replace("-", ""))


OLD = Client("python1", "2025-06-18")
WAYS = [Way(client, transport) for client in [OLD, *drive.CLIENTS] for transport in ("stdio", "http")]


@dataclass(frozen=True)
class Walked:
    """One client's walk: the revision it spoke, and what came of each step at each server for each subject."""

    revision: str
    taken: dict[tuple[Upstream, str], list[Taken]]


Walks = Callable[[Way], Walked]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Walks]:
    """What came of each client's walk.

    One client at a time over each transport: a server that does not say for whom it asks would be refused if two
    of them used it. The walks begin before they are asked for, because the two transports can go side by side.
    """
    local, served = tmp_path_factory.mktemp("stdio"), tmp_path_factory.mktemp("http")
    commands = {each.name: each.server() for each in UPSTREAMS if each.transport == "stdio"}
    with ExitStack() as stack:
        urls = {
            each.name: {"url": stack.enter_context(asking.listening(each))}
            for each in UPSTREAMS
            if each.transport == "http"
        }
        entries = {
            name: {"command": server.command[0], "args": server.command[1:]} for name, server in commands.items()
        }
        places = {
            "stdio": world.gateway(local, commands, program=world.HASTY),
            "http": Site(f"{stack.enter_context(serving.serve(served, entries | urls, program=world.HASTY))}/mcp"),
        }
        pools = {transport: ThreadPoolExecutor(1) for transport in places}
        for pool in pools.values():
            stack.callback(pool.shutdown, cancel_futures=True)
        walking = {
            way: pools[way.transport].submit(walk, way, places[way.transport]) for way in ways_of(request.session.items)
        }
        yield lambda way: walking[way].result()


def ways_of(items: Iterable[pytest.Item]) -> list[Way]:
    """The ways of the tests that were chosen, in their order."""
    chosen = (item.callspec.params.get("way") for item in items if hasattr(item, "callspec"))
    return list(dict.fromkeys(way for way in chosen if isinstance(way, Way)))


def walk(way: Way, place: Server | Site) -> Walked:
    names = [upstream.name for upstream in way.upstreams]
    steps = [
        Step("tools", expect=[f"{name}__interview" for name in names], seconds=drive.LIST_SECONDS),
        Step("watch", {"uris": [f"{name}://watched" for name in names]}),
    ]
    spans: dict[tuple[Upstream, str], slice] = {}
    for upstream in way.upstreams:
        for name, subject in SUBJECTS.items():
            start = len(steps)
            steps += subject.steps(way.pair(upstream))
            spans[upstream, name] = slice(start, len(steps))
    revision, taken = drive.walk(way.client, place, steps)
    assert taken[0].error is None, taken[0].error
    return Walked(revision, {key: taken[span] for key, span in spans.items()})


@pytest.mark.parametrize(
    ("way", "upstream"),
    [pytest.param(way, upstream, id=f"{way.name}-{upstream.name}") for way in WAYS for upstream in way.upstreams],
)
def test_a_client_gets_everything_a_server_has(walks: Walks, way: Way, upstream: Upstream) -> None:
    """docs/compatibility.md#what-crosses: real SDKs on both ends."""
    walked = walks(way)
    failures: dict[str, str] = {}
    for name, subject in SUBJECTS.items():
        try:
            subject.check(way.pair(upstream), *walked.taken[upstream, name])
        except (AssertionError, KeyError, TypeError, ValueError) as failure:
            failures[name] = f"{failure!r:.1000}"
    assert walked.revision == way.revision
    assert failures == {}
