"""Whether a server is still the one that a request was made to: what it brings is not remembered if it is not."""

from __future__ import annotations

Epoch = tuple[int, int]


class Epochs:
    """How often what each server gave was forgotten. For middleware that remembers, see `Middleware.forget`."""

    def __init__(self) -> None:
        self._all = self._any = 0
        self._of: dict[str, int] = {}

    def now(self, server: str) -> Epoch:
        """The epoch of a server; of all of them, if it is empty. Compare it with the one before the request."""
        return self._all, self._of.get(server, 0) if server else self._any

    def forget(self, server: str | None) -> None:
        """What this server gave is forgotten; None: what all gave."""
        self._any += 1
        if server is None:
            self._all += 1
            self._of.clear()
        else:
            self._of[server] = self._of.get(server, 0) + 1
