"""Reading `.env` files: `KEY=value` lines, `export`, quotes and comments. Nothing is expanded in them."""

from __future__ import annotations

import re

_KEY = re.compile(r"\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*=", re.ASCII)
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_COMMENT = re.compile(r"(?:^|\s)#")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse_env_file(text: str) -> tuple[dict[str, str], list[int]]:
    """The variables, the last of a name winning, and the numbers of the lines that mean nothing."""
    variables: dict[str, str] = {}
    bad: list[int] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _KEY.match(line)
        value = _value(line[key.end() :].strip()) if key is not None else None
        if key is None or value is None:
            bad.append(number)
        else:
            variables[key[1]] = value
    return variables, bad


def _value(text: str) -> str | None:
    """What stands right of the `=`; None if a quote is not closed or something follows it."""
    if text[:1] not in {"'", '"'}:
        return _COMMENT.split(text, maxsplit=1)[0].rstrip()
    quoted = (_SINGLE if text[0] == "'" else _DOUBLE).match(text)
    if quoted is None or _value(text[quoted.end() :].strip()) != "":
        return None
    return quoted[1] if text[0] == "'" else _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), quoted[1])
