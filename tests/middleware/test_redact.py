"""`redact`: what is masked, where, and that nothing else changes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.errors import RpcError
from muxway.exchange import tasks
from muxway.middleware.builtin.masking import Masker, change_strings
from muxway.middleware.builtin.patterns import KINDS, compiled
from muxway.middleware.builtin.redact import Redact
from muxway.testing import RawClient, ScriptedServer

from ..conftest import REVISIONS, a_world
from ..journeys.worker import TASKS, Job, Worker
from .chained import chained

# Put together from pieces, so that nobody's scanner takes this file for a leak.
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2" * 9
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
KEY = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nab+/cd==\n-----END RSA PRIVATE KEY-----"
SECRET = 'pa"ss/wörd\\1'
ALL = tuple(KINDS)


@pytest.mark.parametrize(
    ("kind", "text", "masked"),
    [
        ("email", "mail ann.b+c@mail.example.org.", "mail [redacted: email]."),
        ("email", "a@b is no address, nor is @here or x@1.2", "a@b is no address, nor is @here or x@1.2"),
        ("credit_card", "card 4111 1111 1111 1111!", "card [redacted: credit_card]!"),
        ("credit_card", "4111-1111-1111-1112 1731724800000", "4111-1111-1111-1112 1731724800000"),
        ("aws_key", f"key={AWS};", "key=[redacted: aws_key];"),
        ("aws_key", f"X{AWS}", f"X{AWS}"),
        ("github_token", f"token {GITHUB}", "token [redacted: github_token]"),
        ("private_key", f"a\n{KEY}\nb", "a\n[redacted: private_key]\nb"),
        ("private_key", KEY[:60], "[redacted: private_key]"),
        ("jwt", f"Bearer {JWT}, and so on", "Bearer [redacted: jwt], and so on"),
        ("ipv4", "from 10.0.0.1, not 1.2.3.4.5 or 300.1.1.1", "from [redacted: ipv4], not 1.2.3.4.5 or 300.1.1.1"),
    ],
)
def test_each_kind_is_known_by_its_look(kind: str, text: str, masked: str) -> None:
    masker = Masker({}, [kind])
    assert masker.text(text) == masked
    # What `may_mask` lets pass unread has nothing to mask, however it is escaped.
    for raw in (json.dumps(["\n" + text]).encode(), json.dumps([text + "é"], ensure_ascii=False).encode()):
        assert json.loads(masker.result(raw))[0].strip("\né") == masked


def leak(text: str) -> dict[str, Any]:
    """A result that has this text wherever a text may be."""
    return {
        "content": [
            {"type": "text", "text": f"see {text}", "_meta": {"note": text}},
            {"type": "image", "data": "QUJD", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": text}},
        ],
        "structuredContent": {"deep": [{"value": text, text: 1, "n": 1}], "data": text},
        "_meta": {"x": text},
    }


@pytest.mark.parametrize("revision", REVISIONS)
async def test_secrets_are_masked_wherever_a_text_may_be(revision: str) -> None:
    def tell(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, leak(SECRET))

    async with chained(
        {"up": ScriptedServer(tools={"tell": tell})}, Redact(known_secrets=frozenset({SECRET}))
    ) as world:
        client = await world.client(revision)
        line = (await client.call("up__tell")).line
        result = json.loads(line)["result"]
        assert "rd" not in json.dumps(result)
        assert result["content"][0]["text"] == "see ***"
        assert result["content"][1] == {"type": "image", "data": "QUJD", "mimeType": "image/png"}
        if "structuredContent" in result:
            assert result["structuredContent"] == {"deep": [{"value": "***", "***": 1, "n": 1}], "data": "***"}


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_the_outcome_of_a_task_is_masked_as_that_of_a_call(
    server_revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/middleware/redact.md: keys of structured content, too; pictures stay what they are."""
    monkeypatch.setattr(tasks, "PATIENCE", 0.0)

    async def tell(job: Job) -> None:
        await job.end("completed", {"result": leak(SECRET)})

    async def slow(server: ScriptedServer, request: dict[str, Any]) -> None:
        await asyncio.sleep(0.05)
        server.reply(request, leak(SECRET))

    if server_revision == "2026-07-28":
        server: ScriptedServer = Worker(server_revision, work={"tell": tell})
    else:
        server = ScriptedServer(server_revision, tools={"tell": slow})
    redact = Redact(known_secrets=frozenset({SECRET}))
    async with asyncio.timeout(30), chained({"up": server}, redact) as world:
        known = {"extensions": {TASKS: {}}}
        client = RawClient(world.gateway.memory_door(), revision="2026-07-28", capabilities=known)
        shown = (await client.call("up__tell")).result
        task = shown["taskId"]
        while shown["status"] != "completed":
            shown = (await client.ask("tasks/get", {"taskId": task})).result
        result = shown["result"]
        assert shown["taskId"] == task
        assert result["structuredContent"] == {"deep": [{"value": "***", "***": 1, "n": 1}], "data": "***"}
        assert result["content"][1] == {"type": "image", "data": "QUJD", "mimeType": "image/png"}


async def test_errors_progress_logs_prompts_resources_and_questions_are_masked() -> None:
    async def tell(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.progress(request, 1, message=f"at {GITHUB}", total=2)
        log = {"level": "info", "logger": "l", "data": {"k": [GITHUB]}}
        server.say({"jsonrpc": "2.0", "method": "notifications/message", "params": log})
        form = {"type": "object", "properties": {"a": {"type": "string"}}}
        await server.ask("elicitation/create", {"message": f"Use {GITHUB}?", "requestedSchema": form})
        server.fail(request, -32007, f"bad {GITHUB}", {"token": GITHUB, GITHUB: [1.0]})

    def prompt(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, {"messages": [{"role": "user", "content": {"type": "text", "text": GITHUB}}]})

    mask = "[redacted: github_token]"
    server = ScriptedServer(tools={"tell": tell}, prompts={"p": prompt}, resources={"file:///a": f"x {GITHUB}"})
    async with chained({"up": server}, Redact()) as world:
        asked: list[dict[str, Any]] = []
        client = RawClient(world.gateway.memory_door(), capabilities={"elicitation": {}})
        client.answers["elicitation/create"] = lambda params: asked.append(params) or {"action": "decline"}
        await client.hello()
        await client.ask("logging/setLevel", {"level": "debug"})
        error = (await client.call("up__tell", _meta={"progressToken": "t"})).error
        assert error == {"code": -32007, "message": f"bad {mask}", "data": {"token": mask, mask: [1.0]}}
        progress = (await client.notice("notifications/progress"))["params"]
        assert progress == {"progressToken": "t", "progress": 1, "message": f"at {mask}", "total": 2}
        assert (await client.notice("notifications/message"))["params"]["data"] == {"k": [mask]}
        assert asked[0]["message"] == f"[up] Use {mask}?"
        read = (await client.ask("resources/read", {"uri": "file:///a"})).result
        assert read["contents"][0]["text"] == f"x {mask}"
        got = (await client.ask("prompts/get", {"name": "up__p"})).result
        assert got["messages"][0] == {"role": "user", "content": {"type": "text", "text": mask}}


async def test_what_a_stateless_caller_is_asked_is_masked_and_its_state_comes_back_whole() -> None:
    def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        if "inputResponses" in request["params"]:
            assert request["params"]["requestState"] == "state " + GITHUB
            server.reply(request, {"content": []})
            return
        form = {"type": "object", "properties": {"a": {"type": "string"}}}
        params = {"message": f"Use {GITHUB}?", "requestedSchema": form, "mode": "form"}
        server.need(request, {"q": {"method": "elicitation/create", "params": params}}, "state " + GITHUB)

    # The state is sealed text: a pattern that fits any of it must not spoil it.
    async with chained({"up": ScriptedServer("2026-07-28", tools={"asks": asks})}, Redact(patterns=("mw1",))) as world:
        asked: list[dict[str, Any]] = []
        client = RawClient(
            world.gateway.memory_door(), revision="2026-07-28", capabilities={"elicitation": {"form": {}}}
        )
        client.answers["elicitation/create"] = lambda params: asked.append(params) or {"action": "decline"}
        reply = await client.complete("tools/call", {"name": "up__asks", "arguments": {}})
        assert reply.result["content"] == []
        assert asked[0]["message"] == "[up] Use [redacted: github_token]?"


async def test_what_has_nothing_to_mask_stays_the_bytes_that_came() -> None:
    """Ours: 1.0 and 30-digit numbers cross untouched, beside a masked text, too."""
    for text, arrives in ((b"plain", b"plain"), (GITHUB.encode(), b"[redacted: github_token]")):

        def tell(server: ScriptedServer, request: dict[str, Any], text: bytes = text) -> None:
            body = (
                rb'{"content":[{"type":"text","text":"%b"}],"structuredContent":{"n":1.0,"b":1e400,"\u0061":null}}'
                % text
            )
            server.say(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request["id"], body))

        for redact in (Redact(), Redact(kinds=ALL, patterns=("nothing fits",), known_secrets=frozenset({SECRET}))):
            async with chained({"up": ScriptedServer(tools={"tell": tell})}, redact) as world:
                client = await world.client()
                client.say(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"up__tell"}}')
                while b'"id":77' not in (line := await client._wire.receive()):
                    pass
                assert b'"text":"%b"' % arrives in line
                assert rb'"structuredContent":{"n":1.0,"b":1e400,"\u0061":null}' in line


async def test_known_secrets_are_masked_in_lists_and_patterns_leave_lists_alone() -> None:
    tool = {"name": "t", "description": f"Uses {SECRET}, mail a@b.example", "inputSchema": {"type": "object"}}
    server = ScriptedServer(tools={"t": None}, definitions=[tool])
    async with chained({"up": server}, Redact(kinds=ALL, known_secrets=frozenset({SECRET}))) as world:
        client = await world.client()
        listed = (await client.ask("tools/list")).result["tools"][0]
        assert listed["description"] == "Uses ***, mail a@b.example"


def test_a_secret_is_known_in_urls_and_in_json_inside_a_text_and_behind_escapes() -> None:
    masker = Masker({SECRET: "***", "longer " + SECRET: "+++", "ab": "no"})
    assert (
        masker.text(f"x?p=pa%22ss%2Fw%C3%B6rd%5C1&q {json.dumps([SECRET], ensure_ascii=False)}") == 'x?p=***&q ["***"]'
    )
    assert masker.text(f"the longer {SECRET} ab") == "the +++ ab"
    escaped = "".join(f"\\u{ord(character):04x}" for character in SECRET)
    assert masker.result(f'{{"content":[{{"type":"text","text":"{escaped}"}}]}}'.encode()) == (
        b'{"content":[{"type":"text","text":"***"}]}'
    )
    slashed = Masker({"abc/defgh": "***"})
    assert slashed.result(rb'{"a":"abc\/defgh"}') == b'{"a":"***"}'


def test_what_stands_for_one_secret_is_not_taken_for_another() -> None:
    masker = Masker({"hidden": "${HOME_TOKEN}", "HOME": "${X}"})
    assert masker.text("hidden HOME") == "${HOME_TOKEN} ${X}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_every_string_is_seen_and_nothing_else_changes(value: Any, indent: int | None, ascii_only: bool) -> None:
    """Ours: whatever the JSON looks like, its strings are found, each once, and told from its keys."""

    def expected(part: Any) -> Any:
        if isinstance(part, str):
            return part + "!"
        if isinstance(part, list):
            return [expected(item) for item in part]
        return {key: expected(item) for key, item in part.items()} if isinstance(part, dict) else part

    raw = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(errors="replace")
    given_value = json.loads(raw)
    assert json.loads(change_strings(raw, lambda text: text + "!")) == expected(given_value)
    assert change_strings(raw, lambda text: "".join(text), keys=True) is raw
    assert change_strings(b'["no json, "x', str.upper) == b'["NO JSON, "x'


def test_keys_that_were_different_stay_different() -> None:
    """Ours: two members of one name lose one of the values."""
    raw = b'{"structuredContent":{"a@x.example":1,"b@x.example":2,"in":{"a@x.example":3}},"a@x.example":4}'
    masked = json.loads(Masker({}, ["email"]).result(raw))
    assert masked["structuredContent"] == {
        "[redacted: email]": 1,
        "[redacted: email] (2)": 2,
        "in": {"[redacted: email]": 3},
    }
    assert masked["a@x.example"] == 4
    many = {f"n{number}@x.example": number for number in range(20_000)}
    masked = json.loads(Masker({}, ["email"]).result(json.dumps({"structuredContent": many}).encode()))
    assert sorted(masked["structuredContent"].values()) == list(range(20_000))


def test_a_key_that_looks_masked_already_keeps_its_name_and_value() -> None:
    """docs/middleware/redact.md: keys that were different stay different, whatever they are."""
    for keys in (
        ["a@b.example", "c@d.example", "[redacted: email]"],
        ["[redacted: email]", "[redacted: email] (2)", "a@b.example", "c@d.example"],
        ["\\u005bredacted: email]", "a@b.example"],
    ):
        raw = ",".join(f'"{key}":{number}' for number, key in enumerate(keys))
        masked = json.loads(Masker({}, ["email"]).result(b'{"structuredContent":{%b}}' % raw.encode()))
        assert sorted(masked["structuredContent"].values()) == [*range(len(keys))]
        assert masked["structuredContent"]["[redacted: email]"] == next(n for n, key in enumerate(keys) if "red" in key)


def test_a_pattern_that_fits_the_protocols_own_words_does_no_harm() -> None:
    raw = b'{"messages":[{"role":"user","content":{"type":"text","text":"text of a user"}}]}'
    masked = json.loads(Masker({}, (), compiled(["text|user"])).result(raw))
    assert masked["messages"][0] == {
        "role": "user",
        "content": {"type": "text", "text": "[redacted] of a [redacted]"},
    }


@pytest.mark.parametrize("at", [0, 4090, 4095, 4096, 5119, 5120, 9000])
def test_a_match_is_found_wherever_it_stands_in_a_long_text(at: int) -> None:
    masker = Masker({}, (), compiled([r"\bnumber-\d+\b"]))
    text = "é" * at + " number-123456 number-7" + "." * 9000
    assert masker.text(text) == "é" * at + " [redacted] [redacted]" + "." * 9000


def test_hostile_nesting_and_size_are_survived() -> None:
    masker = Masker({}, ALL)
    deep = b'{"content":' * 200 + b'"' + AWS.encode() + b'"' + b"}" * 200
    assert AWS.encode() not in masker.result(deep)
    for hostile in (
        "@" * 200_000,
        "a.@" * 70_000,
        "1" * 200_000,
        "eyJ" * 70_000,
        "-----BEGIN PRIVATE KEY-----" * 8_000,
    ):
        began = time.thread_time()
        masker.text(hostile)
        assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "no regular expression"),
        ("a*", "empty text"),
        ("(?<!x)key-[0-9]+", "lookaround"),
        (r"(key)-\1", "refers back"),
        (r"(?:\d{1,3}\.){3}+\d{1,3}", "possessive"),
        (r"(\pL{900})", "too large"),
    ],
)
def test_patterns_that_cannot_work_are_refused_without_being_shown(pattern: str, why: str) -> None:
    """Ours: never a value of the configuration in a message."""
    with pytest.raises(ValueError, match=why) as refused:
        Redact(patterns=("fine", pattern))
    assert "pattern 2" in str(refused.value)
    assert pattern not in str(refused.value) or pattern == "("


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(?:a+|b)+c",
        r"[(+]+(x)+",
        r"\(a+\)+",
        "(ab){2}c+",
        "[]+)*+]+(x)?",
        r"(\w+\s?)*$x",
        "a?" * 30 + "a" * 30,
        r"(?:\d{1,3}\.){3}\d{1,3}",
        r"(?i)password\s*[:=]\s*\S+",
        r"https?://[^\s/]+/",
        r"\b(?P<x>key|token)-\d{4,12}",
    ],
)
def test_patterns_that_only_look_dangerous_are_taken(pattern: str) -> None:
    Redact(patterns=(pattern,))


async def test_it_can_be_configured() -> None:
    around = [{"use": "redact", "kinds": ["email"], "patterns": ["id-[0-9]+"]}]
    server = ScriptedServer(
        tools={"tell": lambda s, r: s.reply(r, {"content": [{"type": "text", "text": "id-7 a@b.example " + AWS}]})}
    )
    async with a_world({"up": server}, middleware=around) as world:
        client = await world.client()
        told = (await client.call("up__tell")).result["content"][0]["text"]
        assert told == "[redacted] [redacted: email] " + AWS


def test_an_unknown_kind_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(ValueError, match="give some of: email, "):
        Redact(kinds=("phone",))


async def test_a_large_result_is_searched_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#size-limits: nobody else waits for it, and it comes masked; a small one is searched at once."""
    where: list[bool] = []
    search = Masker.result

    def noted(self: Masker, raw: bytes) -> bytes:
        where.append(threading.current_thread() is threading.main_thread())
        return search(self, raw)

    monkeypatch.setattr(Masker, "result", noted)

    def tell(server: ScriptedServer, request: dict[str, Any]) -> None:
        many = request["params"]["arguments"]["many"]
        server.reply(request, {"content": [{"type": "text", "text": f"{number} {GITHUB}"} for number in range(many)]})

    async with chained({"up": ScriptedServer(tools={"tell": tell})}, Redact()) as world:
        client = await world.client()
        for many, here in ((1, True), (5_000, False)):
            where.clear()
            blocks = (await client.call("up__tell", {"many": many})).result["content"]
            assert where == [here]
            assert [block["text"] for block in blocks] == [f"{n} [redacted: github_token]" for n in range(many)]


async def test_large_errors_are_searched_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#size-limits: the same for errors, whose data a server chooses: 9 MB of it took five seconds."""
    where: list[bool] = []
    search = Masker.error

    def noted(self: Masker, error: RpcError) -> None:
        where.append(threading.current_thread() is threading.main_thread())
        search(self, error)

    monkeypatch.setattr(Masker, "error", noted)

    def fail(server: ScriptedServer, request: dict[str, Any]) -> None:
        data = [GITHUB] * request["params"]["arguments"]["many"]
        server.say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": 7, "message": "no", "data": data}})

    async with chained({"up": ScriptedServer(tools={"fail": fail})}, Redact()) as world:
        client = await world.client()
        for many, here in ((1, True), (5_000, False)):
            where.clear()
            error = (await client.call("up__fail", {"many": many})).error
            assert where == [here]
            assert (error["code"], error["data"]) == (7, ["[redacted: github_token]"] * many)


@pytest.mark.parametrize("data", [[""] * 5_000, "x" * 100_000], ids=["strings", "text"])
def test_a_notice_that_would_take_long_to_search_is_withheld(data: Any) -> None:
    """docs/behaviour.md#size-limits: a notice is not worth everybody's time; what may have a secret is not shown."""
    masker = Masker({}, ALL)
    long, harmless = json.dumps([data, AWS]).encode(), b'"good morning"'
    shown = masker.notice({"level": b'"info"', "data": long, "message": harmless, "_meta": b'{"a":%b}' % long})
    withheld = {"data": b'"[redacted: too long to search]"', "_meta": b"{}"}
    assert shown == {"level": b'"info"', "message": harmless, **withheld}
    # What cannot have any is shown, however long it is.
    assert Masker({}, ["aws_key"]).notice({"data": json.dumps(data).encode()}) == {"data": json.dumps(data).encode()}


def test_a_question_that_would_take_long_to_search_is_refused() -> None:
    """docs/behaviour.md#size-limits: its server is told why."""
    masker = Masker({}, ALL)
    text = Raw(json.dumps(f"{AWS} " + "x" * 100_000).encode())
    assert b"redacted: aws_key" in bytes(masker.question({"message": text})["message"])
    with pytest.raises(RpcError, match="too long to be searched"):
        masker.question({"message": Raw(json.dumps(f"{AWS} " + "x" * 2_000_000).encode())})
    with pytest.raises(RpcError, match="too long to be searched"):
        masker.question({"messages": Raw(json.dumps([AWS] * 100_000).encode())})
