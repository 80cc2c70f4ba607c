"""What `search_tools` answers, and what is said of calls that are not made. Pure.

A model reads it: a name with its parameters, a sentence, and the schema only where a line cannot say all of it. An
answer has a limit; what does not fit is left out as a whole and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from muxway.likeness import short
from muxway.search import opening
from muxway.search.listing import CALL, SEARCH, tier_of
from muxway.search.signatures import signature
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from msgspec import Raw

    from muxway.catalog.model import Route

LIMIT: Final = 5
MOST: Final = 20
"""Tools that are shown by default, and at most."""
_PER_HIT: Final = 1600
LARGEST: Final = 32_000
"""Bytes of an answer: for each tool that was asked for, and in all."""
_ROOM: Final = 500
"""Bytes for what is said besides."""
_SENTENCE: Final = 200
_SCHEMA: Final = 1200
_BARE_SCHEMA: Final = 7000
"""Bytes of a schema that stands beside a tool as it is, and of one without descriptions."""
_SCHEMA_OF_ERROR: Final = 8000
_MOST_SERVERS: Final = 200
_DESCRIBING: Final = frozenset(("description", "title", "examples", "example", "default", "$comment", "$schema"))
_VALUES: Final = frozenset(("enum", "const", "required"))
_OF_NAMES: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_DEEPEST: Final = 64
_TOO_LONG: Final = "schema: too long to be shown here; ask for it by `names`"


class SearchQuery(NamedTuple):
    """What a call of `search_tools` asks for."""

    query: str = ""
    limit: int = LIMIT
    server: str | None = None
    names: tuple[str, ...] = ()


_PICK: Final = envelopes.picker(SearchQuery._fields)


def asked(arguments: Raw | None) -> SearchQuery | str:
    """What is asked for; or what is wrong with it, for whoever asked."""
    given = envelopes.Raw(b"{}") if arguments is None or envelopes.is_null(arguments) else arguments
    if not envelopes.is_object(given):
        return "arguments must be an object: query, limit, server, names"
    taken = zip(SearchQuery._fields, _PICK(given), strict=True)
    present = {name: raw for name, raw in taken if raw is not None and not envelopes.is_null(raw)}
    query, server = envelopes.text(present.get("query", b'""')), None
    if query is None:
        return "query must be a text: what the tool should do"
    if "server" in present and (server := envelopes.text(present["server"])) is None:
        return "server must be a text: the name of a server"
    limit = envelopes.number(present.get("limit", b"%d" % LIMIT))
    if limit is None:
        return f"limit must be a number, at most {MOST}"
    named = present.get("names", b"[]")
    listed = envelopes.items(named) if memoryview(named).nbytes <= LARGEST else None
    names = [name for one in (listed or ())[:MOST] if (name := envelopes.text(one)) is not None]
    if listed is None or len(names) != len(listed[:MOST]):
        return f"names must be a list of texts: names of tools, at most {MOST}"
    return SearchQuery(query, round(min(max(limit, 1), MOST)), server, tuple(names))


def hits(shown: Sequence[Route], count: int, limit: int, *, tiers: bool) -> str:
    """The tools that were found, best first; `count` of them in all."""
    room = min(LARGEST, limit * _PER_HIT) - _ROOM
    parts: list[str] = []
    openable = opening.LARGEST
    for route in shown:
        text = _hit(route, openable, tiers=tiers)
        openable -= min(openable, len(route.definition))
        room -= len(text.encode()) + 2
        if room < 0 and parts:
            break
        parts.append(text)
    how = f"{CALL}_read, _write or _destructive" if tiers else CALL
    said = f"Call with {how}(name, arguments)."
    if count > len(parts):
        said += f" {count - len(parts)} more match: give a larger limit, a server, or other words."
    return "\n\n".join((*parts, said))


def _hit(route: Route, openable: int, *, tiers: bool) -> str:
    definition, whole = opening.opened(route.definition, openable)
    line, complete = signature(definition.get("inputSchema")) if whole else ("(…)", False)
    hint = f" [{tier_of(definition)}]" if (tiers and whole) or "annotations" in definition else ""
    sentence = first_sentence(definition.get("description")) or first_sentence(definition.get("title"))
    parts = [f"{route.public}{line}{hint}"]
    if sentence:
        parts.append(sentence)
    if not complete:
        # One is shown in any case, so it has to fit by itself.
        left = LIMIT * _PER_HIT - _ROOM - sum(len(part.encode()) + 1 for part in parts)
        rooms = (min(left, _SCHEMA), min(left, _BARE_SCHEMA))
        parts.append(_schema(definition.get("inputSchema"), rooms) if whole else _TOO_LONG)
    return "\n".join(parts)


def _schema(schema: object, rooms: tuple[int, int]) -> str:
    """A schema, without its descriptions if it is long; how to get it, if it is longer still."""
    for one, room in zip((schema, undescribed(schema)), rooms, strict=True):
        raw = envelopes.encode(one)
        if len(raw) <= room:
            return f"schema: {raw.decode()}"
    return _TOO_LONG


def undescribed(schema: object, depth: int = 0, *, named: bool = False) -> object:
    """A schema without what only describes it; `named`: its members are names that somebody chose."""
    if depth > _DEEPEST:
        return True
    if isinstance(schema, list):
        return [undescribed(one, depth + 1) for one in cast("list[object]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    fields = cast("Mapping[str, object]", schema)
    return {
        name: one
        if not named and name in _VALUES
        else undescribed(one, depth + 1, named=not named and name in _OF_NAMES)
        for name, one in fields.items()
        if named or name not in _DESCRIBING
    }


def first_sentence(text: object) -> str:
    """The first sentence of a text, of a bearable length."""
    if not isinstance(text, str):
        return ""
    line = next((one for part in text[:2000].splitlines() if (one := part.strip())), "")
    for end in (". ", "。", "! ", "? "):
        at = line.find(end)
        if at > 0:
            line = line[: at + 1]
    return short(line, _SENTENCE)


def definitions(found: Sequence[tuple[str, Route | None]]) -> str:
    """Full definitions of tools by the names that were asked for; None: there is none."""
    room = LARGEST - _ROOM
    openable = opening.LARGEST
    parts: list[str] = []
    for name, route in found:
        if route is None:
            text = f"Tool not found: {short(name)}"
        elif len(route.definition) <= LARGEST - _ROOM:
            text = route.definition.decode()
        else:
            text = _cut(route, openable)
            openable -= min(openable, len(route.definition))
        room -= len(text.encode()) + 2
        if room < 0 and parts:
            parts.append(f"{len(found) - len(parts)} more do not fit: ask for fewer.")
            break
        parts.append(text)
    return "\n\n".join(parts)


def _cut(route: Route, openable: int) -> str:
    """The definition of a tool that is too long for any answer."""
    definition, whole = opening.opened(route.definition, openable)
    said = f"{route.public}\n{short(str(definition.get('description', '')), 1000)}"
    if not whole:
        return f"{said}\nschema: too long to be shown; its server says what is wrong with a call"
    bare = envelopes.encode(undescribed(definition.get("inputSchema")))
    fits = len(bare) <= LARGEST - 2 * _ROOM - len(said.encode())
    schema = bare.decode() if fits else signature(definition.get("inputSchema")).text
    return f"{said}\nschema without descriptions: {schema}"


def nothing(query: str, counts: Mapping[str, int], server: str | None = None) -> str:
    """What is said if no tool fits: which servers there are, and how many tools each has."""
    told = f"No tool matches {short(query.strip(), 100)!r}. " if query.strip() else ""
    if server is not None and server not in counts:
        told += f"There is no server {short(server, 100)!r}. "
    listed = [f"{name} ({count})" for name, count in counts.items()][:_MOST_SERVERS]
    more = f" and {len(counts) - len(listed)} more" if len(counts) > len(listed) else ""
    said = f"Servers and how many tools they have: {', '.join(listed)}{more}." if listed else "There are no tools."
    return f"{told}{short(said, 8 * _PER_HIT // 2)} Try other words, or a server alone."


def misfit(route: Route, problems: Iterable[str]) -> str:
    """What is said of a call whose arguments do not fit, so that the next one does."""
    told = "\n".join(f"- {one}" for one in problems)
    room = LARGEST - 2 * _ROOM - len(told.encode())
    schema = _schema(route.describe().get("inputSchema"), (min(room, _SCHEMA_OF_ERROR), room))
    return f"Nothing was called: the arguments do not fit {route.public}.\n{told}\n{schema}"


def unknown(problem: str, near: Sequence[str]) -> str:
    """What is said of a name that no tool has."""
    like = f" Names like it: {', '.join(near)}." if near else ""
    return f"Nothing was called. {problem}.{like} {SEARCH} finds tools by what they do."


def wrong_tier(route: Route, used: str, right: str) -> str:
    """What is said of a call by a tool that is for other calls."""
    return f"Nothing was called: {route.public} is [{right}], so call it with {CALL}_{right}, not {used}."
