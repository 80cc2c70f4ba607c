"""The gateway for scripts that do not await: the same calls, each waiting for its outcome."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from muxway.gateway import Gateway

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from muxway.config import Config
    from muxway.config.plan import Plan
    from muxway.middleware.engine.base import Middleware
    from muxway.opening import OpeningGateway
    from muxway.results import (
        Prompt,
        PromptResult,
        Resource,
        ResourceResult,
        ResourceTemplate,
        Server,
        Tool,
        ToolResult,
    )

T = TypeVar("T")


class SyncGateway:
    """A `Gateway` on an event loop of its own, in a thread of its own.

        with SyncGateway("servers.json") as gateway:
            print(gateway.call("time.get_current_time", {"timezone": "Europe/Paris"}).text)

    Where no `with` fits, as in a notebook: `gateway = SyncGateway.open("servers.json")`, and later `gateway.close()`.
    Raises what `Gateway.open` raises when it is opened. May be used from several threads.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._config = config
        self._middleware = middleware
        self._running: _Running | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        middleware: Sequence[Middleware] = (),
    ) -> Self:
        """Start a gateway; `close` it when it is no longer needed. Raises ConfigError."""
        return cls(config, middleware=middleware).__enter__()

    def close(self) -> None:
        """End every server and wait until they are gone. A second time does nothing."""
        running, self._running, self._closed = self._running, None, True
        if running is not None:
            running.end()

    def __enter__(self) -> Self:
        if self._closed:
            raise RuntimeError("this SyncGateway is closed; make another one")
        if self._running is None:
            self._running = _Running(Gateway.open(self._config, middleware=self._middleware))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tools(self, view: str | None = None) -> list[Tool]:
        """The tools as clients get them listed, through the middleware; see `Gateway.list_tools` for the errors."""
        return self._wait(self._gateway.list_tools(view))

    def servers(self) -> list[Server]:
        """Every server and how it is."""
        return self._wait(self._later(self._gateway.servers))

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[float, float | None, str | None], None] | None = None,
        view: str | None = None,
    ) -> ToolResult:
        """Call a tool; see `Gateway.call` for the errors. Ctrl-C cancels the call at its server.

        `on_progress` is called in the gateway's thread, so it must not use the gateway.
        """
        return self._wait(self._gateway.call(name, arguments, on_progress=on_progress, view=view))

    def resources(self) -> list[Resource]:
        """Every listed resource, in the order of the listing."""
        return self._wait(self._later(self._gateway.resources))

    def resource_templates(self) -> list[ResourceTemplate]:
        """Every resource template, in the order of the listing."""
        return self._wait(self._later(self._gateway.resource_templates))

    def prompts(self) -> list[Prompt]:
        """Every prompt, in the order of the listing."""
        return self._wait(self._later(self._gateway.prompts))

    def read(self, uri: str) -> ResourceResult:
        """Read a resource; see `Gateway.read` for the errors."""
        return self._wait(self._gateway.read(uri))

    def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> PromptResult:
        """Fill in a prompt; see `Gateway.prompt` for the errors."""
        return self._wait(self._gateway.prompt(name, arguments))

    def add(self, name: str, entry: Mapping[str, Any] | None = None, *, server: object = None, **keys: Any) -> Server:
        """Add a server and wait until it is ready or has failed; see `Gateway.add`."""
        return self._wait(self._gateway.add(name, entry, server=server, **keys))

    def remove(self, name: str) -> None:
        """End a server and forget it."""
        self._wait(self._gateway.remove(name))

    def restart(self, name: str) -> Server:
        """End a server and start it anew; see `Gateway.restart`."""
        return self._wait(self._gateway.restart(name))

    def apply(self, config: Config) -> Plan:
        """Make this configuration the one in force; see `Gateway.apply`."""
        return self._wait(self._gateway.apply(config))

    @property
    def _gateway(self) -> Gateway:
        return self._now().gateway

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._now().wait(coroutine)

    async def _later(self, function: Callable[[], T]) -> T:
        return function()

    def _now(self) -> _Running:
        if self._running is not None:
            return self._running
        if self._closed:
            raise RuntimeError("this SyncGateway is closed; make another one")
        raise RuntimeError(
            "this SyncGateway is not open: write `with SyncGateway(...) as gateway`, or "
            "`gateway = SyncGateway.open(...)` and later `gateway.close()`"
        )


class _Running:
    """An open gateway, with its loop and its thread."""

    def __init__(self, opening: OpeningGateway[Gateway]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="muxway", daemon=True)
        self._thread.start()
        try:
            self.gateway = self.wait(_opened(opening))
        except BaseException:
            self._end_loop()
            raise

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The outcome. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """End the gateway, then what it runs on."""
        try:
            self.wait(self.gateway.close())
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _opened(opening: OpeningGateway[Gateway]) -> Gateway:
    return await opening
