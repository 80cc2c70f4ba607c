"""What to start and with which environment: decided before a process exists, so that errors can say what to do.

The program is looked up once, on the PATH the child itself will get, and never goes through a shell. The environment
is an allow-list plus what is configured: a server gets what it needs to run, not the owner's tokens.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muxway.config.loader_variables import is_loader
from muxway.errors import SpawnError
from muxway.net.processes.reaper import MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping

_INSTALL: Final[Mapping[str, str]] = {
    **dict.fromkeys(("node", "npx", "npm"), "Install Node.js (https://nodejs.org)"),
    **dict.fromkeys(("pnpm", "pnpx"), "Install pnpm (https://pnpm.io)"),
    "yarn": "Install Yarn (https://yarnpkg.com)",
    **dict.fromkeys(("uv", "uvx"), "Install uv (https://docs.astral.sh/uv)"),
    **dict.fromkeys(("python", "python3"), "Install Python (https://www.python.org)"),
    **dict.fromkeys(("pip", "pip3"), "Install Python with pip (https://pip.pypa.io)"),
    "pipx": "Install pipx (https://pipx.pypa.io)",
    "poetry": "Install Poetry (https://python-poetry.org)",
    "docker": "Install Docker (https://docs.docker.com/get-docker)",
    "podman": "Install Podman (https://podman.io)",
    **dict.fromkeys(("bun", "bunx"), "Install Bun (https://bun.sh)"),
    "deno": "Install Deno (https://deno.com)",
    "go": "Install Go (https://go.dev)",
    "cargo": "Install Rust (https://rustup.rs)",
    **dict.fromkeys(("java", "javac"), "Install Java, for example Temurin (https://adoptium.net)"),
    "jbang": "Install JBang (https://www.jbang.dev)",
    **dict.fromkeys(("dotnet", "dnx"), "Install .NET (https://dotnet.microsoft.com)"),
    "ruby": "Install Ruby (https://www.ruby-lang.org)",
    "php": "Install PHP (https://www.php.net)",
}


def resolve(command: str, *, path: str | None, cwd: str | None) -> str:
    """The absolute path of the program to start.

    Args:
        command: a bare name, looked up on `path`, or a path, taken relative to `cwd`.
        path: PATH of the child; None is the system's default.
        cwd: working folder of the child; None is ours.

    Raises:
        SpawnError: it is not there or cannot be executed; says what to install or change.
    """
    if not command:
        raise SpawnError("the command is empty: set `command` to the program to start")
    if "\0" in command:
        raise SpawnError(f"the command {command!r} contains a NUL character")
    base = Path(cwd).absolute() if cwd else Path.cwd()
    if "/" in command:
        return _checked(command, base / command)
    return _on_path(command, os.defpath if path is None else path, base)


def _checked(command: str, file: Path) -> str:
    """A command given as a path: this file or none."""
    shown = command if Path(command).is_absolute() else f"{command} ({file})"
    if file.is_dir():
        raise SpawnError(f"{shown} is a directory, not a program")
    if not file.is_file():
        # Only if a part of it is there: a path may well have blanks.
        hint = _arguments_hint(command) if _begins_a_program(command, file) else ""
        raise SpawnError(f"{shown} does not exist.{hint or ' Check the path in `command`'}")
    if not os.access(file, os.X_OK):
        raise SpawnError(f"{shown} is not executable: run `chmod +x {file}`, or name its interpreter in `command`")
    return str(file)


def _on_path(command: str, path: str, base: Path) -> str:
    unusable: Path | None = None
    # An empty entry would mean the current folder: a trap that nobody sets on purpose.
    for folder in filter(None, path.split(os.pathsep)):
        file = base / folder / command
        if not file.is_file():
            continue
        if os.access(file, os.X_OK):
            return str(file)
        unusable = unusable or file
    if unusable is not None:
        raise SpawnError(f"{command}: found {unusable}, but it is not executable: run `chmod +x {unusable}`")
    if (base / command).is_dir():
        raise SpawnError(f"{command}: command not found on PATH; {base / command} is a directory")
    raise SpawnError(f"{command}: command not found on PATH. {_remedy(command, path, base)}")


def _remedy(command: str, path: str, base: Path) -> str:
    or_set = "set `command` to the full path"
    if hint := _arguments_hint(command):
        return hint.strip()
    if (base / command).is_file():
        return f"There is one in the working folder: to start that, set `command` to ./{command}"
    if command == "python" and any((base / folder / "python3").is_file() for folder in path.split(os.pathsep)):
        return f"python3 is there: set `command` to python3, or {or_set}"
    install = _INSTALL.get(command)
    return f"{install}, or {or_set}" if install else f"Install it, or {or_set}"


def _arguments_hint(command: str) -> str:
    """For the common mistake of writing a whole command line where a program is wanted."""
    if " " not in command.strip():
        return ""
    program, rest = command.strip().split(maxsplit=1)
    return f" No shell splits it: set `command` to {program} and move `{rest}` to `args`"


def _begins_a_program(command: str, file: Path) -> bool:
    first, _, rest = command.strip().partition(" ")
    return rest.startswith("-") or (bool(rest) and Path(str(file).removesuffix(command) + first).is_file())


# Passed on as they are, if set. Everything else of our environment is the owner's business, not a server's.
_NAMES: Final = frozenset(
    {
        # Finding programs and one's own files: without PATH nothing starts, without HOME there is no cache.
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL"),
        # Language, encoding, terminal and clock: a server that lacks them prints mojibake and wrong times.
        *("LANG", "LANGUAGE", "TERM", "TZ"),
        # Where temporary files go: sandboxes and systemd units often allow only one place.
        *("TMPDIR", "TEMP", "TMP"),
        # Company certificates: TLS to anywhere fails without them.
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        # Company proxies: there is no other way out. Both spellings are in use.
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        # Where version managers keep what their shims on PATH start: `node` may be such a shim.
        *("NVM_DIR", "VOLTA_HOME", "FNM_DIR", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "PYENV_ROOT", "RBENV_ROOT"),
        *("BUN_INSTALL", "DENO_DIR", "PNPM_HOME", "JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME"),
        # Which container engine to speak to: rootless ones are nowhere else to be found.
        *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST"),
        # What a Windows process cannot even load its libraries or find its profile without.
        *(
            "SystemRoot",
            "SYSTEMROOT",
            "SystemDrive",
            "SYSTEMDRIVE",
            "windir",
            "WINDIR",
            "COMSPEC",
            "ComSpec",
            "PATHEXT",
        ),
        *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "ProgramData", "ProgramFiles", "PROGRAMFILES"),
        *("USERPROFILE", "HOMEDRIVE", "HOMEPATH", "USERNAME", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
    }
)
_PREFIXES: Final = (
    # Language by category, and the folders of the desktop standard (caches, configuration, runtime sockets).
    *("LC_", "XDG_"),
    # Registries, mirrors and caches of the package runners: without them npx, uvx and pip look in the wrong place.
    *("npm_config_", "NPM_CONFIG_", "UV_", "PIP_"),
)
_OWN_VARIABLE: Final = "MUXWAY_TOKEN"
"""Whoever has it can call every other server: it is nobody's but by name."""
_SECRET_NAME: Final = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|KEY|AUTH|CREDENTIAL", re.IGNORECASE)
_SECRET_URL: Final = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def child_environment(
    configured: Mapping[str, str], *, inherit: bool | tuple[str, ...], environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a child: the allow-list, what `inherit` adds, then what is configured, the later winning.

    Allow-listed variables that look like a secret, by name or by a password in a URL, are left out: whoever
    wants a server to have them names them. What decides which code a program runs is never inherited.

    Args:
        configured: variables set for this server.
        inherit: what it gets beyond the allow-list: nothing, everything, or these names.
        environ: our own environment.
    """
    named = inherit if isinstance(inherit, tuple) else ()
    child: dict[str, str] = {}
    for name, value in environ.items():
        # Functions that bash exported: code, which a shell in the child would run. And our own mark is not theirs.
        if value.startswith("()") or name == MARKER or is_loader(name, value):
            continue
        wanted = name in named or (inherit is True and name != _OWN_VARIABLE)
        if wanted or (_is_allowed(name) and not _looks_secret(name, value)):
            child[name] = value
    return child | dict(configured)


def _is_allowed(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)


def _looks_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _SECRET_URL.search(value))
