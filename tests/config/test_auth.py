"""`gateway.auth` as people write it."""

from __future__ import annotations

from typing import Any

import pytest

from muxway.config import parse_config
from muxway.errors import ConfigError

ISSUER = "https://login.example.com/main"


def parsed(gateway: dict[str, Any], **top: Any) -> Any:
    return parse_config(
        {"mcpServers": {"a": {"command": "x"}}, "gateway": gateway, **top}, environ={"SECRET": "s3cr3t-value"}
    )


def test_the_whole_of_it_is_read() -> None:
    """docs/configuration.md#access-tokens."""
    config = parsed(
        {
            "publicUrl": "HTTPS://MCP.Example.com/tools/",
            "auth": {
                "issuer": ISSUER,
                "audience": ["api://muxway"],
                "scopes": ["mcp:tools"],
                "claims": {"user": "email"},
                "jwks": "https://keys.example.com/jwks",
                "introspection": {"url": f"{ISSUER}/ask", "client_id": "muxway", "clientSecret": "${SECRET}"},
            },
        },
        views={"v": {"audience": ["api://v"], "scopes": ["mcp:v"]}},
    )
    auth = config.gateway.auth
    assert (auth.issuer, auth.audience, auth.scopes) == (ISSUER, ("api://muxway",), ("mcp:tools",))
    assert (auth.claims.user, auth.claims.groups) == ("email", "groups")
    assert auth.introspection.client_secret == "s3cr3t-value"
    assert "s3cr3t-value" not in repr(config)
    assert config.gateway.public_url == "https://mcp.example.com/tools"
    assert (config.views["v"].audience, config.views["v"].scopes) == (("api://v",), ("mcp:v",))


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ({}, "Missing required field: issuer"),
        ([], "must be an object"),
        ({"issuer": "login.example.com"}, "must be a URL"),
        ({"issuer": "http://login.example.com"}, "must be an https:// URL"),
        ({"issuer": f"{ISSUER}?x=1"}, "no query"),
        ({"issuer": "https://u:p@login.example.com"}, "no user, password"),
        ({"issuer": ISSUER, "jwks": "http://keys.example.com"}, "must be an https:// URL"),
        ({"issuer": ISSUER, "scopes": ["a b"]}, "is no scope"),
        ({"issuer": ISSUER, "scopes": ["offline_access"]}, "never required"),
        ({"issuer": ISSUER, "introspection": {"url": ISSUER}}, "Missing required field: clientId"),
    ],
)
def test_what_cannot_be_meant_is_refused(auth: Any, said: str) -> None:
    """docs/identity-team.md: a mistake here lets in nobody, or anybody."""
    with pytest.raises(ConfigError) as caught:
        parsed({"auth": auth})
    assert any(said in problem.message for problem in caught.value.details), caught.value.details


def test_a_gateway_that_others_reach_must_know_which_tokens_are_for_it() -> None:
    """docs/identity-team.md#audiences: `check` says so before `serve` refuses."""
    auth = {"issuer": ISSUER}
    (warning,) = parsed({"auth": auth, "host": "0.0.0.0"}).warnings
    assert "publicUrl" in warning.message
    for more in ({"publicUrl": "https://mcp.example.com"}, {"auth": {**auth, "audience": ["api://x"]}}):
        assert parsed({"auth": auth, "host": "0.0.0.0", **more}).warnings == ()


@pytest.mark.parametrize("issuer", ["http://localhost:8080", "http://127.0.0.1:1/x", "http://[::1]:1"])
def test_an_issuer_of_this_machine_needs_no_tls(issuer: str) -> None:
    """Ours: for trying things out."""
    assert parsed({"auth": {"issuer": issuer}}).gateway.auth.issuer == issuer


@pytest.mark.parametrize("key", ["verifyAudience", "skipIssuerCheck", "audienceCheck", "insecure", "algorithms"])
def test_there_is_no_key_that_turns_a_check_off(key: str) -> None:
    """docs/identity-team.md#audiences: whoever tries is told that it has no effect."""
    config = parsed({"auth": {"issuer": ISSUER, key: False}})
    assert any(key in problem.path and "no effect" in problem.message for problem in config.warnings)
