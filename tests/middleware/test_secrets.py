"""`secrets`: the server gets the value, the caller never sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.middleware.builtin.secrets import Secrets
from muxway.middleware.engine.loading import layers_of
from muxway.testing import RawClient, ScriptedServer

from ..conftest import REVISIONS, a_world, said
from .chained import chained

TOKEN = 'tok"en/\\é-123'


def heard(server: ScriptedServer) -> dict[str, Any]:
    """The arguments of the last call, as the server got them."""
    return [message for message in server.heard if message.get("method") == "tools/call"][-1]["params"]["arguments"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_server_gets_the_value_and_the_caller_sees_the_name(revision: str) -> None:
    server = ScriptedServer(tools={"echo": None})
    async with chained({"up": server}, Secrets(values={"TOKEN": TOKEN, "OTHER": "other value"})) as world:
        client = await world.client(revision)
        arguments = {"auth": "Bearer ${TOKEN}", "deep": [{"x": "${OTHER}${TOKEN}"}], "n": 1.0}
        reply = await client.call("up__echo", arguments)
        assert heard(server) == {"auth": f"Bearer {TOKEN}", "deep": [{"x": f"other value{TOKEN}"}], "n": 1.0}
        assert said(reply.result) == arguments
        assert "-123" not in reply.line.decode()


async def test_only_what_is_listed_is_put_in_and_only_once() -> None:
    """Ours: a value is a literal, whatever it contains, and a name that is not listed is a text like any other."""
    server = ScriptedServer(tools={"echo": None})
    async with chained({"up": server}, Secrets(values={"A": "has ${B} in it", "B": "bbbb"})) as world:
        client = await world.client()
        arguments = {"${A}": "${A}", "b": "${HOME} $A ${A:-x} $${A} ${a} ${A", "c": "\\${B}"}
        assert said((await client.call("up__echo", arguments)).result) == arguments
        assert heard(server) == {
            "${A}": "has ${B} in it",
            "b": "${HOME} $A ${A:-x} $has ${B} in it ${a} ${A",
            "c": "\\bbbb",
        }


async def test_all_else_in_the_arguments_stays_the_bytes_that_came() -> None:
    server = ScriptedServer(tools={"echo": None})
    async with chained({"up": server}, Secrets(values={"A": "aaaa"})) as world:
        client = await world.client()
        arguments = rb'{"n":1.0,"big":123456789012345678901234567890,"e":1e400,"a":"\u0024{A}","s":"\u00e9","z":null}'
        client.say(
            b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"up__echo","arguments":'
            + arguments
            + b"}}"
        )
        assert (await client.answer(9)).line
        line = next(line for line in reversed(server.lines) if b"tools/call" in line)
        assert rb'{"n":1.0,"big":123456789012345678901234567890,"e":1e400,"a":"aaaa","s":"\u00e9","z":null}' in line


async def test_values_are_masked_in_errors_progress_logs_prompts_and_lists() -> None:
    async def tell(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.progress(request, 1, message=f"at {TOKEN}")
        log = {"level": "error", "data": f"used {TOKEN}"}
        server.say({"jsonrpc": "2.0", "method": "notifications/message", "params": log})
        server.fail(request, -32000, f"no {TOKEN}", {"sent": json.dumps({"t": TOKEN})})

    tool = {"name": "tell", "description": f"default {TOKEN}", "inputSchema": {"type": "object"}}
    server = ScriptedServer(tools={"tell": tell}, definitions=[tool], resources={"file:///a": f"t={TOKEN}"})
    async with chained({"up": server}, Secrets(values={"TOKEN": TOKEN})) as world:
        client = RawClient(world.gateway.memory_door())
        await client.hello()
        await client.ask("logging/setLevel", {"level": "debug"})
        error = (await client.call("up__tell", _meta={"progressToken": 1})).error
        assert error == {"code": -32000, "message": "no ${TOKEN}", "data": {"sent": '{"t": "${TOKEN}"}'}}
        assert (await client.notice("notifications/progress"))["params"]["message"] == "at ${TOKEN}"
        assert (await client.notice("notifications/message"))["params"]["data"] == "used ${TOKEN}"
        assert (await client.ask("tools/list")).result["tools"][0]["description"] == "default ${TOKEN}"
        read = (await client.ask("resources/read", {"uri": "file:///a"})).result
        assert read["contents"][0]["text"] == "t=${TOKEN}"


async def test_a_call_that_is_made_again_with_answers_gets_its_values_again() -> None:
    def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        assert request["params"]["arguments"] == {"t": TOKEN}
        if "inputResponses" in request["params"]:
            server.reply(request, {"content": [{"type": "text", "text": TOKEN}]})
            return
        params = {"message": f"Use {TOKEN}?", "requestedSchema": {"type": "object", "properties": {}}, "mode": "form"}
        server.need(request, {"q": {"method": "elicitation/create", "params": params}}, "s")

    async with chained(
        {"up": ScriptedServer("2026-07-28", tools={"asks": asks})}, Secrets(values={"TOKEN": TOKEN})
    ) as world:
        client = RawClient(
            world.gateway.memory_door(), revision="2026-07-28", capabilities={"elicitation": {"form": {}}}
        )
        asked: list[str] = []
        client.answers["elicitation/create"] = lambda params: asked.append(params["message"]) or {"action": "decline"}
        reply = await client.complete("tools/call", {"name": "up__asks", "arguments": {"t": "${TOKEN}"}})
        assert reply.result["content"][0]["text"] == "${TOKEN}"
        assert asked == ["[up] Use ${TOKEN}?"]


async def test_it_can_be_configured_with_names_of_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRETS_TEST_TOKEN", TOKEN)
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}, middleware=[{"use": "secrets", "names": ["SECRETS_TEST_TOKEN"]}]) as world:
        client = await world.client()
        arguments = {"t": "${SECRETS_TEST_TOKEN}"}
        assert said((await client.call("up__echo", arguments)).result) == arguments
        assert heard(server) == {"t": TOKEN}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "give `names`"),
        ({"names": ["SECRETS_TEST_MISSING"]}, "SECRETS_TEST_MISSING is not set"),
        ({"values": {"A": "abc"}}, "fewer than 4 characters"),
        ({"values": {"A-B": "abcdef"}}, "letters, digits and underscores"),
        ({"values": {"A": 12345}}, "`values` has the wrong type"),
        ({"names": "HOME"}, "`names` has the wrong type"),
    ],
)
def test_options_that_cannot_work_are_refused_and_no_value_is_shown(options: dict[str, Any], why: str) -> None:
    """Ours: never a value of the configuration in a message."""
    servers = {"off": {"command": "none", "disabled": True}}
    config = parse_config({"mcpServers": servers, "middleware": [{"use": "secrets", **options}]})
    with pytest.raises(ConfigError, match=why) as refused:
        layers_of(config)
    assert "abc" not in str(refused.value)
    assert "12345" not in str(refused.value)
