"""The servers of many files as entries of one config: each server once, under a name of its own.

An entry is taken over as it is written, references to variables included, because muxway reads every client's words.
What only has a meaning beside the client's file is made absolute.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from muxway.config.expand import Scope, home_of
from muxway.config.load import server_entries
from muxway.config.ourselves import runs_muxway
from muxway.config.references import references_in
from muxway.config.report import Report, as_list, as_mapping
from muxway.config.servers import read_server
from muxway.errors import ConfigError
from muxway.log import printable
from muxway.net.sealed_files import StoreError
from muxway.net.secret_store import SecretStore
from muxway.setup.clear_secrets import clear_secrets
from muxway.setup.splicing import plain_data, with_entry

if TYPE_CHECKING:
    from muxway.config.model import ServerConfig

_FILE = re.compile(r"(\{file:)([^}/~$][^}]*)(?=\})")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)\}|\{env:([A-Za-z_]\w*)\}", re.ASCII)
_SECRET = re.compile(r"\$\$|\$\{secret:([^}]*)")
"""A reference to muxway's sealed store, which no client has; `$$` comes first, as when a config is read."""
_PREDEFINED = frozenset({"userHome", "workspaceFolder", "workspaceFolderBasename", "cwd", "pathSeparator"})


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server of one file."""

    name: str
    origin: str
    """The client, or the file."""
    entry: Mapping[str, object]
    """What goes into the config."""
    identity: object = None
    """Equal for entries that start or reach the same server in the same way; None if it cannot be used."""
    problem: str = ""
    """Why it cannot be used."""
    is_muxway: bool = False
    texts: tuple[str, ...] = ()
    """Names in what would be references to muxway's secrets, and is text in the client that it is from."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Where in the entry secrets stand in clear."""
        return tuple(clear_secrets(cast("Mapping[object, object]", self.entry)))

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables that it refers to without a default."""
        text = json.dumps(self.entry)
        names = (match[1] or match[2] for match in _VARIABLE.finditer(text))
        return tuple(dict.fromkeys(name for name in names if name not in _PREDEFINED))

    @property
    def references(self) -> tuple[str, ...]:
        """Secrets and inputs that it refers to."""
        return tuple(dict.fromkeys(name for _, name in references_in(self.entry)))


@dataclass(frozen=True, slots=True)
class Merged:
    """What becomes of the servers that were found."""

    added: tuple[FoundServer, ...]
    """Under the names that they get."""
    same: tuple[tuple[FoundServer, str], ...]
    """Those that are there already, with the name that they have."""
    left: tuple[FoundServer, ...]
    """Those that muxway cannot run, and muxway itself."""


def servers_in(
    text: str, kind: str, file: Path, origin: str, environ: Mapping[str, str], *, of_client: bool = False
) -> list[FoundServer]:
    """Every server in the text of a client's file or a config.

    A client has no secrets of muxway's: what looks like a reference to one is text there, and is made text here. Else
    the file of a client could hand the secrets of one server to another.

    Raises:
        ConfigError: it cannot be read.
    """
    source = printable(str(file))
    root = as_mapping(plain_data(text, kind, source))
    if root is None:
        return []
    scope = Scope(environ=_Unexpanded(environ), folder=file.absolute().parent, references=_ForComparison())
    return [_found(name, entry, origin, scope, of_client=of_client) for name, _, entry in server_entries(root, source)]


def _found(name: str, raw: Mapping[object, object], origin: str, scope: Scope, *, of_client: bool) -> FoundServer:
    entry = cast("dict[str, object]", _portable(raw, scope.folder))
    texts: dict[str, None] = {}
    if of_client:
        entry = cast("dict[str, object]", _plain(entry, texts))
    if entry.get("name") == name:
        # What an array of servers needs, and an object does not.
        del entry["name"]
    report = Report(source=origin)
    server = read_server(name, entry, (name,), report, scope)
    if server is None or report.errors:
        problems = [*report.errors, *report.warnings]
        return FoundServer(name, origin, entry, problem=problems[0].message if problems else "it is no server")
    return FoundServer(name, origin, entry, identity=_identity(server), is_muxway=runs_muxway(server), texts=(*texts,))


def _identity(server: ServerConfig) -> object:
    how = (server.command, server.args, tuple(sorted(server.env.items())), server.cwd)
    # One that is off here and on there is two: which of them is meant, nobody can tell.
    return how, server.url, tuple(sorted(server.headers.items())), server.enabled


def merge(present: list[FoundServer], found: list[FoundServer]) -> Merged:
    """Which servers to add to those that are present: each once, the first of a name keeps it."""
    names = {server.identity: server.name for server in reversed(present) if server.identity is not None}
    taken = {server.name for server in present}
    added, same, left = list[FoundServer](), list[tuple[FoundServer, str]](), list[FoundServer]()
    for server in found:
        if server.problem or server.is_muxway:
            left.append(server)
        elif server.identity in names:
            same.append((server, names[server.identity]))
        else:
            name = _free(server, taken)
            taken.add(name)
            names[server.identity] = name
            added.append(replace(server, name=name))
    return Merged(tuple(added), tuple(same), tuple(left))


def _free(server: FoundServer, taken: set[str]) -> str:
    if server.name not in taken:
        return server.name
    name = f"{server.name}-{Path(server.origin).stem}"
    number = 2
    while name in taken:
        name = f"{server.name}-{Path(server.origin).stem}-{number}"
        number += 1
    return name


def with_servers(text: str, kind: str, servers: tuple[FoundServer, ...]) -> str:
    """The text of a config with these servers in it.

    Raises:
        ConfigError: it is not of that format.
        Unspliceable: it is written in a way that cannot be added to.
    """
    for server in servers:
        text = with_entry(text, kind, container_of(text, kind), (server.name, server.entry))
    return text


def container_of(text: str, kind: str, source: str = "the config") -> tuple[str, ...]:
    """Where a config has its servers, or would have them. Raises ConfigError, with the source, if it is broken."""
    root = as_mapping(plain_data(text, kind, source))
    try:
        for _, place, _ in server_entries(root or {}, source):
            return tuple(str(key) for key in place[:-1])
    except ConfigError:
        pass  # who reads the whole of it will tell
    return ("mcpServers",)


def _portable(raw: object, folder: Path, key: str = "") -> object:
    """The value as it means the same in another file."""
    mapping, listed = as_mapping(raw), as_list(raw)
    if mapping is not None:
        return {str(name): _portable(item, folder, str(name)) for name, item in mapping.items()}
    if listed is not None:
        return [_portable(item, folder) for item in listed]
    if isinstance(raw, str):
        text = _FILE.sub(lambda match: f"{match[1]}{folder / match[2]}", raw)
        is_path = key in ("cwd", "envFile") or (key in ("command", "cmd") and text.startswith(("./", "../")))
        return str(folder / text) if is_path and text[:1] not in {"/", "~", "$", "{", ""} else text
    return raw if isinstance(raw, bool | int | float | None) else str(raw)


def _plain(value: object, texts: dict[str, None]) -> object:
    """The value with references to secrets as the text that they are; their names are added to `texts`."""

    def as_text(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        texts[match[1]] = None
        return f"${match[0]}"

    mapping, listed = as_mapping(value), as_list(value)
    if mapping is not None:
        return {str(key): _plain(item, texts) for key, item in mapping.items()}
    if listed is not None:
        return [_plain(item, texts) for item in listed]
    return _SECRET.sub(as_text, value) if isinstance(value, str) else value


class _Unexpanded(Mapping[str, str]):
    """An environment in which every variable is set, to a reference to itself: nothing of the real one gets in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._home = home_of(environ)

    def __getitem__(self, name: str) -> str:
        return self._home if name == "HOME" else f"${{{name}}}"

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - every name is there
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("HOME",))

    def __len__(self) -> int:
        return 1


class _ForComparison:
    """Inputs and files that stand for references to themselves, and secrets for what they are.

    A server whose secret was moved into the store is the one that a client still has with the secret in clear.
    """

    def __init__(self) -> None:
        self._store = SecretStore()

    def look_up(self, kind: str, name: str) -> str:
        try:
            value = self._store.read(name) if kind == "secret" else None
        except StoreError:
            value = None  # whoever starts it will be told; until then it is like no other
        return f"${{{kind}:{name}}}" if value is None else value
