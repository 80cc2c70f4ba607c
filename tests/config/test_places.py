"""Hosts and origins as users write them: one that no request could match is refused, with what to write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.clients.transports.guard import Guard
from muxway.config import parse_config, places
from muxway.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("http://localhost:6274", "http://localhost:6274"),
        (" HTTPS://App.Example/ ", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:443", "http://app.example:443"),
        ("http://[::1]:5", "http://[::1]:5"),
        ("vscode-webview://1a2b3c", "vscode-webview://1a2b3c"),
        ("*", "*"),
    ],
)
def test_an_origin_is_what_browsers_send(written: str, read: str) -> None:
    """RFC 6454 §6.2: scheme, host, and the port unless it is the scheme's own."""
    assert places.origin(written) == read
    assert Guard(allow_origins=[written]).refuses_place([b"localhost"], [read.encode()]) is None


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("localhost:6274", "write http://localhost:6274"),
        ("app.example", "write http://app.example"),
        ("https://app.example/path", "write https://app.example"),
        ("https://app.example:8443/x?y", "write https://app.example:8443"),
        ("https://*.example", "without a wildcard"),
        ("https://app.example:99999", "write one like"),
        ("https://", "write one like"),
        ("null", "write http://null"),
        ("", "write https://app.example.com"),
        ("://x", "write one like"),
    ],
)
def test_an_origin_that_could_never_match_is_refused(written: str, advice: str) -> None:
    """Ours: it says what to write."""
    with pytest.raises(ValueError, match=advice.replace("*", r"\*")):
        places.origin(written)


@pytest.mark.parametrize(
    ("written", "read"),
    [("MCP.example.com", "mcp.example.com"), ("mcp.example.com:443", "mcp.example.com"), ("10.0.0.7", "10.0.0.7"),
     ("[::1]:80", "::1"), ("fe80::1", "fe80::1"), ("*", "*")],
)  # fmt: skip
def test_a_host_is_compared_without_its_port(written: str, read: str) -> None:
    """docs/reverse-proxy.md#host-and-origin: the port does not matter."""
    assert places.host(written) == read


@pytest.mark.parametrize(
    ("written", "advice"),
    [("https://mcp.example.com/", "write mcp.example.com"), ("*.example.com", "without a wildcard"),
     ("", "no host name"), ("a b", "no host name"), ("mcp.example.com:x", "no host name")],
)  # fmt: skip
def test_a_host_that_could_never_match_is_refused(written: str, advice: str) -> None:
    """Ours: it says what to write."""
    with pytest.raises(ValueError, match=advice):
        places.host(written)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Ours: nothing else comes out of what a user types, and what is read is read the same again."""
    for read in (places.host, places.origin):
        try:
            found = read(text)
        except ValueError:
            continue
        assert read(found) == found


def test_the_config_names_what_is_wrong_and_where() -> None:
    """Ours: a place in the file for each."""
    gateway = {
        "allowedHosts": ["https://a.example"],
        "allowedOrigins": ["b.example", "https://c.example"],
        "port": 70000,
    }
    with pytest.raises(ConfigError) as error:
        parse_config({"mcpServers": {"s": {"command": "x"}}, "gateway": gateway})
    said = [(problem.path, problem.message) for problem in error.value.details]
    assert [path for path, _ in said] == ["gateway.allowedHosts.0", "gateway.allowedOrigins.0", "gateway.port"]
    assert ["write" in text for _, text in said] == [True, True, False]
    assert "0 to 65535" in said[2][1]


def test_address_and_port_may_stand_in_the_config() -> None:
    """docs/configuration.md#gateway."""
    gateway = {"host": "0.0.0.0", "port": 8080, "allowed_hosts": ["Mcp.example"], "allowOrigin": ["https://a.example/"]}
    settings = parse_config({"mcpServers": {"s": {"command": "x"}}, "gateway": gateway}).gateway
    assert (settings.host, settings.port) == ("0.0.0.0", 8080)
    assert (settings.allowed_hosts, settings.allowed_origins) == (("mcp.example",), ("https://a.example",))
