"""By which certificates servers are known: `muxway check --connect` shows them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from muxway.config import Config

_CHAIN_WAIT: Final = 5.0

Chains = dict[str, list[str]]
"""Server name → the certificates by which it is known, its own first."""


async def chains_of(config: Config, names: Collection[str]) -> Chains:
    """The certificates of those of these servers that are reached by HTTPS, without a proxy between."""
    https = [
        one
        for one in config.servers.values()
        if (one.url or "").lower().startswith("https:") and one.name in names and not one.proxy and one.tls.verify
    ]
    if not https:
        return {}
    from yarl import URL

    from muxway.net.http_dialing import proxy_for
    from muxway.net.tls import TlsFileError, peer_chain
    from muxway.servers.transports.http_requests import tls_context

    chains: Chains = {}
    for one in https:
        url = URL(one.url or "")
        if one.proxy is None and proxy_for(url.origin()) is not None:
            continue
        # Whatever is wrong has been said: the server could not be reached.
        with contextlib.suppress(OSError, TlsFileError):
            async with asyncio.timeout(_CHAIN_WAIT):
                chains[one.name] = await peer_chain(url.host or "", url.port or 443, tls_context(one.tls))
    return chains
