"""Calls that wait to be approved, as whoever approves them sees them: what, by whom, with what. Never a secret."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.likeness import short
from muxway.middleware.engine.facts import client_of
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.exchange.approvals import Approval

_SHOWN_OF_PRINCIPAL: Final = 6
"""Bytes, as in the audit."""
_LONGEST: Final = 2000
"""Characters of one text in the arguments."""
_DEEPEST: Final = 20
_MOST: Final = 100
"""Members of an object, or items of a list."""
_SECRET: Final = re.compile(r"token|secret|passw|pwd|api_?key|private_?key|auth|credential|cookie", re.IGNORECASE)


def described(one: Approval, mask: Callable[[str], str]) -> dict[str, Any]:
    """A call that waits; `mask` hides the secrets that the configuration knows."""
    caller, identity = one.call.caller, one.call.caller.identity
    client, _ = client_of(caller)
    arguments = one.call.params.get("arguments")
    return {
        "id": one.id,
        "name": short(mask(one.name)),
        "server": one.server or None,
        "method": one.method,
        "rule": one.rule,
        "user": None if identity is None else identity.user or None,
        "key": None if identity is None else identity.key or None,
        "client": client,
        "principal": caller.principal[:_SHOWN_OF_PRINCIPAL].hex() or None,
        "arguments": None if arguments is None else _shown(envelopes.holdable(bytes(arguments)), mask),
        "seconds": max(0.0, time.time() - one.since),
    }


def _shown(value: object, mask: Callable[[str], str], deep: int = 0) -> Any:
    if deep > _DEEPEST:
        return "…"
    if isinstance(value, str):
        text = mask(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    if isinstance(value, list):
        items = cast("list[object]", value)
        shown = [_shown(item, mask, deep + 1) for item in items[:_MOST]]
        return shown if len(items) <= _MOST else [*shown, f"… {len(items) - _MOST} more"]
    if isinstance(value, dict):
        members = [*cast("dict[str, object]", value).items()]
        told = {
            mask(name): "***" if _SECRET.search(name) and not isinstance(item, bool) else _shown(item, mask, deep + 1)
            for name, item in members[:_MOST]
        }
        # Nobody agrees to what is not there to see, unless that is said.
        return told if len(members) <= _MOST else {**told, "…": f"{len(members) - _MOST} more"}
    return value
