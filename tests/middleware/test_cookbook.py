"""The cookbook: every recipe is taken from the page, run with real servers, and does what the page says.

A test is named after the heading of its recipe. Of a recipe only the commands of its servers are replaced: what `uvx`
and `npx` would fetch is started from the environments of the interop tests, and what nobody publishes from
`cookbook_server.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, InvalidParams
from muxway.testing import RawClient

from ..docs.pages import ROOT
from ..interop import peers
from ..interop.world import make_repository
from ..pace import PATIENCE
from ..serve.harness import modern
from .cookbook_server import SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# The environments of the real servers are built by whoever needs them first.
pytestmark = pytest.mark.timeout(300)

RECIPES = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "cookbook.md").read_text(), re.MULTILINE | re.DOTALL)
)


def slug(heading: str) -> str:
    """A heading as a part of a name."""
    return re.sub(r"\W+", "_", heading.lower())


class Recipe:
    """One section of the page, and the folder where its file is saved."""

    def __init__(self, section: str, folder: Path) -> None:
        self.section = section
        self.folder = folder
        self.code, *seen = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
        self.seen = [text.rstrip("\n") for text in seen]
        """What the page says that one sees then: its further blocks."""

    def config(self) -> dict[str, Any]:
        """The configuration, with servers that are here."""
        config = json.loads(self.code)
        for entry in config["mcpServers"].values():
            entry["command"], *entry["args"] = installed([entry["command"], *entry["args"]])
        return config

    def save(self) -> None:
        """Put the configuration where `muxway` looks for it."""
        (self.folder / "muxway.json").write_text(json.dumps(self.config()))


def installed(command: list[str]) -> list[str]:
    """The same server, started from what is installed here."""
    match command:
        case ["uvx", "mcp-server-time" | "mcp-server-git" as name, *rest]:
            return [peers.python("servers"), "-m", name.replace("-", "_"), *rest]
        case ["npx", "-y", "@modelcontextprotocol/server-filesystem" as name, *rest]:
            return [*peers.node_script(f"{name}/dist/index.js"), *rest]
        case ["uvx", "crm-server" | "weather-server" as name]:
            return [sys.executable, str(Path(__file__).with_name("cookbook_server.py")), name]
        case _:
            raise AssertionError(f"no server to put in place of {command}")


@pytest.fixture
def recipe(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The recipe that the test is named after, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    named = {f"test_{slug(heading)}": section for heading, section in RECIPES.items()}
    return Recipe(named[request.node.originalname], tmp_path)


class Pipe:
    """The stdin and stdout of a process, for a RawClient."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._waiting: list[bytes] = []

    def send(self, frame: bytes) -> None:
        self._stdin.write(frame + b"\n")

    async def receive(self) -> bytes:
        return self._waiting.pop() if self._waiting else await self._stdout.readline()

    async def until_something_came(self) -> None:
        """Wait for longer than a RawClient would: servers may be slow to start."""
        self._waiting.append(await asyncio.wait_for(self._stdout.readline(), PATIENCE))


@contextlib.asynccontextmanager
async def running(*words: str, **pipes: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """`muxway` as a process in this folder, told to end at the end."""
    command = [sys.executable, "-m", "muxway", *words]
    process = await asyncio.create_subprocess_exec(*command, **pipes)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            process.kill()
            raise


@contextlib.asynccontextmanager
async def on_stdio(*words: str) -> AsyncIterator[RawClient]:
    """A client of `muxway stdio`."""
    pipe = asyncio.subprocess.PIPE
    async with running("stdio", "--list-wait", str(PATIENCE), *words, stdin=pipe, stdout=pipe) as process:
        wire = Pipe(process)
        client = RawClient(wire)
        await client.hello()
        listing = client.start("tools/list")
        await wire.until_something_came()
        await client.answer(listing)
        yield client
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


@contextlib.asynccontextmanager
async def in_process(recipe: Recipe, **client: Any) -> AsyncIterator[RawClient]:
    """A client of a gateway in this process, whose servers are all ready."""
    async with Gateway.open(recipe.config()) as gateway:
        assert [server.error for server in gateway.servers()] == [None] * len(gateway.servers())
        raw = RawClient(gateway.memory_door(), **client)
        await raw.hello()
        yield raw


def test_every_recipe_has_a_test() -> None:
    assert [heading for heading in RECIPES if f"test_{slug(heading)}" not in globals()] == []
    assert len(RECIPES) >= 10


async def test_mask_secrets_and_personal_data(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", "s3cr3t-of-the-crm")
    async with in_process(recipe) as client:
        answer = await client.call("crm__customer", {"id": 1})
        assert answer.result["structuredContent"] == json.loads(recipe.seen[0])
        assert json.loads(answer.result["content"][0]["text"]) == json.loads(recipe.seen[0])
        for secret in (b"s3cr3t", b"ada@", b"4111", b"004711"):
            assert secret not in answer.line


async def test_a_read_only_view_for_an_agent(recipe: Recipe) -> None:
    recipe.save()
    (recipe.folder / "note.txt").write_text("Buy milk")
    absent = set(re.findall(r"`(files__(?:write|edit|create|move)\w+)`", recipe.section))
    async with on_stdio("--view", "agent") as client:
        agents = set(await client.tools())
        read = await client.call("files__read_text_file", {"path": "note.txt"})
        assert read.result["structuredContent"] == {"content": "Buy milk"}
        refused = await client.call("files__write_file", {"path": "note.txt", "content": "Buy beer"})
        assert refused.error["message"] == recipe.seen[0]
    async with on_stdio() as client:
        assert set(await client.tools()) - agents == absent
    assert len(absent) == 4
    assert (recipe.folder / "note.txt").read_text() == "Buy milk"


@pytest.mark.parametrize("spelling", [{"value": "${PROJECT}"}, {"env": "PROJECT"}], ids=["value", "env"])
async def test_a_fixed_argument_from_the_environment(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, spelling: dict[str, str]
) -> None:
    make_repository(recipe.folder / "project")
    monkeypatch.setenv("PROJECT", str(recipe.folder / "project"))
    assert '"repo_path": { "hide": true, "value": "${PROJECT}" }' in recipe.code
    config = recipe.config()
    config["mcpServers"]["git"]["shape"]["*"]["arguments"]["repo_path"] = {"hide": True, **spelling}
    async with Gateway.open(config) as gateway:
        schemas = {tool.name: tool.input_schema for tool in gateway.tools()}
        assert "history" in schemas
        assert not any("repo_path" in schema["properties"] for schema in schemas.values())
        assert "git__git_commit" not in schemas
        assert schemas["history"]["properties"]["max_count"]["default"] == 3
        assert "Message: begin" in (await gateway.call("history")).text
        assert "nothing to commit" in (await gateway.call("git__git_status")).text
        with pytest.raises(InvalidParams, match=re.escape(recipe.seen[0])):
            await gateway.call("history", {"repo_path": "/"})


async def test_approve_writes(recipe: Recipe) -> None:
    file = recipe.folder / "list.txt"
    write = {"name": "files__write_file", "arguments": {"path": "list.txt", "content": "milk"}}
    asked: list[str] = []
    action = "decline"

    def user(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": action, "content": {}}

    async with in_process(recipe, capabilities={"elicitation": {"form": {}}}) as client:
        client.answers["elicitation/create"] = user
        assert (await client.complete("tools/call", write)).result["isError"] is True
        assert asked == [recipe.seen[0]]
        assert not file.exists()
        action = "accept"
        for _ in range(2):  # The second time the yes is remembered.
            assert not (await client.complete("tools/call", write)).result.get("isError")
        assert file.read_text() == "milk"
        assert len(asked) == 2
        read = await client.call("files__read_text_file", {"path": "list.txt"})
        assert read.result["structuredContent"] == {"content": "milk"}
        assert not (await client.call("files__create_directory", {"path": "new"})).result.get("isError")
        assert len(asked) == 2


async def test_approve_writes_for_clients_that_cannot_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with in_process(Recipe(RECIPES["Approve writes"], tmp_path)) as client:
        refused = (await client.call("files__write_file", {"path": "list.txt", "content": "milk"})).result
        assert refused["isError"] is True
        assert '"allow":["files__write_file"]' in refused["content"][0]["text"]
        assert not (tmp_path / "list.txt").exists()


async def test_keep_an_audit_trail(recipe: Recipe) -> None:
    recipe.save()
    arguments = {"timezone": "Asia/Tokyo"}
    async with on_stdio() as client:
        assert (await client.call("time__get_current_time", arguments)).result["structuredContent"]["timezone"]
        assert (await client.call("time__get_current_time", {"timezone": "Nowhere"})).result["isError"] is True
    lines = [json.loads(line) for line in (recipe.folder / "audit.jsonl").read_text().splitlines()]
    assert "tools/list" in [line["method"] for line in lines]
    good, bad = [line for line in lines if line["method"] == "tools/call"]
    digest = hashlib.sha256(json.dumps(arguments, separators=(",", ":")).encode()).hexdigest()
    assert good["arguments"] == f"sha256:{digest}"
    assert (good["name"], good["client"], good["outcome"]) == ("time__get_current_time", "raw", "ok")
    assert bad["outcome"] == "isError"
    assert "Tokyo" not in (recipe.folder / "audit.jsonl").read_text()
    for field in re.findall(r"\.(\w+)(?=[,\] ])", recipe.seen[0]):
        assert field in good, field


async def test_cache_a_slow_api(recipe: Recipe) -> None:
    async with in_process(recipe) as client:
        first = await client.call("weather__forecast", {"city": "Bergen"})
        began = time.perf_counter()
        for _ in range(40):  # More than the limit lets through in a minute.
            again = await client.call("weather__forecast", {"city": "Bergen"})
            assert again.result == first.result
        assert time.perf_counter() - began < 10 * SECONDS, "the API would have taken four times that"
        other = await client.call("weather__forecast", {"city": "Oslo"})
        assert other.result["structuredContent"] == {"city": "Oslo", "call": 2}


async def test_cut_huge_results(recipe: Recipe) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    lines = [f"line {number}" for number in range(50_000)]
    lines[25_000] = secret
    (recipe.folder / "huge.txt").write_text("\n".join(lines))
    async with in_process(recipe) as client:
        cut = await client.call("files__read_text_file", {"path": "huge.txt"})
        assert len(json.dumps(cut.result)) <= 8000
        assert "line 0\n" in cut.result["content"][0]["text"]
        assert "line 49999" in cut.result["content"][0]["text"]
        assert "This text was cut" in cut.result["content"][0]["text"]
        (link,) = [block["uri"] for block in cut.result["content"] if block["type"] == "resource_link"]
        assert link.startswith("muxway://truncated/")
        texts: list[str] = []
        uri = link
        while uri:
            (part,) = (await client.ask("resources/read", {"uri": uri})).result["contents"]
            assert len(part["text"].encode()) <= 8000
            texts.append(part["text"])
            uri = part["_meta"]["muxway/truncated"].get("next")
        read = "".join(texts)
        assert "line 24999\n[redacted: github_token]\nline 25001" in read
        assert secret not in read
        assert read.endswith("line 49999")


async def test_one_tool_from_three(recipe: Recipe) -> None:
    make_repository(recipe.folder / "project")
    (recipe.folder / "plain").mkdir()
    recipe.save()
    async with running("check", "--connect", stdout=asyncio.subprocess.DEVNULL) as check:
        assert await asyncio.wait_for(check.wait(), PATIENCE) == 0
    async with on_stdio() as client:
        assert await client.tools() == ["Project"]
        folder = str(recipe.folder / "project")
        whole = (await client.call("Project", {"folder": folder, "timezone": "Asia/Tokyo"})).result["structuredContent"]
        assert whole["time"].endswith("+09:00")
        assert "Message: begin" in whole["commits"]
        assert "[FILE] read.me" in whole["files"]
        partial = (await client.call("Project", {"folder": str(recipe.folder / "plain")})).result["structuredContent"]
        assert (partial["commits"], partial["time"][-6:]) == (None, "+00:00")


@contextlib.asynccontextmanager
async def on_http(**environment: str) -> AsyncIterator[str]:
    """The address of `muxway serve`."""
    pipe = asyncio.subprocess.PIPE
    words = ["serve", "--port", "0", "--list-wait", str(PATIENCE)]
    async with running(*words, stderr=pipe, env={**os.environ, **environment}) as process:
        assert process.stderr is not None
        while b"listens on" not in (line := await asyncio.wait_for(process.stderr.readline(), PATIENCE)):
            assert line, "it ended"
        reading = asyncio.create_task(process.stderr.read())
        try:
            yield line.decode().split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(reading, PATIENCE)


async def test_each_team_its_own_token_and_view(recipe: Recipe) -> None:
    recipe.save()
    tokens = {"DEV_TOKEN": "a-long-secret", "OFFICE_TOKEN": "another-secret", "ADMIN_TOKEN": "the-admins-secret"}
    async with on_http(**tokens) as address:

        async def ask(token: str, method: str, path: str = "/mcp", **params: Any) -> tuple[int, Any]:
            return await post(address + path, token, *modern(method, params))

        async def names(token: str, path: str = "/mcp") -> set[str]:
            status, answer = await ask(token, "tools/list", path)
            assert status == 200, answer
            return {tool["name"] for tool in answer["result"]["tools"]}

        everything = await names("the-admins-secret")
        clock = set(re.findall(r"`(time__\w+)`", recipe.section))
        assert await names("office-another-secret") == clock == {name for name in everything if "time__" in name}
        assert len(clock) == 2
        for token in ("dev-a-long-secret", "the-admins-secret"):
            assert await names(token) == await names(token, "/mcp/developers") == everything > clock
        assert (await ask("office-another-secret", "tools/list", "/mcp/developers"))[0] == 403
        for path in ("/mcp", "/mcp/developers"):
            assert (await ask("", "tools/list", path))[0] == 401
        call = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
        office = [(await ask("office-another-secret", "tools/call", **call))[1] for _ in range(6)]
        assert ["result" in answer for answer in office] == [True] * 5 + [False]
        assert "the limit for this caller is 5/m" in office[-1]["error"]["message"]
        assert "result" in (await ask("dev-a-long-secret", "tools/call", **call))[1]


async def post(url: str, token: str, message: Any, headers: dict[str, str | None]) -> tuple[int, Any]:
    """POST a message; the status and what came back."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    given = {name: value for name, value in headers.items() if value is not None}
    given |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if token:
        given["Authorization"] = f"Bearer {token}"

    def send() -> tuple[int, Any]:
        try:
            with urlopen(Request(url, json.dumps(message).encode(), given), timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, None

    return await asyncio.to_thread(send)


async def test_a_chain_in_ten_lines_of_python(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/cookbook.md#a-chain-in-ten-lines-of-python: front, middleware, external server."""
    lines = [line for line in recipe.code.splitlines() if line and "import" not in line]
    assert len(lines) == 10
    server = '["uvx", "mcp-server-time"]'
    assert recipe.code.count(server) == 1
    (recipe.folder / "front.py").write_text(recipe.code.replace(server, repr(installed(json.loads(server)))))
    monkeypatch.setenv("TEAM_KEY", "open sesame")
    async with on_stdio("front.py") as client:
        tools = {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}
        assert tools["time__get_current_time"]["title"] == "Our time__get_current_time"
        assert (await client.ask("resources/list")).result["resources"] == []
        for meta in ({}, {"_meta": {}}, {"_meta": {"key": "guessed"}}):
            assert (await client.call("time__get_current_time", **meta)).error["message"] == recipe.seen[0]
        good = await client.call("time__get_current_time", {"timezone": "Mars"}, _meta={"key": "open sesame"})
        assert good.result["structuredContent"]["timezone"] == "Asia/Tokyo"
        assert good.result["office"] == "Tokyo"
        failed = await client.call("time__nothing", _meta={"key": "open sesame"})
        assert "not found" in failed.error["message"]
