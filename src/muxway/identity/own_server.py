"""Puts our own authorization server together: its store, its keys, and who signs people on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from muxway.identity.authorization_endpoints import AuthorizationEndpoints
from muxway.identity.client_registry import OAuthClients
from muxway.identity.oauth_grants import OAuthGrants
from muxway.identity.own_tokens import OwnTokens, SigningKeys
from muxway.net.sealed_files import SealedFolder, data_folder

if TYPE_CHECKING:
    from muxway.config.auth import AuthSettings, OwnServerSettings
    from muxway.identity.resource_metadata import ProtectedResources
    from muxway.identity.sign_on import SignOn


def open_server(
    issuer: str, settings: AuthSettings, server: OwnServerSettings, sign_on: SignOn, resources: ProtectedResources
) -> AuthorizationEndpoints:
    """The authorization server that calls itself this. What it knew before is what it knows. Raises StoreError."""
    name = hashlib.blake2b(issuer.encode(), digest_size=8).hexdigest()
    files = SealedFolder(data_folder() / "muxway" / "authorization" / name)
    clients, grants, keys = OAuthClients(files), OAuthGrants(files), SigningKeys(files)
    tokens = OwnTokens(issuer, settings, keys, grants, server.token_lifetime)
    made = AuthorizationEndpoints(
        issuer,
        server,
        sign_on=sign_on,
        resources=resources,
        clients=clients,
        grants=grants,
        keys=keys,
        tokens=tokens,
    )
    made.sweep()
    return made
