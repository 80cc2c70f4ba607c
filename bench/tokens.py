"""What access tokens cost: a check, at first and from memory; a call, with them and without: `python -m bench.tokens`.

The issuer is that of the tests, in this process: no network is in the figures but the loopback.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from tests.identity.company import Company, company_of
from tests.identity.issuing import TestIssuer, key_for
from tests.identity.test_tokens import judged

from bench.http_client import Client
from bench.http_targets import HttpRunning, echo_entry, free_port
from muxway.clients.authenticator import Admitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.identity.verify import ResourceServer

TOKENS = 200
TIMES = 100
CALLS = 100
ROUNDS = 200
"""Many short slices: two that follow each other see the same of what else the machine does."""


def seconds(server: ResourceServer, token: bytes, times: int) -> float:
    """For one check, of so many in a row."""
    began = perf_counter()
    for _ in range(times):
        assert isinstance(server.check(token, "/mcp"), Admitted)
    return (perf_counter() - began) / times


async def checks() -> None:
    """Print a row for each kind of signature: the median of many tokens."""
    for algorithm in ("RS256", "ES256"):
        issuer = TestIssuer(algorithm=algorithm, key=key_for(algorithm))
        server = issuer.server(scopes=["mcp:tools"])
        tokens = [issuer.token(jti=number).encode() for number in range(TOKENS)]
        await judged(server, tokens[0].decode())  # Its keys are fetched.
        first = sorted(seconds(server, token, 1) for token in tokens[1:])[TOKENS // 2]
        again = sorted(seconds(server, token, TIMES) for token in tokens[1:])[TOKENS // 2]
        sys.stdout.write(f"{algorithm}: first {first * 1e6:.0f} µs, from memory {again * 1e6:.2f} µs\n")


class Bearer(Client):
    """A client with an access token."""

    token: Callable[[HttpRunning], str]

    def _make_head(self, path: str, *more: bytes) -> bytes:
        shown = f"Authorization: Bearer {type(self).token(self.target)}"
        return super()._make_head(path, shown.encode(), *more)


def calls(issuer: str, bearer: type[Client], folder: Path) -> None:
    """Print the median of a call without tokens and with them, slice by slice in turn, and how much more it is.

    That is the median of what each slice took more than the one beside it. Then the same for the CPU time that the
    gateway takes for a call, which other programs of the machine change less.
    """
    found: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    with ExitStack() as stack:
        clients: dict[str, Client] = {}
        for name, auth, speak in (("without", None, Client), ("with", {"issuer": issuer}, bearer)):
            config, port = folder / f"{name}.json", free_port()
            gateway = {} if auth is None else {"auth": auth}
            config.write_text(json.dumps({"mcpServers": {"echo": echo_entry()}, "gateway": gateway}))
            command = [sys.executable, "-m", "muxway", "serve", "-c", str(config), "--port", str(port)]
            running = HttpRunning(name, command, {}, folder / f"{name}.log", port, speak)
            stack.callback(running.close)
            running.wait()
            clients[name] = stack.enter_context(closing(running.client()))
        for number in range(ROUNDS + 1):
            # Each of them is as often the first, and the one after the other's work.
            for name, client in sorted(clients.items(), reverse=number % 2 == 0):
                tool, began = client.target.echo, client.target.cpu()
                times = [_one(client, tool) for _ in range(CALLS)]
                if number:  # The first round does not count.
                    found.setdefault(name, []).append(median(times))
                    spent.setdefault(name, []).append((client.target.cpu() - began) / CALLS)
    for what, by_name in (("p50 of a call", found), ("CPU of the gateway for a call", spent)):
        without, with_ = (median(by_name[name]) for name in ("without", "with"))
        pairs = zip(by_name["without"], by_name["with"], strict=True)
        more = (median(one / other for other, one in pairs) - 1) * 100
        sys.stdout.write(f"{what}: without tokens {without * 1e6:.0f} µs, with {with_ * 1e6:.0f} µs ({more:+.1f} %)\n")


def _one(client: Client, tool: str) -> float:
    began = perf_counter()
    client.ask("tools/call", {"name": tool, "arguments": {"text": "x"}})
    return perf_counter() - began


async def main() -> None:
    """Both."""
    await checks()
    async with company_of(Company()) as company:
        tokens: dict[int, str] = {}

        class Known(Bearer):
            """With a token for the gateway that it talks to."""

            @staticmethod
            def token(target: HttpRunning) -> str:
                made = company.token("ann", f"http://127.0.0.1:{target.port}/mcp", exp=9_999_999_999)
                return tokens.setdefault(target.port, made)

        with tempfile.TemporaryDirectory() as folder:
            await asyncio.to_thread(calls, company.url, Known, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
