"""What all servers want a model to know, as one text under a heading for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.catalog import hygiene

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.naming import Naming

_LIMIT: Final = 8 * 1024
_CUT: Final = "… (cut)"
_OPENING: Final = "Several MCP servers stand behind this one."
_SEARCHED_LIMIT: Final = 2 * 1024
"""Where tools are searched, as little as possible is to be read before: some clients cut at this length."""
_SEARCHED: Final = "Most tools are not listed: find them with search_tools."


def merged(sources: Sequence[Source], naming: Naming, limit: int = _LIMIT, *, searched: bool = False) -> str:
    """The instructions of these servers, at most 8 KB, or `limit`; empty if none has any.

    Those of the only one stand alone. Those that are too long are cut to the same length, so that no server takes the
    room of the others. Where tools are `searched`, that is said first, and all of it is at most 2 KB.
    """
    if searched:
        return _of_all(sources, naming, _SEARCHED, _SEARCHED_LIMIT) or _SEARCHED
    servers = [source for source in sources if not source.own]
    if len(servers) == 1 and servers[0].bare:
        text = hygiene.visible(servers[0].instructions)
        return text if limit == _LIMIT else _cut(text, limit)
    return _of_all(sources, naming, _OPENING if len(servers) > 1 else "", limit)


def _of_all(sources: Sequence[Source], naming: Naming, opening: str, limit: int) -> str:
    servers = [source for source in sources if not source.own]
    said = {source.upstream: hygiene.visible(source.instructions).strip() for source in servers}
    texts = {upstream: text for upstream, text in said.items() if text}
    if not texts:
        return ""
    headings = {source.upstream: _heading(source, naming) for source in servers if source.upstream in texts}
    room = limit - len((opening or _OPENING).encode()) - sum(len(heading.encode()) + 4 for heading in headings.values())
    shown: dict[str, str] = {}
    # From the shortest on: what one leaves of its share is for the longer ones.
    for left, upstream in zip(
        range(len(texts), 0, -1), sorted(texts, key=lambda name: len(texts[name].encode())), strict=True
    ):
        shown[upstream] = _cut(texts[upstream], max(0, room) // left)
        room -= len(shown[upstream].encode())
    sections = [*([opening] if opening else []), *(f"{headings[upstream]}\n\n{shown[upstream]}" for upstream in texts)]
    return _cut("\n\n".join(sections), limit)


def _heading(source: Source, naming: Naming) -> str:
    if not source.prefix:
        return f"## {source.upstream}\n\nIts names stand here as they are."
    return f"## {source.upstream}\n\nIts names begin with `{source.prefix}{naming.separator}` here."


def _cut(text: str, limit: int) -> str:
    raw = text.encode()
    if len(raw) <= limit:
        return text
    kept = raw[: max(0, limit - len(_CUT.encode()))]
    return kept.decode("utf-8", "ignore") + _CUT
