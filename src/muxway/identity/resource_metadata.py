"""Each endpoint as a protected resource (RFC 9728): which tokens are for it, and what clients are told to get one.

The audience of a token is never compared with what a request calls us by: whoever has a token for another gateway
could call us by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muxway.clients.authenticator import Rejected
    from muxway.config.auth import AuthSettings
    from muxway.config.model import Config

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """An endpoint, and what a token must say to be for it."""

    path: str
    audience: frozenset[str]
    scopes: tuple[str, ...]


class ProtectedResources:
    """Every endpoint of a configuration."""

    def __init__(
        self,
        config: Config,
        settings: AuthSettings,
        own: Iterable[str],
        view: str | None = None,
        scheme: str = "http",
    ) -> None:
        """Take stock.

        Args:
            config: has the views.
            settings: how tokens are checked.
            own: the base URLs that are known to be ours, whatever a request says.
            view: what is at `/mcp` and `/sse`; everything if there is none.
            scheme: of the URLs that clients use, where no public URL says so.
        """
        self._settings = settings
        self.server: str | None = None
        """The authorization server that clients are sent to, if it is not the issuer itself but one of ours."""
        self._scheme = scheme
        self._public = config.gateway.public_url
        self._own = [*own] if self._public is None else [self._public]
        self._prefix = "" if self._public is None else urlsplit(self._public).path
        places = {None: view, **{name: name for name in config.views}}
        self._all: dict[str, ProtectedResource] = {}
        for place, shown in places.items():
            chosen = None if shown is None else config.views[shown]
            extra = (chosen.audience if chosen is not None else ()) or settings.audience
            scopes = tuple(dict.fromkeys((*settings.scopes, *(chosen.scopes if chosen is not None else ()))))
            for kind in ("/mcp", "/sse"):
                path = kind if place is None else f"{kind}/{place}"
                # With a slash at the end it is the same resource to most clients.
                urls = [f"{base}{path}{end}" for base in self._own for end in ("", "/")]
                self._all[path] = ProtectedResource(path, frozenset((*urls, *extra)), scopes)

    def at(self, path: str) -> ProtectedResource:
        """The endpoint at a path; whatever is none is judged as `/mcp` is."""
        return self._all.get(path) or self._all["/mcp"]

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope that is needed anywhere."""
        return tuple(dict.fromkeys(scope for one in self._all.values() for scope in one.scopes))

    @property
    def usual(self) -> str:
        """The URL of the endpoint that is meant where nothing is said."""
        return f"{self._own[0]}/mcp"

    def named(self, url: str) -> ProtectedResource | None:
        """The endpoint that has this URL; None if none of ours has."""
        base = next((base for base in self._own if url.startswith(f"{base}/")), None)
        return None if base is None else self._all.get(url.removeprefix(base).rstrip("/"))

    def _base(self, host: str) -> str:
        return self._public or f"{self._scheme}://{host}"

    def document(self, path: str, host: str) -> bytes | None:
        """What stands at a well-known path; None if that is of no endpoint."""
        if not path.startswith(WELL_KNOWN):
            return None
        # Whoever asks with a slash at the end calls the resource so, too: that is what it must be about.
        of = path.removeprefix(WELL_KNOWN).rstrip("/")
        end = "/" if of and path.endswith("/") else ""
        if self._prefix and of.startswith(f"{self._prefix}/"):
            of = of.removeprefix(self._prefix)
        resource = self._all.get(of or "/mcp")
        if resource is None:
            return None
        told: dict[str, object] = {
            "resource": f"{self._base(host)}{resource.path}{end}",
            "authorization_servers": [self.server or self._settings.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "muxway",
        }
        if resource.scopes:
            told["scopes_supported"] = [*resource.scopes]
        return envelopes.encode(told)

    def challenge(self, path: str, host: str, rejected: Rejected | None) -> bytes:
        """What `WWW-Authenticate` says: where to learn how to get a token, and which scopes it needs, all of them."""
        resource = self.at(path)
        base = urlsplit(self._base(host))
        where = f"{base.scheme}://{base.netloc}{WELL_KNOWN}{base.path}{resource.path}"
        said = {}
        # RFC 6750 §3.1: whoever has shown nothing is told of no error.
        if rejected is not None and rejected.error:
            said = {"error": rejected.error, "error_description": rejected.why}
        said["resource_metadata"] = where
        if resource.scopes:
            said["scope"] = " ".join(resource.scopes)
        return b"Bearer " + ", ".join(f'{name}="{text}"' for name, text in said.items()).encode("ascii", "replace")
