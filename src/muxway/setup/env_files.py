"""Secrets of a server in a file of their own beside the config, which only its owner can read.

The entry then names that file (`envFile`), so that the config can be shown, shared and committed.
"""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from muxway.config.envfile import parse_env_file
from muxway.config.report import as_mapping
from muxway.setup import files
from muxway.setup.clear_secrets import clear_secrets
from muxway.setup.files import FileRefused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from muxway.setup.files import ReadFile

_ENVIRONMENTS = ("env", "envs", "environment")
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def with_secrets(config: Path, name: str, secrets: Mapping[str, str]) -> tuple[ReadFile, bytes]:
    """The file for the secrets of a server, and what it will hold. One that was open to others is closed to them.

    Raises:
        FileRefused: it has other values for them, or must not be touched.
    """
    file = files.read(config.parent / f"{name}.env")
    present, _ = parse_env_file(file.text)
    differing = [key for key, value in secrets.items() if present.get(key, value) != value]
    if differing:
        raise FileRefused(
            file.path, f"has another value for {', '.join(differing)}: change it there, or take another name"
        )
    lines = [f"{key}={_quoted(value)}\n" for key, value in secrets.items() if key not in present]
    text = file.text if not file.text or file.text.endswith("\n") else f"{file.text}\n"
    return replace(file, mode=file.mode & stat.S_IRWXU), (text + "".join(lines)).encode()


def moved(name: str, entry: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """The entry without the secrets that stand in clear among its variables, and these.

    Those in arguments, headers and addresses stay: a program gets them in no other way.
    """
    key = next((word for word in _ENVIRONMENTS if as_mapping(entry.get(word)) is not None), None)
    if key is None or "envFile" in entry:
        return dict(entry), {}
    variables = cast("Mapping[str, object]", entry[key])
    found = clear_secrets({key: variables})
    secrets = {word.removeprefix(f"{key}."): text for word, text in found.items()}
    if not secrets:
        return dict(entry), {}
    rest = {word: value for word, value in variables.items() if word not in secrets}
    without = {word: value for word, value in entry.items() if word != key}
    return {**without, **({key: rest} if rest else {}), "envFile": f"{name}.env"}, secrets


def _quoted(value: str) -> str:
    for char, escape in _ESCAPES:
        value = value.replace(char, escape)
    return f'"{value}"'
