"""Log lines: a constant event, facts as fields, one line each, never an escape sequence.

    log.warning("server lost", upstream="github", exit=127, in_flight=3)
    → 12:00:01 warning server lost upstream=github exit=127 in_flight=3

Everything goes to stderr (stdout belongs to the protocol) and, if asked for, to a file. Lines of a log that may have
thousands a second are gathered for a moment, because a system call costs more than a line. Any other line is written at
once, after what was gathered before it.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import traceback
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = re.compile(r"[\w./:@+,<>()*-]+")
_SHORTEST_SECRET = 4
_SHORT = 64
_LONGEST = 8192
"""Characters of one value, after which it is cut."""
_DEEPEST = -20
"""Frames of a traceback that are shown, the last ones: a recursion without end has hundreds that are all alike."""
_GATHER = 0.02
"""Seconds for which lines wait for others to be written with."""
_MOST_TOLD = 20
"""Problems of one kind that are told one by one."""
T = TypeVar("T")
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


def first_of(problems: Sequence[T]) -> tuple[Sequence[T], str]:
    """Those of many problems of lists that are told one by one, and what to say of the rest; empty: there is none."""
    rest = len(problems) - _MOST_TOLD
    return problems[:_MOST_TOLD], f"{rest:,} more problems, see `muxway check --connect`" if rest > 0 else ""


class EventLog:
    """Writes events under one name of the `muxway` logger, so that library users can route them as usual."""

    def __init__(self, name: str, *, gathered: bool = False) -> None:
        """Prepare; `gathered` if there may be thousands of lines a second."""
        self._logger = _LOGGER.getChild(name)
        self._gathered = gathered

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

    def failure(self, event: str, error: BaseException, **fields: object) -> None:
        """Something raised what it should not: with the traceback, in the lines below."""
        if self._logger.isEnabledFor(logging.ERROR):
            why = f"{type(error).__name__}: {error}"
            trace = "".join(traceback.format_exception(error, limit=_DEEPEST)).rstrip().split("\n")
            below = "".join(f"\n    {printable(line[:_LONGEST])}" for line in trace)
            self._write(logging.ERROR, event, {**fields, "error": why}, below)

    @property
    def debugs(self) -> bool:
        """Whether everything is logged."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def lines(self, text: str) -> None:
        """What belongs to an error and needs several lines, such as a traceback. Each is made harmless."""
        below = "".join(f"\n    {printable(line[:_LONGEST])}" for line in text.splitlines())
        self._write(logging.ERROR, "traceback", {}, below)

    def flush(self) -> None:
        """Write what was gathered."""
        for lines in _OWN:
            lines.flush()

    def _write(self, level: int, event: str, fields: dict[str, object], below: str = "") -> None:
        logger = self._logger
        if logger.isEnabledFor(level):
            words = [event]
            for name, value in fields.items():
                if value is not None:
                    words.append(f"{name}={_word(value)}")
            text = " ".join(words) + below
            if _OWN and _LOGGER.handlers == _OWN and not (logger.handlers or logger.filters):
                # A record, which nobody else would see, takes longer to make than the line.
                _OWN[0].write(level, text, gathered=self._gathered)
            else:
                # Not `logger.log`, which would look for the line of code that called it and always find this one.
                logger.handle(logger.makeRecord(logger.name, level, __file__, 0, text, (), None))


def _word(value: object) -> str:
    if isinstance(value, int | float):
        # The interpreter refuses to print integers of thousands of digits.
        return str(value) if isinstance(value, float) or value.bit_length() < _LONGEST else "(huge)"
    text = value if isinstance(value, str) else str(value)
    return _repeated(text) if len(text) <= _SHORT else _quoted(text)


def _quoted(text: str) -> str:
    # Nothing that must be made visible is among the characters of plain words.
    if _PLAIN.fullmatch(text) and len(text) <= _LONGEST:
        return text
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return '"' + printable(cut).replace('"', "'") + '"'


_repeated = lru_cache(1024)(_quoted)
"""For the names and words that stand in line after line."""


class _Lines(logging.Handler):
    """Writes lines to all of these streams, the first of which stays open."""

    def __init__(self, streams: Sequence[TextIO]) -> None:
        super().__init__()
        self._streams = streams
        self._waiting: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """Which will write those that wait."""
        self._second = 0
        self._time = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self.write(record.levelno, text)

    def write(self, level: int, text: str, *, gathered: bool = False) -> None:
        """Write a line now; or, if it may be gathered, within a moment."""
        second = int(time.time())
        if second != self._second:
            self._second, self._time = second, time.strftime("%H:%M:%S", time.localtime(second))
        self._waiting.append(f"{self._time} {logging.getLevelName(level).lower()} {text}\n")
        loop = _running_loop() if gathered else None
        if loop is None:
            self.flush()
        elif loop is not self._loop:
            self._loop = loop
            loop.call_later(_GATHER, self.flush)

    def flush(self) -> None:
        """Write the lines that wait. `logging` calls it at the end of the process, too."""
        self.acquire()
        try:
            self._loop = None
            # Threads may add to the list meanwhile: only what was seen is taken out of it.
            lines = self._waiting[:]
            del self._waiting[: len(lines)]
            for stream in self._streams if lines else ():
                try:
                    stream.write("".join(lines))
                    stream.flush()
                except (OSError, ValueError):
                    self.handleError(logging.makeLogRecord({"msg": "log lines could not be written"}))
        finally:
            self.release()

    def close(self) -> None:
        """Write the lines that wait, and close the file, if there is one."""
        self.flush()
        for stream in self._streams[1:]:
            with suppress(OSError):  # told already: what could not be written cannot be written now
                stream.close()
        super().close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # Only where there is a loop already: to import all this takes its part of a start.
    module = sys.modules.get("asyncio")
    try:
        return None if module is None else module.get_running_loop()
    except RuntimeError:
        return None


_OWN: list[_Lines] = []
"""What `setup` has made; nothing in a program that uses the library."""


def setup(level: str, directory: Path | None = None) -> None:
    """Send muxway's log to stderr and, with a directory, also to `muxway.log` in it.

    Raises:
        OSError: the directory cannot be written to.
    """
    streams: list[TextIO] = [sys.stderr]
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        streams.append((directory / "muxway.log").open("a", encoding="utf-8", errors="backslashreplace"))
    _OWN[:] = [_Lines(streams)]
    _LOGGER.addHandler(_OWN[0])
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False
