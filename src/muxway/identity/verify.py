"""Judges access tokens and API keys for HTTP clients. A `clients.authenticator.Authenticator`.

What was found out about a token is known by the digest of the token for up to a minute, for every endpoint at once: at
which of them it is good is looked up. Tokens themselves are not kept.
"""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from muxway.clients.authenticator import KEY_PREFIX, Admitted, Rejected
from muxway.identity.issuer import AT_ROOT, IssuerMetadata
from muxway.identity.jwks import IssuerKeys
from muxway.identity.verify_jwt import LEEWAY, Checked, UnknownKey, check_jwt, invalid
from muxway.identity.verify_opaque import OpaqueTokens
from muxway.log import EventLog
from muxway.net.sealed_files import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from muxway.calls.identity import Identity
    from muxway.clients.authenticator import Verdict
    from muxway.config.auth import AuthSettings
    from muxway.identity.authorization_endpoints import AuthorizationEndpoints
    from muxway.identity.keys import KeyFile
    from muxway.identity.own_tokens import OwnTokens
    from muxway.identity.resource_metadata import ProtectedResources

_KEPT: Final = 60.0
_OPAQUE_KEPT: Final = 30.0
"""The same for what an issuer said: it may have withdrawn the token a moment later."""
_BAD_KEPT: Final = 10.0
_TOLD_EVERY: Final = 60.0
_MOST_GOOD: Final = 10_000
_MOST_BAD: Final = 1_000
log = EventLog("auth")
_NO_KEYS: Final = Rejected(503, "", "the keys of the issuer cannot be fetched at present: try again soon")


class TokenMemory:
    """Verdicts by digest, each for its time. Bad tokens never push out good ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._good: dict[bytes, tuple[Checked, float]] = {}
        self._bad: dict[bytes, tuple[Rejected, float]] = {}

    def find(self, digest: bytes) -> Checked | Rejected | None:
        """What is known of it."""
        kept = self._good.get(digest) or self._bad.get(digest)
        return None if kept is None or kept[1] <= self._clock() else kept[0]

    def keep(self, digest: bytes, found: Checked | Rejected, seconds: float) -> None:
        """Remember it for so long."""
        until = self._clock() + seconds
        if isinstance(found, Checked):
            self._good.pop(digest, None)
            if len(self._good) >= _MOST_GOOD:
                del self._good[next(iter(self._good))]
            self._good[digest] = (found, until)
        else:
            self._bad.pop(digest, None)
            if len(self._bad) >= _MOST_BAD:
                del self._bad[next(iter(self._bad))]
            self._bad[digest] = (found, until)


class AccessTokens:
    """Judges the tokens of one issuer, as far as they are good anywhere."""

    def __init__(
        self,
        settings: AuthSettings,
        *,
        keys: IssuerKeys | None = None,
        opaque: OpaqueTokens | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.keys = keys or IssuerKeys(settings.issuer, settings.jwks)
        if opaque is None and settings.introspection is not None:
            opaque = OpaqueTokens(settings, settings.introspection)
        self._opaque = opaque
        self._now = now
        self._memory = TokenMemory(clock)
        self._asked: dict[bytes, asyncio.Task[Checked | Rejected]] = {}
        """What is being found out; once for all who wait for it."""

    def check(self, token: bytes) -> Checked | Rejected | asyncio.Task[Checked | Rejected]:
        """What is known of a token, or what will know it."""
        digest = sha256(token).digest()
        found = self._memory.find(digest) or self._asked.get(digest)
        if found is not None:
            return found
        if token.count(b".") != 2:
            if self._opaque is None:
                return invalid("the access token is no signed JWT")
        else:
            try:
                return self._keep(digest, check_jwt(token, self.keys, self.settings, self._now()), _KEPT)
            except UnknownKey:
                if not self.keys.may_learn:
                    return self._key_is_missing()
        task = self._asked[digest] = asyncio.get_running_loop().create_task(self._find_out(token, digest))
        task.add_done_callback(lambda _: self._asked.pop(digest, None))
        return task

    async def _find_out(self, token: bytes, digest: bytes) -> Checked | Rejected:
        if token.count(b".") != 2 and self._opaque is not None:
            return self._keep(digest, await self._opaque.check(token, self._now()), _OPAQUE_KEPT)
        # Shielded: the others who wait for the keys must not lose them if this one is not wanted any more.
        await asyncio.shield(self.keys.learn())
        try:
            return self._keep(digest, check_jwt(token, self.keys, self.settings, self._now()), _KEPT)
        except UnknownKey:
            return self._key_is_missing()

    def _key_is_missing(self) -> Rejected:
        return (
            invalid("the access token is signed with a key that the issuer does not have")
            if (self.keys.known)
            else _NO_KEYS
        )

    def _keep(self, digest: bytes, found: Checked | Rejected, seconds: float) -> Checked | Rejected:
        if isinstance(found, Checked):
            self._memory.keep(digest, found, min(seconds, found.expires + LEEWAY - self._now()))
        elif found.status != 503:
            self._memory.keep(digest, found, _BAD_KEPT)
        return found

    def close(self) -> None:
        """Find out nothing more."""
        for task in list(self._asked.values()):
            task.cancel()
        self.keys.close()


class ResourceServer:
    """Says who may use which endpoint."""

    demands = True

    def __init__(
        self,
        tokens: AccessTokens,
        resources: ProtectedResources,
        keys: KeyFile | None = None,
        server: AuthorizationEndpoints | None = None,
    ) -> None:
        self.tokens = tokens
        self._server = server
        self._resources = resources
        self._keys = keys
        self._issuer = IssuerMetadata(tokens.settings.issuer)
        self._told: dict[str, float] = {}
        """Why tokens were refused that are good elsewhere, and when the log last said so."""

    def judges(self, token: bytes) -> bool:
        del token
        return True

    def check(self, token: bytes, path: str) -> Verdict | asyncio.Future[Verdict]:
        if self._keys is not None and token.startswith(KEY_PREFIX):
            return self._keys.check(token)
        if self._server is not None and (verdict := self._check_own(self._server.tokens, token)) is not None:
            return self._at(verdict, path)
        found = self.tokens.check(token)
        if isinstance(found, asyncio.Task):
            return asyncio.get_running_loop().create_task(self._later(found, path))
        return self._at(found, path)

    def _check_own(self, own: OwnTokens, token: bytes) -> Checked | Rejected | None:
        try:
            return own.check(token)
        except StoreError as error:
            log.error("no token of our own can be judged", why=str(error))
            return Rejected(503, "", "it cannot be told at present what the access token is worth: try again soon")

    async def _later(self, task: asyncio.Task[Checked | Rejected], path: str) -> Verdict:
        return self._at(await asyncio.shield(task), path)

    def _at(self, found: Checked | Rejected, path: str) -> Verdict:
        if isinstance(found, Rejected):
            return found
        resource = self._resources.at(path)
        if resource.audience.isdisjoint(found.audience):
            why = "the access token is for another audience"
            self._tell(why, found, audience=found.audience, wanted=resource.audience)
            return invalid(why)
        if not found.scopes.issuperset(resource.scopes):
            why = "the access token lacks scopes that are needed here"
            self._tell(why, found, missing={*resource.scopes} - found.scopes)
            return Rejected(403, "insufficient_scope", why, found.identity)
        return Admitted(found.principal, found.identity, until=found.expires + LEEWAY)

    def _tell(self, why: str, found: Checked, **facts: Iterable[str]) -> None:
        """Let whoever runs the gateway know: such a token is mostly one of an issuer that is not set up for it yet."""
        now = time.monotonic()
        if now - self._told.get(why, float("-inf")) < _TOLD_EVERY:
            return
        self._told[why] = now
        words = {name: " ".join(sorted(texts)) for name, texts in facts.items()}
        log.info(why, user=found.identity.user, client=found.identity.client, **words)

    def still_admits(self, identity: Identity, view: str | None) -> bool:
        if identity.key:
            return self._keys is not None and self._keys.still_admits(identity.key, identity.subject, view)
        return identity.issuer == self.tokens.settings.issuer

    def challenge(self, path: str, host: str, rejected: Rejected | None) -> bytes:
        return self._resources.challenge(path, host, rejected)

    def metadata(self, path: str, host: str) -> bytes | asyncio.Future[None] | None:
        if self._server is not None:
            return self._server.document(path) or self._resources.document(path, host)
        if path.rstrip("/") == AT_ROOT:
            return self._issuer.document()
        return self._resources.document(path, host)
