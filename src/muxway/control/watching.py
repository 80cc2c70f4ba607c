"""Reading the configuration again: when a file of it changes, or when somebody asks.

The files are looked at every second, which works everywhere: with editors that write in place and those that put a
new file in the place of the old, with symbolic links that are turned elsewhere as in Kubernetes, on network drives.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from muxway.errors import ConfigError
from muxway.log import EventLog, printable
from muxway.net.secret_store import secret_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from muxway.config import Config
    from muxway.config.plan import Plan

T = TypeVar("T")

_LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the files."""
_SETTLE: Final = 0.2
"""Seconds in which the files must stay as they are before they are read: many programs write in several steps."""
_MOST_LOOKS: Final = 10
"""Looks after which files that never settle are read all the same."""

Look = dict[str, tuple[int, ...] | None]
"""How each file looks from outside; None for one that is not there."""

log = EventLog("config")


class WatchedConfig:
    """A configuration that can be read again. `read` and `look` may take their time: files may be far away."""

    def __init__(self, file: Path, read: Callable[[], Config]) -> None:
        """Prepare to read `file` by means of `read`, which raises ConfigError."""
        self._files = [str(file)]
        self._read = read
        self.seen: Look = {}
        """How the files looked when they were last read."""

    def read(self) -> Config:
        """What the configuration says now.

        Raises:
            ConfigError: it cannot be used.
        """
        # Before it is read: what changes meanwhile is then seen as a change.
        self.seen = self.look()
        try:
            config = self._read()
        except ConfigError as error:
            folder = str(secret_folder())
            if folder not in self._files and any(problem.code == "missing_secret" for problem in error.details):
                # It is read again once the secret is set.
                self._files.append(folder)
                self.seen = {**self.look(), **self.seen}
            raise
        named = [server.env_file for server in config.servers.values() if server.env_file is not None]
        self._files = [self._files[0], *dict.fromkeys((*named, *config.files))]
        self.seen = {**self.look(), **{file: look for file, look in self.seen.items() if file in self._files}}
        return config

    def peek(self) -> Config:
        """The same for somebody who will not make use of it. Raises ConfigError."""
        return self._read()

    def look(self) -> Look:
        """How the files look now."""
        return {file: _look(file) for file in self._files}


def _look(file: str) -> tuple[int, ...] | None:
    try:
        about = Path(file).stat()
    except (OSError, ValueError):
        return None
    # The last of them changes when somebody is allowed to read what they were not.
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class Reloader:
    """Makes what the configuration says by now what runs. One reload at a time, and the last one wins."""

    def __init__(self, source: WatchedConfig, config: Config, apply: Callable[[Config], Awaitable[Plan]]) -> None:
        """Prepare to reload.

        Args:
            source: where the configuration comes from.
            config: what it said when it was read for the first time.
            apply: makes a configuration what runs; raises ConfigError if it cannot, and then changes nothing.
        """
        self._source, self._apply = source, apply
        self._config = config
        self._lock = asyncio.Lock()
        self._waiting: asyncio.Task[Plan] | None = None
        """The reload that has not begun, if there is one."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def reload(self) -> Plan:
        """Read the configuration and make it what runs. Returns what that changed, which is also logged.

        Raises:
            ConfigError: it cannot be used; nothing has changed, and every problem has been logged.
        """
        if self._waiting is None:
            self._waiting = self._begin(self._reload())
        # It is shared with whoever else asks before it begins, and goes on if one of them loses interest.
        return await asyncio.shield(self._waiting)

    async def peek(self) -> Config:
        """The configuration that `reload` would put into force now. Raises ConfigError."""
        return await asyncio.to_thread(self._source.peek)

    def ask(self) -> None:
        """Reload in the background. How it went is logged."""
        self._begin(self._reload_quietly())

    def watch(self, every: float = _LOOK_EVERY) -> None:
        """From now on, reload whenever a file of the configuration has changed."""
        self._begin(self._watch(every))

    async def stop(self) -> None:
        """Reload no more. What has begun is broken off."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reload(self) -> Plan:
        async with self._lock:
            self._waiting = None
            try:
                config = await asyncio.to_thread(self._source.read)
                changes = await self._apply(config)
            except ConfigError as error:
                problems = error.details or (error,)
                for problem in problems:
                    # Not as a field, whose quotes would be changed: what it suggests is there to be copied.
                    log.error(f"config problem: {printable(str(problem))}")
                log.error("config not reloaded, what ran before goes on", problems=len(problems))
                raise
            except Exception as error:
                log.error("reload failed", why=f"{type(error).__name__}: {error}")
                raise
            for warning in config.warnings:
                if warning not in self._config.warnings:
                    log.warning("config", problem=warning)
            self._config = config
            log.info("config reloaded", changes=changes)
            return changes

    async def _reload_quietly(self) -> None:
        # Whatever it was has been logged, and the next change is to be heard all the same.
        with contextlib.suppress(Exception):
            await self.reload()

    async def _watch(self, every: float) -> None:
        source = self._source
        while True:
            await asyncio.sleep(every)
            now = await asyncio.to_thread(source.look)
            if now == source.seen:
                continue
            for _ in range(_MOST_LOOKS):
                await asyncio.sleep(min(every, _SETTLE))
                before, now = now, await asyncio.to_thread(source.look)
                if now == before:
                    break
            # Somebody else may have asked for it meanwhile.
            if now != source.seen:
                await self._reload_quietly()

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # If it failed, that has been logged, and whoever waited for it may have gone.
            task.exception()
