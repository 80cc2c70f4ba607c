"""What `muxway add` is given, made into an entry: a package at its exact version, an address, or a program.

Versions are asked of `npm` and `pip`, which know the user's registries, proxies and passwords. Nothing is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from muxway.config.report import as_list
from muxway.errors import MuxwayError
from muxway.log import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Tell = Callable[[str], None]

_PATIENCE = 120
"""Seconds for an answer of a registry."""
_WEB = ("http://", "https://")
_REGISTRIES = {"npm": "npm", "pypi": "PyPI"}
"""What people call them."""
NPM_NAME = re.compile(r"(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*", re.ASCII)
PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_EXACT = re.compile(r"\d[A-Za-z0-9]*(?:[.!+-][A-Za-z0-9]+)*", re.ASCII)
_NEWEST = re.compile(r"^\S+ \(([^()\s]+)\)$", re.MULTILINE)
_ALL = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_NOISE = re.compile(r"^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-server|-mcp)$")


class NotAdded(MuxwayError):
    """What was given cannot become a server; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A server to be, before its variables are known."""

    name: str
    entry: dict[str, object]
    pinned: str = ""
    """What was pinned, for people."""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)


def addition(source: str, args: list[str], environ: Mapping[str, str], tell: Tell) -> Addition:
    """What the user's word means: `npm:NAME`, `pypi:NAME`, `@scope/name`, a URL, a program, or a package's bare name.

    `tell` is told before somebody is asked that takes a while to answer.

    Raises:
        NotAdded: it means nothing, two things, or something that is not there.
    """
    if source.startswith(_WEB):
        if args:
            raise NotAdded("a URL takes no arguments.")
        host = urlsplit(source).hostname or ""
        labels = [label for label in host.split(".") if label not in ("www", "mcp", "api")]
        return Addition(short_name(labels[0] if labels else host), {"url": source})
    registry, colon, package = source.partition(":")
    if colon and registry in ("npm", "pypi"):
        return _package(registry, package, args, environ, tell)
    if source.startswith("@"):
        return _package("npm", source, args, environ, tell)
    if shutil.which(source, path=environ.get("PATH")) or source.startswith(("/", "./", "../", "~/")):
        # A path is meant from here; in the config it would be taken from the config's folder.
        program = str(Path(source).absolute()) if "/" in source and not source.startswith("~/") else source
        return Addition(short_name(PurePath(source).stem), {"command": program, **({"args": args} if args else {})})
    return _guessed(source, args, environ, tell)


def _guessed(source: str, args: list[str], environ: Mapping[str, str], tell: Tell) -> Addition:
    """The package of that name, if only one of the two registries has it."""
    if len(args) == 1 and args[0].startswith(_WEB):
        # As other programs take a name and a URL. What a stranger has published under that name is not what is meant.
        name = printable(source)
        raise NotAdded(
            f"a server by URL is added with --name {name} and its URL; a package as npm:{name} or pypi:{name}."
        )
    found = list[Addition]()
    missing = list[NotAdded]()
    for registry in ("npm", "pypi"):
        try:
            found.append(_package(registry, source, args, environ, tell))
        except NotAdded as error:
            missing.append(error)
    if len(found) == 1:
        return found[0]
    if found:
        raise NotAdded(f"npm and PyPI both have a {source}: write npm:{source} or pypi:{source}.")
    why = " ".join(map(str, missing))
    raise NotAdded(f"{printable(source)} is no program on PATH and no package that was found. {why}")


def _package(registry: str, given: str, args: list[str], environ: Mapping[str, str], tell: Tell) -> Addition:
    separator = "==" if registry == "pypi" and "==" in given else "@"
    at = given.rfind(separator, 1)
    name, version = (given, "") if at < 1 else (given[:at], given[at + len(separator) :])
    if not (NPM_NAME if registry == "npm" else PYPI_NAME).fullmatch(name):
        raise NotAdded(f"{printable(name)} is no name of a package of {registry}.")
    version = "" if version == "latest" else version
    if version and not _EXACT.fullmatch(version):
        raise NotAdded(f"{printable(version)} is no exact version: give one, or none for the newest.")
    tell(f"Asking {_REGISTRIES[registry]} for {f'{name} {version}' if version else f'the newest {name}'}")
    exact = _npm_version(name, version, environ) if registry == "npm" else _pypi_version(name, version, environ)
    command, words = ("npx", ["-y", f"{name}@{exact}"]) if registry == "npm" else ("uvx", [f"{name}@{exact}"])
    return Addition(short_name(name), {"command": command, "args": [*words, *args]}, f"{registry}:{name} {exact}")


def _npm_version(name: str, version: str, environ: Mapping[str, str]) -> str:
    wanted = f"{name}@{version}" if version else name
    said = _asked("npm", ["view", wanted, "version", "--json"], wanted, environ)
    try:
        answer: object = json.loads(said) if said.strip() else None
    except ValueError:
        raise NotAdded(f"npm said something else than a version of {wanted}.") from None
    listed = as_list(answer)
    return _exact(listed[-1] if listed else answer, version, f"npm has no {wanted}.")


def _pypi_version(name: str, version: str, environ: Mapping[str, str]) -> str:
    said = _asked("pip", ["index", "versions", "--disable-pip-version-check", name], name, environ)
    newest, listed = _NEWEST.search(said), _ALL.search(said)
    if not version:
        return _exact(newest[1] if newest else None, "", f"PyPI has no {name}.")
    there = [one.strip() for one in listed[1].split(",")] if listed else []
    return _exact(version if version in there else None, version, f"PyPI has no {name} {version}.")


def _exact(answer: object, wanted: str, missing: str) -> str:
    """The version that the registry gave, if it can be pinned."""
    if not isinstance(answer, str) or not _EXACT.fullmatch(answer) or (wanted and answer != wanted):
        raise NotAdded(missing)
    return answer


def _asked(program: Literal["npm", "pip"], words: list[str], wanted: str, environ: Mapping[str, str]) -> str:
    """What a package manager answers."""
    found = shutil.which(program, path=environ.get("PATH"))
    if found is None:
        raise NotAdded(f"{program} is not installed, so nobody can say which version of {wanted} there is.")
    try:
        done = subprocess.run(  # noqa: S603 - without a shell, and the name was checked
            [found, *words], capture_output=True, text=True, timeout=_PATIENCE, check=False, env={**environ},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotAdded(f"{program} did not answer within {_PATIENCE} s.") from None
    except OSError as error:
        raise NotAdded(f"{program} cannot be started: {error.strerror}.") from None
    if done.returncode:
        name = _REGISTRIES["npm" if program == "npm" else "pypi"]
        if "E404" in done.stdout + done.stderr or "No matching distribution" in done.stderr:
            raise NotAdded(f"{name} has no {wanted}: it is not there.")
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        # npm ends with where its log is; the reason stands behind the code.
        reasons = [line for line in lines if line.startswith("npm error ") and not line.startswith("npm error code ")]
        why = printable((reasons or lines[-1:])[0][:300]) if lines else "no reason was given"
        raise NotAdded(f"{name} cannot be asked for {wanted}: {why}.")
    return done.stdout


def short_name(name: str) -> str:
    """A name for a server: the package's, without what they all have; its owner's if it has nothing else."""
    owner, _, plain = name.rpartition("/")
    shorter = _NOISE.sub("", _NOISE.sub("", plain))
    if owner and shorter in ("", "mcp", "server"):
        return owner.removeprefix("@").rpartition(".")[2]
    return shorter or plain or "server"
