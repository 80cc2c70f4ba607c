"""Programs of the command line as tools."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.net.processes.manager import ProcessManager
from muxway.servers.transports.program import ProgramServer, WrongArgument, command_line
from tests.stdio.harness import alive

if TYPE_CHECKING:
    from pathlib import Path

ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"


def program(code: str, *commands: object, **more: Any) -> dict[str, Any]:
    """A configuration whose only program is Python with this code."""
    return {"cli": {"p": {"command": sys.executable, "args": ["-c", code], "commands": list(commands), **more}}}


def with_arguments(**arguments: dict[str, Any]) -> dict[str, Any]:
    return {"args": ["go"], "arguments": arguments}


def words(arguments: dict[str, Any], given: dict[str, Any], **more: Any) -> list[str]:
    """The command line that a call makes."""
    config = parse_config(program("", {**with_arguments(**arguments), **more}))
    commands = config.servers["p"].commands
    assert commands is not None
    return command_line(commands[0], given)[0]


# --- the command line -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ({}, "a b; rm -rf $HOME", ["a b; rm -rf $HOME"]),
        ({"flag": "-n", "type": "integer"}, -3, ["-n", "-3"]),
        ({"flag": "--max="}, "-x", ["--max=-x"]),
        ({"flag": "--max"}, "x", ["--max", "x"]),
        ({"flag": "--all", "type": "boolean"}, True, ["--all"]),
        ({"flag": "--all", "type": "boolean"}, False, []),
        ({"type": "array"}, ["a", "b"], ["a", "b"]),
        ({"type": "array", "flag": "-e"}, ["a", "b"], ["-e", "a", "-e", "b"]),
        ({"type": "number"}, 1.5, ["1.5"]),
        ({"choices": ["a", "b"]}, "b", ["b"]),
    ],
)
def test_an_argument_becomes_words_of_the_command_line(
    argument: dict[str, Any], value: object, expected: list[str]
) -> None:
    """docs/programs.md#arguments: a word is a word, whatever is in it; no shell reads it."""
    assert words({"x": argument}, {"x": value}) == ["go", *expected]


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ({}, "--upload-pack=touch x", "may not begin with `-`"),
        ({"flag": "-o"}, "-rf", "may not begin with `-`"),
        ({"type": "array"}, ["a", "-b"], "may not begin with `-`"),
        ({"type": "integer"}, -9, "may not begin with `-`"),
        ({"type": "number"}, -0.5, "may not begin with `-`"),
        ({}, "a\0b", "NUL"),
        ({}, 5, "must be a text"),
        ({"type": "array"}, "a", "must be an array"),
        ({"type": "array"}, [1], "must be an array of texts"),
        ({"type": "boolean", "flag": "-a"}, "yes", "must be true or false"),
        ({"type": "integer"}, True, "must be a whole number"),
        ({"type": "integer"}, 1.5, "must be a whole number"),
        ({"type": "integer", "minimum": 1}, 0, "at least 1"),
        ({"type": "integer", "maximum": 9}, 10, "at most 9"),
        ({"choices": ["a", "b"]}, "c", "must be one of: a, b"),
    ],
)
def test_what_does_not_fit_is_refused(argument: dict[str, Any], value: object, why: str) -> None:
    """docs/programs.md#arguments: nothing runs, and nobody slips an option in."""
    with pytest.raises(WrongArgument, match=why):
        words({"x": argument}, {"x": value})


def test_what_is_missing_or_unknown_is_refused() -> None:
    """docs/programs.md#arguments."""
    with pytest.raises(WrongArgument, match="`x` is missing"):
        words({"x": {"required": True}}, {})
    with pytest.raises(WrongArgument, match=r"no argument `y`; known: x\."):
        words({"x": {}}, {"y": 1})


def test_options_come_before_words_whatever_the_order() -> None:
    """docs/programs.md#arguments."""
    arguments = {"path": {}, "count": {"flag": "-n", "type": "integer"}, "other": {}}
    assert words(arguments, {"other": "b", "count": 1, "path": "a"}) == ["go", "-n", "1", "a", "b"]


# --- the configuration ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ([], "names no sub-command"),
        ([5], "must be the words of a sub-command"),
        (["status", "status --short"], 'a tool "status" stands here already'),
        (["a/b"], "needs a `name`"),
        ([{"description": "x"}], "args"),
        ([{"args": ["x"], "stdin": "y"}], "must be the name of one of the `arguments`"),
        ([with_arguments(x={"flag": "$(x)"})], "must be an option"),
        ([with_arguments(x={"type": "boolean"})], "needs the `flag`"),
        ([with_arguments(x={"type": "boolean", "flag": "-x="})], "has no value"),
        ([with_arguments(**{"a b": {}})], "letters, digits"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(commands: list[object], why: str) -> None:
    """docs/programs.md."""
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")):
        parse_config({"cli": {"git": {"commands": commands}}})


def test_a_program_needs_its_commands_and_no_url() -> None:
    """docs/programs.md: an allow-list, or nothing. A `cli` of somebody else's file is left alone."""
    with pytest.raises(ConfigError, match="needs `commands`"):
        parse_config({"cli": {"git": {"commands": ["status"]}, "hg": {}}})
    with pytest.raises(ConfigError, match="server by `url`"):
        parse_config({"mcpServers": {"x": {"url": "http://127.0.0.1/mcp", "commands": ["a"]}}})
    assert [*parse_config({"mcpServers": {"x": {"command": "x"}}, "cli": {"theme": "dark"}}).servers] == ["x"]


# --- runs -------------------------------------------------------------------------------------


async def test_git_as_a_server(tmp_path: Path) -> None:
    """docs/programs.md: the example, with a real repository."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    for text in ("first", "second"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", text], check=True)
    log = {
        "args": ["log", "--format=%s"],
        "description": "Show the newest commits.",
        "readOnly": True,
        "arguments": {"count": {"type": "integer", "flag": "--max-count=", "minimum": 1}},
    }
    async with Gateway.open({"cli": {"git": {"cwd": str(tmp_path), "commands": ["status --short", log]}}}) as gateway:
        tools = {tool.name: tool for tool in gateway.tools()}
        assert [*tools] == ["git__status", "git__log"]
        assert tools["git__log"].description == "Show the newest commits."
        assert tools["git__log"].input_schema["properties"] == {"count": {"type": "integer", "minimum": 1}}
        assert (await gateway.call("git.log", {"count": 1})).text == "second\n"
        assert (await gateway.call("git.status")).text == ""
        refused = await gateway.call("git.log", {"count": 0})
        assert (refused.is_error, refused.text) == (True, "`count` must be at least 1.")


async def test_what_it_says_when_it_fails() -> None:
    """docs/programs.md#results: status, what it wrote for people, and what it wrote."""
    code = "import sys; print('half'); print('bad luck', file=sys.stderr); sys.exit(3)"
    async with Gateway.open(program(code, "run")) as gateway:
        failed = await gateway.call("p.run")
    assert failed.is_error
    assert failed.text.splitlines() == ["It exited with status 3.", "bad luck", "half"]


async def test_its_input_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/programs.md#arguments: `stdin` is a text of the call; the environment is that of any server."""
    monkeypatch.setenv("SECRET_OF_OURS", "s3cret-value")
    code = "import os, sys; print(len(sys.stdin.read()), os.environ.get('SECRET_OF_OURS'), os.environ['GIVEN'])"
    command = {"args": ["go"], "stdin": "text", "arguments": {"text": {}}}
    async with Gateway.open(program(code, command, env={"GIVEN": "${SECRET_OF_OURS}"})) as gateway:
        said = (await gateway.call("p.go", {"text": "größe" * 50_000})).text
    assert said.split() == ["250000", "None", "s3cret-value"]


async def test_what_its_variables_stand_for_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/programs.md: names and descriptions are read by everybody."""
    monkeypatch.setenv("SECRET_OF_OURS", "s3cret-value")
    commands = [{"args": ["get", "--key", "a $SECRET_OF_OURS"]}, "put ${SECRET_OF_OURS}"]
    async with Gateway.open(program(ECHO, *commands)) as gateway:
        tools = gateway.tools()
        assert [tool.name for tool in tools] == ["p__get", "p__put"]
        assert not any("s3cret" in f"{tool.name} {tool.description}" for tool in tools)
        assert json.loads((await gateway.call("p.put")).text) == ["put", "s3cret-value"]


async def test_a_call_without_arguments_may_say_so() -> None:
    """MCP schema, CallToolRequest: `arguments` may be missing; clients write null, too."""
    one = parse_config(program(ECHO, "go")).servers["p"]
    said: asyncio.Queue[bytes] = asyncio.Queue()
    asked = [b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"go","arguments":null}}']

    async def receive() -> bytes | None:
        if asked:
            return asked.pop()
        heard.append(json.loads(await said.get()))
        return None

    heard: list[dict[str, Any]] = []
    manager = ProcessManager()
    async with asyncio.timeout(30):
        await ProgramServer(one, manager, None).serve(receive, said.put_nowait)
        await manager.aclose()
    assert json.loads(heard[0]["result"]["content"][0]["text"]) == ["go"]


async def test_too_much_output_ends_it() -> None:
    """docs/programs.md#results: the beginning is kept, the program is ended."""
    code = "while True: print('x' * 999)"
    async with Gateway.open(program(code, {"args": ["go"], "maxOutput": 5000})) as gateway:
        cut = await gateway.call("p.go")
    assert cut.text.startswith("x" * 999 + "\n")
    assert cut.text.endswith("[cut here: more than 5000 bytes]")
    assert len(cut.text) < 5100


@pytest.mark.parametrize("how", ["time", "cancel", "child"])
async def test_nothing_of_it_is_left(tmp_path: Path, how: str) -> None:
    """docs/programs.md#results: at the time limit, when the call is cancelled, and after it: no process stays."""
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n" + ("" if how == "child" else "time.sleep(600)\n")
    )
    timeout = 3 if how == "time" else 600  # A busy machine needs a while until both are there.
    async with Gateway.open(program(code, {"args": ["go"], "timeout": timeout})) as gateway, asyncio.timeout(30):
        call = asyncio.ensure_future(gateway.call("p.go"))
        while not pids.exists():
            await asyncio.sleep(0.02)
        started = [int(pid) for pid in pids.read_text().split()]
        if how == "cancel":
            call.cancel()
            await asyncio.wait([call])
        else:
            result = await call
            assert result.is_error == (how == "time")
            assert ("took longer than 3 s" in result.text) == (how == "time")
        while alive(started):
            await asyncio.sleep(0.02)


async def test_a_program_that_is_not_there_says_so() -> None:
    """Ours: when it is called, with what to do; the others go on."""
    config = {"cli": {"nowhere-at-all": {"commands": ["x"]}, **program(ECHO, "go")["cli"]}}
    async with Gateway.open(config) as gateway:
        failed = await gateway.call("nowhere-at-all.x")
        assert failed.is_error
        assert "command not found on PATH" in failed.text
        assert json.loads((await gateway.call("p.go")).text) == ["go"]


async def test_many_calls_at_once() -> None:
    """Ours: each has its own process, and its own answer."""
    async with Gateway.open(program(ECHO, with_arguments(n={"type": "integer"}))) as gateway:
        results = await asyncio.gather(*(gateway.call("p.go", {"n": n}) for n in range(12)))
    assert [json.loads(result.text) for result in results] == [["go", str(n)] for n in range(12)]
