"""Secrets that stand in clear in a server's entry: where they are, for people; what they are, only to be masked."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from muxway.config.report import as_list, as_mapping
from muxway.config.values import SECRET_KEY, is_secret
from muxway.log import masker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_FLAG = re.compile(r"--?[\w-]*(?:token|secret|passw|pwd|key|auth|credential)[\w-]*", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^}]*\}|\{(?:env|file):[^}]*\}|\$[A-Z_][A-Z0-9_]*")
_NO_DEFAULT = re.compile(r"\$\{[^}:]*(?::(?!-)[^}:]*)?\}|\{(?:env|file):[^}]*\}")
"""A reference that has nothing but a name in it, as `${TOKEN}` and `${secret:NAME}`; not `${TOKEN:-default}`."""
_KNOWN = re.compile(
    r"(?:gh[opsu]_|github_pat_|glpat-|sk-|xox[abposr]-|AKIA|AIza|hf_|npm_|pypi-|eyJ)[\w.-]{12,}", re.ASCII
)
"""What tokens of well-known services begin with, wherever they stand."""
_NAMED = re.compile(
    r"(?<![\w-])[\w-]{0,64}?(?:token|secret|passw|pwd|api[-_]?key|auth(?!ors?\b)|credential|cookie)[\w-]{0,64}+"
    r"[\"']?\s*+[:=]\s*+[\"']?(?:(?:bearer|basic|token)\s+)?([^\s\"'&,;}\\]+)",
    re.IGNORECASE,
)
"""A value behind its name, as headers and variables stand in an argument: `Authorization: Bearer …`, `API_KEY=…`."""


def clear_secrets(entry: Mapping[object, object]) -> dict[str, str]:
    """Place in the entry (`env.GITHUB_TOKEN`, `args.3`) → the secret that stands there."""
    return {
        place: text
        for key, value in entry.items()
        for place, text in _of(str(key), value)
        if not _REFERENCE.search(text) and "${" not in text and is_secret(text)
    }


def mask_of(*documents: object, lines: Iterable[str] = ()) -> Callable[[str], str]:
    """What puts `***` in place of the secrets anywhere in this plain data, also as they stand in JSON text.

    With the lines that are going to be shown, also of those in comments: what is in none of the data is in one.
    """
    strings = [string for value in documents for string in _strings(value)]
    found = [text for value in documents for _, text in _of("", value)]
    found += [text for string in strings for text in _in_text(string)]
    found += [text for line in lines for text in _in_text(line) if not any(text in string for string in strings)]
    texts = [text for text in dict.fromkeys(found) if not _REFERENCE.search(text)]
    return masker(filter(is_secret, [*texts, *(json.dumps(text, ensure_ascii=False)[1:-1] for text in texts)]))


def _of(key: str, value: object) -> Iterator[tuple[str, str]]:
    mapping, listed = as_mapping(value), as_list(value)
    if mapping is not None:
        for name, item in mapping.items():
            if isinstance(item, str) and (SECRET_KEY.search(str(name)) or _KNOWN.search(item)):
                yield f"{key}.{name}", item
            elif not isinstance(item, str):
                yield from ((f"{key}.{place}", text) for place, text in _of(str(name), item))
    elif listed is not None:
        before = ""
        for index, item in enumerate(listed):
            if isinstance(item, str):
                flag, _, given = item.partition("=")
                if given and _FLAG.fullmatch(flag):
                    yield f"{key}.{index}", given
                elif _FLAG.fullmatch(before) and not item.startswith("-"):
                    yield f"{key}.{index}", item
                else:
                    yield from ((f"{key}.{index}", text) for text in _in_text(item))
                before = item
            else:
                yield from ((f"{key}.{place}", text) for place, text in _of(str(index), item))
    elif isinstance(value, str):
        yield from ((key, text) for text in _in_text(value))


def _strings(value: object) -> Iterator[str]:
    """Every text in plain data, whatever its name."""
    left = [value]
    while left:
        one = left.pop()
        mapping, listed = as_mapping(one), as_list(one)
        if isinstance(one, str):
            yield one
        elif mapping is not None:
            left += mapping.values()
        elif listed is not None:
            left += listed


def _in_text(text: str) -> Iterator[str]:
    """Tokens of a known form, what stands behind a secret's name, and what a URL has as a password or under one."""
    yield from (match[0] for match in _KNOWN.finditer(text))
    names = [match.span() for match in _NO_DEFAULT.finditer(text)]
    for match in _NAMED.finditer(text):
        # `Authorization: Bearer ${TOKEN}` and `${secret:TOKEN}` have the name of a secret there, not a secret.
        if not any(start <= match.start(1) < end for start, end in names):
            yield match[1]
    if "://" in text:
        try:
            parts = urlsplit(text)
            if parts.password:
                yield parts.password
            yield from (value for name, value in parse_qsl(parts.query) if SECRET_KEY.search(name))
        except ValueError:
            return
