"""Public names: `<upstream><separator><native>`, legal for the strictest client, and back.

With the default separator `__` a public name is made to fit what the model APIs accept,
`[A-Za-z0-9_-]`, and stays short enough for the prefix that clients put before it
(`mcp__muxway__…` must fit in 64). With `:` or `.` the user has chosen the spelling of
another tool over those APIs, so names stay as they are but for characters nobody sees.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from muxway.catalog import hygiene

if TYPE_CHECKING:
    from collections.abc import Iterable

Separator = Literal["__", ":", "."]
SEPARATORS: Final[tuple[Separator, ...]] = ("__", ":", ".")

_PORTABLE_LIMIT: Final = 50
_PLAIN_LIMIT: Final = 128
_DIGEST: Final = 9
_SHORTEST_PREFIX: Final = 8
_NOT_PORTABLE = re.compile(r"[^A-Za-z0-9_-]")
_LETTER = re.compile(r"[A-Za-z]")
_LAYOUT = re.compile(r"[\t\r\n]")


@dataclass(frozen=True, slots=True)
class Naming:
    """The naming rule of one configuration."""

    separator: Separator = "__"
    limit: int = _PORTABLE_LIMIT

    @classmethod
    def of(cls, separator: Separator, limit: int | None) -> Naming:
        """The rule for a separator, with that separator's usual length limit unless one is given."""
        return cls(separator, limit or (_PORTABLE_LIMIT if separator == "__" else _PLAIN_LIMIT))

    def legal(self, name: str) -> str:
        """The name with every character that may not be in a public name replaced."""
        if self.separator != "__":
            return _LAYOUT.sub("_", hygiene.visible(name, "_"))
        name = _NOT_PORTABLE.sub("_", self.readable(name))
        if not (name[:1].isalpha() or name[:1] == "_"):
            name = "_" + name
        return name

    def readable(self, name: str) -> str:
        """The name, or a stable one instead of what would be nothing but underscores, as 查询 would."""
        if self.separator != "__" or name.isascii() or _LETTER.search(name) or not any(map(str.isalnum, name)):
            return name
        return f"name_{_digest(name)}"

    def public(self, prefix: str, native: str) -> str:
        """The public name of a tool; `prefix` is empty when the server's tools stand bare."""
        readable = self.readable(native)
        name = self.legal(f"{prefix}{self.separator}{readable}" if prefix else readable)
        if len(name) <= self.limit or not prefix:
            return self.fit(name, prefix, native)
        # The tool's own name says more than its server's: the prefix is cut first, but not to less than eight.
        tool = self.legal(f"_{readable}")[1:]
        room = self.limit - _DIGEST - len(self.separator)
        start = prefix[: max(_SHORTEST_PREFIX, room - len(tool))]
        return self.distinct(f"{start}{self.separator}{tool}", prefix, native)

    def fit(self, name: str, *identity: str) -> str:
        """The name, shortened with a stable hash of what it stands for if it is too long."""
        return name if len(name) <= self.limit else self.distinct(name, *identity)

    def distinct(self, name: str, *identity: str) -> str:
        """The name with a hash of what it stands for at its end: the same in every run, whatever else exists."""
        return f"{name[: self.limit - _DIGEST]}_{_digest(*identity)}"


def _digest(*identity: str) -> str:
    return hashlib.blake2s("\0".join(identity).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def spellings(prefix: str, native: str) -> Iterable[str]:
    """Every way a caller may write a tool, whatever the listing says."""
    return (prefix + separator + native for separator in SEPARATORS)


def nested(prefix: str, native: str) -> Iterable[str]:
    """The same, if the server is a gateway itself: `mid.in.s.echo` for the `in__s__echo` that `mid` lists."""
    own = SEPARATORS[0]
    return (prefix + separator + native.replace(own, separator) for separator in SEPARATORS[1:] if own in native)


def goes_round(prefix: str, native: str) -> bool:
    """Whether a name that a server lists has passed this server twice already: two gateways list each other.

    Each of them puts its prefix in front of what the other one lists, again and again. A prefix may have been cut,
    and so may the end of the name.
    """
    start = prefix[:_SHORTEST_PREFIX]
    if not prefix or native.count(start) < 2:
        return False
    name = re.escape(start) + (r"[^:.]*?" if len(start) == _SHORTEST_PREFIX else "")
    passed = re.compile(rf"(?:^|__|[:.]){name}(?=__|[:.]|_[0-9a-f]{{8}}$)")
    return sum(1 for _ in passed.finditer(native)) > 1


def has_prefix(name: str) -> bool:
    """Whether a name at least looks like `server<separator>tool`."""
    return any(separator in name.strip("_:.") for separator in SEPARATORS)
