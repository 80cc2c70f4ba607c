"""What each server had when it last ran: listed until it is started again, or without a start if it is lazy.

One file for each way to start a server, in the user's cache folder. Nothing there is needed: what is missing, old or
broken only means that the server is waited for once more. Whatever starts a server is in the name of its file, values
of variables and headers too, but only hashed under a key that never leaves the folder: they may be secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from muxway import __version__
from muxway.catalog.build import read_listing
from muxway.catalog.kinds import KINDS
from muxway.catalog.model import Hint
from muxway.config.model import ADJUSTABLE
from muxway.errors import ParseError
from muxway.log import EventLog
from muxway.net import private_files
from muxway.net.threads import in_own_thread
from muxway.servers.lists import Offer
from muxway.servers.negotiation import Negotiated
from muxway.wire import envelopes
from muxway.wire.revisions import REVISIONS

if TYPE_CHECKING:
    from muxway.catalog.kinds import Kind
    from muxway.config.model import ServerConfig

_LARGEST: Final = 64 * 1024 * 1024
_MOST: Final = 256
"""Ways to start a server that are remembered; those that were not used for the longest time go first."""
_KEY_SIZE: Final = 32

log = EventLog("upstream")


class ListMemory:
    """The cache folder."""

    def __init__(self) -> None:
        base = os.environ.get("XDG_CACHE_HOME", "")
        # XDG: a relative path is invalid and to be ignored.
        home = base if base.startswith("/") else f"{os.environ.get('HOME', '')}/.cache"
        self._folder = Path(home) / "muxway" / "servers"
        self._key: bytes | None = None
        self._kept: dict[Path, tuple[object, ...]] = {}
        """What is in the files, as far as that is known."""
        self._told = False
        self._due: dict[Path, tuple[Negotiated, Mapping[Kind, Offer]]] = {}
        """What is to be written down."""
        self._writing: asyncio.Future[None] | None = None

    def recall(self, config: ServerConfig) -> tuple[Negotiated, dict[Kind, Offer]] | None:
        """How a server introduced itself and what it had, when it last ran; None if that is not known."""
        try:
            path = self._path(config, self._read_key())
            text = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
            known = envelopes.members(text) or {}
            lists = envelopes.members(known["offers"]) or {}
            offers = {kind: _offer(config.name, kind, lists[kind.name]) for kind in KINDS if kind.name in lists}
            greeting = _greeting(known)
            # The folder's oldest files go first: this one is in use.
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, ParseError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.debug("what was remembered cannot be used", upstream=config.name, error=error)
            return None
        self._kept[path] = _content(greeting, offers)
        return greeting, offers

    def keep(self, config: ServerConfig, greeting: Negotiated, offers: Mapping[Kind, Offer]) -> None:
        """Remember this for the next run, unless it is known already."""
        content = _content(greeting, offers)
        try:
            path = self._path(config, self._key or self._make_key())
        except OSError as error:
            self._cannot(error)
            return
        if self._kept.get(path) != content:
            self._kept[path] = content
            self._due[path] = greeting, dict(offers)
            self._write_on()

    async def written(self) -> None:
        """Wait until all that was kept is in its files."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def _write_on(self) -> None:
        """Write down what is due beside the event loop: a disk may be slow, and all servers may be ready at once."""
        if self._due and self._writing is None:
            self._writing = in_own_thread(self._write_down)
            self._writing.add_done_callback(self._wrote)

    def _wrote(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        writing.result()
        # It may have come when nobody looked any more.
        self._write_on()

    def _write_down(self) -> None:
        new = False
        try:
            while self._due:
                path, (greeting, offers) = self._due.popitem()
                new |= not path.exists()
                _write(path, _written(greeting, offers))
            if new:
                self._clear_out()
        except OSError as error:
            self._cannot(error)

    def _cannot(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            log.info("servers cannot be remembered", folder=self._folder, error=error)

    def _read_key(self) -> bytes:
        """The key of this folder. Raises OSError if it cannot be had."""
        if self._key is None:
            key = self._folder.with_suffix(".key").read_bytes()
            if len(key) != _KEY_SIZE:
                raise FileNotFoundError(f"the key of {self._folder} is not whole")
            self._key = key
        return self._key

    def _make_key(self) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return self._read_key()
        # Whoever is quicker decides: others find nothing under their own key, and read this one the next time.
        _write(self._folder.with_suffix(".key"), os.urandom(_KEY_SIZE))
        return self._read_key()

    def _path(self, config: ServerConfig, key: bytes) -> Path:
        """Where it is kept: all that a change of would mean another process or connection decides."""
        way = {
            item.name: _plain(getattr(config, item.name))
            for item in fields(config)
            if item.compare and item.name not in ADJUSTABLE
        }
        digest = hashlib.blake2b(envelopes.encode([__version__, way]), digest_size=16, key=key)
        return self._folder / f"{digest.hexdigest()}.json"

    def _clear_out(self) -> None:
        files: list[tuple[float, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                # Another muxway may be doing the same.
                with contextlib.suppress(FileNotFoundError):
                    files.append((entry.stat().st_mtime, entry.path))
        for _, path in sorted(files)[:-_MOST]:
            Path(path).unlink(missing_ok=True)


def _plain(value: object) -> object:
    """A setting's value, the same for settings that mean the same."""
    return sorted(cast("Mapping[str, object]", value).items()) if isinstance(value, Mapping) else value


def _content(greeting: Negotiated, offers: Mapping[Kind, Offer]) -> tuple[object, ...]:
    return greeting, {kind: (offer.natives, offer.hint) for kind, offer in offers.items()}


def _write(path: Path, text: bytes) -> None:
    """Write a file, whole or not at all, whoever else writes: a name that appears is a file that is complete."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    private_files.put(path, text, durable=False)


def _written(greeting: Negotiated, offers: Mapping[Kind, Offer]) -> bytes:
    lists: dict[str, bytes] = {}
    for kind, offer in offers.items():
        items = [
            envelopes.object_of(((kind.identity, envelopes.encode(native.name)), *native.members.items()))
            for native in offer.natives
        ]
        hint = envelopes.encode([offer.hint.ttl_ms, offer.hint.public])
        lists[kind.name] = b'{"hint":' + hint + b',"items":[' + b",".join(items) + b"]}"
    said: dict[str, Any] = {
        "revision": greeting.revision.date,
        "serverInfo": greeting.server_info,
        "capabilities": greeting.capabilities,
        "instructions": greeting.instructions,
    }
    members = [(name, envelopes.encode(value)) for name, value in said.items()]
    return envelopes.object_of((*members, ("offers", envelopes.object_of(lists.items()))))


def _greeting(known: envelopes.Params) -> Negotiated:
    info, capabilities = envelopes.value(known["serverInfo"]), envelopes.value(known["capabilities"])
    instructions = envelopes.text(known["instructions"])
    if instructions is None or not isinstance(info, dict) or not isinstance(capabilities, dict | None):
        raise TypeError("instructions are text, the rest are objects")
    said = cast("dict[str, Any]", info), cast("dict[str, Any] | None", capabilities)
    return Negotiated(REVISIONS[envelopes.value(known["revision"])], *said, instructions)


def _offer(upstream: str, kind: Kind, text: envelopes.Buffer) -> Offer:
    listed = envelopes.members(text) or {}
    ttl_ms, public = envelopes.value(listed["hint"])
    if type(ttl_ms) is not int or type(public) is not bool:
        raise TypeError("a hint is a number and whether it is public")
    natives, _ = read_listing(kind, upstream, envelopes.items(listed["items"]) or ())
    return Offer(natives, (), Hint(ttl_ms, public))
