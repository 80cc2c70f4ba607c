"""Every route of the door is guarded. Made from the door's own table, so that a new route cannot be forgotten here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.clients.transports.http import HttpClientTransport, Trouble
from muxway.testing import ScriptedServer

from ..conftest import a_world
from .harness import BOTH, Web

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from muxway.exchange.runtime import Runtime

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

OPEN = {("GET", "/healthz"), ("GET", "/readyz")}
"""What needs no token, on purpose. A route that is added here must tell nothing worth a token."""
VIEWS = {"views": {"one": {}, "other": {}}}
MALFORMED = ["{host}/?", "{host}#", "a b", "{host}/public", "", "[::1", "u@{host}", "{host}:1"]


async def routes() -> list[tuple[str, str, bool]]:
    """What the door serves: method, path, and whether it asks for a token; with the paths of a view."""
    async with a_world({}) as world:
        known = HttpClientTransport(world.gateway.runtime).routes
    viewed = [(method, f"{path}/one", guarded) for method, path, guarded in known if path in ("/mcp", "/sse")]
    return [*known, *viewed]


def guarded_door() -> dict[str, Any]:
    return {"guard": Guard(tokens=["t0ken"], views={"0ther": "other"}), "top": VIEWS}


async def ask(http: Web, method: str, path: str, **headers: str | None) -> int:
    given = {"Accept": BOTH, "Content-Type": "application/json"}
    given |= {name.capitalize(): value for name, value in headers.items() if value is not None}
    return (await http.open(method, path, given, b"{}" if method == "POST" else b"")).status


async def test_only_these_routes_need_no_token() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: a token is asked for on every route but the two of health."""
    assert {(method, path) for method, path, guarded in await routes() if not guarded} == OPEN


@pytest.mark.parametrize("token", [None, "Bearer wrong"])
async def test_no_route_opens_without_its_token(token: str | None, web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: every route, no token and a wrong one: 401."""
    found: dict[tuple[str, str], int] = {}
    for method, path, _ in await routes():
        # A door of its own for each: guesses are counted.
        async with web(**guarded_door()) as http:
            found[method, path] = await ask(http, method, path, authorization=token)
    assert found == {route: 200 if route in OPEN else 401 for route in found}


async def test_no_route_of_a_view_opens_with_the_token_of_another(web: Webs) -> None:
    """Ours, docs/views.md: a view's token opens that view, and nothing else."""
    async with web(**guarded_door()) as http:
        found = {
            path: await ask(http, method, path, authorization="Bearer 0ther")
            for method, path, _ in await routes()
            if path.endswith("/one")
        }
    assert found
    assert set(found.values()) == {403}


@pytest.mark.parametrize("host", MALFORMED)
async def test_no_route_takes_a_malformed_host(host: str, web: Webs) -> None:
    """RFC 9112 §3.2: 400 on every route, with the right token too."""
    async with web(**guarded_door()) as http:
        for method, path, _ in await routes():
            given = host.format(host=http.host)
            assert await ask(http, method, path, host=given, authorization="Bearer t0ken") == 400, (method, path)


async def test_no_route_takes_another_host_or_a_foreign_page(web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: 421 and 403 on every route, with the right token too."""
    async with web(**guarded_door()) as http:
        for method, path, _ in await routes():
            right = "Bearer t0ken"
            assert await ask(http, method, path, host="evil.example", authorization=right) == 421, (method, path)
            assert await ask(http, method, path, origin="https://evil.example", authorization=right) == 403, (
                method,
                path,
            )


async def test_a_route_without_a_guard_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: the tests above see what is added to the door's tables."""

    def more(door: HttpClientTransport, runtime: Runtime, **keys: Any) -> None:
        plain(door, runtime, **keys)
        door._open_routes["/secrets"] = door._health

    plain = HttpClientTransport.__init__
    monkeypatch.setattr(HttpClientTransport, "__init__", more)
    assert ("GET", "/secrets", False) in await routes()


# --- what /readyz tells -----------------------------------------------------------------------

DOWN = Trouble("github", "failed", "it exited with status 1", 2.5)
TOLD = {"server": "github", "state": "failed", "why": "it exited with status 1", "retryInMs": 2500}


@pytest.mark.parametrize(
    ("token", "told"),
    [("Bearer t0ken", [TOLD]), (None, None), ("Bearer wrong", None), ("Bearer 0ther", None)],
)
async def test_what_is_not_ready_is_told_to_those_who_may_use_it(token: str | None, told: Any, web: Webs) -> None:
    """docs/service.md#health: /readyz with reasons; a server that failed does not make muxway unready."""
    async with web(**guarded_door()) as http:
        http.door._troubles = lambda: [DOWN]
        answer = await http.ask("GET", "/readyz", {} if token is None else {"Authorization": token})
        assert answer.status == 200
        assert answer.json == {"status": "ready"} | ({} if told is None else {"notReady": told})


async def test_without_tokens_everybody_on_this_machine_is_told(web: Webs) -> None:
    """docs/service.md#health; what is not known of a trouble is left out."""
    async with web({"s": ScriptedServer(tools={"echo": None})}) as http:
        http.door._troubles = lambda: [Trouble("slow", "initializing")]
        http.door._ready = lambda: False
        answer = await http.ask("GET", "/readyz")
        assert answer.status == 503
        assert answer.json == {"status": "starting", "notReady": [{"server": "slow", "state": "initializing"}]}


async def test_a_gateway_that_is_ending_is_not_ready(web: Webs) -> None:
    """docs/service.md."""
    async with web() as http:
        await http.door.close(0)
        answer = await http.ask("GET", "/readyz")
        assert (answer.status, answer.json["status"]) == (503, "stopping")
