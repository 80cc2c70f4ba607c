"""The text of `muxway.lock`: sorted, one member of a definition in each line, so that a diff of it is a review.

server "github"
  source reachedBy "npx -y server-github@2.1.0"
  serverInfo {"name":"github","version":"2.1.0"}
  instructions "Search before you write."
  tool "create_issue" sha256:…
    description "Create an issue"
    inputSchema {"required":["title"],"type":"object"}
    property "title" {"type":"string"}
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.catalog.kinds import PROMPTS, TEMPLATES, TOOLS
from muxway.catalog.locking import FIELDS, LockedServer, Record, canonical, digest
from muxway.errors import MuxwayError, ParseError
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEAD: Final = """\
# What the servers said that they are, when somebody looked. Written by `muxway lock`; a change of it is to be reviewed.
version 1
"""
_WORDS: Final = {TOOLS.name: "tool", PROMPTS.name: "prompt", TEMPLATES.name: "template"}
_KINDS: Final = {word: kind for kind, word in _WORDS.items()}
_THING: Final = re.compile(r'(tool|prompt|template) (".*") (sha256:[0-9a-f]{64})').fullmatch
_PROPERTY: Final = re.compile(r'property ("(?:[^"\\]|\\.)*") (.*)').fullmatch
_MEMBER: Final = re.compile(r"([A-Za-z_./]+) (.*)").fullmatch


class BadLock(MuxwayError):
    """A lock file that cannot be read, says something twice, or was changed by hand without its digests."""


def written(servers: Mapping[str, LockedServer]) -> str:
    """The text for these servers."""
    return _HEAD + "".join(f"\n{line}" for name in sorted(servers) for line in _server(name, servers[name])) + "\n"


def _server(name: str, server: LockedServer) -> Iterator[str]:
    yield ""
    yield f"server {_json(name)}"
    for one in sorted(server.source):
        yield f"  source {one} {_json(server.source[one])}"
    yield f"  serverInfo {_json(server.server_info)}"
    yield f"  instructions {_json(server.instructions)}"
    for kind, word in _WORDS.items():
        records = server.records.get(kind, {})
        for thing in sorted(records):
            yield f"  {word} {_json(thing)} {digest(records[thing])}"
            yield from (f"    {line}" for line in _members(records[thing]))


def _members(record: Record) -> Iterator[str]:
    for name in sorted(record):
        value: object = record[name]
        members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        properties = members.get("properties")
        if name != "inputSchema" or not isinstance(properties, dict):
            yield f"{name} {_json(record[name])}"
            continue
        yield f"{name} {_json({**members, 'properties': {}})}"
        for one, schema in sorted(cast("dict[str, object]", properties).items()):
            yield f"property {_json(one)} {_json(schema)}"


def _json(value: object) -> str:
    # No line may break in the middle, and nothing in it may look like something else.
    return "".join(char if char.isprintable() else _escaped(char) for char in canonical(value))


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _value(text: str) -> Any:
    return envelopes.value(text.encode())


def _text(text: str) -> str:
    value = _value(text)
    if not isinstance(value, str):
        raise ValueError("there must be a text")
    return value


def _put(there: dict[str, Any], name: str, value: object) -> None:
    """Note what a line says. A merge may put two there, of which nobody has said which one holds."""
    if name in there:
        raise ValueError(f"{name!r} stands there twice")
    there[name] = value


def read(text: str) -> dict[str, LockedServer]:
    """What was locked. Raises BadLock."""
    servers: dict[str, _LockReading] = {}
    server: _LockReading | None = None
    version = False
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            if line == "version 1":
                version = True
            elif line.startswith("server "):
                server = _LockReading()
                _put(servers, _text(line.removeprefix("server ")), server)
            elif server is None or not version:
                raise ValueError("it does not begin with `version 1` and a server")
            elif line.startswith("    "):
                server.member(line[4:])
            else:
                server.line(line[2:])
        except (ValueError, KeyError, TypeError, ParseError) as error:
            raise BadLock(f"muxway.lock, line {number}: {error}") from None
    if not version:
        raise BadLock("muxway.lock does not say `version 1`: it is not whole, or of another muxway")
    return {name: reading.done(name) for name, reading in servers.items()}


class _LockReading:
    """One server, while its lines are read."""

    def __init__(self) -> None:
        self._source: dict[str, str] = {}
        self._said: dict[str, Any] = {}
        self._records: dict[str, dict[str, Record]] = {}
        self._digests: dict[tuple[str, str], str] = {}
        self._record: Record | None = None
        self._kind = ""

    def line(self, line: str) -> None:
        """A line about the server."""
        if match := _THING(line):
            self._kind = _KINDS[match[1]]
            name = _text(match[2])
            self._record = {}
            _put(self._records.setdefault(self._kind, {}), name, self._record)
            self._digests[self._kind, name] = match[3]
        elif line.startswith("source "):
            name, _, value = line.removeprefix("source ").partition(" ")
            _put(self._source, name, _text(value))
        elif line.startswith("serverInfo "):
            _put(self._said, "serverInfo", dict(_value(line.removeprefix("serverInfo "))))
        elif line.startswith("instructions "):
            _put(self._said, "instructions", _text(line.removeprefix("instructions ")))
        else:
            raise ValueError("this is not a line of a lock file")

    def member(self, line: str) -> None:
        """A line about a tool, prompt or template."""
        if self._record is None:
            raise ValueError("this belongs to no tool, prompt or template")
        if match := _PROPERTY(line):
            _put(self._record["inputSchema"]["properties"], _text(match[1]), _value(match[2]))
        elif (match := _MEMBER(line)) and match[1] in FIELDS[self._kind]:
            _put(self._record, match[1], _value(match[2]))
        else:
            raise ValueError("this is not a line of a lock file")

    def done(self, server: str) -> LockedServer:
        """The server. Raises BadLock if a digest is not that of its lines."""
        for (kind, name), said in self._digests.items():
            if digest(self._records[kind][name]) != said:
                raise BadLock(
                    f"muxway.lock: {_WORDS[kind]} {name!r} of {server!r} was changed by hand: its digest is another. "
                    "Use `muxway lock accept`"
                )
        info, instructions = self._said.get("serverInfo", {}), self._said.get("instructions", "")
        return LockedServer(self._source, info, instructions, self._records)
