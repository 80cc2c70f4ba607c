"""Counts wrong tokens by the address they come from: a guesser gets ten a minute.

Only different ones count. A client with a mistake in its configuration sends the same again and again, and should go on
hearing what is wrong.
"""

from __future__ import annotations

import ipaddress
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 10
"""Different wrong tokens of one address within a minute that are answered as such."""
_MINUTE: Final = 60.0
_MOST_ADDRESSES: Final = 4096
_OWN_NETWORK: Final = 64
"""How many bits of an IPv6 address name the network: whoever has one address there has all of them."""


class Guesses:
    """The wrong tokens of the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[str, tuple[float, set[bytes]]] = {}
        """Network → when its minute began, and digests of the wrong tokens since."""

    def add(self, address: str, token: bytes) -> float:
        """Note a wrong token. Seconds until another one may be tried; 0: at once."""
        now = self._clock()
        network = network_of(address)
        began, tried = self._of.pop(network, (now, set[bytes]()))
        if now - began >= _MINUTE:
            began, tried = now, set[bytes]()
        if len(self._of) >= _MOST_ADDRESSES:
            # Whoever comes from that many addresses is not stopped by this, and memory is not for him to fill.
            del self._of[next(iter(self._of))]
        self._of[network] = (began, tried)
        digest = sha256(token).digest()[:8]
        if digest in tried:
            return 0.0
        if len(tried) >= _MOST:
            return began + _MINUTE - now
        tried.add(digest)
        return 0.0


def network_of(address: str) -> str:
    """What counts as one address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        # Where one socket listens for both, those of all IPv4 clients are written so: not one of them has the others'.
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _OWN_NETWORK), strict=False))
