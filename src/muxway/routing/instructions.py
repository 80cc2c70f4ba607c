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


def merged(sources: Sequence[Source], naming: Naming, limit: int = _LIMIT) -> str:
    """The instructions of these servers, at most 8 KB, or `limit`; empty if none has any.

    Those of the only one stand alone. Those that are too long are cut to the same length, so that no server takes the
    room of the others.
    """
    servers = [source for source in sources if not source.own]
    if len(servers) == 1 and servers[0].bare:
        text = hygiene.visible(servers[0].instructions)
        return text if limit == _LIMIT else _cut(text, limit)
    said = {source.upstream: hygiene.visible(source.instructions).strip() for source in servers}
    texts = {upstream: text for upstream, text in said.items() if text}
    if not texts:
        return ""
    headings = {source.upstream: _heading(source, naming) for source in servers if source.upstream in texts}
    opening = [_OPENING] if len(servers) > 1 else []
    room = limit - len(_OPENING.encode()) - sum(len(heading.encode()) + 4 for heading in headings.values())
    shown: dict[str, str] = {}
    # From the shortest on: what one leaves of its share is for the longer ones.
    for left, upstream in zip(
        range(len(texts), 0, -1), sorted(texts, key=lambda name: len(texts[name].encode())), strict=True
    ):
        shown[upstream] = _cut(texts[upstream], max(0, room) // left)
        room -= len(shown[upstream].encode())
    sections = [*opening, *(f"{headings[upstream]}\n\n{shown[upstream]}" for upstream in texts)]
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
