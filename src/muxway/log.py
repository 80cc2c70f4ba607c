"""Log lines: a constant event, facts as fields, one line each, never an escape sequence.

    log.warning("upstream lost", upstream="github", exit=127, in_flight=3)
    → 12:00:01 warning upstream lost upstream=github exit=127 in_flight=3

Everything goes to stderr (stdout belongs to the protocol) and, if asked for, to a file.
"""

from __future__ import annotations

import logging
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = re.compile(r"[\w./:@+,<>()*-]+")
_SHORTEST_SECRET = 4
_SHORT = 64
_LOGGER = logging.getLogger("muxway")


def printable(text: str) -> str:
    """The text with control, escape and direction-changing characters, and halves of surrogate pairs, made visible."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def masker(secrets: Iterable[str]) -> Callable[[str], str]:
    """What puts `***` in place of these secrets. Very short ones stay: hiding each of their letters hides nothing."""
    # Longest first, so that a secret that contains another is masked whole.
    hidden = sorted((secret for secret in secrets if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in hidden:
            text = text.replace(secret, "***")
        return text

    return mask


class EventLog:
    """Writes events under one name of the `muxway` logger, so that library users can route them as usual."""

    def __init__(self, name: str) -> None:
        self._logger = _LOGGER.getChild(name)

    def debug(self, event: str, **fields: object) -> None:
        """Something only a developer of muxway wants to see."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Something that went as it should."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something the owner of the configuration should look at."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something that is broken."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            words = [event, *(f"{name}={_word(value)}" for name, value in fields.items() if value is not None)]
            # Not `logger.log`, which would look for the line of code that called it and always find this one.
            name = self._logger.name
            self._logger.handle(self._logger.makeRecord(name, level, __file__, 0, " ".join(words), (), None))


def _word(value: object) -> str:
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return _repeated(text) if len(text) <= _SHORT else _quoted(text)


def _quoted(text: str) -> str:
    # Nothing that must be made visible is among the characters of plain words.
    return text if _PLAIN.fullmatch(text) else '"' + printable(text).replace('"', "'") + '"'


_repeated = lru_cache(1024)(_quoted)
"""For the names and words that stand in line after line."""


class _Line(logging.Formatter):
    _second = 0
    _time = ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._time = second, self.formatTime(record, "%H:%M:%S")
        line = f"{self._time} {record.levelname.lower()} {record.getMessage()}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


def setup(level: str, directory: Path | None = None) -> None:
    """Send muxway's log to stderr and, with a directory, also to `muxway.log` in it.

    Raises:
        OSError: the directory cannot be written to.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(directory / "muxway.log", encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(_Line())
        _LOGGER.addHandler(handler)
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False
