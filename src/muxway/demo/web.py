"""A stateless client over HTTP, for the demo: one POST makes a call, with nothing to open before or close after.

The line for curl is made of the same headers and body, so what the demo has seen work is what it prints.
"""

from __future__ import annotations

import http.client
import json
import shlex
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from muxway.demo.client import Answer
from muxway.demo.serving import STATELESS

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATIENCE = 10.0
_POLL = 0.02
_ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def wait_until_ready(url: str) -> None:
    """Wait until `/readyz` beside this URL says that every server is up.

    Raises:
        TimeoutError: it does not.
        ConnectionError: nobody listens there.
    """
    deadline = time.monotonic() + _PATIENCE
    while _request(url, "GET", "/readyz")[0] != http.client.OK:
        if time.monotonic() > deadline:
            raise TimeoutError("the gateway was not ready in time")
        time.sleep(_POLL)


def call(url: str, tool: str, arguments: Mapping[str, Any]) -> Answer:
    """Call a tool of the gateway at this URL.

    Raises:
        OSError: it does not answer.
    """
    headers, body = _call(tool, arguments)
    began = time.perf_counter()
    _, text = _request(url, "POST", urlsplit(url).path, headers, body)
    return Answer(json.loads(text), (time.perf_counter() - began) * 1000, ())


def curl(url: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """The same call, for a shell."""
    headers, body = _call(tool, arguments)
    words = ["curl", "-s", url, *(word for name, value in headers.items() for word in ("-H", f"{name}: {value}"))]
    return shlex.join([*words, "-d", body])


def _call(tool: str, arguments: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    headers = {
        "Content-Type": "application/json",
        "MCP-Protocol-Version": STATELESS,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": _ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return headers, json.dumps(message, separators=(",", ":"))


def _request(
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: str | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_PATIENCE)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
