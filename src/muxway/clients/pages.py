"""The port to whoever serves web pages for people, beside what is served to MCP clients.

Pages are few and rare: each is answered by a task of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qsl

_MOST_FIELDS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What a browser asks for. The names by which it may call us have been checked."""

    method: str
    """`GET` or `POST`."""
    path: str
    query: str = ""
    form: Mapping[str, str] = field(default_factory=dict[str, str])
    """What was filled in; empty unless it is a POST."""
    body: bytes = b""
    """What a program sent, whatever it is; empty for what browsers are shown."""
    cookies: Mapping[str, str] = field(default_factory=dict[str, str])
    host: str = ""
    """By what name we were called."""
    origin: str | None = None
    """The origin of the page that sent a form, as the browser says."""
    address: str = ""
    """Where it comes from, as far as the connection says."""
    is_operator: bool = False
    """Whether it needs no credentials, because it comes from the user who runs the gateway."""


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What it gets."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()


PageHandler: TypeAlias = Callable[[PageRequest], Awaitable[PageAnswer]]


def read_fields(text: str) -> dict[str, str] | None:
    """The fields of a form or a query, each once; None if it is none, or one comes twice."""
    try:
        given = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    found = dict(given)
    return found if len(found) == len(given) else None


def read_cookies(lines: Sequence[bytes]) -> dict[str, str]:
    """The cookies of a request. Of two with one name neither counts: one of them may have been slipped in."""
    found: dict[str, str] = {}
    doubled: set[str] = set()
    for line in lines:
        for one in line.decode("latin-1").split(";"):
            name, _, value = one.strip().partition("=")
            if name in found:
                doubled.add(name)
            found[name] = value
    return {name: value for name, value in found.items() if name not in doubled}
