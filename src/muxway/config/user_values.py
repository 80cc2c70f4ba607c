"""`${user:NAME}` in `env` and `headers` of a server: what each user of it gives for himself.

It is put in when a connection is opened for that user, and nowhere before: a configuration has only its mark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WRITTEN = re.compile(r"(?<!\$)\$\{user:([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_MARKED = re.compile("«user:([A-Za-z_][A-Za-z0-9_]{0,63})»")


def marked(raw: object) -> object:
    """A value as it is written, with marks for what users give."""
    return _WRITTEN.sub(r"«user:\1»", raw) if isinstance(raw, str) else raw


def names_in(texts: Iterable[str | None]) -> tuple[str, ...]:
    """What users have to give for these, by name."""
    return tuple(dict.fromkeys(name for text in texts if text for name in _MARKED.findall(text)))


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with what a user gave in it, which is not looked at again."""
    return _MARKED.sub(lambda match: values[match[1]], text)
