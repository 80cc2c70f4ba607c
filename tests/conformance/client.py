"""muxway as the client that the suite's mock server sees: a gateway in front of that server, and someone who uses it.

    python client.py URL

The suite appends the URL, and says in the environment which scenario it plays, at which revision, and with which
data. Whoever uses the gateway speaks the same revision; what the gateway speaks to the mock server it finds out itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import muxway
from muxway.testing import RawClient

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
DATA = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

CAPABILITIES = {"elicitation": {"form": {"applyDefaults": True}}, "sampling": {}, "roots": {}}
CONTEXT = {
    "client_id": "clientId",
    "client_secret": "clientSecret",
    "private_key_pem": "privateKey",
    "signing_algorithm": "signingAlgorithm",
}
"""What the suite calls what it gives for a login → what the configuration calls it."""
ROUNDS = 5
STUBS: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


class Answering:
    """A wire to the gateway on which its questions are answered, so that the client only hears the rest."""

    def __init__(self, wire: Any) -> None:
        self._wire = wire

    def send(self, frame: bytes) -> None:
        self._wire.send(frame)

    async def receive(self) -> bytes:
        while True:
            line = await self._wire.receive()
            message = json.loads(line)
            if "method" not in message or "id" not in message:
                return line
            result = answered(message["method"], message.get("params") or {})
            self.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


def answered(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What somebody would say who agrees to everything."""
    if method == "elicitation/create":
        fields = params["requestedSchema"]["properties"]
        return {"action": "accept", "content": {name: field_value(field) for name, field in fields.items()}}
    if method == "sampling/createMessage":
        return {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "none"}
    if method == "roots/list":
        return {"roots": []}
    return {}


def field_value(schema: dict[str, Any]) -> Any:
    return schema["default"] if "default" in schema else STUBS.get(schema.get("type", ""))


async def call(client: RawClient, name: str, arguments: dict[str, Any]) -> None:
    """Call a tool, and go through its input rounds; log in as often as it wants that."""
    more: dict[str, Any] = {}
    for _ in range(ROUNDS):
        message = (await client.call(name, arguments, **more)).message
        say(f"{name}: {json.dumps(message)[:300]}")
        if command := login_wanted(json.dumps(message)):
            await log_in(command)
            continue
        result = message.get("result", {})
        if result.get("resultType") != "input_required":
            return
        asked = result.get("inputRequests") or {}
        more = {"inputResponses": {key: answered(one["method"], one.get("params") or {}) for key, one in asked.items()}}
        if "requestState" in result:
            more["requestState"] = result["requestState"]
    raise AssertionError(f"{name} asks without end")


def login_wanted(text: str) -> list[str]:
    """The command that an error tells the user to run; empty if it does not."""
    found = re.search(r"(?:run|try) `(muxway login[^`]*)`", text)
    words = [] if found is None else shlex.split(found[1])[1:]
    # Where the server says nothing of logins, nothing says more than that one may be tried.
    return [*words, "mock"] if len(words) == 1 else words


async def log_in(command: list[str]) -> None:
    """Do what the user is told to do, with somebody at the browser who agrees to everything."""
    environment = {**os.environ, "BROWSER": f"{sys.executable} {Path(__file__).with_name('browser.py')} %s"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muxway", *command),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    if await process.wait() != 0:
        raise SystemExit("the login failed")


async def use(client: RawClient) -> None:
    """Do what the scenario wants to see: for most, that every tool is called."""
    tools = {tool["name"]: tool["inputSchema"] for tool in (await client.ask("tools/list")).result["tools"]}
    say(f"tools: {', '.join(tools)}")
    if SCENARIO == "http-custom-headers":
        for step in DATA["toolCalls"]:
            await call(client, step["name"], step["arguments"])
    elif SCENARIO == "json-schema-2020-12-preservation":
        await call(client, "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]})
    else:
        for name, schema in tools.items():
            fields = schema.get("properties", {})
            await call(client, name, {field: field_value(fields[field]) for field in schema.get("required", ())})
    if SCENARIO == "http-standard-headers":
        await read_everything(client)


async def read_everything(client: RawClient) -> None:
    """Read each resource and get each prompt; a gateway that offers neither says so."""
    for resource in (await client.ask("resources/list")).message.get("result", {}).get("resources", []):
        await client.ask("resources/read", {"uri": resource["uri"]})
    for prompt in (await client.ask("prompts/list")).message.get("result", {}).get("prompts", []):
        await client.ask("prompts/get", {"name": prompt["name"]})


async def noticed(gateway: muxway.Gateway) -> None:
    """Wait until the gateway has seen the login, and the server runs or wants another one."""
    with contextlib.suppress(TimeoutError):  # it may have done so before the command ended
        async with asyncio.timeout(1.5):
            while gateway.servers()[0].status in ("login needed", "failed"):
                await asyncio.sleep(0.001)
    await gateway.settled()


def oauth() -> dict[str, Any]:
    """What the user would write into the configuration for this scenario."""
    if SCENARIO == "auth/basic-cimd":
        return {"clientMetadataUrl": "https://conformance-test.local/client-metadata.json"}
    given = {ours: DATA[theirs] for theirs, ours in CONTEXT.items() if theirs in DATA}
    if SCENARIO.startswith("auth/client-credentials"):
        given["grant"] = "client_credentials"
    if "idp_id_token" in DATA:
        given |= {"grant": "id_jag", "subjectToken": DATA["idp_id_token"]}
        given["idp"] = {"tokenEndpoint": DATA["idp_token_endpoint"], "clientId": DATA["idp_client_id"]}
    if "valid_jwt" in DATA:
        given |= {"grant": "jwt_bearer", "subjectToken": DATA["valid_jwt"]}
    return given


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        file = Path(folder) / "servers.json"
        os.environ["MUXWAY_CONFIG"] = str(file)
        file.write_text(json.dumps({"mcpServers": {"mock": {"url": url, "prefix": "", "oauth": oauth()}}}))
        async with muxway.Gateway.open(file) as gateway:
            server = gateway.servers()[0]
            say(f"{server.status}: {server.error}")
            for _ in range(ROUNDS):
                command = login_wanted(gateway.servers()[0].error or "")
                if not command:
                    break
                await log_in(command)
                await noticed(gateway)
            if gateway.servers()[0].status != "running":
                raise SystemExit(f"there is nothing to use: {gateway.servers()[0].error}")
            client = RawClient(Answering(gateway.memory_door()), revision=REVISION, capabilities=CAPABILITIES)
            await client.hello()
            await use(client)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
