"""What stands outside the config: `${secret:NAME}`, `${input:ID}` and `${file:PATH}`.

An input is a secret that VS Code would ask for: `inputs` in the file says how. Nobody is asked here; whoever has a
terminal asks before the config is read (`cli/inputs`), and what was answered is a secret of that name from then on.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from muxway.config.report import as_list, as_mapping
from muxway.net.sealed_files import StoreError
from muxway.net.secret_store import LARGEST_SECRET, SecretStore, is_name, secret_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from muxway.config.report import Report

REFERENCE: Final = re.compile(r"(?<!\$)\$\{(secret|input):([^}]+)\}")
"""A reference to a secret, in the text of a config."""


class Unresolved(Exception):
    """What a reference names cannot be had; says why and what to do."""


class References(Protocol):
    """Gives what references stand for."""

    def look_up(self, kind: str, name: str) -> str:
        """What `${KIND:NAME}` stands for. Raises Unresolved."""
        ...


@dataclass(frozen=True, slots=True)
class Input:
    """Something that VS Code asks its user for."""

    id: str
    description: str = ""
    password: bool = False
    default: str | None = None
    options: tuple[str, ...] = ()


class OutsideValues:
    """The values outside one config, each looked up once."""

    def __init__(self, inputs: Mapping[str, Input], locate: Callable[[str], str]) -> None:
        self._inputs = inputs
        self._locate = locate
        self._store = SecretStore()
        self._known: dict[tuple[str, str], str] = {}
        self._files: dict[str, None] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """What to look at in order to know whether one of them has changed."""
        return tuple(self._files)

    def look_up(self, kind: str, name: str) -> str:
        """What `${KIND:NAME}` stands for. Raises Unresolved."""
        found = self._known.get((kind, name))
        if found is None:
            found = self._file(name) if kind == "file" else self._secret(kind, name)
            self._known[kind, name] = found
        return found

    def _secret(self, kind: str, name: str) -> str:
        self._files[str(secret_folder())] = None
        try:
            value = self._store.read(name)
        except StoreError as error:
            raise Unresolved(f"The {kind} {name} cannot be read: {error}") from None
        asked = self._inputs.get(name) if kind == "input" else None
        if value is None and asked is not None:
            value = asked.default
        if value is None:
            about = f" ({asked.description[:200]})" if asked is not None and asked.description else ""
            raise Unresolved(f"Missing {kind}: {name}{about}. Set it: `muxway secret set {shlex.quote(name)}`")
        return value

    def _file(self, name: str) -> str:
        path = self._locate(name)
        self._files[path] = None
        try:
            # Neither a pipe that nobody writes to nor a device without an end may hold up a start.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise Unresolved(f"{path} is no file that could be read whole")
                content = file.read(LARGEST_SECRET + 1)
            text = content.decode()
        except UnicodeDecodeError:
            raise Unresolved(f"{path} is not UTF-8") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise Unresolved(f"{path} cannot be read: {why}") from None
        if len(content) > LARGEST_SECRET:
            raise Unresolved(f"{path} has more than {LARGEST_SECRET:,} bytes, which is no secret")
        return text.removesuffix("\n").removesuffix("\r")


def can_be_named(kind: str, name: str) -> bool:
    """Whether a reference of this kind may have this name."""
    return bool(name.strip()) if kind == "file" else is_name(name)


def read_inputs(raw: object, report: Report) -> dict[str, Input]:
    """The inputs that a file of VS Code declares, by id."""
    found: dict[str, Input] = {}
    for index, item in enumerate(as_list(raw) or ()):
        fields = as_mapping(item) or {}
        name, default = fields.get("id"), fields.get("default")
        if not isinstance(name, str) or not is_name(name):
            report.warn(("inputs", index), "is no input, which has an `id`; ignored")
            continue
        options = (as_mapping(one) or {"value": one} for one in as_list(fields.get("options")) or ())
        found[name] = Input(
            name,
            description=str(fields.get("description") or ""),
            password=fields.get("password") is True,
            default=default if isinstance(default, str) and default else None,
            options=tuple(str(one.get("value")) for one in options),
        )
    return found


def references_in(value: object, *, off: bool = True) -> Iterator[tuple[str, str]]:
    """Kind and name of every reference to a secret in plain data, also in what is switched off, unless told so."""
    left = [value]
    while left:
        one = left.pop()
        mapping, listed = as_mapping(one), as_list(one)
        if isinstance(one, str):
            yield from ((match[1], match[2]) for match in REFERENCE.finditer(one))
        elif mapping is not None:
            if off or (mapping.get("enabled") is not False and mapping.get("disabled") is not True):
                left += reversed([*mapping.values()])
        elif listed is not None:
            left += reversed(listed)
