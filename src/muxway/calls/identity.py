"""What a caller's credentials say of it: for rules, audit and messages.

Whatever is kept apart hangs on the principal, a digest of who it is: a token that is renewed changes nothing in it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

Owner: TypeAlias = tuple[str, str]
"""Whose something is that all clients of a user share, such as a login at a server: who vouches for them, and whom
that one means by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whom a credential was given to. A plain bearer token of the configuration says nothing of that."""

    issuer: str = ""
    """Who vouches for it; empty for a key of our own."""
    subject: str = ""
    """Whom the issuer means. Unique there, and often nothing that people can read. Of a key, which one of its name."""
    client: str = ""
    """The program that the token was given to, by its id at the issuer."""
    key: str = ""
    """The name of the API key, if it is one."""
    user: str = ""
    """The user as people and rules call them."""
    groups: tuple[str, ...] = ()
    """Groups or roles, as the issuer names them."""
    more_groups: bool = False
    """Whether there are further ones, of which nothing is known: tokens and cookies have room for so many."""
    scopes: tuple[str, ...] = ()
    """What the token was given for."""

    @property
    def owner(self) -> Owner:
        """Whose logins at servers it may use. No issuer is called like the kinds of those who have none."""
        if self.key:
            return key_owner(self.key, self.subject)
        return (self.issuer, self.subject) if self.subject else ("client", f"{self.client} {self.issuer}")


def key_owner(name: str, mark: str) -> Owner:
    """Whose something is that belongs to an API key: to this one of its name, and to none that comes after it."""
    return "key", f"{name} {mark}"


def key_name(owner: Owner) -> str | None:
    """The name of the API key that something belongs to, if it belongs to one."""
    return owner[1].partition(" ")[0] if owner[0] == "key" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Somebody was turned away before there was a request: what was decided, by what, about whom."""

    status: int
    """The HTTP status of the answer."""
    rule: str
    """What decided: `token`, `key`, `scope`, `user` (of this machine)."""
    why: str
    method: str
    path: str
    address: str
    identity: Identity | None = None
    """Who it was, if the credentials are good and only not enough."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Somebody was asked whether a request may be made, because a rule says so: what the answer was."""

    approved: bool
    why: str
    """Why not; empty if it may."""
    rule: str
    method: str
    name: str
    server: str
    principal: bytes
    identity: Identity | None = None
    """Whose request it is, as far as credentials say so."""


def principal_of(kind: str, *parts: str) -> bytes:
    """The digest by which a principal is known. No choice of parts is the same as another one."""
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        text = part.encode(errors="surrogatepass")
        digest.update(b"\0%d\0%b" % (len(text), text))
    return digest.digest()
