"""What servers said that they are when somebody looked, and how what they say now differs from that.

Pure: definitions in, differences and their classes out. A definition is looked at as its server gave it, before
shapes. The order of its members, and members that no model reads, do not count.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from muxway.catalog import hygiene
from muxway.catalog.kinds import PROMPTS, TEMPLATES, TOOLS, Kind
from muxway.catalog.schema_changes import Difference, of_input, of_output, same
from muxway.errors import ParseError
from muxway.wire import envelopes
from muxway.wire.envelopes import as_list, as_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from muxway.catalog.model import Native

Class = Literal["breaking", "risk", "safe"]
CLASSES: Final[tuple[Class, ...]] = ("breaking", "risk", "safe")
LOCKED_KINDS: Final = (TOOLS, PROMPTS, TEMPLATES)
_APPS: Final = ("_meta.ui", "_meta.ui/resourceUri")
"""Where a definition names the app that clients show for it; the second as MCP Apps spelled it first."""
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    TOOLS.name: ("title", "description", "annotations", "inputSchema", "outputSchema", *_APPS),
    PROMPTS.name: ("title", "description", "arguments"),
    TEMPLATES.name: ("name", "title", "description", "mimeType"),
}
"""What is locked of a definition, by the name of its kind."""
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>)]+", re.IGNORECASE)
_NAME: Final = re.compile(r"[\w-]+(?:[./][\w-]+)*")
"""What may be the name of a tool in a text."""
_UNSAID: Final[Mapping[str, bool]] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What each hint says where it is left out."""
_SHOWN: Final = 80
"""Characters of a text that a difference shows."""

Record = dict[str, Any]
"""The locked members of one definition, those that it has."""


@dataclass(frozen=True, slots=True)
class LockedServer:
    """One server as it was locked."""

    source: Mapping[str, str] = field(default_factory=dict[str, str])
    """How it is started or reached, and its package: `reachedBy`, `package`, `integrity`."""
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str = ""
    records: Mapping[str, Mapping[str, Record]] = field(default_factory=dict[str, "Mapping[str, Record]"])
    """Name of a kind → name of a thing → what is locked of it."""

    def of(self, kind: Kind) -> Mapping[str, Record]:
        """What is locked of a kind."""
        return self.records.get(kind.name, {})


class Drift(NamedTuple):
    """What differs from the lock, about one thing."""

    kind: str
    """`tools`, `prompts`, `templates`; empty: about the server itself."""
    name: str
    differences: tuple[Difference, ...]
    new: bool = False
    gone: bool = False

    @property
    def class_(self) -> Class:
        """The worst of its classes."""
        return min(self.differences, key=lambda one: CLASSES.index(one.class_)).class_

    @property
    def label(self) -> str:
        """What it is about, in a few words."""
        return f"{self.kind[:-1]} {self.name}" if self.kind else self.name


def told(drift: Drift) -> str:
    """What differs, in a line."""
    what = "; ".join(one.what for one in drift.differences)
    return f"not as locked ({drift.class_}): {drift.label}: {what}"


def canonical(value: object) -> str:
    """JSON of which there is only one for a value."""
    return envelopes.encode_sorted(value).decode()


def digest(record: Record) -> str:
    """What tells a record from others."""
    return "sha256:" + hashlib.sha256(envelopes.encode_sorted(record)).hexdigest()


def record_of(kind: Kind, native: Native) -> Record:
    """What is locked of a definition."""
    record: Record = {}
    for name in FIELDS[kind.name]:
        raw = native.members.get("_meta" if name in _APPS else name)
        if raw is None:
            continue
        try:
            value: object = envelopes.value(raw)
        except ParseError:
            # Valid JSON that Python cannot hold, such as 1e999: then its bytes are what it is.
            value = {"raw": bytes(raw).decode("utf-8", "replace")}
        if name in _APPS:
            value = as_object(value).get(name.removeprefix("_meta."))
        if value is not None:
            record[name] = value
    return record


def records_of(kind: Kind, natives: Iterable[Native]) -> dict[str, Record]:
    """The same for all that a server has of a kind."""
    return {native.name: record_of(kind, native) for native in natives}


# --- differences ----------------------------------------------------------------------------------


def compare(locked: LockedServer, now: LockedServer) -> list[Drift]:
    """How a server differs from what was locked, in the order of the lock file."""
    lists = (compare_list(kind, locked.of(kind), now.of(kind)) for kind in LOCKED_KINDS)
    return [*compare_server(locked, now), *(drift for one in lists for drift in one)]


def compare_server(locked: LockedServer, now: LockedServer) -> list[Drift]:
    """How it differs in what it says of itself."""
    return [
        Drift("", name, found)
        for name, found in (
            ("source", _source(locked.source, now.source)),
            ("serverInfo", _info(locked.server_info, now.server_info)),
            ("instructions", tuple(text_changes("instructions", locked.instructions, now.instructions))),
        )
        if found
    ]


def compare_list(kind: Kind, before: Mapping[str, Record], after: Mapping[str, Record]) -> list[Drift]:
    """How what it lists of a kind differs."""
    names = {*before, *after}
    drifts = (compare_one(kind.name, name, before.get(name), after.get(name), names) for name in sorted(names))
    return [drift for drift in drifts if drift is not None]


def compare_one(
    kind: str, name: str, before: Record | None, after: Record | None, others: AbstractSet[str] = frozenset()
) -> Drift | None:
    """How one thing differs; None: not at all. `others` are the names of all that the server has of its kind."""
    if after is None:
        return Drift(kind, name, (Difference("breaking", "is not there any more"),), gone=True)
    if before is None:
        return Drift(kind, name, (Difference("risk", "is new"),), new=True)
    if same(before, after):
        return None
    found: list[Difference] = []
    for one in FIELDS[kind]:
        old, new = before.get(one), after.get(one)
        if same(old, new):
            continue
        if one in ("title", "description") and _are(str, old, new):
            found += text_changes(one, old or "", new or "", others, name)
        elif one == "annotations" and _are(dict, old, new):
            found += _hints(as_object(old), as_object(new))
        elif one == "inputSchema":
            found += of_input(old, new)
        elif one == "outputSchema":
            found += of_output(old, new)
        elif one == "arguments" and _are_arguments(old) and _are_arguments(new):
            found += _arguments(old, new)
        elif one in ("name", "mimeType", *_APPS):
            found.append(Difference("risk", f"{one} is {_short(canonical(new))}, was {_short(canonical(old))}"))
        else:
            found.append(Difference("breaking", f"{one} has changed, and is not as MCP says"))
    return Drift(kind, name, tuple(found)) if found else None


def _are(type_: type, *values: object) -> bool:
    return all(one is None or isinstance(one, type_) for one in values)


def text_changes(
    what: str, before: str, after: str, others: AbstractSet[str] = frozenset(), name: str = ""
) -> list[Difference]:
    """Words that models read have changed: what is suspicious about the new ones comes first."""
    if before == after:
        return []
    found: list[Difference] = []
    if not hygiene.is_visible(after):
        found.append(Difference("risk", f"{what} has hidden characters"))
    known = {*_URL.findall(before)}
    url = next((url for url in _URL.findall(after) if url not in known), None)
    if url is not None:
        found.append(Difference("risk", f"{what} has an address that was not in it: {_short(url)}"))
    # By the words of the text: a server may have thousands of tools, and all of them may change at once.
    new = {*_NAME.findall(after)} - {*_NAME.findall(before)} - {name}
    named = sorted(one for one in new if len(one) > 3 and one in others)
    if named:
        found.append(Difference("risk", f"{what} speaks of another tool: {min(named)}"))
    found.append(Difference("risk", f"{what} is {_short(after)!r}, was {_short(before)!r}"))
    return found


def _hints(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[Difference]:
    for name, unsaid in _UNSAID.items():
        old, new = (one.get(name, unsaid) for one in (before, after))
        if not same(old, new):
            # One that says less harm than before is no better: clients, rules and tiers ask less for it.
            yield Difference("risk", f"{name} is {_short(canonical(new))}, was {_short(canonical(old))}")
    rest = [name for name in sorted({*before, *after} - _UNSAID.keys()) if not same(before.get(name), after.get(name))]
    for name in rest:
        yield Difference("risk", f"annotations.{name} is {_short(canonical(after.get(name)))}")


def _are_arguments(value: object) -> bool:
    """Whether these are the arguments of a prompt, each with a name of its own."""
    if value is None:
        return True
    names = [as_object(one).get("name") for one in as_list(value)]
    named = all(isinstance(name, str) for name in names) and len({*names}) == len(names)
    return isinstance(value, list) and named


def _arguments(before: object, after: object) -> Iterable[Difference]:
    old, new = ({str(as_object(one)["name"]): as_object(one) for one in as_list(given)} for given in (before, after))
    for name in sorted({*old, *new}):
        was, is_ = old.get(name), new.get(name)
        if is_ is None:
            yield Difference("breaking", f"argument {name} is not there any more")
        elif was is None:
            required = is_.get("required") is True
            class_ = "breaking" if required else "risk" if {*is_} - {"name", "required"} else "safe"
            yield Difference(class_, f"argument {name} is new{', and required' * required}")
        else:
            if is_.get("required") is True and was.get("required") is not True:
                yield Difference("breaking", f"argument {name} is required now")
            elif was.get("required") is True and is_.get("required") is not True:
                yield Difference("safe", f"argument {name} is not required any more")
            for member in sorted({*was, *is_} - {"required"}):
                if not same(was.get(member), is_.get(member)):
                    yield Difference("risk", f"the {member} of argument {name} has changed")


def _source(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[Difference, ...]:
    """What a registry did not give, either time, is no difference."""
    shared = [name for name in sorted({*before, *now}) if name in before and name in now]
    return tuple(
        Difference("risk", f"{name} is {_short(now[name])}, was {_short(before[name])}")
        for name in shared
        if before[name] != now[name]
    )


def _info(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(
        Difference(
            "risk" if name == "name" else "safe",
            f"{name} is {_short(canonical(now.get(name)))}, was {_short(canonical(before.get(name)))}",
        )
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )


# --- what is held back ----------------------------------------------------------------------------


class LockVerdict(NamedTuple):
    """How a server differs from what was locked, and what follows from that."""

    drifts: tuple[Drift, ...] = ()
    enforced: bool = False
    """Whether only what its lock has may be used of it."""
    refused: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """Name of a kind → own name → why it is listed and not called."""


NOT_COMPARED: Final = LockVerdict()


class HeldList(NamedTuple):
    """What of a server's list is shown where the lock is enforced, and what is not called."""

    natives: Sequence[Native]
    refused: Mapping[str, str]
    """What is listed as it was locked, by name, and why it is not called."""
    drifts: tuple[Drift, ...]


def hold(server: str, kind: Kind, natives: Sequence[Native], locked: LockedServer | None) -> HeldList:
    """Hide what is new, and show what has changed as it was locked."""
    known = (locked or LockedServer()).of(kind)
    shown: list[Native] = []
    refused: dict[str, str] = {}
    drifts: list[Drift] = []
    names = {native.name for native in natives}
    for native in natives:
        record = known.get(native.name)
        drift = compare_one(kind.name, native.name, record, record_of(kind, native), names)
        if drift is None:
            shown.append(native)
            continue
        drifts.append(drift)
        if record is not None:
            shown.append(_as_locked(native, record))
            refused[native.name] = refusal(server, kind, drift)
    drifts += [
        drift for name in sorted(known.keys() - names) if (drift := compare_one(kind.name, name, known[name], None))
    ]
    return HeldList(natives if len(shown) == len(natives) and not refused else shown, refused, tuple(drifts))


def refusal(server: str, kind: Kind, drift: Drift) -> str:
    """What a call of something that has changed is answered with."""
    what = "; ".join(f"{one.what} ({one.class_})" for one in drift.differences[:3])
    more = f"; and {len(drift.differences) - 3} more" if len(drift.differences) > 3 else ""
    said = f"{kind.word} {drift.name!r} of server {server!r} is not what muxway.lock says: {what}{more}"
    return f"{said}. Look at it with `muxway lock diff`, then `{accepting(server, drift.name)}`"


def accepting(server: str, name: str) -> str:
    """The command that takes something as it is now. Whoever copies it has a shell, and names are a server's own."""
    return shlex.join(("muxway", "lock", "accept", f"{server}/{name}"))


def _as_locked(native: Native, record: Record) -> Native:
    """A definition with what was locked of it in place of what its server says now."""
    members = {name: raw for name, raw in native.members.items() if name not in ("_meta", *record, *_LOCKED_MEMBERS)}
    apps = {name.removeprefix("_meta."): record[name] for name in _APPS if name in record}
    if apps:
        members["_meta"] = envelopes.Raw(envelopes.encode(apps))
    members |= {name: envelopes.Raw(envelopes.encode(one)) for name, one in record.items() if name not in _APPS}
    return type(native)(native.name, members)


_LOCKED_MEMBERS: Final = frozenset(name for names in FIELDS.values() for name in names)


def _short(text: str) -> str:
    text = hygiene.visible(text, "�")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
