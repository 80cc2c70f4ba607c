"""Addresses that a server names: never inside, never by another way than the one that was looked at."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from muxway.config import parse_server
from muxway.identity.challenges import Challenge
from muxway.identity.credentials import fetch_for, login_key
from muxway.identity.discovery import discover
from muxway.identity.store import Login, Registration, Token
from muxway.net import guarded_fetch
from muxway.net.guarded_fetch import FetchError, GuardedFetch, zone

if TYPE_CHECKING:
    from .provider import Provider

INSIDE = [
    "https://127.0.0.1/", "https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/",
    "https://0/", "https://0.0.0.0/", "https://localhost/", "https://LOCALHOST/", "https://x.localhost/",
    "https://[::1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
    "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[::127.0.0.1]/",
    "https://[fe80::5efe:127.0.0.1]/", "https://169.254.169.254/latest/meta-data/", "https://[fd00:ec2::254]/",
    "https://10.0.0.1/", "https://192.168.1.1/", "https://172.16.0.1/", "https://100.64.0.1/", "https://[fe80::1]/",
    "https://224.0.0.1/", "https://255.255.255.255/", "https://[2001:0:7f00:1::]/",
]  # fmt: skip
ODD = [
    "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/", "//example.com/",
    "https://user:secret@example.com/", "https://example.com\\@127.0.0.1/", "https://exa mple.com/", "https:///x",
    "javascript:alert(1)", "", "https://[::1%25lo]/", "https://example.com/\r\nX: y",
]  # fmt: skip


class Listening:
    """Every connection to this machine that anybody makes through asyncio."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []

        async def start(addr_infos: Any, **_: Any) -> Any:
            self.made += [info[4][0] for info in addr_infos]
            raise OSError("no connection is made in this test")

        monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", start)


@pytest.mark.parametrize("url", INSIDE)
async def test_what_leads_inside_is_never_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md#addresses-that-servers-name: 28 spellings of this machine, of private networks, of nowhere."""
    made = Listening(monkeypatch).made
    async with GuardedFetch(["https://mcp.example.com/mcp"]) as fetch:
        with pytest.raises(FetchError):
            await fetch.get(url)
        with pytest.raises(FetchError):
            await fetch.post(url, b"secret=1", {})
    assert made == []


@pytest.mark.parametrize("url", ODD)
async def test_what_is_no_https_address_is_never_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md#addresses-that-servers-name: https only."""
    made = Listening(monkeypatch).made
    async with GuardedFetch(["https://mcp.example.com/mcp"]) as fetch:
        with pytest.raises(FetchError) as told:
            await fetch.get(url)
    assert told.value.refused
    assert "secret" not in str(told.value)
    assert made == []


@pytest.mark.parametrize("answers", [["127.0.0.1"], ["93.184.216.34", "10.0.0.7"], ["::ffff:10.0.0.1"]])
async def test_a_name_that_leads_inside_is_never_asked(answers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md#addresses-that-servers-name: what a name leads to is looked at, each of its addresses."""
    made = Listening(monkeypatch).made
    self_named(monkeypatch, lambda _: answers)
    async with GuardedFetch(["https://mcp.example.com/mcp"]) as fetch:
        with pytest.raises(FetchError, match=r"evil\.example\.com is"):
            await fetch.get("https://evil.example.com/")
    assert made == []


async def test_a_name_is_looked_up_once_and_that_address_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md#addresses-that-servers-name: a name that flips to this machine is asked where it led before."""
    made = Listening(monkeypatch).made
    turns = iter([["93.184.216.34"], ["127.0.0.1"]])
    self_named(monkeypatch, lambda _: next(turns))
    async with GuardedFetch(["https://mcp.example.com/mcp"]) as fetch:
        with pytest.raises(FetchError):
            await fetch.get("https://flips.example.com/")
    assert set(made) == {"93.184.216.34"}


@pytest.mark.parametrize("url", ["http://mcp.example.com/", "http://mcp.example.com:6379/x", "http://MCP.example.com/"])
async def test_a_server_that_was_written_with_tls_names_nothing_without(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md#addresses-that-servers-name: its own name may flip, too, and TLS would tell."""
    made = Listening(monkeypatch).made
    self_named(monkeypatch, lambda _: ["127.0.0.1"])
    async with GuardedFetch(["https://mcp.example.com/mcp"]) as fetch:
        with pytest.raises(FetchError, match="must be https"):
            await fetch.get(url)
    assert made == []
    async with GuardedFetch(["http://mcp.example.com/mcp"]) as fetch:
        fetch.check(url)


async def test_a_name_that_only_claims_to_be_inside_opens_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md#addresses-that-servers-name: the server itself must have answered from a private network."""
    made = Listening(monkeypatch).made
    self_named(monkeypatch, lambda host: ["10.0.0.1"] if host == "mcp.example.com" else ["10.0.0.2"])
    async with GuardedFetch(["https://mcp.example.com/mcp"]) as fetch:
        with pytest.raises(FetchError, match="cannot be reached"):
            await fetch.get("https://mcp.example.com/")
        with pytest.raises(FetchError, match="private network"):
            await fetch.get("https://inner.example.com/")
    assert set(made) == {"10.0.0.1"}


def all_lead_to(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> int:
    """Whatever address is connected to, this provider is there; its port."""
    port = int(provider.url.rpartition(":")[2])

    async def connect(**_: Any) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port))
        made.setblocking(False)
        return made

    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", lambda *_, **__: connect())
    return port


@pytest.mark.parametrize(("addresses", "opens"), [(["10.0.0.1"], True), (["10.0.0.1", "93.184.216.34"], False)])
async def test_a_server_that_answers_from_a_private_network_may_name_others_there(
    addresses: list[str], opens: bool, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md#addresses-that-servers-name: wherever all of its addresses are."""
    all_lead_to(provider, monkeypatch)
    self_named(monkeypatch, lambda host: addresses if host == "mcp.example.com" else ["10.0.0.2"])
    async with GuardedFetch(["http://mcp.example.com/mcp"]) as fetch:
        await fetch.get("http://mcp.example.com/.well-known/oauth-authorization-server")
        if opens:
            fetch.check_address("inner.example.com", "10.0.0.2")
        else:
            with pytest.raises(FetchError, match="private network"):
                fetch.check_address("inner.example.com", "10.0.0.2")


async def test_a_server_on_this_machine_may_name_this_machine(provider: Provider) -> None:
    """docs/security.md#addresses-that-servers-name: where the user wrote such an address, and only there."""
    url = f"{provider.url}/.well-known/oauth-authorization-server"
    async with GuardedFetch([provider.mcp]) as fetch:
        assert (await fetch.get(url)).ok
        with pytest.raises(FetchError, match="private network"):
            await fetch.get("https://10.0.0.1/")
    async with GuardedFetch(["https://mcp.example.com/mcp"]) as fetch:
        with pytest.raises(FetchError):
            await fetch.get(url)


async def test_redirects_are_followed_within_one_origin_only(provider: Provider) -> None:
    """docs/security.md#addresses-that-servers-name."""
    async with GuardedFetch([provider.mcp]) as fetch:
        with pytest.raises(FetchError, match="another origin"):
            await fetch.get(f"{provider.url}/authorize?redirect_uri=http://127.0.0.1:1/x&state=s")


async def test_an_answer_without_end_is_cut(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a small document is a small document."""
    monkeypatch.setattr(guarded_fetch, "_LARGEST", 64)
    async with GuardedFetch([provider.mcp]) as fetch:
        with pytest.raises(FetchError, match="sent more than"):
            await fetch._ask("GET", f"{provider.url}/.well-known/oauth-authorization-server", {}, None, 64)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", "global"), ("2606:4700::1111", "global"), ("::ffff:8.8.8.8", "global"), ("127.8.0.1", "loopback"),
        ("::1", "loopback"), ("10.1.2.3", "private"), ("fd12::1", "private"), ("169.254.1.1", "nowhere"),
        ("fe80::1", "nowhere"), ("::ffff:10.0.0.1", "nowhere"), ("64:ff9b::a00:1", "nowhere"), ("x", "nowhere"),
    ],
)  # fmt: skip
def test_where_addresses_lead(address: str, expected: str) -> None:
    """Ours: the IPv4 address inside an IPv6 one counts."""
    assert zone(address) == expected


def self_named(monkeypatch: pytest.MonkeyPatch, answers: Any) -> None:
    async def look_up(_: Any, host: str, port: int, **__: Any) -> Any:
        def family(address: str) -> int:
            return socket.AF_INET6 if ":" in address else socket.AF_INET

        return [(family(one), socket.SOCK_STREAM, 6, "", (one, port)) for one in answers(host)]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", look_up)


async def test_a_login_made_in_a_private_network_is_renewed_there(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md#addresses-that-servers-name: a refresh asks the authorization server alone."""
    port = all_lead_to(provider, monkeypatch)
    self_named(monkeypatch, lambda _: ["10.0.0.2"])
    url = f"http://mcp.example.com:{port}/mcp"
    config = parse_server("inner", {"url": url})
    inside = url.removesuffix("/mcp")
    provider.resource_metadata = {"resource": url, "authorization_servers": [inside]}
    provider.metadata = {"issuer": inside}
    async with GuardedFetch([url]) as fetch:
        found = (await discover(fetch, url, Challenge(True))).server
    assert found.private
    for server in (found, msgspec.structs.replace(found, private=False)):
        login = Login(
            key=tuple(login_key(config)),
            grant="authorization_code",
            server=server,
            registration=Registration(kind="written", client_id="x"),
            token=Token(access="old"),
        )
        async with fetch_for(config, login) as fetch:
            if server.private:
                fetch.check_address("login.internal", "10.0.0.2")
            else:
                with pytest.raises(FetchError, match="private network"):
                    fetch.check_address("login.internal", "10.0.0.2")
            with pytest.raises(FetchError, match="this machine"):
                fetch.check_address("login.internal", "127.0.0.1")
