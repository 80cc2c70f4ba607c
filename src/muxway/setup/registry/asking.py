"""Requests to a registry: bounded in time, size and number, and not believed further than they can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from muxway.config.report import as_list
from muxway.log import printable
from muxway.net.guarded_fetch import FetchError, GuardedFetch
from muxway.setup.registry.records import NAME, RegistryError, is_exact, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from muxway.setup.registry.records import RegistryRecord

SHORTEST_SEARCH: Final = 3
"""Characters. A shorter search is refused by the registry (422)."""
_PAGE: Final = 100
_LARGEST_PAGE: Final = 8 << 20
MOST_PAGES: Final = 1000
_MOST_BYTES: Final = 256 << 20
_MOST_DETAIL: Final = 200


class Registry:
    """One registry. Use it as `async with`."""

    def __init__(self, base: str) -> None:
        """Prepare. Raises RegistryError if that is no address."""
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise RegistryError(f"{printable(base)[:_MOST_DETAIL]} is no address of a registry.")
        self.base = base.rstrip("/")
        self.host = parts.hostname.lower()
        self._fetch = GuardedFetch([base], keep_alive=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._fetch.close()

    async def record(self, name: str, version: str | None = None) -> RegistryRecord:
        """One version of a server; the latest, as the registry sees it, if none is named. Raises RegistryError."""
        if not NAME.fullmatch(name):
            raise RegistryError(
                f"{printable(name)[:_MOST_DETAIL]} is no name of a registry, as io.github.owner/server."
            )
        if version is not None and not is_exact(version):
            raise RegistryError(f"{printable(version)[:100]} is no exact version: give one, or none for the newest.")
        place = f"servers/{quote(name, safe='')}/versions/{quote(version or 'latest', safe='')}"
        wanted = name if version is None else f"{name} {version}"
        record = read_record(await self._ask(place, {}, f"the MCP registry has no {wanted}."))
        if record.server.name != name or (version is not None and record.server.version != version):
            said = f"{record.server.name} {printable(record.server.version)[:100]}"
            raise RegistryError(f"the MCP registry was asked for {wanted}, and answered with {said}.")
        return record

    async def search(self, text: str) -> list[RegistryRecord]:
        """What the registry itself finds: one page, by name only. Raises RegistryError."""
        if len(text) < SHORTEST_SEARCH:
            raise RegistryError(f"the MCP registry takes no search of fewer than {SHORTEST_SEARCH} characters.")
        words = {"search": text, "version": "latest", "limit": str(_PAGE)}
        return [*_records(await self._ask("servers", words, "the MCP registry has no search."))]

    async def everything(self, since: str | None, tell: Callable[[int], None]) -> list[RegistryRecord]:
        """The latest version of every server, or of those that changed since then, deleted ones included.

        Raises:
            RegistryError: one of the pages could not be had or used, or there is no end of them.
        """
        found: dict[tuple[str, str], RegistryRecord] = {}
        cursor, size = "", 0
        cursors = set[str]()
        for _ in range(MOST_PAGES):
            words = {"version": "latest", "limit": str(_PAGE)}
            words |= {"updated_since": since} if since else {}
            words |= {"cursor": cursor} if cursor else {}
            page, length = await self._page("servers", words, "the MCP registry has no list of servers.")
            size += length
            known = len(found)
            found |= {(one.server.name, one.server.version): one for one in _records(page)}
            tell(len(found))
            following = _mapping(page.get("metadata")).get("nextCursor")
            if not following:
                return [*found.values()]
            if not isinstance(following, str) or following in cursors or len(found) == known or size > _MOST_BYTES:
                break
            cursor = following
            cursors.add(cursor)
        raise RegistryError("the MCP registry's list of servers has no end.")

    async def download(self, url: str, largest: int) -> bytes:
        """A file. Raises RegistryError."""
        try:
            return await self._fetch.download(url, largest)
        except FetchError as error:
            raise RegistryError(f"{error}.") from None

    async def _ask(self, place: str, words: Mapping[str, str], missing: str) -> dict[str, Any]:
        return (await self._page(place, words, missing))[0]

    async def _page(self, place: str, words: Mapping[str, str], missing: str) -> tuple[dict[str, Any], int]:
        url = f"{self.base}/v0.1/{place}" + (f"?{urlencode(words)}" if words else "")
        try:
            answer = await self._fetch.get(url, largest=_LARGEST_PAGE)
        except FetchError as error:
            raise RegistryError(f"the MCP registry cannot be asked: {error}.") from None
        if answer.status == 404:
            raise RegistryError(missing)
        try:
            page: Any = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError):
            page = None
        if not answer.ok:
            detail = _mapping(page).get("detail")
            why = f": {printable(detail)[:_MOST_DETAIL]}" if isinstance(detail, str) else ""
            raise RegistryError(f"the MCP registry refuses with status {answer.status}{why}.")
        if not isinstance(page, dict):
            raise RegistryError("the MCP registry answered with something that is not JSON.")
        return _mapping(page), len(answer.body)


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _records(page: dict[str, Any]) -> Iterator[RegistryRecord]:
    """Those of a page that are as they should be; one bad record hides no other. Raises RegistryError."""
    given = page.get("servers")
    listed: list[Any] | None = [] if given is None else as_list(given)
    if listed is None or len(listed) > 10 * _PAGE:
        raise RegistryError("the MCP registry answered with a page that is none.")
    for raw in listed:
        try:
            yield read_record(raw)
        except RegistryError:
            continue
