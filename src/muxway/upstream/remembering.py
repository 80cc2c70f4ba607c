"""What lazy servers have, remembered between two runs, so that they can be listed without being started.

One file for each way to start a server, in the user's cache folder. Nothing there is needed: what is missing, old or
broken only means that the server is started once to learn it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muxway import __version__
from muxway.catalog.build import read_listing
from muxway.catalog.kinds import KINDS
from muxway.catalog.model import Hint
from muxway.errors import ParseError
from muxway.log import EventLog
from muxway.protocol import messages
from muxway.protocol.era import REVISIONS
from muxway.upstream.greeting import Greeting
from muxway.upstream.upstream import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.catalog.kinds import Kind
    from muxway.config.model import ServerConfig

_LARGEST: Final = 64 * 1024 * 1024

log = EventLog("upstream")


class Memory:
    """The cache folder."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        base = environ.get("XDG_CACHE_HOME", "")
        # XDG: a relative path is invalid and to be ignored.
        home = base if base.startswith("/") else f"{environ.get('HOME', '')}/.cache"
        self._folder = Path(home) / "muxway" / "servers"
        self._kept: dict[str, bytes] = {}
        self._told = False

    def recall(self, config: ServerConfig) -> tuple[Greeting, dict[Kind, Offer]] | None:
        """How a server introduced itself and what it had, when it last ran; None if that is not known."""
        path = self._path(config)
        try:
            text = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
            known = messages.value(text)
            offers = {kind: _offer(config.name, kind, text) for kind in KINDS if kind.name in known["offers"]}
            if not isinstance(known["instructions"], str):
                raise TypeError("instructions are text")
            greeting = Greeting(
                REVISIONS[known["revision"]], known["serverInfo"], known["capabilities"], known["instructions"]
            )
        except FileNotFoundError:
            return None
        except (OSError, ParseError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.debug("what was remembered cannot be used", upstream=config.name, error=error)
            return None
        self._kept[config.name] = text
        return greeting, offers

    def keep(self, config: ServerConfig, greeting: Greeting, offers: Mapping[Kind, Offer]) -> None:
        """Remember this for the next run, unless it is known already."""
        text = _written(greeting, offers)
        if self._kept.get(config.name) == text:
            return
        self._kept[config.name] = text
        path = self._path(config)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Whole or not at all, whoever else writes: a name that appears is a file that is complete.
            handle, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(text)
                Path(name).replace(path)
            except OSError:
                with contextlib.suppress(OSError):  # the first trouble is the one to tell of
                    Path(name).unlink()
                raise
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("lazy servers cannot be remembered", folder=self._folder, error=error)

    def _path(self, config: ServerConfig) -> Path:
        """Where it is kept. Values of variables and headers are left out: they may be secrets."""
        way = [__version__, config.name, config.transport, config.command, config.args, config.cwd, config.url]
        way += [sorted(config.env), sorted(config.headers), config.era]
        return self._folder / f"{hashlib.sha256(messages.encode(way)).hexdigest()[:32]}.json"


def _written(greeting: Greeting, offers: Mapping[Kind, Offer]) -> bytes:
    lists: dict[str, bytes] = {}
    for kind, offer in offers.items():
        items = [
            messages.object_of(((kind.identity, messages.encode(native.name)), *native.members.items()))
            for native in offer.natives
        ]
        hint = messages.encode([offer.hint.ttl_ms, offer.hint.public])
        lists[kind.name] = b'{"hint":' + hint + b',"items":[' + b",".join(items) + b"]}"
    said: dict[str, Any] = {
        "revision": greeting.revision.date,
        "serverInfo": greeting.server_info,
        "capabilities": greeting.capabilities,
        "instructions": greeting.instructions,
    }
    members = [(name, messages.encode(value)) for name, value in said.items()]
    return messages.object_of((*members, ("offers", messages.object_of(lists.items()))))


def _offer(upstream: str, kind: Kind, text: bytes) -> Offer:
    lists = messages.members((messages.members(text) or {})["offers"]) or {}
    listed = messages.members(lists[kind.name]) or {}
    ttl_ms, public = messages.value(listed["hint"])
    if type(ttl_ms) is not int or type(public) is not bool:
        raise TypeError("a hint is a number and whether it is public")
    natives, _ = read_listing(kind, upstream, messages.items(listed["items"]) or ())
    return Offer(natives, (), Hint(ttl_ms, public))
