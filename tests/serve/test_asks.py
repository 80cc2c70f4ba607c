"""Questions of servers over HTTP: on the stream of the call they belong to, and to nobody else."""

from __future__ import annotations

from typing import Any

from muxway.clients.transports.guard import Guard
from muxway.testing import ScriptedServer

from .harness import Web, a_web, modern, request

ELICIT = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ANSWER = {"action": "accept", "content": {"name": "Ann"}}
CAPABLE: dict[str, Any] = {"elicitation": {"form": {}}}


async def asks(server: ScriptedServer, message: dict[str, Any]) -> None:
    answer = await server.ask("elicitation/create", ELICIT)
    server.reply(message, {"content": [{"type": "text", "text": str(answer.get("result", answer.get("error")))}]})


async def session_of(web: Web, headers: dict[str, str] | None = None, revision: str = "2025-11-25") -> dict[str, str]:
    params = {"protocolVersion": revision, "capabilities": CAPABLE, "clientInfo": {"name": "c", "version": "1"}}
    answer = await web.post(request("initialize", params, 0), headers)
    given = {**(headers or {}), "Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
    await web.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, given)
    return given


def call(tool: str = "up__asks", id_: int = 1, **params: Any) -> dict[str, Any]:
    return request("tools/call", {"name": tool, "arguments": {}, **params}, id_)


def stateless(id_: int = 1, **params: Any) -> tuple[dict[str, Any], dict[str, str | None]]:
    meta = {"io.modelcontextprotocol/clientCapabilities": CAPABLE}
    return modern("tools/call", {"name": "up__asks", "arguments": {}, "_meta": meta, **params}, id_)


async def test_a_session_is_asked_on_the_stream_of_its_call_and_answers_with_a_post() -> None:
    async with a_web({"up": ScriptedServer(tools={"asks": asks})}) as web:
        headers = await session_of(web)
        stream = await web.open_post(call(), headers)
        question = await stream.message()
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "[up] Who?"
        answer = await web.post({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER}, headers)
        assert answer.status == 202
        result = await stream.message()
        assert "Ann" in result["result"]["content"][0]["text"]
        # Answered twice, or what was never asked: taken and dropped.
        for id_ in (question["id"], 999, "x"):
            again = await web.post({"jsonrpc": "2.0", "id": id_, "result": ANSWER}, headers)
            assert again.status == 202


async def test_nobody_can_answer_for_another_session() -> None:
    async with a_web({"up": ScriptedServer(tools={"asks": asks})}) as web:
        mine, other = await session_of(web), await session_of(web)
        stream = await web.open_post(call(), mine)
        question = await stream.message()
        forged = {"action": "accept", "content": {"name": "Eve"}}
        assert (await web.post({"jsonrpc": "2.0", "id": question["id"], "result": forged}, other)).status == 202
        await web.post({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER}, mine)
        assert "Ann" in (await stream.message())["result"]["content"][0]["text"]


async def test_a_question_missed_with_its_stream_can_be_read_again() -> None:
    async with a_web({"up": ScriptedServer(tools={"asks": asks})}) as web:
        headers = await session_of(web)
        stream = await web.open_post(call(), headers)
        primed = await stream.event()
        await stream.event()
        stream.drop()
        again = await web.open("GET", "/mcp", {**headers, "Accept": "text/event-stream", "Last-Event-ID": primed.id})
        question = await again.message()
        await web.post({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER}, headers)
        assert "Ann" in (await again.message())["result"]["content"][0]["text"]


async def test_a_stateless_call_ends_with_the_question_and_is_made_again() -> None:
    async with a_web({"up": ScriptedServer(tools={"asks": asks})}) as web:
        first = (await web.post(*stateless())).json["result"]
        assert first["resultType"] == "input_required"
        retry = stateless(2, inputResponses={"q1": ANSWER}, requestState=first["requestState"])
        second = (await web.post(*retry)).json["result"]
        assert "Ann" in second["content"][0]["text"]
        assert second["resultType"] == "complete"


async def test_a_sealed_state_is_good_only_with_the_token_it_was_given_to() -> None:
    guard = Guard(tokens=["one", "two"])
    async with a_web({"up": ScriptedServer(tools={"asks": asks})}, guard=guard) as web:

        async def post(token: str, **params: Any) -> dict[str, Any]:
            message, headers = stateless(**params)
            return (await web.post(message, {**headers, "Authorization": f"Bearer {token}"})).json

        state = (await post("one"))["result"]["requestState"]
        stolen = await post("two", inputResponses={"q1": ANSWER}, requestState=state)
        assert stolen["error"]["code"] == -32602
        mine = await post("one", inputResponses={"q1": ANSWER}, requestState=state)
        assert mine["result"]["resultType"] == "complete"


async def test_an_http_sse_client_is_asked_on_its_stream() -> None:
    async with a_web({"up": ScriptedServer(tools={"asks": asks})}) as web:
        stream = await web.open("GET", "/sse", {"Accept": "text/event-stream"})
        path = (await stream.event()).data.decode()
        params = {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {}}
        await web.post(request("initialize", params, 0), path=path)
        await stream.message()
        await web.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path=path)
        await web.post(call(), path=path)
        question = await stream.message()
        assert "mode" not in question["params"]
        await web.post({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER}, path=path)
        assert "Ann" in (await stream.message())["result"]["content"][0]["text"]
