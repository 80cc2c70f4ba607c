"""A pytest plugin for the SDK's own interaction suite: its clients reach its servers through muxway.

Runs inside the SDK's environment, where the suite's package is called `tests`: nothing of our tests can be imported
here. Each of the suite's cells connects a client to a server object; here a gateway stands between the two, with that
object as its only server and without a prefix, so that it is meant to be as if it were not there.

MUXWAY_DOOR says how clients come in: `stdio` over pipes, as the only client there will be; `memory` as one of many.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from muxway import Gateway
from muxway.config import parse_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

CELL = "[asyncio-in-memory-"
"""The suite repeats each test for several event loops and transports: here the way to the server is muxway's."""
EXPECTED = frozenset(json.loads(os.environ["MUXWAY_EXPECTED"]))
"""Names of tests that fail by the nature of a gateway."""
outcomes: dict[str, str] = {}
"""Name of each test → how it failed; nothing if it did not."""


@asynccontextmanager
async def frames(send: Callable[[bytes], None], receive: Callable[[], Awaitable[bytes]]) -> AsyncIterator[Any]:
    """A transport of the SDK's client, made of lines."""
    to_client, read = anyio.create_memory_object_stream[Any](256)
    write, from_client = anyio.create_memory_object_stream[Any](256)

    async def outwards() -> None:
        async for item in from_client:
            send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def inwards() -> None:
        while line := await receive():
            await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_json(line)))

    tasks = [asyncio.create_task(outwards()), asyncio.create_task(inwards())]
    try:
        yield read, write
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (read, write, to_client, from_client):
            stream.close()


@asynccontextmanager
async def memory(gateway: Gateway) -> AsyncIterator[Any]:
    """One of many clients of a gateway whose server is there."""
    gateway.start()
    await gateway.settled()
    door = gateway.memory_door()
    try:
        async with frames(door.send, door.receive) as streams:
            yield streams
    finally:
        await door.close()


@asynccontextmanager
async def stdio(gateway: Gateway) -> AsyncIterator[Any]:
    """The only client, over pipes; it speaks before the server is there."""
    (its_input, our_output), (our_input, its_output) = os.pipe(), os.pipe()
    door = gateway.stdio_door(stdin=its_input, stdout=its_output)
    gateway.start()
    serving = asyncio.create_task(door.serve())
    reader = asyncio.StreamReader(limit=2**24)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_input, "rb")
    )

    def send(frame: bytes) -> None:
        os.write(our_output, frame + b"\n")

    try:
        async with frames(send, reader.readline) as streams:
            yield streams
    finally:
        os.close(our_output)
        await serving
        pipe.close()
        for fd in (its_input, its_output):
            os.close(fd)


DOORS: dict[str, Callable[[Gateway], AbstractAsyncContextManager[Any]]] = {
    "memory": memory,
    "stdio": stdio,
}


@asynccontextmanager
async def connect(server: object, *, spec_version: str = "2025-11-25", **wishes: Any) -> AsyncIterator[Client]:
    """What the suite has to connect a client to a server."""
    config = parse_config({"mcpServers": {"up": {"command": "(in process)", "prefix": ""}}})
    gateway = Gateway(replace(config, objects={"up": server}))
    door = DOORS[os.environ["MUXWAY_DOOR"]]
    mode = spec_version if spec_version in MODERN_PROTOCOL_VERSIONS else "legacy"
    try:
        async with Client(door(gateway), mode=mode, **wishes) as client:
            yield client
    finally:
        with anyio.CancelScope(shield=True):
            await gateway.close()


@pytest.fixture(autouse=True)
def _impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """What is known never to come is not waited for as long as the suite would."""
    if name_of(request.node) in EXPECTED:
        patient = anyio.fail_after
        monkeypatch.setattr(anyio, "fail_after", lambda seconds: patient(min(seconds, 0.3)))


def pytest_configure() -> None:
    """Put the gateway in the place of every transport."""
    from tests.interaction import conftest  # pyright: ignore - the suite's, not ours

    for transport in conftest._FACTORIES:
        conftest._FACTORIES[transport] = connect


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each test once for each era."""
    items[:] = [item for item in items if CELL in item.nodeid]


def name_of(item: pytest.Item) -> str:
    """The file, the test and the era, as in `mcpserver/tools::a_case[2025-11-25]`."""
    folder, file = item.path.parts[-2:]
    case = item.name.removeprefix("test_").replace(CELL, "[")
    return f"{folder}/{file.removeprefix('test_').removesuffix('.py')}::{case}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write down what came of each test."""
    report = yield
    if report.when == "call" or report.failed:
        outcomes[name_of(item)] = report.longreprtext[-3000:] if report.failed else ""
    return report


def pytest_sessionfinish() -> None:
    """Give the outcomes to whoever started this."""
    Path(os.environ["MUXWAY_OUTCOMES"]).write_text(json.dumps(outcomes))
