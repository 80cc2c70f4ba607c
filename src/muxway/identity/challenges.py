"""What a server says when it refuses a request for want of a login: `WWW-Authenticate` (RFC 9110 §11.6.1)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST: Final = 8192
_PARAMETER: Final = re.compile(
    r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|$)', re.DOTALL
)
_SCHEME: Final = re.compile(r"\s*,*\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:\s+|\s*$|\s*,)")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class Challenge(NamedTuple):
    """What a server wants to see."""

    bearer: bool = False
    """Whether it asks for a token at all."""
    resource_metadata: str | None = None
    """Where it says who gives them (RFC 9728 §5.1)."""
    scope: tuple[str, ...] | None = None
    error: str | None = None


def read_challenge(values: Iterable[str]) -> Challenge:
    """The first Bearer challenge in these headers."""
    for value in values:
        for scheme, parameters in _challenges(value[:_LONGEST]):
            if scheme.lower() == "bearer":
                scope = parameters.get("scope")
                return Challenge(
                    True,
                    parameters.get("resource_metadata"),
                    None if scope is None else tuple(dict.fromkeys(scope.split())),
                    parameters.get("error"),
                )
    return Challenge()


def _challenges(text: str) -> Iterable[tuple[str, dict[str, str]]]:
    at = 0
    while at < len(text) and (scheme := _SCHEME.match(text, at)) is not None:
        at = scheme.end()
        parameters: dict[str, str] = {}
        while (found := _PARAMETER.match(text, at)) is not None:
            name, quoted, plain = found.groups()
            parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted is not None else plain)
            at = found.end()
        yield scheme[1], parameters
