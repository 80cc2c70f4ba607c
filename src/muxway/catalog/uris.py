"""URIs of many servers side by side: which are taken, and how a later one is told apart.

A URI that two servers have is wrapped for the later one, with the server's name in front:
`muxway://notes/file%3A%2F%2F%2Fa`. Templates cannot be percent-encoded, because what their
variables become is not ours to decode; they stand behind a plus sign as they are:
`muxway://notes/+file:///{path}`. Both lead back to exactly what they were made of. `ui://`
stays `ui://`, because clients know apps by it. Whatever looks wrapped is ours alone: a
server's own URI of that look is wrapped again.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEME: Final = "muxway"
_APPS: Final = "ui"
_WRAPPED = re.compile(r"(?:muxway|ui)://([^/?#]+)/(.+)", re.DOTALL).fullmatch
_SCHEME_PART = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)").match
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)", re.DOTALL).match
LONGEST: Final = 4096
"""Characters of a URI that is listed, unwrapped, matched with templates, or shown where a filter is set."""
_DECODINGS: Final = 4
_MOST_WRAPPINGS: Final = 3
"""Times that a URI may be wrapped."""


def scheme_of(uri: str) -> str:
    """The scheme of a URI in lower case; empty if it has none."""
    match = _SCHEME_PART(uri)
    return "" if match is None else match[0].lower()


def wrap(upstream: str, uri: str) -> str:
    """The URI of one server, told apart from the same one of others."""
    return _front(upstream, uri) + quote(uri, safe="")


def wrap_template(upstream: str, template: str) -> str:
    """The template of one server, told apart from the same one of others. What it expands to is a wrapped URI."""
    return f"{_front(upstream, template)}+{template}"


def _front(upstream: str, uri: str) -> str:
    scheme = _APPS if scheme_of(uri) == _APPS else SCHEME
    return f"{scheme}://{quote(upstream, safe='')}/"


def unwrap(uri: str) -> tuple[str, str] | None:
    """Server and native URI of a wrapped one; None unless it is spelled exactly as we spell it, or if it is long."""
    match = _WRAPPED(uri) if len(uri) <= LONGEST else None
    if match is None:
        return None
    try:
        upstream = unquote(match[1], errors="strict")
        rest = match[2]
        native = rest[1:] if rest[0] == "+" else unquote(rest, errors="strict")
    except UnicodeDecodeError:
        return None
    again = wrap_template(upstream, native) if rest[0] == "+" else wrap(upstream, native)
    return (upstream, native) if native and again == uri else None


def is_wrapped_often(uri: str) -> bool:
    """Whether a URI has been wrapped again and again: by gateways that list each other, if not by somebody's design."""
    for _ in range(_MOST_WRAPPINGS + 1):
        inner = unwrap(uri)
        if inner is None:
            return False
        uri = inner[1]
    return True


def looks_wrapped(uri: str) -> bool:
    """Whether a URI stands where only wrapped ones may."""
    return scheme_of(uri) == SCHEME or unwrap(uri) is not None


# --- filters ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UriFilter:
    """Which URIs of a server may be seen and read, by glob."""

    exposed: tuple[str, ...] | None = None
    """Only what one of these matches; None: everything."""
    hidden: tuple[str, ...] = ()
    """Nothing that one of these matches."""
    besides: UriFilter | None = None
    """Another filter that it must pass too."""
    judge: Callable[[str], bool] | None = None
    """What else decides."""
    _exposed: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _hidden: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exposed", None if self.exposed is None else _any_of(self.exposed))
        object.__setattr__(self, "_hidden", _any_of(self.hidden) if self.hidden else None)

    def and_also(self, other: UriFilter) -> UriFilter:
        """What passes both."""
        return self if other == EVERY_URI else replace(other, besides=self)

    def shows(self, uri: str) -> bool:
        """Whether it may be seen. Every way a server might read the URI counts, so that no spelling gets around it."""
        if self.besides is not None and not self.besides.shows(uri):
            return False
        if self.judge is not None and not self.judge(uri):
            return False
        if self._exposed is None and self._hidden is None:
            return True
        readings = _readings(uri)
        if readings is None:
            return False
        if self._exposed is not None and not all(map(self._exposed.match, readings)):
            return False
        return self._hidden is None or not any(map(self._hidden.match, readings | _simplified(readings)))


def _any_of(globs: tuple[str, ...]) -> re.Pattern[str]:
    # Without globs nothing matches.
    return re.compile("|".join(map(translate, globs)) if globs else r"(?!)")


EVERY_URI: Final = UriFilter()
"""Hides nothing."""


def _readings(uri: str) -> set[str] | None:
    """The URI, and what a server may take it for: decoded, without dot segments, unwrapped. None if there is no end."""
    readings: set[str] = set()
    # A gateway behind ours may unwrap it again. Each level is read in all its ways, so levels and length are bounded.
    for _ in range(_MOST_WRAPPINGS + 1):
        own = _decodings(uri)
        if own is None:
            return None
        readings |= own
        inner = unwrap(uri)
        if inner is None:
            return readings | set(map(_without_dots, readings))
        uri = inner[1]
    return None


def _decodings(uri: str) -> set[str] | None:
    """The URI, and what is left of it when it is decoded again and again."""
    if len(uri) > LONGEST:
        return None
    readings = {uri}
    while (plain := unquote(uri)) != uri:
        readings.add(uri := plain)
        if len(readings) > _DECODINGS:
            return None
    return readings


def _without_dots(uri: str) -> str:
    match = _PARTS(uri)
    if match is None or not match[3]:
        return uri
    path = match[3].replace("\\", "/")
    end = "/" if path.endswith("/") and path.strip("/") else ""
    resolved = re.sub(r"^/+", "/", posixpath.normpath(path)) + end
    return uri[: match.start(3)] + resolved + uri[match.end(3) :]


def _simplified(readings: set[str]) -> set[str]:
    """More ways to say the same: scheme and host in capitals, a query or fragment that is not looked at."""
    simple: set[str] = set()
    for match in filter(None, map(_PARTS, readings)):
        scheme, host, path = match[1].lower(), match[2], match[3]
        if scheme == "file" and host is not None and host.lower() == "localhost":
            host = ""
        start = f"{scheme}:" if host is None else f"{scheme}://{host.lower()}"
        simple |= {start + path, (start + path).rstrip("/")}
    return simple
