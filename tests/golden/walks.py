"""The walks. Each says who speaks when; what the gateway makes of it is in the transcript."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

from .stage import MODERN, introduction, modern

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .stage import HttpServer, Message, Request, Stage, Voice

WALKS: dict[str, Callable[[Stage], Awaitable[None]]] = {}
"""Name → walk. The name is that of the transcript."""

TASKS = "io.modelcontextprotocol/tasks"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ELICIT: Message = {"message": "Who?", "requestedSchema": FORM}
ANN: Message = {"action": "accept", "content": {"name": "Ann"}}
ASKABLE: Message = {"elicitation": {"form": {}}}
PAYLOAD = rb'{"n":1.0,"e":1e2,"big":12345678901234567890,"u":"\u00e9\/","nil":null,  "a":[ ]}'
"""Arguments that no decoder gives back as they were."""
ECHO: Message = {
    "name": "echo",
    "title": "Echo",
    "description": "Says it again.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "number"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "x-vendor": {"kept": None},
}
DROP: Message = {"name": "drop", "inputSchema": {"type": "object"}}
ANSWER = rb'{"content":[{"type":"text","text":"\u00e9"}],"structuredContent":{"n":1.0},"x-vendor":[ 1e2 ]}'


def walk(go: Callable[[Stage], Awaitable[None]]) -> Callable[[Stage], Awaitable[None]]:
    WALKS[go.__name__] = go
    return go


def title(name: str) -> str:
    """What stands at the top of a transcript."""
    return (WALKS[name].__doc__ or "").strip()


# --- what every server does first -----------------------------------------------------------------


def declared(resources: bool = False) -> Message:
    """Capabilities. Lists are announced, so that none is read again behind the walk's back."""
    more = {"resources": {"subscribe": True, "listChanged": True}} if resources else {}
    return {"tools": {"listChanged": True}, **more}


def first_words(message: Message, revision: str, tools: list[Message], *, resources: bool = False) -> Message | None:
    """How a server answers while it is met; None for what needs no answer."""
    method, result = message.get("method"), None
    if method == "server/discover" and revision == MODERN:
        result = {"supportedVersions": [MODERN], "capabilities": declared(resources), "ttlMs": 3600000}
    elif method == "initialize" and revision != MODERN:
        info = {"name": "scripted", "version": "9"}
        result = {"protocolVersion": revision, "capabilities": declared(resources), "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": tools}
    elif method == "resources/list":
        result = {"resources": [{"uri": "note://a", "name": "a"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    if "id" not in message:
        return None
    head: Message = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        return {**head, "error": {"code": -32601, "message": f"no method {method}"}}
    if revision == MODERN:
        lasting = {} if method == "server/discover" else {"ttlMs": 3600000, "cacheScope": "public"}
        result = {"resultType": "complete", **result, **lasting}
    return {**head, "result": result}


async def meet(server: Voice, revision: str, *tools: Message, resources: bool = False) -> None:
    """Be met by the gateway, up to the last list.

    A stateless server is subscribed to; what it had listed before that is listed once more.
    """
    lists = ["tools/list", *(("resources/list", "resources/templates/list") if resources else ())]
    expected = [*lists, "subscriptions/listen", *lists] if revision == MODERN else lists
    while expected:
        message = await server.hear()
        if message.get("method") == "subscriptions/listen":
            acknowledge(server, message)
        elif (said := first_words(message, revision, list(tools), resources=resources)) is not None:
            server.say(said)
        if message.get("method") in expected:
            expected.remove(message["method"])


def acknowledge(server: Voice, message: Message) -> None:
    """Agree to a subscription of 2026-07-28."""
    meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
    params = {"_meta": meta, "notifications": message["params"].get("notifications", {})}
    server.tell("notifications/subscriptions/acknowledged", params)


async def meet_http(server: HttpServer, revision: str, *tools: Message) -> Request:
    """The same for a server on loopback; the stream that the gateway listens on."""
    session = () if revision == MODERN else ("Mcp-Session-Id: s-1",)
    steps = ("server/discover",) if revision == MODERN else ("server/discover", "initialize")
    for method in steps:
        request = await server.request(of=method)
        said = first_words(request.message, revision, list(tools))
        request.respond(200, json.dumps(said).encode(), *(session if method == "initialize" else ()))
    if revision == MODERN:
        request = await server.request(of="tools/list")
        request.respond(200, json.dumps(first_words(request.message, revision, list(tools))).encode())
        stream = await server.request(of="subscriptions/listen")
        stream.stream()
        meta = {"io.modelcontextprotocol/subscriptionId": stream.message["id"]}
        params = {"_meta": meta, "notifications": stream.message["params"].get("notifications", {})}
        stream.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
        request = await server.request(of="tools/list")
        request.respond(200, json.dumps(first_words(request.message, revision, list(tools))).encode())
        return stream
    (await server.request(of="notifications/initialized")).respond(202)
    stream = await server.request("GET")
    stream.stream()
    request = await server.request(of="tools/list")
    request.respond(200, json.dumps(first_words(request.message, revision, list(tools))).encode())
    return stream


async def hello(client: Voice, revision: str, capabilities: Message | None = None) -> None:
    """Open a session, and see that it is open."""
    await client.ask("initialize", introduction(revision, capabilities))
    client.tell("notifications/initialized")
    await client.ask("ping")


async def until(voice: Voice, method: str) -> Message:
    """Hear everything up to a message of this method."""
    while (heard := await voice.hear()).get("method") != method:
        pass
    return heard


async def both_met(
    stage: Stage, revision: str, server_revision: str, *tools: Message, capabilities: Message | None = None, **more: Any
) -> tuple[Voice, Voice]:
    """A client and a server that know each other, over pipes."""
    server = await stage.line_server("alpha")
    stage.configure({"alpha": server.entry()})
    client = await stage.stdio()
    # A server is greeted in the way of the only client, so that speaks first.
    if revision != MODERN:
        await hello(client, revision, capabilities)
        params = {}
    else:
        params = modern(capabilities=capabilities)
    client.say({"jsonrpc": "2.0", "id": "c0", "method": "tools/list", "params": params})
    alpha = await server.started()
    await meet(alpha, server_revision, *tools, **more)
    if revision == MODERN != server_revision:
        # It was told of roots, and may want to know them before its first call: the gateway waits for that.
        alpha.answer(await alpha.hear(), {})
    await client.hear()
    return client, alpha


def call(id_: str, name: str, params: Message | None = None) -> Message:
    """A call."""
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": name, **(params or {})}}


def raw_call(id_: str, more: bytes = b"") -> bytes:
    """A call whose spelling matters."""
    head = b'{"params": {"arguments": ' + PAYLOAD + b', "name": "alpha__echo"' + more + b'}, "jsonrpc":"2.0", "id":"'
    return head + id_.encode() + b'", "method":"tools/call" }'


def raw_answer(request: Message, result: bytes = ANSWER) -> bytes:
    """An answer whose spelling matters."""
    return b'{ "result":' + result + b', "jsonrpc":"2.0","id":' + json.dumps(request["id"]).encode() + b"}"


# --- calls ----------------------------------------------------------------------------------------


@walk
async def call_over_pipes(stage: Stage) -> None:
    """tools/call, stdio to stdio, both 2025-11-25: payloads pass as they are, errors too; unknown names"""
    client, alpha = await both_met(stage, "2025-11-25", "2025-11-25", ECHO, DROP)
    client.say(raw_call("x1"))
    alpha.say(raw_answer(await alpha.hear()))
    await client.hear()
    client.say(call("x2", "alpha__drop"))
    error = {"code": -32050, "message": "out of paper", "data": {"tray": 2}}
    alpha.say({"jsonrpc": "2.0", "id": (await alpha.hear())["id"], "error": error})
    await client.hear()
    await client.ask("tools/call", {"name": "drop"})
    await client.ask("tools/call", {"name": "alpha__nothing"})


@walk
async def call_of_an_old_client(stage: Stage) -> None:
    """tools/call, stdio to stdio, a client of 2024-11-05 and a server of 2025-11-25: told in its words"""
    client, alpha = await both_met(stage, "2024-11-05", "2025-11-25", ECHO)
    client.say(raw_call("x1"))
    alpha.say(raw_answer(await alpha.hear()))
    await client.hear()


@walk
async def call_to_an_old_server(stage: Stage) -> None:
    """tools/call, stdio to stdio, a stateless client and a server of 2024-11-05"""
    client, alpha = await both_met(stage, MODERN, "2024-11-05", ECHO)
    client.say(raw_call("x1", b', "_meta":' + json.dumps(modern()["_meta"]).encode()))
    alpha.say(raw_answer(await alpha.hear()))
    await client.hear()
    await client.ask("server/discover", modern())
    await client.ask("tools/call", modern({"name": "alpha__nothing"}))


@walk
async def call_over_http(stage: Stage) -> None:
    """tools/call, HTTP session to HTTP server, both 2025-11-25: answered as JSON, and as events"""
    server = await stage.http_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    await meet_http(server, "2025-11-25", ECHO)
    await stage.ready()
    client = stage.client()
    await client.hello("2025-11-25")
    await client.ask("c1", "tools/list")
    opening = asyncio.ensure_future(client.post(raw_call("x1")))
    request = await server.request(of="tools/call")
    request.respond(200, raw_answer(request.message))
    await opening
    opening = asyncio.ensure_future(client.post(raw_call("x2", b', "_meta":{"progressToken":"p"}')))
    request = await server.request(of="tools/call")
    request.stream()
    token = request.message["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": 0.5}
    request.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    response = await opening
    await response.heard()
    request.event(raw_answer(request.message))
    request.end()
    await response.heard()
    await response.ended()
    await client.send("DELETE", "/mcp")


@walk
async def clients_of_every_revision(stage: Stage) -> None:
    """tools/list and tools/call over HTTP of clients of every revision, a server of 2025-11-25 on a pipe"""
    server = await stage.line_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    alpha = await server.started()
    await meet(alpha, "2025-11-25", ECHO)
    await stage.ready()

    async def answer() -> None:
        alpha.say(raw_answer(await alpha.hear()))

    old = stage.client("2024-11-05")
    stream = await old.send("GET", "/sse", Accept="text/event-stream")
    event = await stream.event()
    path = next(line[5:].strip() for line in event.split("\n") if line.startswith("data:"))
    await old.ask("c0", "initialize", introduction("2024-11-05"), path)
    await stream.heard()
    await old.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path)
    await old.ask("c1", "tools/list", path=path)
    await stream.heard()
    await old.post(raw_call("x1"), path)
    await answer()
    await stream.heard()
    stream.close()
    for revision in ("2025-03-26", "2025-06-18", "2025-11-25"):
        client = stage.client(revision)
        await client.hello(revision)
        await client.ask("c1", "tools/list")
        opening = asyncio.ensure_future(client.post(raw_call("x1")))
        await answer()
        await opening
    client = stage.client(MODERN)
    await client.ask_modern("c1", "server/discover")
    await client.ask_modern("c2", "tools/list")
    opening = asyncio.ensure_future(
        client.ask_modern("x1", "tools/call", {"name": "alpha__echo", "arguments": {"n": 1}})
    )
    await answer()
    await opening


@walk
async def refused_over_http(stage: Stage) -> None:
    """What the HTTP door refuses: status, headers and body of each"""
    server = await stage.line_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    await meet(await server.started(), "2025-11-25", ECHO)
    await stage.ready()
    client = stage.client()
    await client.post(b"{")
    await client.post(b"[]")
    await client.ask("c1", "tools/list")
    await client.post({"jsonrpc": "2.0", "id": "c1", "method": "tools/list"}, Mcp_Session_Id="none")
    await client.send("GET", "/mcp")
    await client.send("GET", "/nothing")
    await client.send("PUT", "/mcp")
    await client.post({"jsonrpc": "2.0", "id": "c1", "method": "ping"}, Origin="http://elsewhere.example")
    await client.post({"jsonrpc": "2.0", "id": "c1", "method": "ping"}, Host="elsewhere.example")
    message = {"jsonrpc": "2.0", "id": "c1", "method": "tools/list", "params": modern()}
    await client.post(message, MCP_Protocol_Version=MODERN, Mcp_Method="tools/call")
    await client.post({**message, "method": "nothing"}, MCP_Protocol_Version=MODERN, Mcp_Method="nothing")
    await client.send("OPTIONS", "/mcp", Origin="http://localhost:1", Access_Control_Request_Method="POST")


@walk
async def progress(stage: Stage) -> None:
    """Progress and log messages during a call, stdio to stdio, both 2025-11-25"""
    client, alpha = await both_met(stage, "2025-11-25", "2025-11-25", ECHO)
    client.say(call("x1", "alpha__echo", {"_meta": {"progressToken": "mine", "x-vendor": 1}}))
    request = await alpha.hear()
    token = json.dumps(request["params"]["_meta"]["progressToken"]).encode()
    for done in (b"0.50", b"1e0"):
        told = b'{"progress":' + done + b',"progressToken":' + token + b',"total": 1,"message":"so"}'
        alpha.say(b'{"jsonrpc":"2.0","method":"notifications/progress","params":' + told + b"}")
    alpha.tell("notifications/message", {"level": "warning", "data": {"x": 1}})
    alpha.say(raw_answer(request))
    while (await client.hear()).get("id") != "x1":
        pass


@walk
async def cancel(stage: Stage) -> None:
    """A client cancels a call, stdio to stdio: the server is told, a late answer reaches nobody"""
    client, alpha = await both_met(stage, "2025-11-25", "2025-11-25", ECHO)
    client.say(call("x1", "alpha__echo"))
    request = await alpha.hear()
    client.tell("notifications/cancelled", {"requestId": "x1", "reason": "bored"})
    await alpha.hear()
    alpha.say(raw_answer(request))
    client.say(call("x2", "alpha__echo"))
    alpha.say(raw_answer(await alpha.hear()))
    await client.hear()


@walk
async def cancel_over_http(stage: Stage) -> None:
    """A stateless client hangs up: its call is cancelled at an HTTP server with a session"""
    server = await stage.http_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    await meet_http(server, "2025-11-25", ECHO)
    await stage.ready()
    client = stage.client()
    meta = {"_meta": {"progressToken": "p"}}
    opening = asyncio.ensure_future(client.ask_modern("x1", "tools/call", {"name": "alpha__echo", **meta}))
    request = await server.request(of="tools/call")
    request.stream()
    params = {"progressToken": request.message["params"]["_meta"]["progressToken"], "progress": 1}
    request.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    response = await opening
    await response.heard()
    response.close()
    (await server.request(of="notifications/cancelled")).respond(202)


@walk
async def crash(stage: Stage) -> None:
    """A server dies during a call, stdio to stdio: its last words; it is started again"""
    server = await stage.line_server("alpha")
    stage.configure({"alpha": server.entry()})
    client = await stage.stdio()
    await hello(client, "2025-11-25")
    alpha = await server.started()
    await meet(alpha, "2025-11-25", ECHO)
    client.say(call("x1", "alpha__echo"))
    await alpha.hear()
    stage.transcript.remark("alpha dies")
    alpha.close()
    await client.hear()
    alpha = await server.started()
    await meet(alpha, "2025-11-25", ECHO)
    client.say(call("x2", "alpha__echo"))
    alpha.say(raw_answer(await alpha.hear()))
    await client.hear()


@walk
async def beyond_tools(stage: Stage) -> None:
    """Resources, templates, prompts and completion of two servers that have the same ones, stdio to stdio"""
    servers = [await stage.line_server(name) for name in ("alpha", "beta")]
    stage.configure({server.name: server.entry() for server in servers})
    client = await stage.stdio()
    await hello(client, "2025-11-25")
    lists: Message = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {kind: {"listChanged": True} for kind in ("resources", "prompts", "completions")},
            "serverInfo": {"name": "scripted", "version": "9"},
            "instructions": "Use it well.",
        },
        "prompts/list": {"prompts": [{"name": "ask", "description": "Asks.", "arguments": [{"name": "n"}]}]},
        "resources/list": {"resources": [{"uri": "doc:1", "name": "one"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "doc:page/{n}", "name": "page"}]},
    }
    voices: dict[str, Voice] = {}
    for server in servers:
        voices[server.name] = voice = await server.started()
        expected = set(lists)
        while expected:
            message = await voice.hear()
            if "id" in message:
                voice.answer(message, lists[message["method"]])
            expected.discard(message["method"])
    await client.ask("prompts/list")
    shown = await client.ask("resources/list")
    await client.ask("resources/templates/list")
    of_beta = shown["result"]["resources"][-1]["uri"]
    asked: list[tuple[str, str, Message, Message]] = [
        ("beta", "resources/read", {"uri": of_beta}, {"contents": [{"uri": "doc:1", "text": "1"}]}),
        ("beta", "prompts/get", {"name": "beta__ask", "arguments": {"n": "1"}}, {"messages": []}),
        (
            "alpha",
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "alpha__ask"}, "argument": {"name": "n", "value": ""}},
            {"completion": {"values": ["1"]}},
        ),
    ]
    for number, (name, method, params, result) in enumerate(asked):
        client.say({"jsonrpc": "2.0", "id": f"x{number}", "method": method, "params": params})
        voices[name].answer(await voices[name].hear(), result)
        await client.hear()
    await client.ask("resources/read", {"uri": "nothing:at-all"})


@walk
async def stream_read_on(stage: Stage) -> None:
    """A listening stream of an HTTP session, and a broken stream of a call that is read on"""
    server = await stage.line_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    alpha = await server.started()
    await meet(alpha, "2025-11-25", ECHO)
    await stage.ready()
    client = stage.client()
    await client.hello("2025-11-25")
    await client.ask("c1", "tools/list")
    listening = await client.send("GET", "/mcp", Accept="text/event-stream")
    alpha.tell("notifications/tools/list_changed")
    alpha.say(first_words(await alpha.hear(), "2025-11-25", [ECHO, DROP]) or {})
    await listening.heard()
    opening = asyncio.ensure_future(client.post(raw_call("x1", b', "_meta":{"progressToken":"p"}')))
    request = await alpha.hear()
    alpha.tell("notifications/progress", {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1})
    call_stream = await opening
    await call_stream.event()
    last = next(line[3:].strip() for line in (await call_stream.event()).split("\n") if line.startswith("id:"))
    call_stream.close()
    again = await client.send("GET", "/mcp", Accept="text/event-stream", Last_Event_ID=last)
    alpha.say(raw_answer(request))
    await again.heard()


# --- questions ------------------------------------------------------------------------------------


@walk
async def question_passed_on(stage: Stage) -> None:
    """A server asks during a call, both with a handshake: passed on under another id"""
    client, alpha = await both_met(stage, "2025-11-25", "2025-11-25", ECHO, capabilities=ASKABLE)
    client.say(call("x1", "alpha__echo"))
    request = await alpha.hear()
    alpha.say({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": ELICIT})
    client.answer(await client.hear(), ANN)
    await alpha.hear()
    alpha.say({"jsonrpc": "2.0", "id": "q2", "method": "sampling/createMessage", "params": {"messages": []}})
    await alpha.hear()
    alpha.say(raw_answer(request))
    await client.hear()


@walk
async def question_parked(stage: Stage) -> None:
    """A server with a handshake asks during a call of a stateless client: the call is parked, the retry resumes it"""
    client, alpha = await both_met(stage, MODERN, "2025-11-25", ECHO, capabilities=ASKABLE)
    params = modern({"name": "alpha__echo", "arguments": {"n": 1}}, ASKABLE)
    client.say({"jsonrpc": "2.0", "id": "x1", "method": "tools/call", "params": params})
    request = await alpha.hear()
    for round_ in ("1", "2"):
        alpha.say({"jsonrpc": "2.0", "id": f"q{round_}", "method": "elicitation/create", "params": ELICIT})
        result = (await client.hear())["result"]
        given = dict.fromkeys(result["inputRequests"], ANN)
        again = {**params, "inputResponses": given, "requestState": result["requestState"]}
        client.say({"jsonrpc": "2.0", "id": f"retry{round_}", "method": "tools/call", "params": again})
        await alpha.hear()
    alpha.say(raw_answer(request))
    await client.hear()
    await client.ask("tools/call", {**again, "requestState": "forged"})


@walk
async def question_parked_over_http(stage: Stage) -> None:
    """A server with a handshake asks during a call of a stateless client, HTTP on both sides: parked, and resumed"""
    server = await stage.http_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    await meet_http(server, "2025-11-25", ECHO)
    await stage.ready()
    client = stage.client()
    params: Message = {"name": "alpha__echo", "arguments": {"n": 1}}
    opening = asyncio.ensure_future(client.ask_modern("x1", "tools/call", params, ASKABLE))
    request = await server.request(of="tools/call")
    request.stream()
    request.event({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": ELICIT})
    result = (await opening).message["result"]
    again = {**params, "inputResponses": dict.fromkeys(result["inputRequests"], ANN)}
    again["requestState"] = result["requestState"]
    opening = asyncio.ensure_future(client.ask_modern("x2", "tools/call", again, ASKABLE))
    (await server.request()).respond(202)
    request.event({"jsonrpc": "2.0", "id": request.message["id"], "result": {"content": []}})
    request.end()
    await opening


@walk
async def question_repeated(stage: Stage) -> None:
    """A stateless server returns input_required to a client with a handshake: it is asked, and the call repeated"""
    client, alpha = await both_met(stage, "2025-11-25", MODERN, ECHO, capabilities=ASKABLE)
    client.say(call("x1", "alpha__echo", {"arguments": {"n": 1}}))
    for round_ in ("1", "2"):
        asked = {f"who{round_}": {"method": "elicitation/create", "params": ELICIT}}
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": f"state-{round_}"}
        alpha.answer(await alpha.hear(), result)
        client.answer(await client.hear(), ANN)
    alpha.answer(await alpha.hear(), {"resultType": "complete", "content": []})
    await client.hear()


@walk
async def question_sealed_through(stage: Stage) -> None:
    """A stateless server returns input_required to a stateless client, HTTP on both sides: its state inside ours"""
    server = await stage.http_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    await meet_http(server, MODERN, ECHO)
    await stage.ready()
    client = stage.client()
    await client.ask_modern("c1", "tools/list")
    params: Message = {"name": "alpha__echo", "arguments": {"n": 1}}
    opening = asyncio.ensure_future(client.ask_modern("x1", "tools/call", params, ASKABLE))
    request = await server.request(of="tools/call")
    asked = {"who": {"method": "elicitation/create", "params": ELICIT}}
    request.reply({"resultType": "input_required", "inputRequests": asked, "requestState": "state-1"})
    result = (await opening).message["result"]
    again = {**params, "inputResponses": {"who": ANN}, "requestState": result["requestState"]}
    opening = asyncio.ensure_future(client.ask_modern("x2", "tools/call", again, ASKABLE))
    request = await server.request(of="tools/call")
    request.reply({"resultType": "complete", "content": [], "x-vendor": 1.0})
    await opening


# --- configuration --------------------------------------------------------------------------------


@walk
async def reload(stage: Stage) -> None:
    """SIGHUP: one server is replaced, a call under way at it ends there, another server is left alone"""
    kept, changed = await stage.line_server("kept"), await stage.line_server("changed")
    stage.configure({"kept": kept.entry(), "changed": changed.entry(env={"N": "1"})})
    client = await stage.stdio()
    await hello(client, "2025-11-25")
    first = await kept.started()
    await meet(first, "2025-11-25", ECHO)
    old = await changed.started()
    await meet(old, "2025-11-25", ECHO)
    await client.ask("tools/list")
    client.say(call("x1", "changed__echo"))
    waiting = await old.hear()
    stage.configure({"kept": kept.entry(), "changed": changed.entry(env={"N": "2"})})
    stage.signal(signal.SIGHUP)
    new = await changed.started()
    await meet(new, "2025-11-25", ECHO, DROP)
    await until(client, "notifications/tools/list_changed")
    client.say(call("x2", "changed__drop"))
    new.say(raw_answer(await new.hear()))
    await client.hear()
    old.say(raw_answer(waiting))
    await client.hear()
    client.say(call("x3", "kept__echo"))
    first.say(raw_answer(await first.hear()))
    await client.hear()
    await client.ask("tools/list")


@walk
async def view(stage: Stage) -> None:
    """tools/list and tools/call in a view, over HTTP: what is not in it does not exist there"""
    server = await stage.line_server("alpha")
    views = {"reading": {"readOnly": True}, "short": {"tools": ["alpha__drop"]}}
    stage.configure({"alpha": server.entry()}, views=views)
    await stage.serve()
    await meet(await server.started(), "2025-11-25", ECHO, DROP)
    await stage.ready()
    for path in ("/mcp", "/mcp/reading", "/mcp/short"):
        client = stage.client(f"client of {path}")
        await client.hello("2025-11-25", path=path)
        await client.ask("c1", "tools/list", path=path)
    await client.ask("c2", "tools/call", {"name": "alpha__echo"}, path="/mcp/short")
    await client.ask("c3", "tools/list", path="/mcp/reading")
    await client.ask("c4", "tools/list", path="/mcp/none")


# --- subscriptions and tasks ----------------------------------------------------------------------


@walk
async def subscription(stage: Stage) -> None:
    """resources/subscribe and updated, stdio to stdio, both 2025-11-25"""
    client, alpha = await both_met(stage, "2025-11-25", "2025-11-25", ECHO, resources=True)
    client.say({"jsonrpc": "2.0", "id": "x1", "method": "resources/subscribe", "params": {"uri": "note://a"}})
    alpha.answer(await alpha.hear(), {})
    await client.hear()
    alpha.tell("notifications/resources/updated", {"uri": "note://b"})
    alpha.tell("notifications/resources/updated", {"uri": "note://a", "x-vendor": 1})
    await client.hear()
    client.say({"jsonrpc": "2.0", "id": "x2", "method": "resources/unsubscribe", "params": {"uri": "note://a"}})
    alpha.answer(await alpha.hear(), {})
    await client.hear()


@walk
async def subscription_across(stage: Stage) -> None:
    """subscriptions/listen of a stateless client, at a server with a handshake"""
    client, alpha = await both_met(stage, MODERN, "2025-11-25", ECHO, resources=True)
    wanted = modern({"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}})
    client.say({"jsonrpc": "2.0", "id": "x1", "method": "subscriptions/listen", "params": wanted})
    alpha.answer(await alpha.hear(), {})
    await client.hear()
    alpha.tell("notifications/resources/updated", {"uri": "note://a"})
    await client.hear()
    alpha.tell("notifications/tools/list_changed")
    alpha.say(first_words(await alpha.hear(), "2025-11-25", [ECHO, DROP]) or {})
    await client.hear()
    client.tell("notifications/cancelled", {"requestId": "x1"})
    alpha.answer(await alpha.hear(), {})


@walk
async def subscription_at_a_stateless_server(stage: Stage) -> None:
    """resources/subscribe of a client with a handshake, at a stateless server"""
    client, alpha = await both_met(stage, "2025-11-25", MODERN, ECHO, resources=True)
    client.say({"jsonrpc": "2.0", "id": "x1", "method": "resources/subscribe", "params": {"uri": "note://a"}})
    listening = await until(alpha, "subscriptions/listen")
    acknowledge(alpha, listening)
    await client.hear()
    meta = {"io.modelcontextprotocol/subscriptionId": listening["id"]}
    alpha.tell("notifications/resources/updated", {"_meta": meta, "uri": "note://a"})
    await client.hear()
    client.say({"jsonrpc": "2.0", "id": "x2", "method": "resources/unsubscribe", "params": {"uri": "note://a"}})
    acknowledge(alpha, await until(alpha, "subscriptions/listen"))
    await alpha.hear()
    await client.hear()


@walk
async def task_passed_on(stage: Stage) -> None:
    """A task of a stateless server, for a stateless client that knows tasks: under another name"""
    able = {"extensions": {TASKS: {}}}
    client, alpha = await both_met(stage, MODERN, MODERN, ECHO, capabilities=able)
    params = modern({"name": "alpha__echo"}, able)
    client.say({"jsonrpc": "2.0", "id": "x1", "method": "tools/call", "params": params})
    shown = {"taskId": "native-0", "status": "working", "createdAt": "2026-07-28T10:00:00Z"}
    shown |= {"lastUpdatedAt": "2026-07-28T10:00:00Z", "ttlMs": 60000, "pollIntervalMs": 50}
    alpha.answer(await alpha.hear(), {"resultType": "task", **shown})
    task = (await client.hear())["result"]["taskId"]
    client.say({"jsonrpc": "2.0", "id": "x2", "method": "tasks/get", "params": modern({"taskId": task}, able)})
    alpha.answer(await alpha.hear(), {"resultType": "complete", **shown})
    await client.hear()
    client.say({"jsonrpc": "2.0", "id": "x3", "method": "tasks/cancel", "params": modern({"taskId": task}, able)})
    alpha.answer(await alpha.hear(), {"resultType": "complete"})
    await client.hear()


@walk
async def task_polled(stage: Stage) -> None:
    """A tool that must be a task, for a client that knows none: the gateway makes it and looks at it"""
    slow = {**DROP, "execution": {"taskSupport": "required"}}
    client, alpha = await both_met(stage, "2025-06-18", "2025-11-25", slow)
    client.say(call("x1", "alpha__drop", {"_meta": {"progressToken": "p"}}))
    dates = {"createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": "2026-07-28T10:00:00Z", "ttl": 60000}
    shown = {"taskId": "native-0", "status": "working", **dates, "pollInterval": 50}
    alpha.answer(await alpha.hear(), {"task": shown})
    alpha.answer(await alpha.hear(), {**shown, "status": "completed", "statusMessage": "done"})
    alpha.say(raw_answer(await alpha.hear()))
    while (await client.hear()).get("id") != "x1":
        pass
