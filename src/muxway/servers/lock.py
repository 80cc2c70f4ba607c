"""The lock that is in force: what servers may show and be asked for.

A lock that is to be enforced and cannot be read locks everything: nobody could say what was reviewed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muxway.catalog import lock_text
from muxway.catalog.kinds import PROMPTS, TEMPLATES, TOOLS
from muxway.catalog.locking import LOCKED_KINDS, Drift, LockedServer, compare, hold, records_of
from muxway.catalog.schema_changes import Difference
from muxway.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.catalog.build import Source
    from muxway.config.model import Config
    from muxway.servers.negotiation import Negotiated


log = EventLog("gateway")

NOT_LOCKED: Final = Drift("", "server", (Difference("risk", "is not in muxway.lock"),), new=True)


@dataclass(frozen=True, eq=False, slots=True)
class Lock:
    """A lock file that was read, and what is done about differences. Another one as soon as the file is read again."""

    servers: Mapping[str, LockedServer]
    enforced: bool
    problem: str = ""
    """Why nothing is known of it: then there is no server in it."""

    def held(self, source: Source, greeting: Negotiated | None) -> Source:
        """What a server shows, with what is known of its differences; where the lock is enforced, without them."""
        locked = self.servers.get(source.upstream)
        natives = {TOOLS: source.tools, PROMPTS: source.prompts, TEMPLATES: source.templates}
        if not self.enforced:
            if self.problem:
                return source  # Without a lock nothing differs; that was told.
            found = [NOT_LOCKED] if locked is None else self._drifts(locked, source, greeting)
            return replace(source, drifts=tuple(found))
        held = {kind: hold(source.upstream, kind, natives[kind], locked) for kind in LOCKED_KINDS}
        about = [NOT_LOCKED] if locked is None else self._drifts(locked, source, greeting, of_things=False)
        if locked is None:
            # Not even its resources: nobody has looked at whom one would ask for them.
            source = replace(source, resources=(), reads=False, completes=False)
        return replace(
            source,
            tools=held[TOOLS].natives,
            prompts=held[PROMPTS].natives,
            templates=held[TEMPLATES].natives,
            instructions="" if locked is None else locked.instructions,
            locked=True,
            refused={kind.name: one.refused for kind, one in held.items() if one.refused},
            drifts=(*about, *(drift for one in held.values() for drift in one.drifts)),
        )

    def _drifts(
        self, locked: LockedServer, source: Source, greeting: Negotiated | None, *, of_things: bool = True
    ) -> list[Drift]:
        natives = {TOOLS: source.tools, PROMPTS: source.prompts, TEMPLATES: source.templates}
        now = LockedServer(
            # How it is started is looked at by `muxway lock --check`.
            locked.source,
            locked.server_info if greeting is None else greeting.server_info,
            source.instructions,
            {kind.name: records_of(kind, natives[kind]) for kind in LOCKED_KINDS} if of_things else locked.records,
        )
        return compare(locked, now)


def lock_path(config: Config) -> Path:
    """Where the lock file of a configuration is."""
    if config.gateway.lock_file is not None:
        return Path(config.gateway.lock_file)
    return (Path(config.source).parent if config.source is not None else Path.cwd()) / "muxway.lock"


def read_lock(config: Config) -> Lock | None:
    """The lock that a configuration wants; None: none."""
    mode = config.gateway.lock
    if mode == "off":
        return None
    path = lock_path(config)
    try:
        return Lock(lock_text.read(path.read_text("utf-8")), mode == "enforce")
    except (OSError, ValueError, lock_text.BadLock) as error:
        missing = isinstance(error, FileNotFoundError)
        why = f"there is no {path}: run `muxway lock`" if missing else f"{path} cannot be used: {error}"
        log.error("lock", problem=why, effect="nothing is listed" if mode == "enforce" else "nothing is compared")
        return Lock({}, mode == "enforce", why)
