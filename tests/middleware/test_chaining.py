"""A gateway in ten lines, as the cookbook has it, in process and from a file."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Middleware, Request, Result, RpcError, chain
from muxway.chaining import load_chain
from muxway.errors import ConfigError
from muxway.testing import RawClient, ScriptedServer

if TYPE_CHECKING:
    from pathlib import Path

    from muxway import Next

TIME = [sys.executable, "-m", "muxway.demo.clock"]


class Calculator:
    """A server in this process."""

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def drop_tables(self) -> str:
        """Something nobody should call."""
        return "dropped"


async def auth(request: dict[str, Any], next: Any) -> dict[str, Any]:  # noqa: A002 - the cookbook calls it so
    if request["params"].get("name", "").endswith("drop_tables"):
        return {"error": {"code": -32602, "message": "not allowed"}}
    return await next(request)


async def describe(metadata: dict[str, Any], next: Any) -> dict[str, Any]:  # noqa: A002
    metadata = await next(metadata)
    tools = [tool for tool in metadata.get("tools", []) if not tool["name"].endswith("drop_tables")]
    return {**metadata, "tools": [{**tool, "description": f"[ours] {tool['description']}"} for tool in tools]}


async def double(request: dict[str, Any], next: Any) -> dict[str, Any]:  # noqa: A002
    arguments = {key: value * 2 for key, value in request["params"].get("arguments", {}).items()}
    response = await next({**request, "params": {**request["params"], "arguments": arguments}})
    response["result"]["doubled"] = True
    return response


async def test_an_auth_check_a_metadata_transform_and_a_request_transform_around_a_server() -> None:
    """docs/cookbook.md#a-chain-in-ten-lines-of-python: front, middleware, external server."""
    async with chain(auth, describe).then(double).then(calc=Calculator()).open() as gateway:
        result = await gateway.call("calc.add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 6}
        assert result.raw["doubled"] is True
        with pytest.raises(RpcError, match="not allowed"):
            await gateway.call("calc.drop_tables")


def test_an_ordinary_function_works_too(tmp_path: Path) -> None:
    file = tmp_path / "front.py"
    file.write_text(
        "from muxway import chain\n"
        "def shout(request, next):\n"
        "    response = next(request)\n"
        "    for block in response['result']['content']:\n"
        "        block['text'] = block['text'].upper()\n"
        "    return response\n"
        f"gateway = chain(shout, name='front').then(clock={TIME!r})\n"
    )
    listed = _muxway("tools", "--config", str(file), "--json")
    assert any(tool["name"].startswith("clock__") for tool in json.loads(listed)["tools"])


def patient(request: dict[str, Any], next: Any) -> dict[str, Any]:  # noqa: A002
    return next(request)


async def test_ordinary_functions_around_each_other_never_wait_for_one_anothers_threads() -> None:
    """Each call holds a thread per function while it is under way, however many calls there are."""
    async with chain(patient, patient).then(up=ScriptedServer(tools={"echo": None})).open() as gateway:
        async with asyncio.timeout(30):
            results = await asyncio.gather(*(gateway.call("up.echo", {"n": n}) for n in range(100)))
        assert [result.structured_content for result in results] == [{"n": n} for n in range(100)]


async def test_a_cancelled_call_lets_go_of_the_thread_of_an_ordinary_function() -> None:
    ended: list[BaseException] = []
    waiting = asyncio.Event()

    def noting(request: dict[str, Any], next: Any) -> dict[str, Any]:  # noqa: A002
        try:
            return next(request)
        except BaseException as error:
            ended.append(error)
            raise

    def never(_server: ScriptedServer, _request: dict[str, Any]) -> None:
        waiting.set()

    async with chain(noting).then(up=ScriptedServer(tools={"never": never})).open() as gateway:
        call = asyncio.create_task(gateway.call("up.never"))
        await asyncio.wait_for(waiting.wait(), 30)
        call.cancel()
        async with asyncio.timeout(30):
            while not ended:
                await asyncio.sleep(0.01)
        assert isinstance(ended[0], CancelledError)


def test_a_real_server_behind_a_chain_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_chain.py"
    file.write_text(
        "from muxway import chain\n"
        "async def stamp(request, next):\n"
        "    response = await next(request)\n"
        "    response['result']['stamped'] = True\n"
        "    return response\n"
        f"gateway = chain(stamp).then(clock={TIME!r})\n"
    )
    requests = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-03-26", "capabilities": {}},
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(
        [sys.executable, "-m", "muxway", "stdio", str(file)],
        input=lines, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    listed = next(answer for answer in answers if answer.get("id") == 2)
    assert [tool["name"].split("__")[0] for tool in listed["result"]["tools"]][:1] == ["clock"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\n", "defines no chain"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("from muxway import chain\na = chain().then(x='y')\nb = chain().then(x='y')\n", "several chains"),
        ("from muxway import chain\ngateway = chain()\n", "leads nowhere"),
        ("from muxway import chain\ngateway = chain(3)\n", "no middleware"),
        ("from muxway import chain\ngateway = chain(lambda a, b: a).then(x='y')\n", "(metadata, next)"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_chain(file)
    assert why in str(caught.value)


async def test_errors_pass_as_dicts_and_come_out_as_errors() -> None:
    seen: list[Any] = []

    async def watch(request: dict[str, Any], next: Any) -> dict[str, Any]:  # noqa: A002
        response = await next(request)
        seen.append(response)
        return response

    async with chain(watch).then(calc=Calculator()).open() as gateway:
        with pytest.raises(RpcError):
            await gateway.call("calc.nothing")
        assert seen[0]["error"]["code"] == -32601


def _muxway(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "muxway", *words], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


@pytest.mark.parametrize("way", ["function", "class"])
async def test_what_a_middleware_does_to_meta_is_what_the_server_gets(way: str) -> None:
    async def strip(request: dict[str, Any], next: Any) -> dict[str, Any]:  # noqa: A002
        meta = {**request["params"].pop("_meta"), "added": 1}
        del meta["key"]
        return await next({**request, "params": {**request["params"], "_meta": meta}})

    class Strip(Middleware):
        async def call_tool(self, request: Request, go: Next) -> Result:
            return await go(request.replace(_meta={"added": 1}))

    server = ScriptedServer(tools={"echo": None})
    async with chain(strip if way == "function" else Strip()).then(up=server).open() as gateway:
        client = RawClient(gateway.memory_door())
        await client.hello()
        await client.call("up__echo", {}, _meta={"key": "secret"})
    assert server.heard[-1]["params"]["_meta"] == {"added": 1}
