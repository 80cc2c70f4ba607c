"""What the clients that people use cannot take, and tools as such a client can take them.

Pure: one table, and what follows from it for a list of tools. In it is only what is known to break something: a tool
that the client leaves out, a request to its model that fails. Clients that are not in it get everything as it is.

What a tool is called by the rest of the gateway stays what it is: rules and middlewares go by that name, whichever
client asks. Only the name in the client's list is another, and that is found like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muxway.catalog import flat_schemas
from muxway.catalog.kinds import TOOLS
from muxway.catalog.naming import Naming
from muxway.errors import ParseError
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.catalog.model import Catalog, Route

_APART: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME: Final = 256
"""Characters of a client's own name that are looked at."""
_PORTABLE: Final = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_SENTENCE: Final = re.compile(r"[.!?。！？](?=\s|$)|\n\n")
_CUT: Final = "…"
_MUCH: Final = 256 * 1024
_UNIONS: Final = (b'"oneOf"', b'"anyOf"', b'"allOf"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProfile:
    """One client, or several that are alike."""

    name: str
    """What people call it on the command line."""
    title: str
    clients: tuple[str, ...]
    """How `clientInfo.name` begins, in small letters, with `-` for all that is neither letter nor digit."""
    longest_name: int | None = None
    """Characters of a tool's name, less what the client puts before it."""
    portable: bool = False
    """Whether it takes only `[A-Za-z0-9_-]` in names."""
    refs: bool = True
    """Whether it takes `$ref` in an input schema."""
    unions: bool = True
    """Whether it takes `oneOf`, `anyOf` and `allOf` at the top of an input schema."""
    longest_description: int | None = None
    """Characters of a description."""
    longest_instructions: int | None = None
    """Bytes of instructions."""
    most_tools: int | None = None
    """Tools that it uses. Which ones to leave out is not ours to choose: this is only said."""


PROFILES: Final[Mapping[str, ClientProfile]] = {
    profile.name: profile
    for profile in (
        ClientProfile(
            # One name that its API does not take ends the whole chat. It sends schemas without their `$defs`.
            name="claude-desktop",
            title="Claude Desktop",
            # As Claude Desktop introduces itself.
            clients=("claude-ai",),
            longest_name=64,
            portable=True,
            refs=False,
        ),
        ClientProfile(
            # It puts `mcp__NAME__` before names and drops those over 128; tools with a union at the top, too. It cuts
            # descriptions and instructions by itself, in the middle of a word.
            name="claude-code",
            title="Claude Code",
            clients=("claude-code",),
            longest_name=110,
            portable=True,
            unions=False,
            longest_description=2048,
            longest_instructions=2048,
        ),
        ClientProfile(
            # It leaves out tools whose name, with that of the server, has 60 characters or more.
            name="cursor",
            title="Cursor",
            clients=("cursor",),
            longest_name=50,
            portable=True,
            unions=False,
        ),
        ClientProfile(
            # It sends schemas without their `$defs`. Requests with more than 128 tools fail, its own ones counted.
            name="vscode",
            title="VS Code",
            clients=("visual-studio-code", "code-oss", "vscode"),
            longest_name=50,
            portable=True,
            refs=False,
            unions=False,
            most_tools=128,
        ),
        ClientProfile(
            # Its models are asked with schemas whose `$ref` lead nowhere, which fails.
            name="copilot-cli",
            title="Copilot CLI",
            clients=("github-copilot", "copilot"),
            longest_name=50,
            portable=True,
            refs=False,
            unions=False,
            most_tools=128,
        ),
        ClientProfile(
            # It refuses a server with which there would be more than 100 tools.
            name="windsurf",
            title="Windsurf",
            clients=("windsurf",),
            longest_name=50,
            portable=True,
            unions=False,
            most_tools=100,
        ),
        ClientProfile(
            # It hands schemas to its models as they are; most of these take no union at the top.
            name="opencode",
            title="opencode",
            clients=("opencode",),
            unions=False,
        ),
    )
}
"""By name, in the order in which they are told."""


class Adaptation(NamedTuple):
    """What was done to a tool for a client."""

    tool: str
    """Its public name."""
    what: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.what}"


class Adapted(NamedTuple):
    """Tools as a client can take them."""

    catalog: Catalog
    """The very same if nothing had to be done."""
    changes: tuple[Adaptation, ...] = ()
    warnings: tuple[str, ...] = ()
    """What the client cannot take and nothing can be done about here."""


def profile_of(client_info: envelopes.Buffer | None) -> str:
    """The name of the profile of a client that introduces itself like this; empty if there is none."""
    if client_info is None:
        return ""
    said = envelopes.text((envelopes.members(client_info) or {}).get("name"))
    name = _APART.sub("-", (said or "")[:_LONGEST_NAME].lower()).strip("-")
    return next(
        (
            profile.name
            for profile in PROFILES.values()
            for start in profile.clients
            if name == start or name.startswith(f"{start}-")
        ),
        "",
    )


def adapt(catalog: Catalog, profile: ClientProfile) -> Adapted:
    """The tools of a catalog for a client."""
    routes: dict[str, Route] = {}
    changes: list[Adaptation] = []
    taken = {*catalog.routes}
    rooms: dict[str, list[int]] = {}
    for listed, route in catalog.routes.items():
        name = _fitting(listed, route, profile, taken)
        room = rooms.setdefault(route.upstream, [flat_schemas.MOST_NODES_IN_ALL])
        definition, done = _definition(route.definition, profile, name if name != listed else None, room)
        if name != listed:
            taken.add(name)
            done = (f"listed as {name}", *done)
        routes[name] = route if definition is route.definition else replace(route, definition=definition, origin=None)
        changes += [Adaptation(route.public, what) for what in done]
    warnings: list[str] = []
    if profile.most_tools is not None and len(routes) > profile.most_tools:
        over = f"{profile.title} takes {profile.most_tools} tools, and there are {len(routes)}"
        warnings.append(f"{over}: give it a view with fewer")
    if not changes:
        return Adapted(catalog, (), tuple(warnings))
    return Adapted(replace(catalog, routes=routes, _aliases={}), tuple(changes), tuple(warnings))


def takes_long(listed: bytes) -> bool:
    """Whether to adapt tools may hold up everybody: there is much of them, or there are schemas to look through."""
    return len(listed) > _MUCH or b'"$ref"' in listed or any(word in listed for word in _UNIONS)


def relisted(result: bytes, adapted: Adapted, profile: ClientProfile) -> bytes:
    """A list of tools under their public names, perhaps not all or changed, as the client takes it."""
    members = envelopes.members(result) or {}
    names = {route.public: name for name, route in adapted.catalog.routes.items() if name != route.public}
    room = [flat_schemas.MOST_NODES_IN_ALL]
    tools: list[envelopes.Buffer] = []
    for tool in envelopes.items(members.get(TOOLS.member, b"[]")) or ():
        name = envelopes.text((envelopes.members(tool) or {}).get(TOOLS.identity))
        tools.append(_definition(bytes(tool), profile, names.get(name or ""), room)[0])
    return envelopes.object_of({**members, TOOLS.member: b"[%b]" % b",".join(tools)}.items())


def changes_of(route: Route, profile: ClientProfile) -> tuple[str, ...]:
    """What would be done to one tool for a client, if no other stood in the way of its name."""
    name = _fitting(route.public, route, profile, set())
    _, done = _definition(route.definition, profile, None, [flat_schemas.MOST_NODES_IN_ALL])
    return done if name == route.public else (f"listed as {name}", *done)


def _fitting(listed: str, route: Route, profile: ClientProfile, taken: set[str]) -> str:
    """A name that the client takes: the one that is listed, if it does."""
    long = profile.longest_name is not None and len(listed) > profile.longest_name
    if not long and not (profile.portable and _PORTABLE(listed) is None):
        return listed
    naming = Naming("__", profile.longest_name or 128)
    name = naming.fit(naming.legal(listed), route.upstream, route.native)
    identity = (route.upstream, route.native)
    while name in taken:
        name = naming.distinct(naming.legal(listed), *identity)
        identity = (*identity, name)
    return name


def _definition(
    definition: bytes, profile: ClientProfile, name: str | None, room: list[int]
) -> tuple[bytes, tuple[str, ...]]:
    """A definition as the client takes it, under another name if one is given, and what was done to it."""
    long = profile.longest_description is not None and len(definition) > profile.longest_description
    # To look for a word in bytes is quick, and most definitions have none of these.
    refs = not profile.refs and b'"$ref"' in definition
    unions = not profile.unions and any(word in definition for word in _UNIONS)
    if name is None and not (long or refs or unions):
        return definition, ()
    members = envelopes.members(definition) or {}
    changed: dict[str, envelopes.Buffer] = {} if name is None else {"name": envelopes.encode(name)}
    done: list[str] = []
    notes: list[str] = []
    if refs or unions:
        schema, notes = _schema(members.get("inputSchema", b""), room, refs=refs, unions=unions, done=done)
        if schema is not None:
            changed["inputSchema"] = schema
    description = envelopes.text(members.get("description")) or ""
    text = " ".join((description, *notes)).lstrip() if notes else description
    limit = profile.longest_description
    if limit is not None and len(text) > limit:
        done.append(f"description cut from {len(text):,} to {limit:,} characters")
        # What was said in place of a schema is said in any case.
        said = "".join(f" {note}" for note in notes)
        text = cut(description, max(0, limit - len(said))) + said
    if text != description:
        changed["description"] = envelopes.encode(text)
    if not changed:
        return definition, tuple(done)
    return envelopes.object_of({**members, **changed}.items()), tuple(done)


def _schema(
    raw: envelopes.Buffer, room: list[int], *, refs: bool, unions: bool, done: list[str]
) -> tuple[bytes | None, list[str]]:
    """An input schema as a client takes it (None: as it is), and what its description has to say instead."""
    try:
        schema: object = envelopes.value(raw)
    except ParseError:
        # Valid JSON that Python cannot hold: it stays as it is.
        return None, []
    if not isinstance(schema, dict):
        return None, []
    before = after = cast("dict[str, Any]", schema)
    notes: list[str] = []
    if refs:
        flat = flat_schemas.inlined(after, room)
        if flat is None:
            done.append("its $ref stay: they go in a circle, or would become too large")
        elif flat != after:
            after = flat
            done.append("$ref replaced by what they lead to")
    if unions:
        merged, notes = flat_schemas.merged(after)
        if merged is not after:
            after = merged
            done.append("oneOf, anyOf or allOf at the top of its schema merged into one object")
    return (None, []) if after is before else (envelopes.encode(after), notes)


def cut(text: str, limit: int) -> str:
    """The beginning of a text, to the end of a sentence where one ends in its second half."""
    if len(text) <= limit:
        return text
    room = text[: max(0, limit - len(_CUT) - 1)]
    ends = [match.end() for match in _SENTENCE.finditer(room) if match.end() > limit // 2]
    if ends:
        return f"{room[: ends[-1]].rstrip()} {_CUT}"
    return f"{room.rsplit(None, 1)[0] if ' ' in room else room}{_CUT}"
