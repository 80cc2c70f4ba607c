"""What servers want of their callers: the user's word, a model's, the roots of the workspace."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tests.compatibility.subjects.asking import ELICIT, ROOTS, SAMPLE, Question, answers, asks
from tests.compatibility.subjects.base import NEWEST, SAME, converted, impossible, same, subject, text
from tests.compatibility.subjects.results import AUDIO as SOUND
from tests.compatibility.subjects.under_way import counted, counts, until

if TYPE_CHECKING:
    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server
    from tests.compatibility.subjects.base import Outcome

QUESTIONS = "Questions of servers"
AUDIO, FORMS = "2025-03-26", "2025-06-18"
CHOICES = PAGES = BLOCKS = TOOLS = "2025-11-25"
"""Since when there are audio in sampling and forms to fill in; in forms choices with titles, several of them, and
defaults; pages to visit; in sampling several blocks a message, and tools."""

_SEES = "one of 2026-07-28 sees it in the call, and its error -32021 becomes a failed result that says so"
_NO_FORMS = f"Elicitation came with 2025-06-18. A handshake server is answered with -32601; {_SEES}."
_NO_MULTIPLE_CHOICE = (
    "Multiple choices came with 2025-11-25. A handshake server is answered with -32602; one of 2026-07-28, which "
    "cannot be given an error, that the user cancelled."
)
_NO_PAGES = (
    "Pages to visit came with 2025-11-25. A handshake server is answered with -32602, or -32601 if the client has no "
    f"elicitation at all; {_SEES}."
)
_NO_AUDIO = (
    "Audio came with 2025-03-26. A handshake server is answered with -32602; the call of one of 2026-07-28, which "
    "cannot be given an error, fails with a result that says so."
)
_NO_TOOLS = f"Tools in sampling came with 2025-11-25. A handshake server is answered with -32602; {_SEES}."
_ONE_BLOCK = (
    "Servers before 2025-11-25 know one block as an answer. They are answered with -32602; a client of 2026-07-28 is "
    "asked once more instead."
)
_NOT_THERE = "In 2026-07-28 only tools, prompts and resources may ask. The server is answered with -32602."
_OVER = (
    "In 2026-07-28 a call that asks is over, so that there is nothing to cancel. A handshake server waits until the "
    "client comes back, or muxway gives up."
)


def _has(pair: Pair, since: str) -> bool:
    """Whether the client's revision has what there is since then."""
    return pair.client.revision >= since


# --- what a client is asked, and what becomes of its answer -----------------------------------


def _as_it_crosses(pair: Pair) -> Outcome:
    """What it is called when nothing but the way of asking differs. That a client is asked in its way is checked."""
    stateless = pair.server.revision == NEWEST
    if pair.client.stateless == stateless:
        return SAME
    return converted("as a request" if stateless else "as `input_required`")


async def _call(pair: Pair, tool: str) -> dict[str, Any] | str:
    """What the server was answered; or, in words, why its call failed."""
    reply = await pair.client.complete("tools/call", {"name": pair.name_of(tool), "arguments": {"a": 1}})
    said = reply.result["content"][0]["text"]
    return said if reply.result.get("isError") else json.loads(said)


def _refused(pair: Pair, got: dict[str, Any] | str, code: int, needs: str) -> None:
    """The server must have been told that this client cannot be asked; a stateless one has it from the request."""
    if pair.server.revision == NEWEST:
        assert isinstance(got, str), got
        assert needs in got, got
    else:
        same(got, {"q": {"error": code}})


def _elicited(pair: Pair, asked: list[tuple[str, dict[str, Any]]], form: dict[str, Any]) -> None:
    """The client must have been asked this form, and for whom."""
    expected = {"message": f"[{pair.server.name}] Who?", "requestedSchema": form}
    mode = asked[0][1].pop("mode", None)
    # A form is a form without saying so, except in 2026-07-28; 2025-06-18 has nothing else and no word for it.
    assert mode == ("form" if pair.client.stateless else None) or (mode == "form" and _has(pair, PAGES)), mode
    same(asked, [(ELICIT, expected)])


_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_WHO = Question(ELICIT, {"message": "Who?", "requestedSchema": _FORM}, ("elicitation", "form"))
_ANN = {"action": "accept", "content": {"name": "Ann"}}


async def _elicit(pair: Pair, tool: str, answer: dict[str, Any], form: dict[str, Any]) -> Outcome:
    asked = pair.client.answering({ELICIT: answer})
    got = await _call(pair, tool)
    if not asked:
        _refused(pair, got, -32601, "elicitation")
        return impossible(_NO_FORMS, not _has(pair, FORMS))
    _elicited(pair, asked, form)
    same(got, {"q": answer})
    return _as_it_crosses(pair)


@subject("form, filled in", QUESTIONS, since=FORMS, tool=asks({"q": _WHO}))
async def form_accepted(pair: Pair) -> Outcome:
    """The message says which server asks."""
    return await _elicit(pair, "form_accepted", _ANN, _FORM)


@subject("form, declined", QUESTIONS, since=FORMS, tool=asks({"q": _WHO}))
async def form_declined(pair: Pair) -> Outcome:
    """The user's no is an answer."""
    return await _elicit(pair, "form_declined", {"action": "decline"}, _FORM)


_TITLED = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
_CHOICES = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "oneOf": _TITLED, "default": "s"},
        "name": {"type": "string", "default": "Ann"},
        "gift": {"type": "boolean", "default": True},
    },
}
_PLAIN_CHOICES = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
        "name": {"type": "string"},
        "gift": {"type": "boolean", "default": True},
    },
}
_WHICH = Question(ELICIT, {"message": "Who?", "requestedSchema": _CHOICES}, ("elicitation", "form"))


@subject("form with choices and defaults", QUESTIONS, since=CHOICES, tool=asks({"q": _WHICH}))
async def form_choices(pair: Pair) -> Outcome:
    """2025-06-18 has defaults only for yes or no, and another spelling for choices."""
    simple = _has(pair, FORMS) and not _has(pair, CHOICES)
    answer = {"action": "accept", "content": {"size": "l", "name": "Bo", "gift": False}}
    outcome = await _elicit(pair, "form_choices", answer, _PLAIN_CHOICES if simple else _CHOICES)
    return converted(f"`enum` without defaults{_also(outcome)}") if simple else outcome


def _also(outcome: Outcome) -> str:
    return f", {outcome.words}" if outcome.words else ""


_SEVERAL = {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}, "minItems": 1}
_COLOURS = {"type": "object", "properties": {"colours": _SEVERAL}}
_MANY = Question(ELICIT, {"message": "Who?", "requestedSchema": _COLOURS}, ("elicitation", "form"))


@subject("form with a multiple choice", QUESTIONS, since=CHOICES, tool=asks({"q": _MANY}))
async def form_multiple(pair: Pair) -> Outcome:
    """2025-06-18 has no control for it."""
    if _has(pair, CHOICES) or not _has(pair, FORMS):
        answer = {"action": "accept", "content": {"colours": ["red", "blue"]}}
        return await _elicit(pair, "form_multiple", answer, _COLOURS)
    asked = pair.client.answering({ELICIT: {"action": "accept", "content": {}}})
    got = await _call(pair, "form_multiple")
    assert not asked, asked
    same(got, {"q": {"action": "cancel"} if pair.server.revision == NEWEST else {"error": -32602}})
    return impossible(_NO_MULTIPLE_CHOICE, not _has(pair, CHOICES))


_PAGE = {"mode": "url", "message": "Sign in", "url": "https://example.com/in"}
_VISIT = Question(ELICIT, _PAGE, ("elicitation", "url"))


@subject("page to visit", QUESTIONS, since=PAGES, tool=asks({"q": _VISIT}))
async def page(pair: Pair) -> Outcome:
    """`elicitationId` is only in 2025-11-25: given where it is missing, left out where it is not known."""
    asked = pair.client.answering({ELICIT: {"action": "accept"}})
    got = await _call(pair, "page")
    if not asked:
        _refused(pair, got, -32602 if _has(pair, FORMS) else -32601, "elicitation")
        return impossible(_NO_PAGES, not _has(pair, PAGES))
    named = asked[0][1].pop("elicitationId", None)
    assert bool(named) is not pair.client.stateless, named
    same(asked, [(ELICIT, {**_PAGE, "message": f"[{pair.server.name}] Sign in"})])
    same(got, {"q": {"action": "accept"}})
    return _as_it_crosses(pair)


def _send_away(server: Server, request: dict[str, Any]) -> None:
    """Wants a page visited first: every other time, as it does not see whether that was done."""
    server.visits += 1
    if server.visits % 2:
        server.fail(request, -32042, "sign in first", {"elicitations": [{**_PAGE, "elicitationId": "page-2"}]})
    else:
        server.reply(request, {"content": [text("in")]})


@subject("error -32042: visit pages first", QUESTIONS, since=PAGES, until=PAGES, tool=_send_away)
async def page_first(pair: Pair) -> Outcome:
    """Handshake clients get the error, whether they know its code or not; 2026-07-28 does not have it."""
    asked = pair.client.answering({ELICIT: {"action": "accept"}})
    params = {"name": pair.name_of("page_first"), "arguments": {}}
    first = await pair.client.complete("tools/call", params)
    if "error" in first.message:
        assert not asked
        assert not pair.client.stateless
        again = await pair.client.complete("tools/call", params)
        assert again.result["content"] == [text("in")]
        return same(first.error["data"], {"elicitations": [{**_PAGE, "elicitationId": "page-2"}]})
    same(asked, [(ELICIT, {**_PAGE, "message": f"[{pair.server.name}] Sign in"})])
    assert first.result["content"] == [text("in")]
    return converted("as `input_required`")


# --- sampling and roots -----------------------------------------------------------------------


def _sampling(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content} for content in contents], "maxTokens": 9, **more}


_HI = {"role": "assistant", "model": "m", "content": text("hi"), "stopReason": "endTurn"}
_POEM = Question(SAMPLE, _sampling(text("Say hi"), temperature=0.5), ("sampling",))


@subject("sampling", QUESTIONS, tool=asks({"q": _POEM}))
async def sampling(pair: Pair) -> Outcome:
    """A model of the client's speaks for the server."""
    asked = pair.client.answering({SAMPLE: _HI})
    got = await _call(pair, "sampling")
    same(asked, [(SAMPLE, _POEM.params)])
    same(got, {"q": _HI})
    return _as_it_crosses(pair)


_TWO = [text("One"), text("Two")]
_BLOCKS = Question(SAMPLE, _sampling(_TWO), ("sampling",))


@subject("sampling with several blocks", QUESTIONS, since=BLOCKS, tool=asks({"q": _BLOCKS}))
async def sampling_blocks(pair: Pair) -> Outcome:
    """Before 2025-11-25 a message is one block, so that each becomes a message."""
    asked = pair.client.answering({SAMPLE: _HI})
    got = await _call(pair, "sampling_blocks")
    same(got, {"q": _HI})
    crossed = _as_it_crosses(pair)
    if asked == [(SAMPLE, _sampling(*_TWO))]:
        assert not _has(pair, BLOCKS)
        return converted(f"a message each{_also(crossed)}")
    same(asked, [(SAMPLE, _BLOCKS.params)])
    return crossed


@subject("sampling answered with several blocks", QUESTIONS, clients_since=BLOCKS, tool=asks({"q": _POEM}))
async def sampling_answer(pair: Pair) -> Outcome:
    """Servers before 2025-11-25 cannot take such an answer."""
    answer = {**_HI, "content": _TWO}
    pair.client.answering({SAMPLE: answer})
    if pair.server.revision >= BLOCKS:
        same(await _call(pair, "sampling_answer"), {"q": answer})
        return _as_it_crosses(pair)
    if pair.client.stateless:
        # It is asked once more, as for a form that was filled in wrongly.
        params = {"name": pair.name_of("sampling_answer"), "arguments": {}}
        state = (await pair.client.ask("tools/call", params)).result["requestState"]
        wrong = {**params, "inputResponses": {"q1": answer}, "requestState": state}
        again = (await pair.client.ask("tools/call", wrong)).result
        same(list(again["inputRequests"]), ["q1"])
        right = {**params, "inputResponses": {"q1": _HI}, "requestState": again["requestState"]}
        result = (await pair.client.ask("tools/call", right)).result
        same(json.loads(result["content"][0]["text"]), {"q": _HI})
    else:
        same(await _call(pair, "sampling_answer"), {"q": {"error": -32602}})
    return impossible(_ONE_BLOCK, pair.server.revision < BLOCKS)


_LISTEN = Question(SAMPLE, _sampling(SOUND), ("sampling",))


@subject("sampling with audio", QUESTIONS, since=AUDIO, tool=asks({"q": _LISTEN}))
async def sampling_audio(pair: Pair) -> Outcome:
    """A model that is not given the sound could not answer."""
    asked = pair.client.answering({SAMPLE: _HI})
    got = await _call(pair, "sampling_audio")
    if not asked:
        _refused(pair, got, -32602, "audio")
        return impossible(_NO_AUDIO, not _has(pair, AUDIO))
    same(asked, [(SAMPLE, _LISTEN.params)])
    same(got, {"q": _HI})
    return _as_it_crosses(pair)


_TOOL = {"name": "add", "inputSchema": {"type": "object"}}
_USE = Question(SAMPLE, _sampling(text("Add"), tools=[_TOOL], toolChoice={"mode": "auto"}), ("sampling", "tools"))
_USED = {
    "role": "assistant",
    "model": "m",
    "content": {"type": "tool_use", "id": "1", "name": "add", "input": {"n": 1}},
    "stopReason": "toolUse",
}


@subject("sampling with tools", QUESTIONS, since=TOOLS, tool=asks({"q": _USE}))
async def sampling_tools(pair: Pair) -> Outcome:
    """The tools are the server's own, and keep their names."""
    asked = pair.client.answering({SAMPLE: _USED})
    got = await _call(pair, "sampling_tools")
    if not asked:
        _refused(pair, got, -32602, "sampling")
        return impossible(_NO_TOOLS, not _has(pair, TOOLS))
    same(asked, [(SAMPLE, _USE.params)])
    same(got, {"q": _USED})
    return _as_it_crosses(pair)


_WHERE = Question(ROOTS, None, ("roots",))
_HERE = {"roots": [{"uri": "file:///w", "name": "w"}]}


@subject("roots", QUESTIONS, tool=asks({"q": _WHERE}))
async def roots(pair: Pair) -> Outcome:
    """Asked in a call. Not outside of one, as it would not be known whose."""
    asked = pair.client.answering({ROOTS: _HERE})
    got = await _call(pair, "roots")
    same([method for method, _ in asked], [ROOTS])
    same(got, {"q": _HERE})
    return _as_it_crosses(pair)


# --- several of them --------------------------------------------------------------------------


async def _several(pair: Pair, tool: str, order: list[str], expected: dict[str, Any]) -> Outcome:
    asked = pair.client.answering({ELICIT: _ANN, SAMPLE: _HI, ROOTS: _HERE})
    got = await _call(pair, tool)
    if _has(pair, FORMS):
        same([method for method, _ in asked], order)
        same(got, expected)
        return _as_it_crosses(pair)
    if pair.server.revision != NEWEST:
        same([method for method, _ in asked], [method for method in order if method != ELICIT])
        same(got, {key: {"error": -32601} if answer is _ANN else answer for key, answer in expected.items()})
    else:
        _refused(pair, got, -32601, "elicitation")
    return impossible(_NO_FORMS, not _has(pair, FORMS))


@subject("two forms, then sampling", QUESTIONS, since=FORMS, tool=asks({"a": _WHO}, {"b": _WHO}, {"c": _POEM}))
async def three_rounds(pair: Pair) -> Outcome:
    """One question after the other in one call."""
    expected = {"a": _ANN, "b": _ANN, "c": _HI}
    return await _several(pair, "three_rounds", [ELICIT, ELICIT, SAMPLE], expected)


@subject(
    "two rounds, two questions at once",
    QUESTIONS,
    since=FORMS,
    tool=asks({"a": _WHO, "b": _WHERE}, {"c": _POEM}),
)
async def two_rounds(pair: Pair) -> Outcome:
    """The two of the first round do not wait for each other."""
    return await _several(pair, "two_rounds", [ELICIT, ROOTS, SAMPLE], {"a": _ANN, "b": _HERE, "c": _HI})


# --- elsewhere than in calls of tools ---------------------------------------------------------


async def ask_for_prompt(server: Server, request: dict[str, Any]) -> None:
    """Answer `prompts/get` after a question."""
    given = await answers(server, request, ({"q": _WHERE},))
    if given is not None:
        content = text(json.dumps(given))
        server.reply(request, {"description": "Greets", "messages": [{"role": "user", "content": content}]})


async def ask_for_resource(server: Server, request: dict[str, Any]) -> None:
    """Answer `resources/read` after a question."""
    given = await answers(server, request, ({"q": _WHERE},))
    if given is not None:
        server.reply(request, {"contents": [{"uri": request["params"]["uri"], "text": json.dumps(given)}]})


@subject("roots, for a prompt", QUESTIONS)
async def prompt_asks(pair: Pair) -> Outcome:
    """A prompt may ask as a tool may."""
    asked = pair.client.answering({ROOTS: _HERE})
    reply = await pair.client.complete("prompts/get", {"name": pair.name_of("curious"), "arguments": {"who": "A"}})
    same([method for method, _ in asked], [ROOTS])
    same(json.loads(reply.result["messages"][0]["content"]["text"]), {"q": _HERE})
    return _as_it_crosses(pair)


@subject("roots, for a resource", QUESTIONS)
async def resource_asks(pair: Pair) -> Outcome:
    """And so may a resource."""
    asked = pair.client.answering({ROOTS: _HERE})
    uri = f"matrix://{pair.server.name}/curious"
    reply = await pair.client.complete("resources/read", {"uri": uri})
    same([method for method, _ in asked], [ROOTS])
    (content,) = reply.result["contents"]
    same((content["uri"], json.loads(content["text"])), (uri, {"q": _HERE}))
    return _as_it_crosses(pair)


async def ask_for_completion(server: Server, request: dict[str, Any]) -> None:
    """Answer `completion/complete` after a question, which only handshake servers can ask there."""
    answer = await server.ask(ROOTS)
    told = answer["result"] if "result" in answer else {"error": answer["error"]["code"]}
    server.reply(request, {"completion": {"values": [json.dumps(told)]}})


@subject("roots, for a completion", QUESTIONS, until="2025-11-25")
async def completion_asks(pair: Pair) -> Outcome:
    """Handshake servers may ask whenever they are asked something."""
    asked = pair.client.answering({ROOTS: _HERE})
    ref = {"type": "ref/prompt", "name": pair.name_of("curious")}
    argument = {"name": "who", "value": ""}
    result = (await pair.client.ask("completion/complete", {"ref": ref, "argument": argument})).result
    told = json.loads(result["completion"]["values"][0])
    if not asked:
        same(told, {"error": -32602})
        return impossible(_NOT_THERE, pair.client.stateless)
    return same(told, _HERE)


# --- cancellation -----------------------------------------------------------------------------


async def _wait_for_answer(server: Server, request: dict[str, Any]) -> None:
    if "report" in request["params"]["arguments"]:
        counts(server, request)
    elif server.revision == NEWEST:
        if "inputResponses" in request["params"]:
            server.again += 1
        server.need(request, {"q": {"method": ROOTS}}, "state")
    else:
        cancelled = asyncio.ensure_future(server.until_cancelled(request["id"]))
        answered = asyncio.ensure_future(server.ask(ROOTS))
        done, _ = await asyncio.wait((cancelled, answered), return_when=asyncio.FIRST_COMPLETED)
        if answered in done:
            cancelled.cancel()
            server.reply(request, {"content": []})
        else:
            answered.cancel()


@subject("cancellation while asked", QUESTIONS, tool=_wait_for_answer)
async def cancel_asked(pair: Pair) -> Outcome:
    """The question is withdrawn at the client, and the call cancelled at the server if that waits."""
    client, stateless_server = pair.client, pair.server.revision == NEWEST
    client.answering({})
    client.forget_notices()
    before = (await counted(pair, "cancel_asked"))["over"]
    params = {"name": pair.name_of("cancel_asked"), "arguments": {}}
    call = client.start("tools/call", params)
    if client.stateless:
        result = (await client.answer(call)).result
        same(result["resultType"], "input_required")
        if not stateless_server:
            # The server waits until the client comes back, or muxway gives up.
            await until(pair, "cancel_asked", running=1)
            again = {"inputResponses": {"q1": _HERE}, "requestState": result["requestState"]}
            await client.ask("tools/call", {**params, **again})
        return impossible(_OVER, client.stateless)
    question = await client.notice(ROOTS)
    client.cancel(call)
    withdrawn = await client.notice("notifications/cancelled")
    same(withdrawn["params"]["requestId"], question["id"])
    await until(pair, "cancel_asked", running=0, over=before + (0 if stateless_server else 1), again=0)
    return converted("not called again") if stateless_server else SAME
