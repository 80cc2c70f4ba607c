"""`ask`: the caller's user where the client can ask, else the operator; after a while the answer is no."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.calls.identity import Identity
from muxway.config import parse_config
from muxway.control.approving import described
from muxway.exchange import approvals
from muxway.testing import RawClient
from tests.conftest import World, a_world
from tests.hardening.test_selection import OFF, server

if TYPE_CHECKING:
    from pathlib import Path

    from muxway.config.model import Config
    from muxway.exchange.approvals import Approval

ASK = [{"tools": ["a__drop"], "do": "ask"}, {"prompts": ["a__q"], "do": "ask"}, {"resources": ["a://two"], "do": "ask"}]
ELICITS = {"elicitation": {}}
REVISIONS = ["2025-06-18", "2025-11-25", "2026-07-28"]
USES = [
    ("tools/call", {"name": "a__drop", "arguments": {"path": "x"}}),
    ("prompts/get", {"name": "a:q"}),
    ("resources/read", {"uri": "a://two"}),
]


def asking(**gateway: Any) -> Any:
    """A gateway with one server, some of whose things are asked about."""
    return a_world({"a": server("a")}, mcpServers={"a": OFF}, access=ASK, gateway=gateway)


async def client_of(world: World, revision: str, identity: Identity | None = None, **more: Any) -> RawClient:
    """A client of this revision."""
    client = RawClient(world.gateway.memory_door(None, identity), revision=revision, **more)
    await client.hello()
    return client


async def parked(world: World) -> Approval:
    """The next call that waits for the operator."""
    async with asyncio.timeout(30):
        while not (waiting := world.gateway.runtime.approvals.waiting()):
            await asyncio.sleep(0)
    return waiting[0]


def used(world: World) -> int:
    """How often the server was asked for anything."""
    return sum(world.servers["a"].times(method) for method, _ in USES)


@pytest.mark.parametrize(("method", "params"), USES)
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_the_callers_user_is_asked_where_the_client_can(
    method: str, params: dict[str, Any], revision: str, action: str
) -> None:
    """docs/access.md: by elicitation, in both eras; nothing reaches the server before a yes."""
    async with asking() as world:
        client = await client_of(world, revision, capabilities=ELICITS)
        client.answers["elicitation/create"] = lambda _: {"action": action, "content": {}}
        reply = await client.complete(method, params)
        assert used(world) == (1 if action == "accept" else 0)
        if action == "accept":
            assert "isError" not in reply.result
        elif method == "tools/call":
            assert reply.result["isError"]
            assert "was not called" in reply.result["content"][0]["text"]
        else:
            assert reply.error["data"]["muxway"]["reason"] == "denied"
        assert world.gateway.runtime.approvals.waiting() == []


@pytest.mark.parametrize(("method", "params"), USES)
@pytest.mark.parametrize("revision", ["2024-11-05", *REVISIONS])
@pytest.mark.parametrize("allow", [True, False])
async def test_else_the_call_waits_for_the_operator(
    method: str, params: dict[str, Any], revision: str, allow: bool
) -> None:
    """docs/access.md: clients without elicitation, of any revision, are served too."""
    async with asking() as world:
        client = await client_of(world, revision)
        id_ = client.start(method, params)
        waiting = await parked(world)
        assert used(world) == 0
        assert waiting.rule.startswith("access.")
        world.gateway.runtime.approvals.answer(waiting.id, allow=allow)
        reply = await client.answer(id_)
        assert used(world) == int(allow)
        if not allow:
            assert "said no" in json.dumps(reply.message)
        with pytest.raises(KeyError):
            world.gateway.runtime.approvals.answer(waiting.id, allow=True)


async def test_nobody_answers() -> None:
    """docs/access.md: time-out is no, with the reason."""
    async with asking(approvalTimeout=0.05) as world:
        client = await client_of(world, "2025-11-25")
        reply = await client.call("a__drop")
        assert "it was not approved within 0.05 s" in reply.result["content"][0]["text"]
        assert used(world) == 0
        assert world.gateway.runtime.approvals.waiting() == []


async def test_a_yes_is_remembered_for_one_caller_and_tool() -> None:
    """docs/access.md: with `--remember`, until the config is read again."""
    async with asking() as world:
        client, other = await client_of(world, "2025-11-25"), await client_of(world, "2025-11-25")
        id_ = client.start("tools/call", {"name": "a__drop", "arguments": {}})
        world.gateway.runtime.approvals.answer((await parked(world)).id, allow=True, remember=60)
        await client.answer(id_)
        assert (await client.call("a.drop", {"other": 1})).result
        other.start("tools/call", {"name": "a__drop", "arguments": {}})
        assert (await parked(world)).call.caller.party is not None
        assert used(world) == 2
        # As a reload does, and a server that is started anew.
        world.gateway.runtime.approvals.forget("a")
        client.start("tools/call", {"name": "a__drop", "arguments": {}})
        async with asyncio.timeout(30):
            while len(world.gateway.runtime.approvals.waiting()) < 2:
                await asyncio.sleep(0)


async def test_a_client_that_gives_up_is_not_waited_for() -> None:
    """docs/access.md: what was cancelled cannot be allowed any more."""
    async with asking() as world:
        client = await client_of(world, "2025-11-25")
        id_ = client.start("tools/call", {"name": "a__drop", "arguments": {}})
        await parked(world)
        client.tell("notifications/cancelled", {"requestId": id_})
        async with asyncio.timeout(30):
            while world.gateway.runtime.approvals.waiting():
                await asyncio.sleep(0)
        assert used(world) == 0


async def test_few_calls_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: bounded in number; the next is denied at once, with the reason."""
    monkeypatch.setattr(approvals, "MOST", 2)
    async with asking() as world:
        client = await client_of(world, "2025-11-25")
        for _ in range(2):
            client.start("tools/call", {"name": "a__drop", "arguments": {}})
        reply = await client.call("a__drop")
        assert "too many calls wait" in reply.result["content"][0]["text"]


async def test_one_caller_does_not_take_the_places_of_others() -> None:
    """docs/access.md: sixteen of each caller; whoever comes next finds a place."""
    async with asking() as world:
        many = await client_of(world, "2025-11-25", Identity(user="ann"))
        for _ in range(16):
            many.start("tools/call", {"name": "a__drop", "arguments": {}})
        reply = await many.call("a__drop")
        assert "16 calls of this caller wait" in reply.result["content"][0]["text"]
        other = await client_of(world, "2025-11-25", Identity(user="bob"))
        other.start("tools/call", {"name": "a__drop", "arguments": {}})
        async with asyncio.timeout(30):
            while len(world.gateway.runtime.approvals.waiting()) < 17:
                await asyncio.sleep(0)


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_arguments_with_a_member_twice_are_refused_for_tools_and_prompts_alike(method: str) -> None:
    """docs/access.md: also where nobody is shown them."""
    async with asking() as world:
        client = await client_of(world, "2025-11-25", capabilities=ELICITS)
        client.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {}}
        name = "a__drop" if method == "tools/call" else "a:q"
        twice = '{"path":"x","path":"y"}'
        client.say(
            b'{"jsonrpc":"2.0","id":"t","method":"%b","params":{"name":"%b","arguments":%b}}'
            % (method.encode(), name.encode(), twice.encode())
        )
        reply = await client.answer("t")
        assert reply.error["code"] == -32602
        assert "duplicate key" in reply.error["message"]
        assert used(world) == 0


async def test_a_state_that_nobody_was_given_is_refused() -> None:
    """Ours: only an answer to our own question, for just this call, is one."""
    async with asking() as world:
        client = await client_of(world, "2026-07-28", capabilities=ELICITS)
        yes = {"access": {"action": "accept", "content": {}}}
        forged = await client.call("a__drop", {}, requestState="mwr1.forged", inputResponses=yes)
        assert "Invalid or expired" in forged.error["message"]
        other = await client.call("a__drop", {}, requestState="mw1.forged", inputResponses=yes)
        assert "Invalid or expired" in other.error["message"]
        asked = (await client.call("a__drop", {"n": 1})).result
        moved = await client.call("a__drop", {"n": 2}, requestState=asked["requestState"], inputResponses=yes)
        assert "Invalid or expired" in moved.error["message"]
        asked = (await client.call("a__drop", {"n": 1})).result
        assert (await client.call("a__drop", {"n": 1}, requestState=asked["requestState"], inputResponses=yes)).result
        again = await client.call("a__drop", {"n": 1}, requestState=asked["requestState"], inputResponses=yes)
        assert "Invalid or expired" in again.error["message"]
        assert used(world) == 1


async def test_whoever_approves_sees_who_and_what_but_no_secrets() -> None:
    """docs/access.md: tool, caller and arguments; secrets masked."""
    async with asking() as world:
        client = await client_of(world, "2025-11-25", Identity(user="ann"))
        arguments = {"path": "/x", "api_key": "abc", "deep": [{"password": "p"}], "text": "has hunter2hunter2 in it"}
        client.start("tools/call", {"name": "a__drop", "arguments": arguments})
        told = described(await parked(world), lambda text: text.replace("hunter2hunter2", "***"))
        assert (told["name"], told["server"], told["user"]) == ("a__drop", "a", "ann")
        assert told["arguments"] == {
            "path": "/x",
            "api_key": "***",
            "deep": [{"password": "***"}],
            "text": "has *** in it",
        }


async def test_whoever_approves_sees_that_there_is_more() -> None:
    """docs/access.md: what matters cannot be hidden behind a hundred other arguments."""
    async with asking() as world:
        client = await client_of(world, "2025-11-25")
        arguments = {f"a{number}": number for number in range(100)} | {"path": "/etc", "list": [0]}
        client.start("tools/call", {"name": "a__drop", "arguments": {**arguments, "a0": [0] * 103}})
        told = described(await parked(world), str)["arguments"]
        assert told["…"] == "2 more"
        assert told["a0"][-1] == "… 3 more"
        assert len(told["a0"]) == 101


@pytest.mark.parametrize("capabilities", [{}, ELICITS])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_nobody_is_asked_about_arguments_that_can_be_read_in_two_ways(
    revision: str, capabilities: dict[str, Any]
) -> None:
    """docs/access.md: whoever agrees sees the last of two members, and the server may take the first."""
    async with asking() as world:
        client = await client_of(world, revision, capabilities=capabilities)
        client.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {}}
        say = client.say
        client.say = lambda frame: say(frame.replace(b'"second"', b'"path"'))  # pyright: ignore[reportAttributeAccessIssue]
        for arguments in ({"path": "/etc", "second": "x"}, {"deep": [{"path": "/etc", "second": "x"}]}):
            reply = await client.call("a__drop", arguments)
            assert "duplicate key" in reply.error["message"]
        assert world.gateway.runtime.approvals.waiting() == []
        assert used(world) == 0
        large = client.start("tools/call", {"name": "a__drop", "arguments": {"path": "x" * 400_000}})
        if not capabilities:
            world.gateway.runtime.approvals.answer((await parked(world)).id, allow=True)
            assert "isError" not in (await client.answer(large)).result


async def test_steps_of_composed_tools_and_subtools_are_asked_about_too() -> None:
    """docs/access.md: whoever calls a tool that calls another one needs leave for both."""
    tools = {
        "Both": {"description": "d", "steps": [{"name": "one", "tool": "a__drop", "arguments": {}}]},
        "Desk": {"description": "d", "subtools": {"a": ["drop", "get"]}},
    }
    async with a_world({"a": server("a")}, mcpServers={"a": OFF}, access=ASK, tools=tools) as world:
        client = await client_of(world, "2025-11-25")
        for name, arguments in (("Both", {}), ("Desk", {"server": "a", "tool": "drop", "args": {}})):
            id_ = client.start("tools/call", {"name": name, "arguments": arguments})
            world.gateway.runtime.approvals.answer((await parked(world)).id, allow=True)
            assert "isError" not in (await client.answer(id_)).result
        assert (await client.call("Desk", {"server": "a", "tool": "get", "args": {}})).result
        assert used(world) == 3


async def test_steps_and_subtools_that_are_denied_are_unknown() -> None:
    """docs/access.md: no composed or compound tool is a way around a rule."""
    tools = {
        "Both": {"description": "d", "steps": [{"name": "one", "tool": "a__drop", "arguments": {}}]},
        "Desk": {"description": "d", "subtools": {"a": ["drop", "get"]}},
    }
    rules = [{"tools": ["a__drop"], "do": "deny"}]
    for entries in ({}, {"a": {"hiddenTools": ["drop"]}}):
        async with a_world(
            {"a": server("a")}, mcpServers={"a": OFF}, access=rules, tools=tools, entries=entries
        ) as world:
            client = await client_of(world, "2025-11-25")
            assert "not found" in json.dumps((await client.call("Both")).message)
            reply = await client.call("Desk", {"server": "a", "tool": "drop", "args": {}})
            assert reply.error["message"].endswith("as one of: a/get")
            assert used(world) == 0


@pytest.mark.parametrize("view", [None, "plain", "shaped"])
async def test_a_compound_tool_tells_only_of_what_its_caller_may_run(view: str | None) -> None:
    """docs/access.md: what is denied is in no list, also not inside of another tool; others see all of it."""
    tools = {"Desk": {"description": "Do it.", "subtools": {"a": ["drop", "get"], "b": ["list"]}}}
    rules = [{"users": ["ann"], "tools": ["a__drop"], "do": "deny"}, {"users": ["ann"], "servers": ["b"], "do": "deny"}]
    rules.append({"users": ["eve"], "servers": ["*"], "do": "deny"})
    views = {"plain": {}, "shaped": {"shape": {"Desk": {"name": "Table", "arguments": {"args": {"rename": "with"}}}}}}
    servers = {name: server(name) for name in "ab"}
    async with a_world(servers, mcpServers={"a": OFF, "b": OFF}, access=rules, tools=tools, views=views) as world:

        async def desk(user: str) -> dict[str, Any]:
            client = RawClient(world.gateway.memory_door(view, Identity(user=user)))
            await client.hello()
            listed = (await client.ask("tools/list")).result["tools"]
            (one,) = [tool for tool in listed if tool["name"] == ("Table" if view == "shaped" else "Desk")]
            assert ("with" in one["inputSchema"]["properties"]) is (view == "shaped")
            return one

        of_ann, of_bob, of_eve = [await desk(user) for user in ("ann", "bob", "eve")]
        assert "tool drop" in of_bob["description"]
        assert of_bob["inputSchema"]["properties"]["server"]["enum"] == ["a", "b"]
        assert of_ann["inputSchema"]["properties"]["server"]["enum"] == ["a"]
        assert of_ann["inputSchema"]["properties"]["tool"]["enum"] == ["get"]
        assert "tool get" in of_ann["description"]
        for hidden in ("drop", "list", "server b"):
            assert hidden not in json.dumps(of_ann)
        assert "enum" not in json.dumps(of_eve)
        assert "tool get" not in json.dumps(of_eve)


async def test_the_audit_names_the_rule(tmp_path: Path) -> None:
    """docs/access.md: one line for each decision, denials too."""
    rules = [{"tools": ["a__drop"], "do": "deny"}, {"tools": ["a__get"], "do": "allow"}]
    audit = [{"use": "audit", "path": str(tmp_path / "audit.jsonl")}]
    async with a_world({"a": server("a")}, mcpServers={"a": OFF}, access=rules, middleware=audit) as world:
        client = await client_of(world, "2025-11-25")
        await client.call("a.drop")
        await client.call("a__get")
        await client.call("a__list")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [(line["name"], line["access"], line["rule"]) for line in lines if line["method"] == "tools/call"]
    assert told == [("a.drop", "deny", "access.0"), ("a__get", "allow", "access.1"), ("a__list", "allow", None)]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_audit_names_what_was_said_to_whoever_asked(tmp_path: Path, revision: str) -> None:
    """docs/middleware/audit.md: a line for each answer, of the user or of the operator, at those around the call."""
    files = {name: tmp_path / f"{name}.jsonl" for name in ("all", "a", "b")}
    audits = {name: [{"use": "audit", "path": str(path)}] for name, path in files.items()}
    servers = {name: {**OFF, "middleware": audits[name]} for name in ("a", "b")}
    rules = [{"tools": ["a__drop"], "do": "ask"}]
    peers = {"a": server("a"), "b": server("b")}
    async with a_world(peers, mcpServers=servers, access=rules, middleware=audits["all"]) as world:
        asked = await client_of(world, revision, Identity(user="ann"), capabilities=ELICITS)
        asked.answers["elicitation/create"] = lambda _: {"action": "decline"}
        await asked.complete("tools/call", {"name": "a__drop", "arguments": {}})
        parks = await client_of(world, revision, Identity(key="ci"))
        for allow in (True, False):
            id_ = parks.start("tools/call", {"name": "a__drop", "arguments": {}})
            world.gateway.runtime.approvals.answer((await parked(world)).id, allow=allow)
            await parks.answer(id_)
    for name in ("all", "a"):
        lines = [json.loads(line) for line in files[name].read_text().splitlines()]
        told = [one for one in lines if one["outcome"] in ("approved", "denied")]
        assert [(one.get("user"), one.get("key"), one["outcome"], one.get("why")) for one in told] == [
            ("ann", None, "denied", "the user declined it"),
            (None, "ci", "approved", None),
            (None, "ci", "denied", "the operator of the gateway said no"),
        ]
        assert {(one["method"], one["name"], one["server"], one["rule"]) for one in told} == {
            ("tools/call", "a__drop", "a", "access.0")
        }
    assert not files["b"].exists() or "approved" not in files["b"].read_text()


async def test_another_rule_is_told_as_another_list() -> None:
    """docs/access.md: a reload of the rules is heard by those whose lists it changes, and by nobody else."""
    scripted = server("a")

    def config(*rules: dict[str, Any]) -> Config:
        read = parse_config({"mcpServers": {"a": {"command": "(in-process)"}}, "access": [*rules]})
        return replace(read, objects={"a": scripted})

    async with Gateway.open(config()) as gateway:
        world = World(gateway, {"a": scripted})
        ann = await client_of(world, "2025-11-25", Identity(user="ann"))
        bob = await client_of(world, "2025-11-25", Identity(user="bob"))
        assert len(await ann.tools()) == len(await bob.tools()) == 3
        await gateway.apply(config({"users": ["bob"], "tools": ["a__drop"], "do": "deny"}))
        await bob.notice("notifications/tools/list_changed")
        assert await bob.tools() == ["a__get", "a__list"]
        assert len(await ann.tools()) == 3
        await gateway.apply(config())
        await bob.notice("notifications/tools/list_changed")
        assert len(await bob.tools()) == 3
        assert not [notice for notice in ann.notices if notice["method"].endswith("list_changed")]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_user_is_asked_about_a_step_in_the_middle_of_its_tool(revision: str) -> None:
    """docs/access.md: a step's question goes the way that questions of servers go, in both eras."""
    tools = {"Both": {"description": "d", "steps": [{"name": "one", "tool": "a__drop", "arguments": {}}]}}
    async with a_world({"a": server("a")}, mcpServers={"a": OFF}, access=ASK, tools=tools) as world:
        client = await client_of(world, revision, capabilities=ELICITS)
        asked: list[dict[str, Any]] = []

        def answer(params: dict[str, Any]) -> dict[str, Any]:
            asked.append(params)
            return {"action": "accept", "content": {}}

        client.answers["elicitation/create"] = answer
        reply = await client.complete("tools/call", {"name": "Both", "arguments": {}})
        assert "isError" not in reply.result
        assert (len(asked), used(world)) == (1, 1)
        assert "a__drop" in asked[0]["message"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_is_denied_now_does_not_come_from_the_cache(revision: str) -> None:
    """docs/access.md: a principal whose groups are others now may do what these may, whatever was answered before."""
    both = {"Both": {"description": "d", "steps": [{"name": "one", "tool": "a__get", "arguments": {}}]}}
    rules = [{"groups": ["staff"], "do": "allow"}, {"tools": ["Both", "a__get"], "do": "deny"}]
    caching = [{"use": "cache", "tools": ["*"], "lists": True}]
    async with a_world(
        {"a": server("a")}, mcpServers={"a": OFF}, access=rules, tools=both, middleware=caching
    ) as world:
        for groups, shown in ((("staff",), True), ((), False), (("staff",), True)):
            client = await client_of(world, revision, Identity(user="ann", groups=groups))
            assert ("Both" in await client.tools()) is shown
            for name in ("Both", "a__get"):
                assert ("result" in (await client.call(name)).message) is shown
        assert world.servers["a"].times("tools/call") == 2


TOOLS = {
    "Both": {"description": "d", "steps": [{"name": "one", "tool": "a__drop", "arguments": {}}]},
    "Desk": {"description": "d", "subtools": {"a": ["drop", "get"]}},
}
WAITING: list[tuple[str, dict[str, Any]]] = [
    *USES,
    ("tools/call", {"name": "Both", "arguments": {}}),
    ("tools/call", {"name": "Desk", "arguments": {"server": "a", "tool": "drop", "args": {"path": "x"}}}),
]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("capabilities", [{}, ELICITS])
@pytest.mark.parametrize(("method", "params"), WAITING)
async def test_a_yes_that_comes_after_a_rule_denies_it_is_too_late(
    method: str, params: dict[str, Any], capabilities: dict[str, Any], kept: bool
) -> None:
    """docs/access.md: rules that come while a call waits hold for it, whoever agrees, and to whatever."""
    scripted, asked = server("a"), list[dict[str, Any]]()
    denied = [{"users": ["bob" if kept else "ann"], **rule, "do": "deny"} for rule in ASK]

    def config(*rules: dict[str, Any]) -> Config:
        read = parse_config({"mcpServers": {"a": {"command": "(in-process)"}}, "access": [*rules], "tools": TOOLS})
        return replace(read, objects={"a": scripted})

    async with Gateway.open(config(*ASK)) as gateway:
        world = World(gateway, {"a": scripted})
        client = await client_of(world, "2025-11-25", Identity(user="ann"), capabilities=capabilities)
        other = await client_of(world, "2025-11-25")

        def answer(params: dict[str, Any]) -> dict[str, Any]:
            asked.append(params)
            return {"action": "accept", "content": {}}

        client.answers["elicitation/create"] = answer
        id_ = client.start(method, params)
        # What the user is asked is there by then, and is read, and answered, with the answer to the call.
        await other.tools()
        waiting = None if capabilities else await parked(world)
        await gateway.apply(config(*denied, *ASK))
        if waiting is not None:
            gateway.runtime.approvals.answer(waiting.id, allow=True)
        reply = await client.answer(id_)
        assert used(world) == int(kept)
        assert len(asked) == len(capabilities)
        if not kept:
            assert "not found" in json.dumps(reply.message)
