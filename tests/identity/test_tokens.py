"""Access tokens: which are good, and that nothing else is."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.authenticator import Admitted, Rejected

from .issuing import (
    ISSUER,
    OTHER_RSA,
    PUBLIC,
    RSA,
    TestIssuer,
    by_public_key,
    by_rsa,
    key_for,
    signed,
    signed_by_hand,
    unsigned,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.identity.verify import ResourceServer


async def judged(server: ResourceServer, token: str, path: str = "/mcp") -> Admitted | Rejected:
    """The verdict, waited for if need be."""
    verdict = server.check(token.encode(), path)
    return verdict if isinstance(verdict, Admitted | Rejected) else await verdict


async def test_a_good_token_says_who_its_bearer_is() -> None:
    """docs/identity-team.md#who-somebody-is."""
    issuer = TestIssuer()
    server = issuer.server(claims={"user": "email", "groups": "realm.roles"})
    token = issuer.token(email="ann@example.com", realm={"roles": ["dev", "ops"]})
    verdict = await judged(server, token)
    assert isinstance(verdict, Admitted)
    identity = verdict.identity
    assert (identity.issuer, identity.subject, identity.client) == (ISSUER, "ann", "inspector")
    assert (identity.user, identity.groups, identity.scopes) == ("ann@example.com", ("dev", "ops"), ("mcp:tools",))


@pytest.mark.parametrize(
    ("claims", "more"),
    [
        ({"groups": ["dev"]}, False),
        ({"groups": [f"g{number}" for number in range(1001)]}, True),
        ({"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://graph.example"}}}, True),
        ({"_claim_names": {"address": "src1"}}, False),
        ({"_claim_names": "groups"}, False),
        ({"hasgroups": True}, True),
        ({"hasgroups": False}, False),
    ],
)
async def test_groups_that_a_token_has_no_room_for_are_known_to_be_missing(claims: dict[str, Any], more: bool) -> None:
    """docs/access.md: as Entra ID says it, and any provider with claims that are elsewhere."""
    issuer = TestIssuer()
    verdict = await judged(issuer.server(), issuer.token(**claims))
    assert isinstance(verdict, Admitted)
    assert verdict.identity.more_groups is more


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"])
async def test_the_usual_algorithms_are_understood(algorithm: str) -> None:
    """RFC 7518 §3.1, RFC 8037 §3.1, RFC 9864 §2.2."""
    issuer = TestIssuer(algorithm=algorithm, key=key_for(algorithm))
    assert isinstance(await judged(issuer.server(), issuer.token()), Admitted)


def _bad_signature(issuer: TestIssuer) -> str:
    head, body, signature = issuer.token().split(".")
    return f"{head}.{body}.{signature[:-8]}{'A' * 8}"


def _written(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


FORGED: dict[str, Callable[[TestIssuer], str]] = {
    "none": lambda issuer: unsigned({"alg": "none", "kid": "k1"}, issuer.claims()),
    "none, with a signature": lambda issuer: unsigned({"alg": "none", "kid": "k1"}, issuer.claims(), b"x"),
    "HS256 with the public key": lambda issuer: signed_by_hand(
        {"alg": "HS256", "kid": "k1"}, issuer.claims(), by_public_key(RSA)
    ),
    "its own jwk": lambda issuer: issuer.token({"jwk": OTHER_RSA.as_dict(private=False)}, OTHER_RSA),
    "its own jku": lambda issuer: issuer.token({"jku": "https://evil.example/jwks"}, OTHER_RSA),
    "its own x5u": lambda issuer: issuer.token({"x5u": "https://evil.example/x5"}, OTHER_RSA),
    "its own jwk, no kid": lambda issuer: issuer.token(
        {"kid": None, "jwk": OTHER_RSA.as_dict(private=False)}, OTHER_RSA
    ),
    "crit": lambda issuer: signed_by_hand(
        {"alg": "RS256", "kid": "k1", "crit": ["exp"], "exp": 1}, issuer.claims(), by_rsa(RSA)
    ),
    "crit that a library may know": lambda issuer: signed_by_hand(
        {"alg": "RS256", "kid": "k1", "crit": ["b64"], "b64": True}, issuer.claims(), by_rsa(RSA)
    ),
    "wrong kid": lambda issuer: issuer.token({"kid": "k2"}),
    "another key under the kid": lambda issuer: issuer.token(key=OTHER_RSA),
    "wrong aud": lambda issuer: issuer.token(aud="https://other.example.com/mcp"),
    "the host alone as aud": lambda issuer: issuer.token(aud=PUBLIC),
    "no aud": lambda issuer: issuer.token(aud=None),
    "aud is an object": lambda issuer: issuer.token(aud={f"{PUBLIC}/mcp": True}),
    "wrong iss": lambda issuer: issuer.token(iss="https://evil.example"),
    "iss with a slash": lambda issuer: issuer.token(iss=f"{ISSUER}/"),
    "no iss": lambda issuer: issuer.token(iss=None),
    "expired": lambda issuer: issuer.token(exp=int(issuer.clock.wall()) - 60),
    "no exp": lambda issuer: issuer.token(exp=None),
    "exp is text": lambda issuer: issuer.token(exp="9999999999"),
    "exp is true": lambda issuer: issuer.token(exp=True),
    "not yet": lambda issuer: issuer.token(nbf=int(issuer.clock.wall()) + 120),
    "nbf is text": lambda issuer: issuer.token(nbf="0"),
    "issued tomorrow": lambda issuer: issuer.token(iat=int(issuer.clock.wall()) + 86400),
    "empty signature": lambda issuer: issuer.token().rpartition(".")[0] + ".",
    "wrong signature": _bad_signature,
    "ID token": lambda issuer: issuer.token({"typ": "JWT"}, nonce="n", at_hash="h"),
    "ID token of Keycloak": lambda issuer: issuer.token({"typ": "JWT"}, typ="ID"),
    "refresh token of Keycloak": lambda issuer: issuer.token({"typ": "JWT"}, typ="Refresh"),
    "logout token": lambda issuer: issuer.token({"typ": "logout+jwt"}, events={}),
    "ID-JAG": lambda issuer: issuer.token({"typ": "oauth-id-jag+jwt"}),
    "bound to a key (RFC 9449)": lambda issuer: issuer.token(cnf={"jkt": "x"}),
    "of nobody": lambda issuer: issuer.token(sub=None, client_id=None),
    "no claims": lambda issuer: signed({"alg": "RS256", "kid": "k1"}, b"[]", issuer.key),
    "no JSON": lambda issuer: signed({"alg": "RS256", "kid": "k1"}, b"{", issuer.key),
    "five parts": lambda issuer: f"{issuer.token()}.x.y",
    "kid is a number": lambda issuer: unsigned({"alg": "RS256", "kid": 1}, issuer.claims(), b"x"),
    "no alg": lambda issuer: unsigned({"kid": "k1"}, issuer.claims(), b"x"),
    "header is a list": lambda issuer: "W10.e30.eA",
    "header is a text that names what is needed": lambda issuer: ".".join([_written("an alg"), _written({}), "eA"]),
    "header is a list that names what is needed": lambda issuer: ".".join([_written(["alg"]), _written({}), "eA"]),
    "alg is a list": lambda issuer: unsigned({"alg": ["RS256"], "kid": "k1"}, issuer.claims(), b"x"),
    "alg is an object": lambda issuer: unsigned({"alg": {}, "kid": "k1"}, issuer.claims(), b"x"),
    "typ is an object": lambda issuer: unsigned({"alg": "RS256", "kid": "k1", "typ": {}}, issuer.claims(), b"x"),
    "no base64": lambda issuer: "§.§.§",
    "opaque": lambda issuer: "just-some-text",
    "too long": lambda issuer: issuer.token(sub="x" * 20_000),
}


@pytest.mark.parametrize("kind", FORGED)
async def test_a_forged_or_foreign_token_is_refused(kind: str) -> None:
    """RFC 8725 §3; MCP 2025-11-25, basic/authorization: tokens of others, and for others, are not accepted."""
    issuer = TestIssuer()
    server = issuer.server()
    assert isinstance(await judged(server, issuer.token()), Admitted)
    for _ in range(2):  # found out, and from memory
        verdict = await judged(server, FORGED[kind](issuer))
        assert isinstance(verdict, Rejected), kind
        assert (verdict.status, verdict.error) == (401, "invalid_token"), verdict
    assert isinstance(await judged(server, issuer.token()), Admitted)


@pytest.mark.parametrize("kind", ["oct", "enc", "small", "private", "broken"])
async def test_a_key_that_is_not_for_signatures_of_others_is_not_used(kind: str) -> None:
    """RFC 7517 §4.2, RFC 7518 §3.3: for encryption, shared, too small, unreadable."""
    issuer = TestIssuer()
    good = issuer.jwks[0]
    entries: dict[str, Any] = {
        "oct": {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "k1"},
        "enc": {**good, "use": "enc"},
        "small": {**good, "n": urlsafe_b64encode(b"\x00" * 128 + b"\xff" * 128).decode().rstrip("=")},
        "private": {"kty": "RSA", "kid": "k1", "d": "AQAB"},
        "broken": {**good, "n": 17},
    }
    issuer.served = [entries[kind]]
    verdict = await judged(issuer.server(), issuer.token())
    assert isinstance(verdict, Rejected)


async def test_a_token_without_a_kid_needs_an_issuer_with_one_key() -> None:
    """RFC 7515 §4.1.4: the kid is a hint; where there is a choice, nobody guesses."""
    issuer = TestIssuer()
    token = issuer.token({"kid": None})
    assert isinstance(await judged(issuer.server(), token), Admitted)
    issuer.served = [*issuer.jwks, {**OTHER_RSA.as_dict(private=False), "kid": "k2"}]
    assert isinstance(await judged(issuer.server(), token), Rejected)


async def test_a_token_for_one_view_is_worth_nothing_at_another() -> None:
    """MCP 2025-11-25, basic/authorization: the audience is the canonical URI of the server."""
    issuer = TestIssuer()
    server = issuer.server(views={"a": {}, "b": {}})
    for_a = issuer.token(aud=f"{PUBLIC}/mcp/a")
    assert isinstance(await judged(server, for_a, "/mcp/a"), Admitted)
    for path in ("/mcp", "/mcp/b", "/sse/a", "/nothing"):
        verdict = await judged(server, for_a, path)
        assert isinstance(verdict, Rejected), path
        assert verdict.error == "invalid_token"


async def test_further_audiences_count_and_a_view_may_have_its_own() -> None:
    """docs/identity-team.md#audiences."""
    issuer = TestIssuer()
    server = issuer.server(audience=["api://all"], views={"a": {"audience": ["api://a"]}, "b": {}})
    for aud, good in (("api://all", {"/mcp", "/mcp/b"}), ("api://a", {"/mcp/a"})):
        token = issuer.token(aud=["x", aud])
        paths = ("/mcp", "/mcp/a", "/mcp/b")
        assert {path for path in paths if isinstance(await judged(server, token, path), Admitted)} == good


async def test_scopes_of_the_gateway_and_of_the_view_are_needed_together() -> None:
    """RFC 6750 §3.1: insufficient_scope; `scp` is how some issuers write it."""
    issuer = TestIssuer()
    server = issuer.server(scopes=["mcp:tools"], views={"admin": {"scopes": ["mcp:admin"]}})
    admin = {"aud": [f"{PUBLIC}/mcp", f"{PUBLIC}/mcp/admin"]}
    assert isinstance(await judged(server, issuer.token(**admin)), Admitted)
    verdict = await judged(server, issuer.token(**admin), "/mcp/admin")
    assert isinstance(verdict, Rejected)
    assert (verdict.status, verdict.error) == (403, "insufficient_scope")
    both = issuer.token(scope=None, scp=["mcp:tools", "mcp:admin"], **admin)
    assert isinstance(await judged(server, both, "/mcp/admin"), Admitted)


async def test_a_principal_is_issuer_subject_and_client_whatever_the_token() -> None:
    """docs/design/decisions/0045-principal.md."""
    issuer = TestIssuer()
    server = issuer.server()

    async def principal(**changed: Any) -> bytes:
        verdict = await judged(server, issuer.token(**changed))
        assert isinstance(verdict, Admitted)
        return verdict.principal

    ann = await principal(jti="1")
    assert await principal(jti="2", groups=["x"]) == ann
    others = [await principal(sub="bob"), await principal(client_id="cli"), await principal(sub=None)]
    others.append(await principal(sub="inspector", client_id=None))
    assert len({ann, *others}) == 5


@pytest.mark.parametrize("claim", ["azp", "cid", "appid"])
async def test_the_client_is_known_in_every_issuers_spelling(claim: str) -> None:
    """Ours: Keycloak, Okta and Entra each have their word for it."""
    issuer = TestIssuer()
    verdict = await judged(issuer.server(), issuer.token(client_id=None, **{claim: "cli"}))
    assert isinstance(verdict, Admitted)
    assert verdict.identity.client == "cli"


async def test_a_token_is_known_for_a_minute_and_not_after_its_end() -> None:
    """docs/identity-team.md#how-long-things-are-remembered."""
    issuer = TestIssuer()
    server = issuer.server()
    token = issuer.token(exp=int(issuer.clock.wall()) + 20)
    assert isinstance(await judged(server, token), Admitted)
    issuer.clock.ahead = 60
    assert isinstance(await judged(server, token), Rejected)
