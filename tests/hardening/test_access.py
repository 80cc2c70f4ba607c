"""What a rule denies is not there: one policy for lists and for every use (docs/access.md).

The matrix is made of rules × callers × views × eras × each thing that there is × each way to use it. A thing works
where it is listed, and elsewhere the answer is the one for a thing that nobody has; `explain` says the same.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.calls.identity import Identity
from muxway.config import parse_config
from muxway.control.explaining import explain
from muxway.testing import RawClient
from tests.conftest import a_world
from tests.hardening.test_selection import OFF, check, listed, server
from tests.journeys.test_tasks_apart import SERVER
from tests.journeys.worker import TASKS

if TYPE_CHECKING:
    from muxway.config import Config

ANN = Identity(issuer="https://login", subject="1", user="ann", groups=("eng", "all"), client="claude")
BOB = Identity(issuer="https://login", subject="2", user="bob", groups=("all",), client="cursor")
CI = Identity(key="ci")
CALLERS = {"ann": ANN, "bob": BOB, "ci": CI, "nobody": None}

RULES: dict[str, list[dict[str, Any]]] = {
    "allowed": [{"do": "allow"}],
    "a_user": [{"users": ["ann"], "do": "allow"}, {"servers": ["a"], "do": "deny"}],
    "a_group": [{"groups": "eng", "do": "allow"}, {"tools": ["*__drop"], "do": "deny"}],
    "a_key": [{"keys": ["c*"], "servers": ["b"], "do": "deny"}],
    "a_client": [{"clients": ["claude"], "prompts": ["a__*"], "do": "deny"}],
    "a_view": [{"views": ["part"], "tools": ["a__get"], "do": "deny"}],
    "marked": [{"annotations": {"readOnly": True}, "do": "allow"}, {"tools": ["*"], "do": "deny"}],
    "uris": [{"resources": ["a://one", "b://made/*"], "do": "deny"}],
    "only": [{"users": ["ann"], "tools": ["b__*"], "do": "allow"}, {"users": ["ann"], "do": "deny"}],
    "shut": [{"servers": ["b"], "do": "deny"}],
}
VIEWS: dict[str, dict[str, Any]] = {"all": {}, "part": {"tools": ["a__*"], "resources": ["a://*"]}}


@pytest.mark.leaping  # or it lasts so long that lists grow old, and what is not listed is looked for
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("rules", RULES)
async def test_what_a_rule_denies_is_unknown(rules: str, revision: str) -> None:
    """docs/access.md: for list, call, get, read, complete and subscribe, in every spelling; and `explain` agrees."""
    servers = {name: server(name) for name in "ab"}
    there = absent = 0
    async with a_world(servers, mcpServers={"a": OFF, "b": OFF}, views=VIEWS, access=RULES[rules]) as world:
        for identity in CALLERS.values():
            for view in (None, *VIEWS):
                client = RawClient(world.gateway.memory_door(view, identity), revision=revision)
                await client.hello()
                some = await check(world, client)
                there, absent = there + some[0], absent + some[1]
                shown = await listed(client)
                for name in (f"{one}__{tool}" for one in "ab" for tool in ("get", "drop", "list")):
                    told = await explain(world.gateway, name, view, identity)
                    assert told["tools"][0]["listed"] == (("tool", name) in shown), (name, view, identity, told)
    assert there > 0
    assert absent > 0


OF_TASKS: dict[str, list[dict[str, Any]]] = {
    "all": [{"do": "deny"}],
    "a_server": [{"servers": ["up"], "do": "deny"}],
    "a_tool": [{"users": ["ann"], "tools": ["up__work"], "do": "deny"}],
    "a_group": [{"groups": ["eng"], "tools": ["*"], "do": "deny"}],
    "a_key": [{"keys": ["ci"], "do": "deny"}],
    "marked": [{"annotations": {"readOnly": False}, "do": "deny"}],
    "others": [{"tools": ["up__other"], "do": "deny"}],
}


def _with_tasks(rules: list[dict[str, Any]]) -> Config:
    return parse_config({"mcpServers": {"up": {"command": sys.executable, "args": [SERVER]}}, "access": rules})


@pytest.mark.parametrize("rules", OF_TASKS)
async def test_tasks_of_what_a_reload_denies_are_unknown(rules: str) -> None:
    """docs/access.md: for get, update and cancel; whose tool is not denied, or no longer, has its task."""
    async with Gateway.open(_with_tasks([])) as gateway:
        clients: dict[str, tuple[RawClient, str]] = {}
        for name, identity in CALLERS.items():
            door = gateway.memory_door(None, identity)
            client = RawClient(door, revision="2026-07-28", capabilities={"extensions": {TASKS: {}}})
            clients[name] = (client, (await client.call("up__work", {"stay": True})).result["taskId"])
        await gateway.apply(_with_tasks(OF_TASKS[rules]))
        for client, task in clients.values():
            shown = {tool["name"] for tool in (await client.ask("tools/list")).result["tools"]}
            # Whoever still has its task keeps it: to cancel one ends it.
            for method in ("tasks/get", "tasks/update", "tasks/cancel") if "up__work" not in shown else ("tasks/get",):
                reply = await client.ask(method, {"taskId": task, "inputResponses": {}})
                nobodys = await client.ask(method, {"taskId": "x" * len(task), "inputResponses": {}})
                told = json.dumps(reply.message.get("error")).replace(task, "x" * len(task))
                assert (told == json.dumps(nobodys.error)) is ("up__work" not in shown), (method, reply.message)
        await gateway.apply(_with_tasks([]))
        for client, task in clients.values():
            assert (await client.ask("tasks/get", {"taskId": task})).result["status"] == "working"


async def test_rules_on_arguments_look_at_each_call() -> None:
    """docs/access.md: the first that matches decides; arguments that readers may take otherwise are refused."""
    rules = [{"tools": ["a__get"], "arguments": {"path": ["/etc/*"]}, "do": "deny"}]
    async with a_world({"a": server("a")}, mcpServers={"a": OFF}, access=rules) as world:
        client = await world.client()
        assert (await client.call("a__get", {"path": "/home/x"})).result
        for path in ("/etc/passwd", ["/home/a", "/etc/b"], {"inside": {"/etc/c": 1}}):
            reply = await client.call("a:get", {"path": path})
            assert reply.error["message"] == "Tool not found: a:get"
        twice = b'"params":{"name":"a__get","arguments":{"path":"/etc/x","path":"/y"}}'
        client.say(b'{"jsonrpc":"2.0","id":77,"method":"tools/call",%b}\n' % twice)
        assert "duplicate key" in (await client.answer(77)).error["message"]
        assert world.servers["a"].times("tools/call") == 1
