"""What a registry said of all its servers, kept for searching: asked for at most once an hour, kept if that fails.

One file for each registry, with the newest version of every server: a line about the whole, a line of small letters for
each server to search in, then a line of JSON for each. So a search looks through one text, and takes apart and decodes
only what it shows. What changed is asked for from the second time on.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from muxway.net import private_files
from muxway.setup.registry.records import RegistryError, version_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from muxway.setup.registry.asking import Registry
    from muxway.setup.registry.records import RegistryRecord

POLL_EVERY: Final = 3600.0
"""Seconds, as the registry asks of its clients."""
_PATIENCE: Final = 300.0
"""Seconds for all pages together."""
_LARGEST: Final = 256 << 20
_MOST_TERMS: Final = 16
_LONGEST_QUERY: Final = 400
_LONGEST_TEXT: Final = 300
_MOST_JUDGED: Final = 300
_DENSE: Final = 4000
"""How often a word stands in the texts where it is cheaper to look at each of them by itself."""
_WORD: Final = re.compile(r"\w+")
_PARTS: Final = re.compile(rb"[^a-z0-9]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class KnownServer(msgspec.Struct, frozen=True, array_like=True):
    """As much of a record as a search shows."""

    name: str
    version: str
    title: str
    description: str
    status: str
    updated: str


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a registry."""

    base: str
    fetched: float = 0.0
    """When it was last asked with success, in seconds since 1970; 0: never."""
    tried: float = 0.0
    """When it was last asked."""
    since: str = ""
    """When the newest of its records was changed, as the registry writes it."""
    size: int = 0
    """Bytes of the texts."""
    starts: tuple[int, ...] = ()
    """Where in the records each server begins."""
    texts: bytes = b""
    """Name, title and description of each server, in small letters, a line for each."""
    records: bytes = b""
    """The servers as JSON, in the same order, a line for each."""

    def server(self, number: int) -> KnownServer:
        """One of them. Raises MsgspecError if the file was tampered with."""
        start = self.starts[number]
        end = self.records.find(b"\n", start)
        return _decode(self.records[start : None if end < 0 else end])

    @property
    def servers(self) -> list[KnownServer]:
        """All of them. Takes its time; raises MsgspecError if the file was tampered with."""
        return [self.server(number) for number in range(len(self.starts))]


def mirror_file(base: str) -> Path:
    """Where the mirror of this registry is."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if cache.startswith("/") else Path(os.environ.get("HOME") or "/") / ".cache"
    return folder / "muxway" / "registry" / f"{hashlib.blake2b(base.encode(), digest_size=8).hexdigest()}.json"


def read_mirror(base: str, file: Path) -> Mirror:
    """The mirror as it is on the disk; an empty one if there is none that can be used: it is only a copy."""
    try:
        content = b"" if file.stat().st_size > _LARGEST else file.read_bytes()
        middle = content.find(b"\n") + 1
        mirror = msgspec.json.decode(content[:middle], type=Mirror)
    except (OSError, msgspec.MsgspecError):
        return Mirror(base=base)
    texts = content[middle : middle + mirror.size]
    lines = texts.count(b"\n") + 1 if mirror.size else 0
    if mirror.base != base or len(mirror.starts) != lines or mirror.texts or mirror.records:
        return Mirror(base=base)
    return msgspec.structs.replace(mirror, texts=texts, records=content[middle + mirror.size + 1 :])


def write_mirror(mirror: Mirror, file: Path) -> None:
    """Put it on the disk, whole. Raises OSError."""
    head = msgspec.json.encode(msgspec.structs.replace(mirror, texts=b"", records=b""))
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    private_files.put(file, b"\n".join((head, mirror.texts, mirror.records)))


async def refreshed(registry: Registry, file: Path, tell: Callable[[int], None]) -> tuple[Mirror, str]:
    """The mirror, asked for anew if it is older than an hour, and why that failed, if it did."""
    old = read_mirror(registry.base, file)
    # One that was asked later than now was asked by a clock that was wrong.
    if old.fetched and 0 <= time.time() - old.tried < POLL_EVERY:
        return old, ""
    began = time.time()
    try:
        async with asyncio.timeout(_PATIENCE):
            records = await registry.everything(old.since or None, tell)
        new, why = renewed(old, records, began), ""
    except (RegistryError, TimeoutError) as error:
        why = str(error) or f"the MCP registry did not answer in full within {_PATIENCE:g} s."
        new = msgspec.structs.replace(old, tried=began)
    except msgspec.MsgspecError:
        why = f"{file} is damaged, and was forgotten."
        new = Mirror(base=old.base)
    if new.fetched:
        try:
            write_mirror(new, file)
        except OSError as error:
            why = why or f"{file} cannot be written: {error.strerror}."
    return new, why


def renewed(old: Mirror, records: Iterable[RegistryRecord], moment: float) -> Mirror:
    """The mirror with what was heard since; of several versions the latest, and none that is deleted.

    Raises:
        MsgspecError: the old one was tampered with.
    """
    servers = {server.name: server for server in old.servers}
    latest: dict[str, RegistryRecord] = {}
    since = old.since
    for record in records:
        other = latest.get(record.server.name)
        if other is None or _order(record) > _order(other):
            latest[record.server.name] = record
        since = max(since, record.standing.updated_at or "")
    for name, record in latest.items():
        if record.status == "deleted":
            servers.pop(name, None)
        else:
            servers[name] = _known(record)
    known = [servers[name] for name in sorted(servers)]
    # What claims to be of tomorrow would hide what changes until then.
    since = min(since, datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z"))
    texts, lines = b"\n".join(map(_text, known)), [*map(msgspec.json.encode, known)]
    return Mirror(
        base=old.base,
        fetched=moment,
        tried=moment,
        since=since,
        size=len(texts),
        starts=tuple(accumulate((len(line) + 1 for line in lines[:-1]), initial=0)) if lines else (),
        texts=texts,
        records=b"\n".join(lines),
    )


def _order(record: RegistryRecord) -> tuple[object, ...]:
    # A version that is deleted says nothing of the others.
    return record.standing.is_latest is True, record.status != "deleted", version_key(record.server.version)


def _known(record: RegistryRecord) -> KnownServer:
    server = record.server
    return KnownServer(
        name=server.name,
        version=server.version[:255],
        title=(server.title or "")[:_LONGEST_TEXT],
        description=server.description[:_LONGEST_TEXT],
        status=record.status,
        updated=record.standing.updated_at or record.standing.published_at or "",
    )


def _text(server: KnownServer) -> bytes:
    parts = (_CONTROL.sub(" ", part.lower()) for part in (server.name, server.title, server.description))
    return "\t".join(parts).encode(errors="replace")


_decode = msgspec.json.Decoder(KnownServer).decode


def search(mirror: Mirror, query: str, limit: int) -> list[KnownServer]:
    """The servers that have every word of the query, the best first: a hit in the name counts most.

    Raises:
        MsgspecError: the mirror was tampered with.
    """
    plain = query[:_LONGEST_QUERY].strip().lower()
    terms = [term.encode() for term in dict.fromkeys(_WORD.findall(plain))][:_MOST_TERMS]
    if not terms:
        return []
    rarest, *others = sorted(terms, key=len, reverse=True)
    found = [*_having(mirror.texts, rarest)]
    for term in others:
        found = [one for one in found if term in one[1]]
    if len(found) > _MOST_JUDGED:
        # Too many to look at each: those first that have it in their name, and the one that is called so.
        named = found
        for term in terms:
            named = [one for one in named if one[1].find(term) < one[1].find(b"\t")]
        called = [one for one in named if one[1].startswith(plain.encode() + b"\t")]
        found = [*called, *named, *found[:_MOST_JUDGED]]
    texts = dict(found[:_MOST_JUDGED])
    hits = [*texts]
    scores = {number: _score(texts[number], terms, plain.encode()) for number in hits}
    hits.sort(key=lambda number: (-scores[number], texts[number]))
    return sorted(map(mirror.server, hits[:limit]), key=lambda one: one.status != "active")


def _having(texts: bytes, term: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that have a term, with their numbers."""
    if texts.count(term) > _DENSE:
        yield from ((number, line) for number, line in enumerate(texts.split(b"\n")) if term in line)
        return
    number = start = 0
    at = texts.find(term)
    while at >= 0:
        before, start = start, texts.rfind(b"\n", 0, at) + 1
        number += texts.count(b"\n", before, start)
        end = texts.find(b"\n", at)
        yield number, texts[start : None if end < 0 else end]
        at = -1 if end < 0 else texts.find(term, end)


def _score(text: bytes, terms: list[bytes], plain: bytes) -> int:
    name, _, rest = text.partition(b"\t")
    title, _, description = rest.partition(b"\t")
    tail = name.rpartition(b"/")[2]
    words = _PARTS.split(tail)
    score = 1000 * (name == plain) + 100 * (tail == plain)
    for term in terms:
        score += 20 * (term in words) + 10 * (term in tail) + 4 * (term in name) + 5 * (term in title)
        score += 2 * (term in description)
    return score
