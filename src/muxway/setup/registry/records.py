"""What a registry says of a server. Types are checked here; what the values mean is judged where they are used."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from muxway.errors import MuxwayError

PUBLIC: Final = "https://registry.modelcontextprotocol.io"
VARIABLE: Final = "MUXWAY_REGISTRY"
"""Which registry to ask, in the environment."""
OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
"""Where in `_meta` the registry itself speaks, not the publisher."""
NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,198}[A-Za-z0-9])?/[A-Za-z0-9][\w.-]{0,198}", re.ASCII)
EXACT: Final = re.compile(r"v?\d[A-Za-z0-9]*(?:[.!+-][A-Za-z0-9]+)*", re.ASCII)
"""An exact version. `1.x` has the form of one, and is none."""
_WILD: Final = re.compile(r"(?:^|\.)[xX](?:\.|$)")
_NUMBERS: Final = re.compile(r"\d+")


class RegistryError(MuxwayError):
    """the MCP registry cannot be asked, or what it says cannot be used; says why, and what to do."""


class RegistryVariable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that a record wants to know of its user (`Input` in the registry's schema)."""

    description: str | None = None
    is_required: bool = False
    is_secret: bool = False
    format: str | None = None
    value: str | None = None
    default: str | int | float | bool | None = None
    placeholder: str | None = None
    choices: list[str] | None = None


class RegistryInput(RegistryVariable, frozen=True, kw_only=True, rename="camel"):
    """An argument, a variable of the environment, or a header."""

    type: str | None = None
    """Of an argument: `positional` or `named`."""
    name: str | None = None
    value_hint: str | None = None
    is_repeated: bool = False
    variables: dict[str, RegistryVariable] | None = None


class RegistryTransport(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is spoken to: that of a package, or a remote."""

    type: str
    url: str | None = None
    headers: list[RegistryInput] | None = None
    variables: dict[str, RegistryVariable] | None = None


class RegistryPackage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A program that can be downloaded."""

    registry_type: str
    identifier: str
    version: str | None = None
    registry_base_url: str | None = None
    file_sha256: str | None = msgspec.field(default=None, name="fileSha256")
    transport: RegistryTransport | None = None
    runtime_arguments: list[RegistryInput] | None = None
    package_arguments: list[RegistryInput] | None = None
    environment_variables: list[RegistryInput] | None = None


class RegistryServer(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher says."""

    name: str
    version: str
    description: str = ""
    title: str | None = None
    packages: list[RegistryPackage] | None = None
    remotes: list[RegistryTransport] | None = None
    status: str | None = None
    """Where records of earlier registries have it."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the registry says of a publisher's record."""

    status: str | None = None
    status_message: str | None = None
    is_latest: bool | None = None
    updated_at: str | None = None
    published_at: str | None = None


class RegistryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one server."""

    server: RegistryServer
    standing: Standing = Standing()

    @property
    def status(self) -> str:
        """`active`, `deprecated` or `deleted`."""
        return self.standing.status or self.server.status or "active"


def read_record(raw: Any) -> RegistryRecord:
    """A record, from what was decoded. Raises RegistryError."""
    try:
        server = msgspec.convert(raw["server"], RegistryServer)
        meta: Any = raw.get("_meta") or {}
        standing = msgspec.convert(meta.get(OFFICIAL) or {}, Standing)
    except (msgspec.ValidationError, TypeError, KeyError, AttributeError) as error:
        why = f": {error}" if isinstance(error, msgspec.ValidationError) else ""
        raise RegistryError(f"the MCP registry gave a record that is not as its schema says{why}") from None
    if not NAME.fullmatch(server.name):
        raise RegistryError("the MCP registry gave a record with a name that is none")
    return RegistryRecord(server=server, standing=standing)


def is_exact(version: str) -> bool:
    """Whether this is one version, not a range of them."""
    return len(version) <= 255 and bool(EXACT.fullmatch(version)) and not _WILD.search(version) and version != "latest"


def version_key(version: str) -> tuple[tuple[int, ...], bool, str]:
    """What to sort versions by: as numbers, where a registry sorts them as text; a pre-release before its release."""
    release, dash, rest = version.lstrip("v").partition("+")[0].partition("-")
    return tuple(int(number) for number in _NUMBERS.findall(release[:100])), not dash, rest
