"""Composed tools, from a client's call over the steps' servers to one result."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muxway.testing import RawClient, ScriptedServer
from tests.conftest import REVISIONS, a_world, said

from .test_asks import EVERYTHING, client_of, curious

pytestmark = pytest.mark.leaping

_PATIENCE = 10.0


class Stage:
    """Three servers whose tools do what a test needs, and who was called with what, when and by whom."""

    def __init__(self, revisions: tuple[str, str, str] = ("2024-11-05", "2025-11-25", "2026-07-28")) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.cancelled: list[str] = []
        self.release = asyncio.Event()
        tools: dict[str, Any] = {
            "echo": self.echo,
            "fails": self.fails,
            "breaks": self.breaks,
            "slow": self.slow,
            "huge": self.huge,
            "hostile": self.hostile,
            "list": self.list,
            "progress": self.progress,
            "curious": curious,
        }
        self.servers = {
            name: ScriptedServer(revision=revision, tools=dict(tools))
            for name, revision in zip(("one", "two", "three"), revisions, strict=True)
        }

    def note(self, request: dict[str, Any]) -> Any:
        params = request["params"]
        self.calls.append((params["name"], params["arguments"]))
        return params["arguments"]

    def say(self, server: ScriptedServer, request: dict[str, Any], value: Any) -> None:
        """As servers of its revision do: structured, or as JSON in a text."""
        content = [{"type": "text", "text": json.dumps(value, indent=1)}]
        structured = {"structuredContent": value} if server.revision >= "2025-06-18" else {}
        server.reply(request, {"content": content, **structured})

    def echo(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        self.say(server, request, self.note(request))

    def fails(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        self.note(request)
        server.reply(request, {"content": [{"type": "text", "text": "out of paper"}], "isError": True})

    def breaks(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        self.note(request)
        server.fail(request, -32000, "out of order")

    async def slow(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        """Answers when the test says so, and never if it is cancelled before."""
        arguments = self.note(request)
        released = asyncio.ensure_future(self.release.wait())
        while not released.done():
            if any(
                heard.get("method") == "notifications/cancelled" and heard["params"]["requestId"] == request["id"]
                for heard in server.heard
            ):
                self.cancelled.append(arguments.get("name", "?"))
                released.cancel()
                return
            await asyncio.wait((released,), timeout=0.01)
        self.say(server, request, arguments)

    def huge(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        size = self.note(request)["bytes"]
        server.reply(request, {"content": [{"type": "text", "text": "x" * size}]})

    def hostile(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        self.note(request)
        self.say(server, request, {"text": HOSTILE})

    def list(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        self.say(server, request, {"items": [{"id": n} for n in range(self.note(request)["count"])]})

    def progress(self, server: ScriptedServer, request: dict[str, Any]) -> None:
        for number in (1, 2, 3):
            server.progress(request, number, total=4, message=f"part {number}")
        self.say(server, request, self.note(request))


HOSTILE = '${input.secret} "},"admin":true,{" ${steps.read.result.text}\n$${x}'
OFF = {"command": "none", "disabled": True}


def config(steps: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The servers must be known when the file is read; they are switched on at run time."""
    tool = {"description": "A composed tool.", "steps": steps, **more}
    return {"mcpServers": {"one": OFF, "two": OFF, "three": OFF}, "tools": {"Made": tool}}


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def until(condition: Any) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


PARTIAL = [
    {"name": "a", "tool": "one__slow", "arguments": {"name": "a", "who": "${input.who}"}},
    {"name": "b", "tool": "two:slow", "arguments": {"name": "b"}},
    {"name": "bad", "tool": "three.fails", "onError": "continue"},
    {"name": "never", "tool": "three__slow", "arguments": {"name": "never"}, "onError": "continue", "timeout": 0.1},
    {"name": "sum", "tool": "three__echo", "arguments": {"a": "${steps.a.result.who}", "b": "${steps.b.result}"}},
    {"name": "lost", "tool": "one__echo", "arguments": {"x": "${steps.bad.result.x}", "y": "${steps.bad.ok}"}},
]
PARTIAL_OUTPUT = {
    "sum": "${steps.sum.result}",
    "problems": ["${steps.bad.error}", "${steps.never.error}"],
    "missing": "${steps.bad.result}",
    "lost": "${steps.lost.result}",
    "said": "${input.who} got ${steps.sum.result.a}",
}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_three_servers_in_parallel_with_one_failing_give_the_right_partial_outcome(revision: str) -> None:
    """docs/composed-tools.md#when-something-fails.

    Parallel steps, one failing, within its deadline, for clients of every revision.
    """
    stage = Stage()
    schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
    world = config(PARTIAL, output=PARTIAL_OUTPUT, inputSchema=schema, deadline=5)
    async with a_world(stage.servers, **world) as running:
        client = await running.client(revision)
        clock = asyncio.get_running_loop().time
        began = clock()
        id_ = client.start("tools/call", {"name": "Made", "arguments": {"who": "Ann"}})
        # All that need nothing are under way before any of them is over.
        await until(lambda: {name for name, _ in stage.calls} == {"slow", "fails", "echo"} and len(stage.calls) == 5)
        await until(lambda: stage.cancelled == ["never"])
        stage.release.set()
        result = (await client.answer(id_)).result
        assert clock() - began < 5
        assert said(result) == {
            "sum": {"a": "Ann", "b": {"name": "b"}},
            "problems": ["out of paper", "gave no result within 0.1 s"],
            "missing": None,
            "lost": {"y": False},
            "said": "Ann got Ann",
        }
        assert "isError" not in result


async def test_a_failing_step_ends_the_call_and_cancels_the_others() -> None:
    """docs/composed-tools.md#when-something-fails: `onError: fail` is the default."""
    stage = Stage()
    steps = [
        {"name": "slow", "tool": "one__slow", "arguments": {"name": "slow"}},
        {"name": "bad", "tool": "two__breaks"},
        {"name": "next", "tool": "three__echo", "after": ["slow"]},
    ]
    async with a_world(stage.servers, **config(steps)) as world:
        client = await world.client()
        result = (await client.call("Made")).result
        assert result["isError"] is True
        assert text(result) == 'Made: step "bad" (two__breaks) failed: out of order'
        await until(lambda: stage.cancelled == ["slow"])
        assert sorted(name for name, _ in stage.calls) == ["breaks", "slow"]


async def test_what_is_skipped_skips_what_uses_its_result() -> None:
    """docs/composed-tools.md#when-something-fails."""
    stage = Stage()
    steps = [
        {"name": "off", "tool": "one__echo", "when": "${input.want} == 'yes'"},
        {"name": "uses", "tool": "one__echo", "arguments": {"x": "${steps.off.result}"}},
        {"name": "asks", "tool": "one__echo", "arguments": {"x": "${steps.off.skipped}"}},
        {"name": "bad", "tool": "two__fails", "onError": "skip"},
        {"name": "uses_bad", "tool": "one__echo", "when": "${steps.bad.result.x}"},
        {"name": "after_bad", "tool": "one__echo", "arguments": {"e": "${steps.bad.error}"}, "after": ["bad"]},
    ]
    names = [step["name"] for step in steps]
    output = {name: f"${{steps.{name}.skipped}}" for name in names} | {"e": "${steps.after_bad.result.e}"}
    async with a_world(stage.servers, **config(steps, output=output)) as world:
        client = await world.client()
        result = (await client.call("Made")).result
        skipped = {"off", "uses", "bad", "uses_bad"}
        assert result["structuredContent"] == {name: name in skipped for name in names} | {"e": "out of paper"}
        result = (await client.call("Made", {"want": "yes"})).result
        assert [name for name in names if result["structuredContent"][name]] == ["bad", "uses_bad"]


async def test_for_each_item_a_call_and_the_results_in_order() -> None:
    """docs/composed-tools.md#order: forEach with a bound."""
    stage = Stage()
    steps = [
        {"name": "find", "tool": "one__list", "arguments": {"count": "${input.count}"}},
        {
            "name": "each",
            "tool": "two__echo",
            "forEach": "${steps.find.result.items}",
            "arguments": {"id": "${item.id}", "label": "#${index}"},
            "when": "${item.id} != 1",
        },
    ]
    async with a_world(stage.servers, **config(steps)) as world:
        client = await world.client()
        for count in (0, 3, 50):
            result = (await client.call("Made", {"count": count})).result
            expected = [{"id": n, "label": f"#{n}"} for n in range(count) if n != 1]
            assert result["structuredContent"] == {"result": expected}
        stage.calls.clear()
        result = (await client.call("Made", {"count": 51})).result
        assert text(result) == 'Made: step "each" (two__echo) failed: forEach has 51 items, more than maxItems (50)'
        assert [name for name, _ in stage.calls] == ["list"]


async def test_a_thousand_items_run_a_few_at_a_time() -> None:
    """docs/composed-tools.md#order: `maxItems` bounds a forEach, and eight calls of it run at a time."""
    stage = Stage()
    steps = [{"name": "each", "tool": "one__slow", "forEach": "${input.items}", "maxItems": 1000}]
    async with a_world(stage.servers, **config(steps, output="${steps.each.ok}")) as world:
        client = await world.client()
        id_ = client.start("tools/call", {"name": "Made", "arguments": {"items": [*range(1000)]}})
        await until(lambda: len(stage.calls) == 8)
        stage.release.set()
        assert (await client.answer(id_)).result["structuredContent"] == {"result": True}
        assert len(stage.calls) == 1000


@pytest.mark.parametrize(
    ("on_error", "expected"),
    [
        ("continue", [[{"id": 0}, None, {"id": 2}], False, "1 of 3 failed, first item 1: ${item.no} leads nowhere"]),
        ("skip", [[{"id": 0}, {"id": 2}], True, None]),
    ],
)
async def test_items_that_fail_are_null_or_left_out(on_error: str, expected: list[Any]) -> None:
    """docs/composed-tools.md#when-something-fails."""
    stage = Stage()
    steps = [
        {
            "name": "each",
            "tool": "one__echo",
            "forEach": [{"no": 0}, {}, {"no": 2}],
            "arguments": {"id": "${item.no}"},
            "onError": on_error,
        }
    ]
    output = ["${steps.each.result}", "${steps.each.ok}", "${steps.each.error}"]
    async with a_world(stage.servers, **config(steps, output=output)) as world:
        result = (await (await world.client()).call("Made")).result["structuredContent"]["result"]
        assert result[:2] == expected[:2]
        assert (result[2] or "").startswith(expected[2] or "")


async def test_hostile_text_reaches_the_next_step_as_one_value() -> None:
    """docs/composed-tools.md#references: hostile text in results stays one literal value."""
    stage = Stage()
    found = "${steps.read.result.text}"
    steps = [
        {"name": "read", "tool": "one__hostile"},
        {"name": "send", "tool": "two__echo", "arguments": {"a": found, "b": f"<{found}>"}},
    ]
    async with a_world(stage.servers, **config(steps, output={"all": "${steps.send.result}"})) as world:
        result = (await (await world.client()).call("Made", {"secret": "sesame"})).result
        assert stage.calls[-1] == ("echo", {"a": HOSTILE, "b": f"<{HOSTILE}>"})
        assert result["structuredContent"] == {"all": {"a": HOSTILE, "b": f"<{HOSTILE}>"}}


async def test_numbers_pass_from_step_to_step_as_they_are() -> None:
    """docs/composed-tools.md#references: nothing lost; 1.0 stays 1.0, thirty digits stay thirty digits."""
    servers = {"one": ScriptedServer(tools={"a": None}), "two": ScriptedServer(tools={"b": None})}
    arguments = {"x": "${input.x}", "y": "${input.y}"}
    steps = [
        {"name": "a", "tool": "one__a", "arguments": arguments},
        {"name": "b", "tool": "two__b", "arguments": {"x": "${steps.a.result.x}", "y": "${steps.a.result.y}"}},
    ]
    async with a_world(servers, **config(steps)) as world:
        client = await world.client()
        params = b'{"name":"Made","arguments":{"x":1.0,"y":123456789012345678901234567890}}'
        client.say(b'{"jsonrpc":"2.0","id":"n","method":"tools/call","params":' + params + b"}")
        reply = await client.answer("n")
        assert b'"structuredContent":{"x":1.0,"y":123456789012345678901234567890}' in reply.line
        assert b'"arguments":{"x":1.0,"y":123456789012345678901234567890}' in servers["two"].lines[-1]


async def test_a_result_of_fifty_megabytes_is_refused_with_the_reason() -> None:
    """docs/composed-tools.md#when-something-fails: results of 50 MB inside a composition are bounded and explained."""
    stage = Stage()
    size = 50 * 1024 * 1024
    steps = [{"name": "big", "tool": "one__huge", "arguments": {"bytes": "${input.bytes}"}}]
    entries = {"one": {"maxMessageBytes": 2 * size}}
    async with a_world(stage.servers, entries=entries, **config(steps)) as world:
        client = await world.client()
        result = (await client.call("Made", {"bytes": size})).result
        assert result["isError"] is True
        assert 'step "big" (one__huge) failed: its result of 52428' in text(result)
        assert "more than 16777216 bytes of results (maxResultBytes of the tool)" in text(result)


async def test_small_results_add_up_to_the_bound_too() -> None:
    """Ours: the bound is for the whole call, results, arguments and output."""
    stage = Stage()
    steps = [{"name": "big", "tool": "one__huge", "forEach": [1, 2, 3, 4], "arguments": {"bytes": 400}}]
    more = {"maxResultBytes": 1024}
    async with a_world(stage.servers, **config(steps, **more)) as world:
        assert "more than 1024 bytes" in text((await (await world.client()).call("Made")).result)
    one = [{"name": "big", "tool": "one__huge", "arguments": {"bytes": 600}}]
    twice = [*one, {"name": "send", "tool": "one__echo", "arguments": {"a": "${steps.big.result}${steps.big.result}"}}]
    async with a_world(Stage().servers, **config(twice, **more)) as world:
        said_ = text((await (await world.client()).call("Made")).result)
        assert "its arguments are larger than 1024 bytes" in said_
    async with a_world(Stage().servers, **config(one, **more, output=["${steps.big.result}"] * 3)) as world:
        said_ = text((await (await world.client()).call("Made")).result)
        assert said_ == "Made: the output is larger than 1024 bytes (maxResultBytes)"


async def test_the_deadline_ends_what_is_left() -> None:
    """docs/composed-tools.md#when-something-fails: overall deadline; steps that may fail leave a partial outcome."""
    stage = Stage()
    steps = [
        {"name": "quick", "tool": "one__echo", "arguments": {"v": 1}},
        {"name": "slow", "tool": "two__slow", "arguments": {"name": "slow"}, "onError": "continue"},
        {"name": "each", "tool": "three__slow", "forEach": [1, 2], "onError": "continue"},
        {"name": "later", "tool": "one__echo", "arguments": {"v": "${steps.slow.result}"}, "onError": "skip"},
    ]
    output = {
        "quick": "${steps.quick.result.v}", "slow": "${steps.slow.error}",
        "each": "${steps.each.result}", "later": "${steps.later.skipped}",
    }  # fmt: skip
    async with a_world(stage.servers, **config(steps, output=output, deadline=0.2)) as world:
        result = (await (await world.client()).call("Made")).result
        assert result["structuredContent"] == {
            "quick": 1, "slow": "the deadline of 0.2 s passed first", "each": [None, None], "later": True,
        }  # fmt: skip
        await until(lambda: len(stage.cancelled) == 3)
    steps[1]["onError"] = "fail"
    async with a_world(Stage().servers, **config(steps, deadline=0.2)) as world:
        result = (await (await world.client()).call("Made")).result
        assert text(result) == "Made: the deadline of 0.2 s passed before these were done: slow, each, later"


async def test_cancelling_the_call_cancels_its_steps() -> None:
    """docs/composed-tools.md#which-tools: cancelling the call cancels its steps."""
    stage = Stage()
    steps = [
        {"name": "a", "tool": "one__slow", "arguments": {"name": "a"}},
        {"name": "b", "tool": "two__slow", "arguments": {"name": "b"}},
        {"name": "c", "tool": "three__echo", "after": ["a"]},
    ]
    async with a_world(stage.servers, **config(steps)) as world:
        client = await world.client()
        id_ = client.start("tools/call", {"name": "Made", "arguments": {}})
        await until(lambda: len(stage.calls) == 2)
        client.tell("notifications/cancelled", {"requestId": id_})
        await until(lambda: sorted(stage.cancelled) == ["a", "b"])
        assert len(stage.calls) == 2
        assert (await client.call("one__echo", {"x": 1})).result["content"]
        assert client.unread == 0


async def test_progress_tells_step_by_step_and_never_goes_back() -> None:
    """docs/composed-tools.md#which-tools: progress per step, to callers who asked for it."""
    stage = Stage()
    steps = [
        {"name": "a", "tool": "one__progress"},
        {"name": "b", "tool": "two__echo", "forEach": [1, 2], "after": ["a"]},
        {"name": "c", "tool": "three__echo", "when": False, "after": ["b"]},
    ]
    async with a_world(stage.servers, **config(steps)) as world:
        client = await world.client()
        await client.call("Made", _meta={"progressToken": "p"})
        heard = [one["params"] for one in client.notices if one["method"] == "notifications/progress"]
        assert {one["progressToken"] for one in heard} == {"p"}
        assert {one["total"] for one in heard} == {3}
        counts = [one["progress"] for one in heard]
        assert counts == sorted({*counts})
        assert counts == [0.25, 0.5, 0.75, 1, 1.5, 2, 3]
        assert [one["message"] for one in heard][2:5] == ["a: part 3", "a: done", "b: 1 of 2"]
        client.notices.clear()
        await client.call("Made")
        assert client.notices == []


@pytest.mark.parametrize("server", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_questions_of_a_step_reach_the_caller(revision: str, server: str) -> None:
    """docs/composed-tools.md#which-tools.

    The caller is asked as in any call, whatever the two sides speak; the deadline waits.
    """
    stage = Stage((server, server, server))
    steps = [
        {"name": "who", "tool": "one__curious"},
        {"name": "tell", "tool": "two__echo", "arguments": {"said": "${steps.who.result}"}},
    ]
    async with a_world(stage.servers, **config(steps, deadline=5)) as world:
        client, asked = await client_of(world, revision, EVERYTHING)
        await client.hello()
        reply = await client.complete("tools/call", {"name": "Made", "arguments": {}})
        assert said(reply.result) == {"said": "Ann hi file:///w"}
        assert [method for method, _ in asked] == ["elicitation/create", "sampling/createMessage", "roots/list"]


async def test_the_clocks_stand_still_while_the_caller_thinks() -> None:
    """Ours: as for any call, it is the caller who takes time then."""

    async def ask(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}})
        server.reply(request, {"content": [{"type": "text", "text": answer["result"]["action"]}]})

    servers = {"one": ScriptedServer(tools={"ask": ask}), "two": ScriptedServer(), "three": ScriptedServer()}
    steps = [{"name": "who", "tool": "one__ask", "timeout": 0.2}]
    async with a_world(servers, **config(steps, deadline=0.2)) as world:
        client = RawClient(world.gateway.memory_door(), capabilities={"elicitation": {}})
        await client.hello()
        id_ = client.start("tools/call", {"name": "Made", "arguments": {}})
        question = await client.notice("elicitation/create")
        await asyncio.sleep(0.5)  # longer than both limits: this is what is tested
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        client.say(json.dumps(answer).encode())
        assert text((await client.answer(id_)).result) == "decline"


async def test_a_caller_that_knows_tasks_may_leave_and_come_back() -> None:
    """2026-07-28, tasks extension: a composed tool is a call like any other to it."""
    stage = Stage()
    steps = [{"name": "a", "tool": "one__slow", "arguments": {"name": "a"}}]
    async with a_world(stage.servers, **config(steps)) as world:
        extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        client = RawClient(world.gateway.memory_door(), revision="2026-07-28", capabilities=extensions)
        made = (await client.call("Made")).result
        assert made["resultType"] == "task"
        stage.release.set()
        async with asyncio.timeout(_PATIENCE):
            while (task := (await client.ask("tasks/get", {"taskId": made["taskId"]})).result)["status"] == "working":
                await asyncio.sleep(0.01)
        assert task["result"]["structuredContent"] == {"name": "a"}


async def test_steps_may_use_tools_that_clients_do_not_see() -> None:
    """docs/composed-tools.md#which-tools: hidden from clients, not from the owner of the file."""
    stage = Stage()
    steps = [
        {"name": "a", "tool": "one__echo", "arguments": {"v": 1}},
        {"name": "b", "tool": "two:echo", "arguments": {"v": "${steps.a.result.v}"}},
    ]
    entries = {"one": {"exposedTools": []}, "two": {"hiddenTools": ["echo"]}}
    async with a_world(stage.servers, entries=entries, **config(steps)) as world:
        client = await world.client()
        assert (await client.call("Made")).result["structuredContent"] == {"v": 1}
        for name in ("one__echo", "two:echo"):
            assert "Tool not found" in (await client.call(name)).error["message"]


async def test_steps_go_through_the_middleware_of_the_gateway() -> None:
    """Ours: limits, logs and filters hold for calls from inside too."""
    stage = Stage()
    steps = [{"name": "a", "tool": "one__slow", "arguments": {"name": "a"}}]
    around = {"middleware": [{"use": "timeout", "match": ["one__*"], "seconds": 0.1}]}
    async with a_world(stage.servers, **config(steps), **around) as world:
        result = (await (await world.client()).call("Made")).result
        assert result["isError"] is True
        assert text(result).startswith('Made: step "a" (one__slow) failed: ')
        assert stage.calls == [("slow", {"name": "a"})]


async def test_composed_tools_may_use_each_other() -> None:
    """Ours: to a depth of three."""
    stage = Stage()
    made = config(
        [{"name": "a", "tool": "Inner", "arguments": {"v": "${input.v}"}}], output={"x": "${steps.a.result.v}"}
    )
    made["tools"]["Inner"] = {
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"v": {"type": "integer"}}},
        "steps": [{"name": "a", "tool": "one__echo", "arguments": {"v": "${input.v}"}}],
    }
    async with a_world(stage.servers, **made) as world:
        client = await world.client()
        assert (await client.call("Made", {"v": 7})).result["structuredContent"] == {"x": 7}
        wrong = text((await client.call("Made", {"v": "7"})).result)
        assert wrong == 'Made: step "a" (Inner) failed: Inner: wrong arguments: v must be integer, found string'


async def test_a_step_whose_server_is_down_says_so() -> None:
    """Ours: what happened, to whom."""
    stage = Stage()
    del stage.servers["two"]
    steps = [{"name": "a", "tool": "two__echo"}]
    async with a_world(stage.servers, **config(steps)) as world:
        result = (await (await world.client()).call("Made")).result
        assert text(result).startswith('Made: step "a" (two__echo) failed: ')


async def test_a_dry_run_says_what_would_be_called_and_calls_nothing() -> None:
    """docs/composed-tools.md#check-it: dry run, where it is configured."""
    stage = Stage()
    steps = [
        {
            "name": "a",
            "tool": "one__echo",
            "arguments": {"v": "${input.v}", "w": "${input.w}"},
            "when": "${input.v} > 1",
        },
        {"name": "b", "tool": "two__echo", "forEach": "${steps.a.result}", "arguments": {"v": "${item}"}},
    ]
    schema = {"type": "object", "properties": {"v": {"type": "integer", "default": 5}, "w": {}}}
    async with a_world(stage.servers, **config(steps, inputSchema=schema, dryRun=True)) as world:
        client = await world.client()
        (listed,) = [tool for tool in (await client.ask("tools/list")).result["tools"] if tool["name"] == "Made"]
        assert listed["inputSchema"]["properties"]["dryRun"]["type"] == "boolean"
        result = (await client.call("Made", {"dryRun": True})).result
        first = {"name": "a", "tool": "one__echo", "after": [], "arguments": {"v": 5}, "when": True}
        second = {**steps[1], "after": ["a"]}
        assert result["structuredContent"] == {"dryRun": True, "steps": [first, second]}
        assert stage.calls == []
        assert "dryRun must be boolean" in text((await client.call("Made", {"dryRun": "yes"})).result)
    async with a_world(stage.servers, **config(steps[:1])) as world:
        result = (await (await world.client()).call("Made", {"dryRun": True, "v": 2})).result
        assert stage.calls == [("echo", {"v": 2})]
        assert result["structuredContent"] == {"v": 2}
