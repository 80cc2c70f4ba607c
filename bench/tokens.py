"""What it costs to check an access token, at first and from memory: `python -m bench.tokens`.

The issuer is that of the tests, in this process: no network is in the figures.
"""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter
from typing import TYPE_CHECKING

from tests.identity.issuing import TestIssuer, key_for
from tests.identity.test_tokens import judged

from muxway.clients.authenticator import Admitted

if TYPE_CHECKING:
    from muxway.identity.verify import ResourceServer

TOKENS = 200
TIMES = 100


def seconds(server: ResourceServer, token: bytes, times: int) -> float:
    """For one check, of so many in a row."""
    began = perf_counter()
    for _ in range(times):
        assert isinstance(server.check(token, "/mcp"), Admitted)
    return (perf_counter() - began) / times


async def main() -> None:
    """Print a row for each kind of signature: the median of many tokens."""
    for algorithm in ("RS256", "ES256"):
        issuer = TestIssuer(algorithm=algorithm, key=key_for(algorithm))
        server = issuer.server(scopes=["mcp:tools"])
        tokens = [issuer.token(jti=number).encode() for number in range(TOKENS)]
        await judged(server, tokens[0].decode())  # Its keys are fetched.
        first = sorted(seconds(server, token, 1) for token in tokens[1:])[TOKENS // 2]
        again = sorted(seconds(server, token, TIMES) for token in tokens[1:])[TOKENS // 2]
        sys.stdout.write(f"{algorithm}: first {first * 1e6:.0f} µs, from memory {again * 1e6:.2f} µs\n")


if __name__ == "__main__":
    asyncio.run(main())
