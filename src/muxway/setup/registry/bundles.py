"""MCP bundles (`.mcpb`): a zip with a program and a manifest that says how to start it.

A bundle is believed once its digest is that of the record. It is unpacked into a folder of its own, whole or not
at all: no file of it can land elsewhere, none is a link, and there is an end to how large it can get.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from muxway.config.loader_variables import is_loader
from muxway.log import printable
from muxway.net.sealed_files import data_folder
from muxway.setup.registry.launching import check_base
from muxway.setup.registry.questions import EntryText, Question, question_of
from muxway.setup.registry.recipes import Recipe, RecipeArgument
from muxway.setup.registry.records import RegistryError, RegistryVariable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.setup.registry.asking import Registry
    from muxway.setup.registry.records import RegistryPackage

LARGEST_BUNDLE: Final = 256 << 20
_LARGEST_UNPACKED: Final = 1 << 30
_MOST_FILES: Final = 50_000
_LARGEST_MANIFEST: Final = 1 << 20
_HOSTS: Final = frozenset({"github.com", "gitlab.com"})
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PROGRAMS: Final = frozenset({"node", "python", "python3", "uv", "bun", "deno"})
_TOKEN: Final = re.compile(
    r"\$\{(?:(?P<fixed>__dirname|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|/)|user_config\.(?P<key>[\w-]{1,100}))\}"
)
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, EOFError, RuntimeError)
"""What reading a zip may end with: one that is damaged, of another kind, or sealed with a password."""
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\:]")


class _UserConfig(msgspec.Struct, frozen=True, kw_only=True):
    type: str = "string"
    title: str | None = None
    description: str | None = None
    required: bool = False
    sensitive: bool = False
    multiple: bool = False
    default: str | int | float | bool | list[str] | None = None


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    platform_overrides: dict[str, Any] | None = None


class _Program(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    entry_point: str = ""
    mcp_config: _Start | None = None


class _Compatibility(msgspec.Struct, frozen=True, kw_only=True):
    platforms: list[str] | None = None


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    server: _Program
    user_config: dict[str, _UserConfig] | None = None
    compatibility: _Compatibility | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was downloaded and checked, and where it is going to be."""

    folder: Path
    content: bytes

    def unpack(self) -> bool:
        """Put it into its folder. Returns whether it was not there before. Raises RegistryError."""
        if self.folder.is_dir():
            return False
        try:
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=".new-"))
            try:
                _unpack(self.content, scratch)
                scratch.replace(self.folder)
            except BaseException:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
        except OSError as error:
            raise RegistryError(f"{self.folder} cannot be written: {error.strerror or error}.") from None
        except _BROKEN as error:
            raise RegistryError(f"The bundle cannot be unpacked: {printable(str(error))[:200]}.") from None
        return True

    def remove(self) -> None:
        """Take it away again."""
        shutil.rmtree(self.folder, ignore_errors=True)


async def bundle_recipe(package: RegistryPackage, registry: Registry, environ: Mapping[str, str]) -> Recipe:
    """Download a bundle, check it, and read how to start it. Raises RegistryError; nothing is unpacked yet."""
    url, digest = package.identifier, (package.file_sha256 or "")
    check_base(package)
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    if host not in _HOSTS and host != registry.host:
        raise RegistryError(
            f"The bundle is to come from {printable(host[:100]) or 'nowhere'}, not from GitHub or GitLab."
        )
    if not _SHA256.fullmatch(digest):
        raise RegistryError(
            "The record has no SHA-256 digest for its bundle, so nobody can tell whether it is the right one."
        )
    content = await registry.download(url, LARGEST_BUNDLE)
    if hashlib.sha256(content).hexdigest() != digest:
        raise RegistryError("The bundle has another SHA-256 digest than its record says: it is not added.")
    folder = data_folder(environ) / "muxway" / "bundles" / digest[:32]
    return read_bundle(content, folder, environ)


def read_bundle(content: bytes, folder: Path, environ: Mapping[str, str]) -> Recipe:
    """How to start what is in a bundle, once that is in the folder. Raises RegistryError."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _members(archive)
            with archive.open("manifest.json") as file:
                text = file.read(_LARGEST_MANIFEST + 1)
        manifest = msgspec.json.decode(text if len(text) <= _LARGEST_MANIFEST else b"", type=_Manifest)
    except KeyError:
        raise RegistryError("The bundle has no manifest.json.") from None
    except (*_BROKEN, OSError, msgspec.MsgspecError) as error:
        raise RegistryError(f"The bundle, or its manifest, cannot be read: {printable(str(error))[:200]}.") from None
    platforms = manifest.compatibility.platforms if manifest.compatibility is not None else None
    here = "linux" if sys.platform.startswith("linux") else sys.platform
    if platforms and here not in platforms:
        raise RegistryError(f"The bundle is not for this system, but for {printable(', '.join(platforms))[:100]}.")
    command, args, env = _start(manifest.server, here)
    home = environ.get("HOME") or "/"
    fixed = {"__dirname": str(folder), "HOME": home, "pathSeparator": "/", "/": "/"}
    fixed |= {key: f"{home}/{key.title()}" for key in ("DESKTOP", "DOCUMENTS", "DOWNLOADS")}
    questions = {key: _question(key, one, fixed) for key, one in (manifest.user_config or {}).items()}
    return Recipe(
        kind="mcpb",
        pinned=printable(f"mcpb:{manifest.name} {manifest.version}")[:200],
        command=_command(command, folder),
        arguments=tuple(RecipeArgument(None, _text(word, fixed, questions)) for word in args),
        env={name: _text(value, fixed, questions) for name, value in env.items()},
        bundle=Bundle(folder, content),
    )


def _start(server: _Program, here: str) -> tuple[str, list[str], dict[str, str]]:
    """Command, arguments and variables. Raises RegistryError."""
    given = server.mcp_config or _Start()
    try:
        other = msgspec.convert((given.platform_overrides or {}).get(here) or {}, _Start)
    except msgspec.ValidationError:
        raise RegistryError("The bundle's manifest has a `platform_overrides` that is none.") from None
    command = other.command or given.command
    args = other.args if other.args is not None else given.args or []
    env = {**(given.env or {}), **(other.env or {})}
    if command is None and server.type == "uv" and server.entry_point:
        command, args = "uv", ["run", "--directory", "${__dirname}", server.entry_point]
    if command is None:
        raise RegistryError("The bundle's manifest does not say how to start it (`mcp_config`).")
    for name, value in env.items():
        # PYTHONPATH is how bundles find what they bring along; it must lead into the bundle, and nowhere else.
        inside = name in ("PYTHONPATH", "NODE_PATH") and all(
            part.startswith("${__dirname}") and ".." not in part for part in value.split(":")
        )
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or (is_loader(name, value) and not inside):
            raise RegistryError(f"{printable(name)[:60]} is no variable that a bundle may set.")
    return command, args, env


def _command(command: str, folder: Path) -> str:
    """The program: one of those that run code, or a file of the bundle. Raises RegistryError."""
    if command in _PROGRAMS:
        return "python3" if command == "python" and not shutil.which("python") else command
    inside = command.removeprefix("${__dirname}/")
    # Whatever else the config would replace in it might lead out again.
    if (inside != command or "/" in inside) and _is_inside(inside) and "$" not in inside:
        return str(folder / inside)
    raise RegistryError(
        f"The bundle is started by {printable(command)[:60]}, which is neither in it nor one of its kind."
    )


def _question(key: str, given: _UserConfig, fixed: Mapping[str, str]) -> Question:
    default = given.default if isinstance(given.default, list) else [given.default] if given.default is not None else []
    kinds = {"directory": "filepath", "file": "filepath", "number": "number", "boolean": "boolean"}
    variable = RegistryVariable(
        description=given.description or given.title,
        is_required=given.required,
        is_secret=given.sensitive,
        format=kinds.get(given.type, "string"),
    )
    question = question_of(variable, key, key, repeated=given.multiple)
    words = (str(one).lower() if isinstance(one, bool) else str(one) for one in default)
    plain = tuple(_TOKEN.sub(lambda match: fixed.get(match["fixed"] or "", ""), word) for word in words)
    return replace(question, default=plain)


def _text(value: str, fixed: Mapping[str, str], questions: Mapping[str, Question]) -> EntryText:
    parts: list[str | Question] = []
    end = 0
    for match in _TOKEN.finditer(value):
        parts.append(value[end : match.start()])
        end = match.end()
        key = match["key"]
        if key is not None and key not in questions:
            raise RegistryError(f"The bundle's manifest refers to user_config.{key}, which it does not have.")
        parts.append(fixed[match["fixed"]] if key is None else questions[key])
    parts.append(value[end:])
    found = tuple(part for part in parts if part != "")
    return EntryText(found, repeated=len(found) == 1 and isinstance(found[0], Question) and found[0].repeated)


# --- the archive ------------------------------------------------------------------------------


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not _UNSAFE.search(name) and not path.is_absolute() and ".." not in path.parts


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """What is in it, if all of that may be unpacked. Raises RegistryError."""
    members = archive.infolist()
    if len(members) > _MOST_FILES or sum(one.file_size for one in members) > _LARGEST_UNPACKED:
        raise RegistryError("The bundle is larger than anything that muxway unpacks.")
    seen = set[str]()
    for one in members:
        kind = stat.S_IFMT(one.external_attr >> 16)
        if not _is_inside(one.filename) or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise RegistryError(
                f"The bundle has {printable(one.filename)[:60]}, which would not stay inside its folder."
            )
        plain = str(PurePosixPath(one.filename)).casefold()
        if plain in seen:
            raise RegistryError(f"The bundle has {printable(one.filename)[:60]} twice.")
        seen.add(plain)
    return members


def _unpack(content: bytes, folder: Path) -> None:
    left = _LARGEST_UNPACKED
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for one in _members(archive):
            path = folder / one.filename
            if one.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(one) as source, path.open("xb") as target:
                while piece := source.read(1 << 20):
                    left -= len(piece)
                    if left < 0:
                        raise RegistryError("The bundle is larger than anything that muxway unpacks.")
                    target.write(piece)
            path.chmod(0o700 if (one.external_attr >> 16) & 0o111 else 0o600)
