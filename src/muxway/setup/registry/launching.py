"""From what a record offers, packages and addresses, to one recipe.

A record is written by strangers, and what it says becomes a command line: identifiers and versions must have the form
of their registry, what runs a package takes only options that do no harm, and nobody's fixed text has what a shell
would act on. There is no shell; whoever copies the line may have one.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muxway.config.loader_variables import is_loader
from muxway.config.report import as_list, as_mapping
from muxway.log import printable
from muxway.setup.packages import NPM_NAME, PYPI_NAME
from muxway.setup.registry.questions import EntryText, Question, template, text_of
from muxway.setup.registry.recipes import Recipe, RecipeArgument
from muxway.setup.registry.records import RegistryError, RegistryTransport, is_exact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.setup.registry.records import RegistryInput, RegistryPackage, RegistryServer

_RUNNERS: Final = {
    "npm": ("npx", "install Node.js"),
    "pypi": ("uvx", "install uv"),
    "oci": ("docker", "install Docker"),
    "nuget": ("dnx", "install .NET 10"),
}
KINDS: Final = (*_RUNNERS, "cargo", "mcpb", "remote")
_BASES: Final = {
    "npm": ("https://registry.npmjs.org",),
    "pypi": ("https://pypi.org", "https://pypi.org/simple"),
    "oci": ("https://docker.io", "https://ghcr.io", "https://quay.io", "https://mcr.microsoft.com"),
    "nuget": ("https://api.nuget.org", "https://api.nuget.org/v3/index.json", "https://nuget.org"),
    "cargo": ("https://crates.io", "https://index.crates.io", "https://static.crates.io"),
    "mcpb": ("https://github.com", "https://gitlab.com"),
}
"""Where packages of a type come from. Any other place is a stranger's."""
_IMAGE_HOSTS: Final = ("docker.io", "ghcr.io", "quay.io", "mcr.microsoft.com", "gcr.io", "public.ecr.aws")
_IMAGE_ZONES: Final = (".pkg.dev", ".azurecr.io")
_IMAGE: Final = re.compile(
    r"(?:(?P<host>[a-z0-9-]+(?:\.[a-z0-9-]+)+)/)?[a-z0-9]+(?:[._/-]{1,2}[a-z0-9]+)*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_IDENTIFIERS: Final = {
    "npm": NPM_NAME,
    "pypi": PYPI_NAME,
    "nuget": re.compile(r"[A-Za-z0-9_][\w.-]{0,99}", re.ASCII),
    "cargo": re.compile(r"[A-Za-z0-9][\w-]{0,63}", re.ASCII),
}
_SEMVER: Final = re.compile(r"v?\d+\.\d+\.\d+(?:[-+]|$)", re.ASCII)
_FROM: Final = RecipeArgument("--from")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
_SWITCHES: Final = {
    "npm": {"-y", "--yes", "-q", "--quiet", "--prefer-offline"},
    "pypi": {"-q", "--quiet"},
    "oci": {"-i", "--interactive", "--rm", "--init", "--read-only"},
    "nuget": {"-y", "--yes", "--prerelease"},
}
_SETTINGS: Final = {
    "npm": set[str](),
    "pypi": {"--python"},
    "oci": {
        *("-e", "--env", "-v", "--volume", "--mount", "--network", "--net", "-p", "--publish", "-w", "--workdir"),
        *("--platform", "-u", "--user", "--add-host", "--pull", "-m", "--memory", "--cpus", "--tmpfs"),
    },
    "nuget": set[str](),
}
"""Options of what runs a package that only say how, without a value and with one. Others fetch more code, or open what
is closed. A switch with a value, or a setting without one, would put something else in the place of the package."""
_FLAG: Final = re.compile(r"-{0,2}[A-Za-z0-9][\w.:-]{0,99}", re.ASCII)
_ENV: Final = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
_STEERING: Final = re.compile(
    r"path|home|cargo_home|dotnet_root|(?:npm_config|uv|pip|nuget|docker|xdg)_.*|(?:https?|all|no)_proxy", re.IGNORECASE
)
"""Variables that decide where packages come from, or which program a name means. Their user may set them."""
_CRATES: Final = re.compile(
    r"\((?:registry\+https://github\.com/rust-lang/crates\.io-index|sparse\+https://index\.crates\.io/)\)"
)
_PYTHON: Final = re.compile(r"[A-Za-z0-9.@+-]{1,30}", re.ASCII)
_HEADER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", re.ASCII)
_FIXED_PLACE: Final = re.compile(r"(?![\0A-Za-z0-9_])|.*\.\.", re.DOTALL)
_MOUNTED: Final = re.compile(
    r"type=(?:bind|volume|tmpfs)|(?:src|source)=[\0A-Za-z0-9_](?:(?!\.\.)[^\"])*|(?:dst|destination|target)=[^\"]+"
    r"|(?:readonly|ro)(?:=true)?",
    re.IGNORECASE | re.ASCII,
)
"""A field of what `--mount` takes, with a NUL in place of an answer. Others, as `volume-opt`, may mean any folder."""
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_TRANSPORTS: Final = {"streamable-http": "http", "sse": "sse"}


def choose(
    server: RegistryServer, wanted: str | None, environ: Mapping[str, str]
) -> RegistryPackage | RegistryTransport:
    """What to take of a record: the first package that can be run here, else an address, else the first package.

    Raises:
        RegistryError: it offers nothing, or not what is wanted.
    """
    packages = [one for one in server.packages or () if one.registry_type in KINDS and _is_stdio(one)]
    remotes = sorted(
        (one for one in server.remotes or () if one.type in _TRANSPORTS), key=lambda one: one.type != "streamable-http"
    )
    offered = [*dict.fromkeys(one.registry_type for one in packages), *(["remote"] if remotes else [])]
    if not offered:
        raise RegistryError(f"{server.name} offers nothing that muxway could run or reach.")
    if wanted is not None:
        packages = [one for one in packages if one.registry_type == wanted]
        remotes = remotes if wanted == "remote" else []
        if not packages and not remotes:
            raise RegistryError(f"{server.name} is not offered as {wanted}, but as {', '.join(offered)}.")
    for package in packages:
        runner = _RUNNERS.get(package.registry_type)
        if runner is None or shutil.which(runner[0], path=environ.get("PATH")):
            return package
    return remotes[0] if remotes else packages[0]


def _is_stdio(package: RegistryPackage) -> bool:
    # One that listens on a port has to be started by somebody else.
    return package.transport is None or package.transport.type == "stdio"


def check_base(package: RegistryPackage) -> None:
    """Raise RegistryError if a package is to come from elsewhere than its type says."""
    base = package.registry_base_url
    if base and base.rstrip("/").lower() not in _BASES[package.registry_type]:
        raise RegistryError(
            f"The package is to come from {printable(base[:100])}, which is not where such packages are."
        )


def package_recipe(package: RegistryPackage, environ: Mapping[str, str]) -> Recipe:
    """How to run a package that is no bundle. Raises RegistryError."""
    kind = package.registry_type
    check_base(package)
    name, version = package.identifier, package.version or ""
    if kind == "oci":
        image = _image(name, version)
        words, pinned = (image,), image
    else:
        if len(name) > 214 or not _IDENTIFIERS[kind].fullmatch(name):
            raise RegistryError(f"{printable(name[:100])} is no name of a package of {kind}.")
        # To npm `1.2` is whatever is newest among 1.2.x.
        if not is_exact(version) or (kind == "npm" and not _SEMVER.match(version)):
            raise RegistryError(
                f"{printable(version[:60]) or 'nothing'} is no exact version of {name}: it is not added."
            )
        words, pinned = (f"{name}@{version}",), f"{kind}:{name} {version}"
    arguments = _arguments(package.package_arguments or ())
    env = _environment(package.environment_variables or ())
    if kind == "cargo":
        command = _installed_crate(name, version, environ)
        return Recipe(kind=kind, pinned=pinned, command=command, arguments=arguments, env=env)
    command, remedy = _RUNNERS[kind]
    if not shutil.which(command, path=environ.get("PATH")):
        raise RegistryError(f"{command} is needed to run a package of {kind}, and is not on PATH: {remedy}.")
    before, more = _runtime(kind, package.runtime_arguments or ())
    if before and before[-1] == _FROM:
        # The program in the package is called otherwise: its name is the first of the package's own arguments.
        if not arguments or arguments[0].flag is not None or not _PROGRAM.fullmatch(_fixed(arguments[0])):
            raise RegistryError(f"The record does not say which program of {name} to run.")
        words = (f"{name}=={version}",)
    if kind == "nuget":
        words = (*words, "--yes", *(["--"] if arguments else []))
        before = tuple(one for one in before if one.flag not in ("-y", "--yes"))
    return Recipe(
        kind=kind,
        pinned=pinned,
        command=command,
        before=before,
        package=words,
        arguments=arguments,
        env={**more, **env},
    )


def remote_recipe(remote: RegistryTransport) -> Recipe:
    """How to reach a server. Raises RegistryError."""
    url = template(remote.url or "", remote.variables or {})
    plain = "".join(part if isinstance(part, str) else "x" for part in url.parts)
    try:
        parts = urlsplit(plain)
        safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
        safe = safe and bool(parts.hostname) and "@" not in parts.netloc and not re.search(r"\s", plain)
    except ValueError:
        safe = False
    if not safe:
        raise RegistryError(f"{printable(plain[:100]) or 'nothing'} is no https address: it is not added.")
    headers: dict[str, EntryText] = {}
    for given in remote.headers or ():
        name = given.name or ""
        if not _HEADER.fullmatch(name):
            raise RegistryError(f"{printable(name[:60]) or 'nothing'} is no name of a header.")
        headers[name] = text_of(given, name, secret_name=name)
    kind = _TRANSPORTS[remote.type]
    return Recipe(kind="remote", pinned="", transport=kind, url=url, headers=headers)


def _image(name: str, version: str) -> str:
    """The image with its exact tag or digest. Raises RegistryError."""
    match = _IMAGE.fullmatch(name) if len(name) <= 300 else None
    if match is None:
        raise RegistryError(f"{printable(name[:100])} is no name of an image.")
    host = match["host"]
    if host is not None and host not in _IMAGE_HOSTS and not host.endswith(_IMAGE_ZONES):
        raise RegistryError(f"The image is to come from {host}, which is not known as a place of images.")
    tag = match["tag"] or (version if match["digest"] is None else "")
    if match["digest"] is None and (not re.fullmatch(r"\w[\w.-]{0,127}", tag, re.ASCII) or tag == "latest"):
        raise RegistryError(f"{name} has no exact version: it is not added.")
    return name if match["tag"] or match["digest"] else f"{name}:{tag}"


def _installed_crate(name: str, version: str, environ: Mapping[str, str]) -> str:
    """The program of a crate that its user has installed, as cargo wrote it down. Raises RegistryError.

    A program on PATH will not do: a record may be called like any of them.
    """
    home = Path(environ.get("CARGO_HOME") or Path(environ.get("HOME") or "/", ".cargo"))
    try:
        known = as_mapping(tomllib.loads((home / ".crates.toml").read_text("utf-8")).get("v1")) or {}
    except (OSError, ValueError):
        known = {}
    for key, programs in known.items():
        words = str(key).split(" ")
        found = as_list(programs) or []
        if words[:2] == [name, version] and _CRATES.fullmatch(" ".join(words[2:])) and found:
            return str(home / "bin" / str(name if name in found else found[0]))
    raise RegistryError(f"{name} {version} is not installed: cargo install {name} --version {version} --locked")


def _environment(given: Sequence[RegistryInput]) -> dict[str, EntryText]:
    env: dict[str, EntryText] = {}
    for one in given:
        name = one.name or ""
        if not _ENV.fullmatch(name):
            raise RegistryError(f"{printable(name[:60]) or 'nothing'} is no name of a variable.")
        value = one.value or (one.default if isinstance(one.default, str) else None)
        _check_variable(name, value, given=one.value is not None or one.default is not None)
        env[name] = text_of(one, name, secret_name=name)
    return env


def _check_variable(name: str, value: str | None, *, given: bool) -> None:
    """Raise RegistryError if a record may not have this variable, or may not be the one to set it."""
    if is_loader(name, value):
        raise RegistryError(f"{name} decides which code a program runs, and is not set for a record.")
    if given and _STEERING.fullmatch(name):
        raise RegistryError(f"{name} decides what is run, and where it comes from: a record may not set it.")


def _arguments(given: Sequence[RegistryInput]) -> tuple[RecipeArgument, ...]:
    return tuple(_argument(one, number) for number, one in enumerate(given, 1))


def _argument(given: RegistryInput, number: int) -> RecipeArgument:
    if given.type == "named":
        name = given.name or ""
        if not _FLAG.fullmatch(name):
            raise RegistryError(f"{printable(name[:60]) or 'nothing'} is no option of a program.")
        asks = given.is_required or given.is_secret or given.default is not None
        asks = asks or bool(given.choices or given.format or given.placeholder or given.value is not None)
        return RecipeArgument(name, text_of(given, name.lstrip("-"), secret_name=name) if asks else None)
    if given.type not in (None, "positional"):
        raise RegistryError(f"{printable(str(given.type)[:40])} is no kind of argument.")
    name = given.value_hint or given.name or f"argument-{number}"
    return RecipeArgument(None, text_of(given, name, secret_name=name))


def _fixed(argument: RecipeArgument) -> str:
    """The value of an argument, with a NUL in place of each answer."""
    parts = () if argument.value is None else argument.value.parts
    return "".join(part if isinstance(part, str) else "\0" for part in parts)


def _says_place(mount: EntryText | None) -> bool:
    """Whether a record says itself which folder of this machine is mounted, or has a way to."""
    answers = () if mount is None else mount.questions
    plain = _fixed(RecipeArgument(None, mount))
    if plain == "\0":
        return False
    fields = plain.split(",")
    more = any({",", '"'}.intersection(default) for one in answers for default in one.default)
    return more or not all(map(_MOUNTED.fullmatch, fields))


def _chosen(mount: EntryText) -> EntryText:
    """What is mounted, with the folder of this machine asked for: a default of the record is nobody's choice."""
    parts = list[str | Question]()
    before = ""
    for part in mount.parts:
        is_source = not before or before.lower().rstrip(" ").endswith(("src=", "source="))
        if isinstance(part, Question) and is_source:
            part = replace(part, required=True, default=())
        parts.append(part)
        before += part if isinstance(part, str) else "\0"
    return replace(mount, parts=tuple(parts))


def _runtime(kind: str, given: Sequence[RegistryInput]) -> tuple[tuple[RecipeArgument, ...], dict[str, EntryText]]:
    """What stands before the package, and variables that an image gets by an option. Raises RegistryError."""
    found: list[RecipeArgument] = [RecipeArgument("run")] if kind == "oci" else []
    env: dict[str, EntryText] = {}
    for number, one in enumerate(_arguments(given), 1):
        plain = _fixed(one)
        if one.flag is None and plain.startswith("-"):
            flag, equals, rest = plain.partition("=")
            one = RecipeArgument(flag, EntryText((rest,)) if equals and "\0" not in plain else None)
            plain = rest
        if kind == "oci" and one.flag is None and plain == "run":
            continue
        is_from = kind == "pypi" and one == _FROM and number == len(given)
        if one.flag not in (_SWITCHES if one.value is None else _SETTINGS)[kind] and not is_from:
            said = printable((one.flag or plain)[:60])
            raise RegistryError(
                f"The record has {said} for {_RUNNERS[kind][0]}, which is not among what is safe to take over."
            )
        if one.flag == "--python" and not _PYTHON.fullmatch(plain):
            raise RegistryError(f"{printable(plain[:60])} is no version of Python.")
        if (one.flag in ("-v", "--volume") and _FIXED_PLACE.match(plain)) or (
            one.flag == "--mount" and _says_place(one.value)
        ):
            raise RegistryError("The record opens a folder of this machine to the image that its user has not chosen.")
        if kind == "oci" and one.flag in ("-e", "--env") and "=" in plain and one.value is not None:
            name = plain.partition("=")[0]
            first, *others = one.value.parts
            if not _ENV.fullmatch(name) or not isinstance(first, str):
                raise RegistryError("The record has a variable for its image whose name is none.")
            # What runs the image gets it, too, to pass it on.
            _check_variable(name, plain.partition("=")[2], given=True)
            env[name] = EntryText((first.removeprefix(f"{name}="), *others))
        elif one not in found:
            mounted = one.value if one.flag in ("-v", "--volume", "--mount") else None
            found.append(one if mounted is None else RecipeArgument(one.flag, _chosen(mounted)))
    flags = {one.flag for one in found}
    if kind == "npm" and not flags & {"-y", "--yes"}:
        found.insert(0, RecipeArgument("-y"))
    if kind == "oci":
        needed = (("-i", "--interactive"), ("--rm", "--rm"))
        found[1:1] = [RecipeArgument(short) for short, long in needed if not flags & {short, long}]
    return tuple(found), env
