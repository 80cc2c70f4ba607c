"""The middleware API: an onion of hooks, compiled per method, that fails one call at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.errors import ConfigError, InvalidParams
from muxway.middleware.engine.base import Middleware, Outcome, Request, Result
from muxway.middleware.engine.running import Layer, compile_chain
from muxway.testing import RawClient, ScriptedServer

from ..conftest import World, a_world
from .chained import surround

if TYPE_CHECKING:
    from pathlib import Path

    from muxway.calls.server_request import ServerRequest
    from muxway.middleware.engine.base import Next
    from muxway.wire.envelopes import Buffer

pytestmark = pytest.mark.leaping

SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}


def around(world: World, *middlewares: Middleware) -> None:
    """Put middlewares around a world's gateway."""
    layers = [Layer(type(one).__name__, one) for one in middlewares]
    surround(world.gateway, *layers)


class Noting(Middleware):
    """Writes down when it is entered and left."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    async def call_tool(self, request: Request, go: Next) -> Result:
        self.notes.append(f"into {self.name}")
        result = await go(request)
        self.notes.append(f"out of {self.name}")
        return result


class PlainNoting(Noting):
    plain = True


@pytest.mark.parametrize(
    "kinds", [(Noting, Noting), (PlainNoting, PlainNoting), (Noting, PlainNoting), (PlainNoting, Noting)]
)
async def test_the_first_is_the_outermost(kinds: tuple[type[Noting], type[Noting]]) -> None:
    notes: list[str] = []
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        around(world, kinds[0]("a", notes), kinds[1]("b", notes))
        client = await world.client()
        assert (await client.call("up__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        assert notes == ["into a", "into b", "out of b", "out of a"]


class Shout(Middleware):
    plain = True

    async def call_tool(self, request: Request, go: Next) -> Result:
        result = await go(request.replace(arguments={**request.arguments, "added": True}))
        return result.replace(shouted=True)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_requests_and_results_are_changed_and_the_rest_passes_as_it_came(revision: str) -> None:
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        around(world, Shout())
        client = await world.client(revision)
        client.say(b"")
        result = (await client.call("up__echo", {"x": 1.50})).result
        assert result["shouted"] is True
        assert server.heard[-1]["params"]["arguments"] == {"x": 1.5, "added": True}


async def test_what_nobody_touches_keeps_its_bytes() -> None:
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        around(world, PlainNoting("a", []))
        client = await world.client()
        client.say(
            b'{"jsonrpc":"2.0","id":"z","method":"tools/call",'
            b'"params":{"name":"up__echo","arguments":{"n":1.50,"big":1E400}}}'
        )
        line = (await client.answer("z")).line
        assert b'"structuredContent":{"n":1.50,"big":1E400}' in line


def test_a_middleware_costs_nothing_where_it_has_no_hook() -> None:
    layers = [Layer("a", PlainNoting("a", []))]
    assert compile_chain(layers, "tools/list") == ()
    assert len(compile_chain(layers, "tools/call")) == 1


class Looking(Middleware):
    """Writes down what goes by, and refuses the tool of this name."""

    def __init__(self, name: str, notes: list[str], refuses: str = "") -> None:
        self.name, self.notes, self.refuses = name, notes, refuses

    def before(self, request: Request) -> None:
        if request.method == "tools/call":
            if request.name == self.refuses:
                raise InvalidParams("not that one")
            self.notes.append(f"into {self.name}")

    def after(self, request: Request, outcome: Outcome) -> None:
        if request.method == "tools/call":
            self.notes.append(f"out of {self.name}: {outcome.word}")


@pytest.mark.parametrize("between", [Noting, PlainNoting, Looking])
async def test_those_that_only_look_stand_in_the_onion_like_all_others(between: type[Noting]) -> None:
    """Ours: `before` and `after` are a cheaper way to write a hook, not another order."""
    notes: list[str] = []
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        around(world, Looking("a", notes), between("b", notes), Looking("c", notes))
        client = await world.client()
        assert (await client.call("up__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        order = [note.removesuffix(": ok") for note in notes]
        assert order == ["into a", "into b", "into c", "out of c", "out of b", "out of a"]


async def test_who_refuses_is_heard_by_those_outside_and_unheard_of_inside() -> None:
    """Ours: `after` is for requests that `before` let through."""
    notes: list[str] = []
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        around(world, Looking("a", notes), Looking("b", notes, refuses="up__echo"), Looking("c", notes))
        client = await world.client()
        assert (await client.call("up__echo")).error["message"] == "not that one"
        assert notes == ["into a", "out of a: error"]
        assert not any(message.get("method") == "tools/call" for message in server.heard)


class Seeing(Middleware):
    """Keeps every outcome of a call."""

    def __init__(self) -> None:
        self.seen: list[Outcome] = []

    def after(self, request: Request, outcome: Outcome) -> None:
        if request.method == "tools/call":
            self.seen.append(outcome)


@pytest.mark.parametrize("inside", [[], [PlainNoting("a", [])]])
async def test_an_outcome_says_how_it_went(inside: list[Middleware]) -> None:
    """Ours: the same whether the result comes from the server or from another middleware."""
    seeing = Seeing()
    async with a_world({"up": ScriptedServer(tools={"echo": None, "hang": lambda *_: None})}) as world:
        around(world, seeing, *inside)
        client = await world.client()
        line = (await client.call("up__echo", {"x": 1})).line
        await client.call("up__none")
        id_ = client.start("tools/call", {"name": "up__hang", "arguments": {}})
        await client.tools()
        client.tell("notifications/cancelled", {"requestId": id_})
        await client.tools()
    ok, failed, cancelled = seeing.seen
    assert (ok.word, ok.error, ok.size) == ("ok", None, len(line) - len(b'{"jsonrpc":"2.0","id":2,"result":}'))
    assert ok.result is not None
    assert ok.result.value["structuredContent"] == {"x": 1}
    assert (failed.word, failed.result, failed.size) == ("error", None, 0)
    assert failed.error is not None
    assert (cancelled.word, cancelled.result, cancelled.error) == ("cancelled", None, None)
    assert all(0 < outcome.seconds < 30 for outcome in seeing.seen)


class BadBefore(Middleware):
    def before(self, request: Request) -> None:
        if request.name == "up__bad":
            raise ZeroDivisionError("oops")


class BadAfter(Middleware):
    def after(self, request: Request, outcome: Outcome) -> None:
        raise ZeroDivisionError("oops")


async def test_one_that_fails_to_look_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Ours: before, that call fails; after, the request went as it went."""
    notes: list[str] = []
    async with a_world({"up": ScriptedServer(tools={"echo": None, "bad": None})}) as world:
        around(world, Looking("a", notes), BadAfter(), BadBefore())
        client = await world.client()
        assert (await client.call("up__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        error = (await client.call("up__bad")).error
        line = BadBefore.before.__code__.co_firstlineno + 2
        where = f"test_chain.py:{line}"
        assert error["message"] == f'middleware "BadBefore" failed with ZeroDivisionError: oops ({where})'
        assert notes == ["into a", "out of a: ok", "into a", "out of a: error"]
        assert 'failed middleware=BadAfter hook=after error="ZeroDivisionError: oops"' in caplog.messages


def test_neighbours_that_only_look_are_one_step() -> None:
    """Ours: three of them cost little more than one."""
    layers = [Layer(name, Looking(name, [])) for name in "abc"]
    assert len(compile_chain(layers, "tools/call")) == 1
    assert len(compile_chain([*layers, Layer("d", PlainNoting("d", [])), *layers], "tools/call")) == 3
    some = [Layer(name, Looking(name, []), lambda _: True) for name in "abc"]
    assert len(compile_chain(some, "tools/call")) == 3


class Refusing(Middleware):
    plain = True

    async def any_request(self, request: Request, go: Next) -> Result:
        if request.method == "tools/call" and request.caller.client_info is not None:
            raise InvalidParams("not today")
        return await go(request)


async def test_it_may_answer_or_refuse_without_going_on() -> None:
    server = ScriptedServer(tools={"echo": None})

    class Answering(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            del go
            return Result.saying(f"{request.name} of {request.server} is out")

    async with a_world({"up": server}) as world:
        client = await world.client()
        around(world, Refusing())
        assert (await client.call("up__echo")).error == {"code": -32602, "message": "not today"}
        assert await client.tools() == ["up__echo"]
        around(world, Answering())
        assert (await client.call("up__echo")).result["content"][0]["text"] == "up__echo of up is out"
        assert "tools/call" not in [message["method"] for message in server.heard]


class Bad:
    """What a middleware must not do."""

    class Raises(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            raise RuntimeError("boom")

    class PlainRaises(Raises):
        plain = True

    class RaisesLate(Middleware):
        plain = True

        async def call_tool(self, request: Request, go: Next) -> Result:
            await go(request)
            raise RuntimeError("boom")

    class Nonsense(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            return 7  # type: ignore[return-value]

    class Nothing(Middleware):
        plain = True

        async def call_tool(self, request: Request, go: Next) -> Result:
            await go(request)
            return None  # type: ignore[return-value]

    class Twice(Middleware):
        plain = True

        async def call_tool(self, request: Request, go: Next) -> Result:
            await go(request)
            return await go(request)

    class TaskedTwice(Twice):
        plain = False

    class NotPlain(Middleware):
        plain = True

        async def call_tool(self, request: Request, go: Next) -> Result:
            await asyncio.sleep(0)
            return await go(request)

    class NoRequest(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            return await go({"name": "x"})  # type: ignore[arg-type]

    ALL: ClassVar[list[type[Middleware]]] = [
        Raises, PlainRaises, RaisesLate, Nonsense, Nothing, Twice, TaskedTwice, NotPlain, NoRequest,
    ]  # fmt: skip


@pytest.mark.parametrize("bad", Bad.ALL, ids=lambda bad: bad.__name__)
async def test_a_bad_middleware_fails_its_call_alone_and_is_named(bad: type[Middleware]) -> None:
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        around(world, bad())
        client = await world.client()
        error = (await client.call("up__echo")).error
        assert error["code"] == -32603
        assert bad.__name__ in error["message"]
        assert error["data"]["muxway"] == {"reason": "middleware", "middleware": bad.__name__}
        assert await client.tools() == ["up__echo"]


@pytest.mark.parametrize("plain", [True, False])
async def test_a_call_that_may_be_repeated_may_go_on_twice(plain: bool) -> None:
    class Again(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            await go(request)
            return await go(request)

    Again.plain = plain
    server = ScriptedServer(
        tools={"look": None},
        definitions=[{"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}],
    )
    async with a_world({"up": server}) as world:
        around(world, Again())
        assert "result" in (await (await world.client()).call("up__look")).message
        assert [message["method"] for message in server.heard].count("tools/call") == 2


async def test_going_on_many_times_takes_no_room_on_the_stack() -> None:
    """Lists are answered at once, inside `go`: each time one step deeper would end at Python's limit."""

    class Insistent(Middleware):
        plain = True

        async def list_tools(self, request: Request, go: Next) -> Result:
            for _ in range(2000):
                await go(request)
            return await go(request)

    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        around(world, Insistent())
        assert await (await world.client()).tools() == ["up__echo"]


@pytest.mark.parametrize("plain", [True, False])
async def test_cancelling_a_call_goes_through_and_lets_the_hook_clean_up(plain: bool) -> None:
    cleaned = asyncio.Event()

    class Careful(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            try:
                return await go(request)
            finally:
                cleaned.set()

    Careful.plain = plain
    server = ScriptedServer(tools={"never": lambda *_: None})
    async with a_world({"up": server}) as world:
        around(world, Careful())
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__never", "arguments": {}})
        await asyncio.sleep(0.05)
        client.tell("notifications/cancelled", {"requestId": id_})
        await asyncio.wait_for(cleaned.wait(), 5)
        await asyncio.sleep(0.05)
        assert server.heard[-1]["method"] == "notifications/cancelled"
        assert (await client.ask("ping")).result == {}


async def test_questions_and_notices_can_be_seen_changed_and_stopped() -> None:
    class Watching(Middleware):
        plain = True

        def ask(self, request: Request, ask: ServerRequest) -> ServerRequest | None:
            if ask.method == "roots/list":
                ask.refuse(InvalidParams("no roots here"))
                return None
            return ask

        def notice(self, request: Request, params: dict[str, Buffer]) -> dict[str, Buffer] | None:
            return {**params, "message": b'"seen"'} if "progress" in params else None

    heard: list[Any] = []

    async def busy(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.progress(request, 1)
        server.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        heard.append(await server.ask("roots/list"))
        heard.append(await server.ask("sampling/createMessage", SAMPLE))
        server.reply(request, {"content": []})

    async with a_world({"up": ScriptedServer(tools={"busy": busy})}) as world:
        around(world, Watching())
        client = RawClient(world.gateway.memory_door(), capabilities={"roots": {}, "sampling": {}})
        client.answers["sampling/createMessage"] = lambda _: {
            "role": "assistant", "model": "m", "content": {"type": "text", "text": "yo"},
        }  # fmt: skip
        await client.hello()
        await client.call("up__busy", _meta={"progressToken": 1})
        assert heard[0]["error"]["message"] == "no roots here"
        assert heard[1]["result"]["content"]["text"] == "yo"
        assert [notice["params"].get("message") for notice in client.notices] == ["seen"]


async def test_lists_can_be_changed() -> None:
    class Hiding(Middleware):
        plain = True

        async def list_tools(self, request: Request, go: Next) -> Result:
            result = await go(request)
            return result.replace(tools=[tool for tool in result.value["tools"] if not tool["name"].endswith("b")])

    async with a_world({"up": ScriptedServer(tools={"a": None, "b": None})}) as world:
        around(world, Hiding())
        assert await (await world.client()).tools() == ["up__a"]


class TestConfiguration:
    """Middlewares by name, with options, for all or some."""

    @staticmethod
    def gateway(*middleware: Any, **server: Any) -> Gateway:
        return Gateway(parse_config({"mcpServers": {"a": {"command": "x", **server}}, "middleware": list(middleware)}))

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ("nobody", "nobody"),
            ({"use": "no.such.module:Thing"}, "no.such.module"),
            ({"use": "json:nothing"}, "nothing"),
            ({"use": "json:JSONDecoder"}, "no middleware"),
            ({"use": "tests.middleware.test_chain:Picky"}, "`size`"),
            ({"use": "tests.middleware.test_chain:Picky", "size": "much"}, "`size`"),
            ({"use": "tests.middleware.test_chain:Picky", "size": 1, "colour": "red"}, "colour"),
            ({"use": "tests.middleware.test_chain:Picky", "size": -1}, "positive"),
            ({"use": "tests.middleware.test_chain:unfit"}, "(metadata, next)"),
        ],
    )
    def test_what_cannot_be_used_is_named_with_its_place(self, given: Any, named: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.gateway("tests.middleware.test_chain:Shout", given)
        assert named in str(caught.value)
        assert "middleware" in caught.value.details[0].path
        assert caught.value.details[0].path.endswith("1") or "1" in caught.value.details[0].path

    def test_two_that_exclude_each_other_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="exclude each other"):
            self.gateway("tests.middleware.test_chain:Alone", "tests.middleware.test_chain:Shout")

    @pytest.mark.parametrize("wrong", [7, "log", {"use": "log"}, [7], [{"options": 1}], [{"use": ""}]])
    def test_the_shape_is_checked_when_the_file_is_read(self, wrong: Any) -> None:
        with pytest.raises(ConfigError):
            parse_config({"mcpServers": {"a": {"command": "x"}}, "middleware": wrong})

    def test_an_installed_package_can_bring_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Found by its entry point, as the metadata of installed packages has it."""
        (tmp_path / "polite.py").write_text(
            "from muxway import Middleware\n"
            "class Polite(Middleware):\n"
            "    def __init__(self, *, word: str): self.word = word\n"
        )
        metadata = tmp_path / "polite-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: polite\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(
            "[muxway.middleware]\npolite = polite:Polite\nbroken = nothing:Here\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        gateway = self.gateway({"use": "polite", "word": "please"})
        assert gateway.runtime.snapshot.whole.chain is not None
        with pytest.raises(ConfigError, match=r"known are: .*polite"):
            self.gateway("rude")
        with pytest.raises(ConfigError, match="broken could not be imported: ModuleNotFoundError"):
            self.gateway("broken")

    def test_each_server_and_each_glob_has_its_own(self) -> None:
        gateway = self.gateway(
            {"use": "tests.middleware.test_chain:Shout", "match": ["b__*", "note://*"]},
            middleware=[{"use": "tests.middleware.test_chain:Picky", "size": 3}],
        )
        assert gateway.runtime.snapshot.whole.chain is not None

    def test_without_middleware_nothing_stands_in_the_way(self) -> None:
        gateway = self.gateway()
        assert gateway.runtime.snapshot.whole.chain is None


class Picky(Middleware):
    """Wants a size."""

    def __init__(self, *, size: int) -> None:
        if size < 0:
            raise ValueError("size must be positive")
        self.size = size


class Alone(Middleware):
    """Wants no other."""

    excludes = ("tests.middleware.test_chain:Shout",)


def unfit(nothing: object) -> object:
    return nothing


async def test_a_middleware_for_one_server_or_some_tools_sees_only_those(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    servers = {"a": ScriptedServer(tools={"x": None, "y": None}), "b": ScriptedServer(tools={"x": None})}
    from muxway.middleware.engine.loading import matching

    for globs, server, marked in (
        (("a__*",), None, {"a__x", "a__y"}),
        (("*__x",), None, {"a__x", "b__x"}),
        ((), "b", {"b__x"}),
        (("*__x",), "a", {"a__x"}),
        ((), None, {"a__x", "a__y", "b__x"}),
    ):
        async with a_world(servers) as world:
            surround(world.gateway, Layer("shout", Shout(), matching(globs, server)))
            client = await world.client()
            seen = {name for name in ("a__x", "a__y", "b__x") if "shouted" in (await client.call(name)).result}
            assert seen == marked, json.dumps([globs, server])


@pytest.mark.parametrize("plain", [True, False])
async def test_a_middleware_that_keeps_everybody_waiting_is_named(
    plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Sleepy(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            time.sleep(0.3)
            return await go(request)

    Sleepy.plain = plain
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        around(world, Sleepy())
        assert "result" in (await (await world.client()).call("up__echo")).message
    assert "Sleepy" in caplog.text


@pytest.mark.parametrize("plain", [True, False])
async def test_one_that_never_goes_on_holds_up_nobody_else(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muxway.middleware.engine.running._LONGEST", 0.1)

    class Stuck(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            await asyncio.get_running_loop().create_future()
            return await go(request)

    Stuck.plain = plain
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        around(world, Stuck())
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__echo", "arguments": {}})
        assert await client.tools() == ["up__echo"]
        assert "Stuck" in (await client.answer(id_)).error["message"]
