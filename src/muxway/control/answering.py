"""What a gateway tells over its control socket. A request is `{"ask": …}`; `Answering.answer` lists what may be asked.

Every part of an answer is an object: `{"lines": […]}` as often as there are some, and last `{"result": …}`.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from muxway import __version__
from muxway.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine

    from muxway.config.plan import Plan
    from muxway.control.watching import Reloader
    from muxway.gateway import Gateway
    from muxway.net.processes.journal import Lines
    from muxway.results import Server

T = TypeVar("T")

_LOOK_EVERY: Final = 0.3
"""Seconds between two looks at what a server has written."""
_MOST_CHANGES: Final = 20
"""What was done to tools for a client, of which `status` tells."""
_CHANGE_WAIT: Final = 300.0
"""Seconds after which whoever asked for a change is told that it takes longer. It goes on."""


class ControlRefused(Exception):
    """The answer is no; the message says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Answering:
    """Answers for one gateway."""

    def __init__(
        self,
        gateway: Callable[[], Gateway | None],
        door: str,
        reloader: Reloader | None,
        client: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._gateway = gateway
        self._client = client
        self._reloader = reloader
        now = gateway()
        # Whoever asks stands in another folder.
        self._config = None if now is None or now.config.source is None else str(Path(now.config.source).resolve())
        self._door = door
        self._began = time.monotonic()
        self._changes: set[asyncio.Task[Any]] = set()

    async def answer(self, request: dict[str, Any], gone: Callable[[], bool]) -> AsyncIterator[dict[str, Any]]:
        """Answer a request, part by part, until whoever asked is gone. Raises Refused."""
        match request:
            case {"ask": "who"}:
                yield {"result": self._who()}
            case {"ask": "status"}:
                yield {"result": self._status()}
            case {"ask": "logs", "server": str(name), "last": int() | None as last, "follow": bool(follow)}:
                async for lines in self._log_lines(name, last, gone, follow=follow):
                    yield {"lines": lines}
                yield {"result": {}}
            case {"ask": "restart", "server": str(name)}:
                yield {"result": await self._restart(name)}
            case {"ask": "reload"}:
                yield {"result": await self._read_config(self._reloaded)}
            case {"ask": "lock"}:
                await self._finish(self._running().relock(), "the lock is still being put into force")
                yield {"result": {}}
            case {"ask": "plan"}:
                yield {"result": await self._read_config(self._planned)}
            case {"ask": "explain", "tool": str(tool), "view": str() | None as view}:
                yield {"result": await self._explain(tool, view, request.get("who"))}
            case {"ask": "approvals"}:
                yield {"result": {"waiting": self._waiting()}}
            case {"ask": "approve", "id": str(id_), "allow": bool(allow), "remember": int() | float() as remember}:
                yield {"result": self._approve(id_, allow=allow, remember=float(remember))}
            case _:
                raise ControlRefused("bad_request", f"this is muxway {__version__}, which does not know what is asked")

    def _running(self) -> Gateway:
        gateway = self._gateway()
        if gateway is None:
            raise ControlRefused("resting", "the servers are stopped until the next client comes")
        return gateway

    # --- how it is ----------------------------------------------------------------------------

    def _who(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "config": self._config,
            "door": self._door,
            "client": self._client(),
            "uptime": time.monotonic() - self._began,
        }

    def _status(self) -> dict[str, Any]:
        gateway = self._gateway()
        servers = () if gateway is None else gateway.servers()
        beat = None if gateway is None else gateway.metronome
        return {
            **self._who(),
            "resting": gateway is None,
            "longestTurn": None if beat is None else beat.longest,
            "longestTurnAgo": None if beat is None else beat.ago,
            "longTurns": None if beat is None else beat.long_turns,
            "servers": [*map(_described, servers)],
            "clients": [] if gateway is None else _clients(gateway),
        }

    def _server(self, name: str) -> Server:
        for server in self._running().servers():
            if server.name == name:
                return server
        raise self._no_server(name)

    def _no_server(self, name: str) -> ControlRefused:
        return ControlRefused(
            "unknown_server", _unknown("server", name, [one.name for one in self._running().servers()])
        )

    async def _log_lines(
        self, name: str, last: int | None, gone: Callable[[], bool], *, follow: bool
    ) -> AsyncIterator[list[str]]:
        lines = self._journal(name)
        yield lines[:] if last is None else lines[max(len(lines) - last, 0) :]
        seen = lines.first + len(lines)
        while follow and not gone():
            await asyncio.sleep(_LOOK_EVERY)
            lines = self._journal(name)
            # One that ends before what was seen is new: the server was away for a while.
            new = lines[max(seen - lines.first, 0) :] if lines.first + len(lines) >= seen else lines[:]
            seen = lines.first + len(lines)
            if new:
                yield new

    def _journal(self, name: str) -> Lines:
        try:
            return self._running().journal(name)
        except KeyError:
            raise self._no_server(name) from None

    async def _explain(self, tool: str, view: str | None, who: object) -> dict[str, Any]:
        gateway = self._running()
        views = gateway.config.views
        if view is not None and view not in views:
            raise ControlRefused("unknown_view", _unknown("view", view, views))
        # Only for those who ask.
        from muxway.control.explaining import explain, identity_of

        return await explain(gateway, tool, view, identity_of(who))

    # --- calls that wait to be approved -----------------------------------------------------------

    def _waiting(self) -> list[dict[str, Any]]:
        # Only for those who ask.
        from muxway.control.approving import described

        gateway = self._running()
        return [described(one, gateway.masked) for one in gateway.runtime.approvals.waiting()]

    def _approve(self, id_: str, *, allow: bool, remember: float) -> dict[str, Any]:
        from muxway.control.approving import described

        gateway = self._running()
        try:
            one = gateway.runtime.approvals.answer(id_, allow=allow, remember=remember)
        except KeyError:
            ids = [one.id for one in gateway.runtime.approvals.waiting()]
            raise ControlRefused("unknown_approval", _unknown("waiting call", id_, ids)) from None
        return described(one, gateway.masked)

    # --- changing it --------------------------------------------------------------------------

    async def _restart(self, name: str) -> dict[str, Any]:
        self._server(name)
        await self._finish(self._running().restart(name), f'"{name}" is still being started')
        return _described(self._server(name))

    async def _read_config(self, read: Callable[[Reloader], Coroutine[Any, Any, Plan]]) -> dict[str, Any]:
        if self._reloader is None:
            raise ControlRefused("no_config", "this gateway has no config to read again")
        try:
            plan = await self._finish(read(self._reloader), "the new config is still being put into force")
        except ConfigError as error:
            return {"text": str(error), "problems": [str(problem) for problem in error.details] or [str(error)]}
        return {"text": "\n".join(plan.lines()), "problems": [], "plan": plan.document()}

    async def _reloaded(self, reloader: Reloader) -> Plan:
        changes = await reloader.reload()
        gateway = self._gateway()
        if gateway is not None:
            # Whoever asks wants to use it.
            await gateway.settled()
        return changes

    async def _planned(self, reloader: Reloader) -> Plan:
        return self._running().planned(await reloader.peek())

    async def _finish(self, change: Coroutine[Any, Any, T], unfinished: str) -> T:
        # Whoever asked may hang up, or be cut off; a change that was begun is finished.
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait([task], timeout=_CHANGE_WAIT)
        if not done:
            raise ControlRefused("unfinished", f"{unfinished}; see `muxway status`")
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            # Whoever asked for it may be gone; then nobody else looks.
            task.exception()


def _unknown(what: str, name: str, there: Collection[str]) -> str:
    # Only for an error; not worth its import at every start.
    from difflib import get_close_matches

    near = get_close_matches(name, there, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(there) or 'none'}"
    return f'there is no {what} "{name}"; {hint}'


def _clients(gateway: Gateway) -> list[dict[str, Any]]:
    """What was done for clients that cannot take everything."""
    return [
        {
            "client": profile.name,
            "title": profile.title,
            "view": view,
            "tools": len({change.tool for change in adapted.changes}),
            "changes": [str(change) for change in adapted.changes[:_MOST_CHANGES]],
            "warnings": list(adapted.warnings),
        }
        for view, profile, adapted in gateway.adapted()
    ]


def _described(server: Server) -> dict[str, Any]:
    return {
        "name": server.name,
        "status": str(server.status),
        "error": server.error,
        "retryIn": server.retry_in,
        "revision": server.revision,
        "pid": server.pid,
        "pids": list(server.pids),
        "uptime": server.uptime,
        "startSeconds": server.seconds,
        "restarts": server.restarts,
        "inFlight": server.in_flight,
        "queued": server.queued,
        "calls": server.calls,
        "errors": server.errors,
        "p50": server.p50,
        "p99": server.p99,
        "tools": len(server.tools),
        "prompts": server.prompts,
        "resources": server.resources,
        "resourceTemplates": server.resource_templates,
        "notes": list(server.notes),
    }
