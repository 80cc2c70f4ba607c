"""The lock that is in force: what servers may show and be asked for.

A lock that is to be enforced and cannot be read locks everything: nobody could say what was reviewed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.catalog import lock_text
from muxway.catalog.kinds import PROMPTS, TEMPLATES, TOOLS
from muxway.catalog.locking import (
    Drift,
    HeldList,
    LockedServer,
    LockVerdict,
    compare_list,
    compare_server,
    hold,
    records_of,
)
from muxway.catalog.schema_changes import Difference
from muxway.log import EventLog
from muxway.net.threads import in_own_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Native
    from muxway.config.model import Config
    from muxway.servers.negotiation import Negotiated


log = EventLog("gateway")

NOT_LOCKED: Final = Drift("", "server", (Difference("risk", "is not in muxway.lock"),), new=True)


@dataclass(frozen=True, eq=False, slots=True)
class Lock:
    """A lock file that was read, and what is done about differences. Another one as soon as the file is another."""

    servers: Mapping[str, LockedServer]
    enforced: bool
    problem: str = ""
    """Why nothing is known of it: then there is no server in it."""
    digest: bytes = b""
    """Of the file."""

    def compare(self, server: str, kind: Kind, natives: Sequence[Native]) -> HeldList:
        """How what a server lists differs from what was locked, and what of it is shown. Any thread may: it is long."""
        locked = self.servers.get(server)
        if self.enforced:
            return hold(server, kind, natives, locked)
        drifts = () if locked is None else compare_list(kind, locked.of(kind), records_of(kind, natives))
        return HeldList(natives, {}, tuple(drifts))

    def held(self, source: Source, greeting: Negotiated | None, lists: Mapping[Kind, HeldList]) -> Source:
        """What a server shows, with what is known of its differences; where the lock is enforced, without them.

        Args:
            source: what it would show without a lock.
            greeting: what it says of itself.
            lists: its lists, compared.
        """
        locked = self.servers.get(source.upstream)
        about = [NOT_LOCKED]
        if locked is not None:
            info = locked.server_info if greeting is None else greeting.server_info
            # How it is started is looked at by `muxway lock --check`.
            about = compare_server(locked, LockedServer(locked.source, info, source.instructions))
        drifts = (*about, *(drift for one in lists.values() for drift in one.drifts))
        if not self.enforced:
            # Without a lock nothing differs; that was told.
            return source if self.problem else replace(source, lock=LockVerdict(drifts))
        if locked is None:
            # Not even its resources: nobody has looked at whom one would ask for them.
            source = replace(source, resources=(), reads=False, completes=False)
        return replace(
            source,
            tools=lists[TOOLS].natives,
            prompts=lists[PROMPTS].natives,
            templates=lists[TEMPLATES].natives,
            instructions="" if locked is None else locked.instructions,
            lock=LockVerdict(drifts, True, {kind.name: one.refused for kind, one in lists.items() if one.refused}),
        )


class Comparison(NamedTuple):
    """What came of comparing a list with a lock: that takes long, and most lists and locks stay what they are."""

    lock: Lock
    natives: Sequence[Native]
    held: HeldList

    def is_of(self, lock: Lock, natives: Sequence[Native]) -> bool:
        """Whether it is that of these."""
        return self.lock is lock and (self.natives is natives or self.natives == natives)


def lock_path(config: Config) -> Path:
    """Where the lock file of a configuration is."""
    if config.gateway.lock_file is not None:
        return Path(config.gateway.lock_file)
    return (Path(config.source).parent if config.source is not None else Path.cwd()) / "muxway.lock"


def read_lock(config: Config, before: Lock | None = None) -> Lock | None:
    """The lock that a configuration wants; None: none. The one `before`, if the file is as it was then."""
    mode = config.gateway.lock
    if mode == "off":
        return None
    path = lock_path(config)
    try:
        text = path.read_text("utf-8")
        digest = hashlib.sha256(text.encode()).digest()
        if before is not None and before.digest == digest and before.enforced == (mode == "enforce"):
            return before
        return Lock(lock_text.read(text), mode == "enforce", digest=digest)
    except (OSError, ValueError, lock_text.BadLock) as error:
        missing = isinstance(error, FileNotFoundError)
        why = f"there is no {path}: run `muxway lock`" if missing else f"{path} cannot be used: {error}"
        log.error("lock", problem=why, effect="nothing is listed" if mode == "enforce" else "nothing is compared")
        return Lock({}, mode == "enforce", why)


async def read_lock_aside(config: Config, before: Lock | None) -> Lock | None:
    """The same, read beside the event loop: it may have thousands of definitions."""
    return await in_own_thread(lambda: read_lock(config, before)) if config.gateway.lock != "off" else None
