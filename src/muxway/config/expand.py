"""Variables in text: one pass, no recursion, nothing printed.

| Written | Becomes |
|---|---|
| `$NAME` (capitals), `${NAME}`, `${env:NAME}`, `{env:NAME}` | the variable; missing is a problem |
| `${NAME:-text}`, `${env:NAME:-text}` | the variable, or `text` if it is unset or empty |
| `${secret:NAME}`, `${input:ID}`, `${file:PATH}`, `{file:PATH}` | what stands outside the config (`references`) |
| `${userHome}`, `${workspaceFolder}`, `${workspaceFolderBasename}`, `${cwd}`, `${/}` | as in VS Code |
| `${muxwayPython}` | the Python that runs muxway, which has its modules |
| `$$` | `$`, so `$${…}` is `${…}` as text |

A `$` before anything else stays (`$5`, `pa$word`, `Pa$Word`); any other `${…}` is a problem, because whoever wrote
it expected something to happen.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from muxway.config.references import Unresolved, can_be_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.references import References

_TOKEN = re.compile(
    r"\$\$"
    r"|\$\{(?P<braced>[^}]*)(?P<closed>\})?"
    r"|\$(?P<bare>[A-Z_][A-Z0-9_]*)(?![A-Za-z0-9_])"
    # Not after a dollar: `$${env:A}` is an escape.
    r"|(?<!\$)\{env:(?P<opencode>[A-Za-z_]\w*)\}"
    r"|(?<!\$)\{(?P<file>file:[^}]+)\}",
    re.ASCII,
)
_OUTSIDE = re.compile(r"(secret|input|file):(.+)", re.DOTALL)
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_]\w*)(?::-(.*))?", re.ASCII | re.DOTALL)

PUBLIC_VARIABLES = frozenset(
    {"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER"}
)
"""Variables whose values are no secrets: masking a user's home in every log line would help nobody."""

_CLIENT_FOLDERS = frozenset({".cursor", ".gemini", ".github", ".junie", ".kiro", ".roo", ".vscode", ".zed"})


def home_of(environ: Mapping[str, str]) -> str:
    """The user's home, as the given environment tells it before the real one does; `/` for a user who has none."""
    try:
        return environ.get("HOME") or str(Path.home())
    except RuntimeError:
        return "/"


def working_folder() -> Path:
    """Where muxway was started; `/` if that folder is gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def expand_tilde(path: str, home: str) -> str:
    """Replace a leading `~`; `~name` is left alone."""
    return home + path[1:] if path == "~" or path.startswith(("~/", f"~{os.sep}")) else path


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean while one configuration is read."""

    environ: Mapping[str, str]
    folder: Path
    """Absolute folder of the file, or the working folder if there is no file: relative paths start here."""
    real_folder: Path | None = None
    """The folder that the file is really in, if it was named by a symbolic link."""
    references: References | None = None
    """What secrets, inputs and files stand for; None: they mean nothing here."""

    @property
    def home(self) -> str:
        """The user's home."""
        return home_of(self.environ)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the file: that of its name, and the one it is really in."""
        return tuple(dict.fromkeys(str(folder) for folder in (self.folder, self.real_folder) if folder is not None))

    def predefined(self, name: str) -> str | None:
        """The editors' own variables, and one of ours.

        A workspace holds its client's folder, so `.vscode/mcp.json` means the parent.
        """
        workspace = self.folder.parent if self.folder.name in _CLIENT_FOLDERS else self.folder
        match name:
            case "userHome":
                return self.home
            case "workspaceFolder":
                return str(workspace)
            case "workspaceFolderBasename":
                return workspace.name
            case "cwd":
                return str(working_folder())
            case "pathSeparator" | "/":
                return os.sep
            case "muxwayPython":
                return sys.executable
            case _:
                return None

    def locate(self, path: str) -> str:
        """A path as the user means it: `~` is home, relative is relative to the file.

        Of a file named by a symbolic link, what is not beside the link is beside the file: dotfile managers link single
        files, Kubernetes links all there are.
        """
        given = expand_tilde(path, self.home)
        beside = self.folder / given
        if self.real_folder is not None and self.real_folder != self.folder and not _is_there(beside):
            real = self.real_folder / given
            return str(real if _is_there(real) else beside)
        return str(beside)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class Expanded:
    """The outcome of one expansion. `text` is only of use if nothing is missing or bad."""

    text: str
    missing: tuple[str, ...] = ()
    """Variables that are not set and have no default."""
    bad: tuple[str, ...] = ()
    """References that mean nothing here, as written."""
    values: tuple[str, ...] = ()
    """Values taken from the environment, and from outside, to be kept out of logs."""
    outside: tuple[str, ...] = ()
    """Those of them that are no variables: to be kept out of everything."""
    unavailable: tuple[tuple[str, str], ...] = ()
    """References to what cannot be had, as written, and why."""


def expand(text: str, scope: Scope) -> Expanded:
    """Replace every reference in `text`. Values put in are not looked at again."""
    if "$" not in text and "{" not in text:
        return Expanded(text)
    missing: list[str] = []
    bad: list[str] = []
    values: list[str] = []
    outside: list[str] = []
    unavailable: list[tuple[str, str]] = []

    def variable(name: str, default: str | None) -> str:
        value = scope.environ.get(name)
        if default is not None and not value:
            return default
        if value is None:
            missing.append(name)
            return ""
        if name not in PUBLIC_VARIABLES:
            values.append(value)
        return value

    def look_up(reference: str, kind: str, name: str) -> str:
        if scope.references is None or not can_be_named(kind, name):
            bad.append(reference)
            return ""
        try:
            value = scope.references.look_up(kind, name)
        except Unresolved as why:
            unavailable.append((reference, str(why)))
            return ""
        values.append(value)
        outside.append(value)
        return value

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match["bare"] or match["opencode"]
        if name is not None:
            return variable(name, None)
        inner = match["braced"] if match["closed"] else match["file"]
        if inner is not None and (parts := _OUTSIDE.fullmatch(inner)) is not None:
            return look_up(match[0], parts[1], parts[2])
        if inner is not None:
            known = scope.predefined(inner)
            if known is not None:
                return known
            parts = _VARIABLE.fullmatch(inner)
            # A `${` in the default would need recursion; its `}` has already ended the outer reference.
            if parts is not None and "${" not in (parts[2] or ""):
                return variable(parts[1], parts[2])
        bad.append(match[0])
        return ""

    expanded = _TOKEN.sub(replace, text)
    return Expanded(expanded, tuple(missing), tuple(bad), tuple(values), tuple(outside), tuple(unavailable))
