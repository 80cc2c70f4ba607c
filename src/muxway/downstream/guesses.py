"""Counts wrong tokens by the address they come from: a guesser gets ten a minute."""

from __future__ import annotations

import ipaddress
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 10
"""Wrong tokens of one address within a minute that are answered as such."""
_MINUTE: Final = 60.0
_MOST_ADDRESSES: Final = 4096
_OWN_NETWORK: Final = 64
"""How many bits of an IPv6 address name the network: whoever has one address there has all of them."""


class Guesses:
    """The wrong tokens of the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[str, tuple[float, int]] = {}
        """Network → when its minute began, and how many there were since."""

    def add(self, address: str) -> float:
        """Note a wrong token. Seconds until the next one may be tried; 0: at once."""
        now = self._clock()
        network = _network(address)
        began, count = self._of.pop(network, (now, 0))
        if now - began >= _MINUTE:
            began, count = now, 0
        if len(self._of) >= _MOST_ADDRESSES:
            # Whoever comes from that many addresses is not stopped by this, and memory is not for him to fill.
            del self._of[next(iter(self._of))]
        self._of[network] = (began, count + 1)
        return began + _MINUTE - now if count >= _MOST else 0.0


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, _OWN_NETWORK), strict=False)) if parsed.version == 6 else address
