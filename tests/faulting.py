"""A fault inside muxway: a function that raises while it is armed, and works as ever before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class Fault:
    """Something that goes wrong in one place, once for each time it is armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.armed = False
        self.hits = 0
        works = getattr(owner, name)

        def breaks(*args: Any, **keys: Any) -> Any:
            if self.armed:
                self.armed = False
                self.hits += 1
                raise RuntimeError(f"a fault in {name}")
            return works(*args, **keys)

        monkeypatch.setattr(owner, name, breaks)
