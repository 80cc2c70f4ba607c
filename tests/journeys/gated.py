"""Scripted servers of a configuration, so that a test sees the gateway start, and says when each of them is there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muxway.config import parse_config
from muxway.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from muxway.config.model import Config


@dataclass
class GatedServer(ScriptedServer):
    """Hears nothing before the gate is opened."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, receive: Callable[[], Awaitable[bytes | None]], send: Callable[[bytes], None]) -> None:
        await self.gate.wait()
        await super().serve(receive, send)


def config_of(servers: Mapping[str, object], entries: Mapping[str, dict[str, Any]] | None = None, **top: Any) -> Config:
    """A configuration whose servers are objects of this process, with more keys for some of them."""
    keys = entries or {}
    named = {name: {"command": "(in process)", **keys.get(name, {})} for name in servers}
    return replace(parse_config({"mcpServers": named, **top}), objects=dict(servers))
