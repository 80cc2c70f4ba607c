"""Remote servers by HTTPS: whom we trust, whom they trust, and what is between."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import muxway
from muxway.config import parse_config
from muxway.errors import ConfigError

from ..certificates import Authority
from .scripted import Remote, gateway, serving

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def outcome(tls: ssl.SSLContext, entry: dict[str, Any]) -> str:
    """What a call through the gateway gives, or why the server cannot be used."""
    async with serving(Remote(), tls) as url, asyncio.timeout(30), gateway(url, **entry) as up:
        (server,) = up.servers()
        if server.status is muxway.Status.RUNNING:
            return (await up.call("up.echo", {"a": 1})).text
        return server.error or ""


async def test_a_server_of_an_authority_of_our_own(authority: Authority) -> None:
    """docs/configuration.md#certificates: `ca` is trusted for that server, beside the system's."""
    tls = authority.server()
    assert await outcome(tls, {"tls": {"ca": str(authority.file)}}) == '{"a": 1}'
    refused = await outcome(tls, {})
    assert "has no TLS certificate that can be trusted: " in refused
    assert "`tls.ca`" in refused


async def test_an_authority_vouches_for_no_more_than_it_signed(authority: Authority, tmp_path: Path) -> None:
    """RFC 9110, 4.3.4: another host's certificate, one that is over, and one of another authority are refused."""
    trusted = {"tls": {"ca": str(authority.file)}}
    assert "not valid for" in await outcome(authority.server("other", host="example.com"), trusted)
    over = datetime.timedelta(hours=-1)
    assert "certificate has expired" in await outcome(authority.server("old", lasts=over), trusted)
    stranger = Authority(tmp_path, "Stranger")
    assert "can be trusted: " in await outcome(stranger.server("strange"), trusted)


async def test_a_server_that_wants_to_see_a_certificate(authority: Authority) -> None:
    """docs/configuration.md#certificates: `cert` and `key` are shown to it; without them it refuses."""
    tls = authority.server(asks=True)
    cert, key = authority.issue("muxway")
    trusted = {"ca": str(authority.file)}
    assert await outcome(tls, {"tls": {**trusted, "cert": str(cert), "key": str(key)}}) == '{"a": 1}'
    refused = await outcome(tls, {"tls": trusted})
    # Its reason may be lost: it comes after the connection was made, and then the connection goes.
    assert "certificate required" in refused or "reset the connection" in refused


async def test_on_this_machine_a_certificate_may_stay_unchecked(authority: Authority) -> None:
    """docs/configuration.md#certificates: for a server in development; nowhere else."""
    assert await outcome(authority.server(), {"tls": {"verify": False}}) == '{"a": 1}'
    with pytest.raises(ConfigError, match="on this machine only"):
        parse_config({"mcpServers": {"up": {"url": "https://mcp.example.com", "tls": {"verify": False}}}})


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"ca": "nowhere.pem"}, "nowhere.pem: cannot be read: no such file"),
        ({"ca": "junk.pem"}, "junk.pem: holds no certificate in PEM form"),
        ({"cert": "junk.pem"}, "do not hold a certificate and its key in PEM form"),
        ({"cert": "a.pem", "key": "b.key"}, "belongs to another certificate"),
        ({"cert": "locked.pem", "key": "locked.key"}, "locked.key is encrypted"),
    ],
)
async def test_files_that_cannot_be_used_are_named(
    authority: Authority, tmp_path: Path, entry: dict[str, str], why: str
) -> None:
    """Ours: which file, and what is wrong with it; the others go on."""
    (tmp_path / "junk.pem").write_text("junk")
    for name in ("a", "b"):
        authority.issue(name)
    authority.issue("locked", password=b"pass")
    tls = {key: str(tmp_path / file) for key, file in entry.items()}
    assert why in await outcome(authority.server(), {"tls": tls})


def test_what_has_no_effect_is_said() -> None:
    """Ours: certificates of a program, or of plain HTTP."""
    entries = {
        "program": {"command": "x", "tls": {"ca": "a.pem"}, "proxy": "http://127.0.0.1:1"},
        "plain": {"url": "http://127.0.0.1/mcp", "tls": {"ca": "a.pem"}},
    }
    warnings = [str(warning) for warning in parse_config({"mcpServers": entries}).warnings]
    assert len([warning for warning in warnings if "has no effect" in warning]) == 3
    with pytest.raises(ConfigError, match="`key` needs the `cert`"):
        parse_config({"mcpServers": {"up": {"url": "https://127.0.0.1/mcp", "tls": {"key": "a.key"}}}})


async def test_check_shows_by_which_certificate_a_server_is_known(authority: Authority, tmp_path: Path) -> None:
    """docs/cli.md: `check --connect` shows whose it is, who signed it, and until when."""

    async def checked(*options: str) -> str:
        async with serving(Remote(), authority.server("mcp-server")) as url:
            config = {"mcpServers": {"up": {"url": url, "tls": {"ca": str(authority.file)}}}}
            (tmp_path / "servers.json").write_text(json.dumps(config))
            arguments = ["-m", "muxway", "check", str(tmp_path / "servers.json"), "--connect", *options]
            process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
            said, _ = await asyncio.wait_for(process.communicate(), 30)
            assert process.returncode == 0, said
            return said.decode()

    said = await checked()
    assert "up: TLS certificate of CN=mcp-server, issued by CN=Test authority, valid until 20" in said
    (server,) = json.loads(await checked("--json"))["servers"]
    assert server["certificates"][0].startswith("CN=mcp-server, issued by CN=Test authority")


# --- proxies ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def a_proxy(to: str) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that takes everything to one place; gives its URL, and the first line of each connection."""
    host, _, port = to.removeprefix("http://").partition("/")[0].partition(":")
    lines: list[bytes] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines.append(head)
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        up_writer.write(head)
        await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", lines
    finally:
        server.close()


async def asked(url: str, entry: dict[str, Any]) -> str:
    async with asyncio.timeout(30), gateway(url, **entry) as up:
        (server,) = up.servers()
        if server.status is muxway.Status.RUNNING:
            return (await up.call("up.echo", {"a": 1})).text
        return server.error or ""


async def test_a_proxy_of_the_config_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/configuration.md#servers: with its password, and whatever the environment says."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "*")
    async with serving(Remote()) as url, a_proxy(url) as (proxy, lines):
        with_password = proxy.replace("//", "//user:secret@")
        assert await asked("http://mcp.test/mcp", {"proxy": with_password}) == '{"a": 1}'
    assert lines[0].startswith(b"POST http://mcp.test/mcp HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in lines[0]


async def test_a_proxy_of_the_environment_is_used_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/configuration.md#servers: HTTP_PROXY, but not for this machine, not for NO_PROXY, and not with `false`."""
    async with serving(Remote()) as url, a_proxy(url) as (proxy, lines):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert await asked("http://mcp.test/mcp", {}) == '{"a": 1}'
        assert lines
        lines.clear()
        assert await asked(url, {}) == '{"a": 1}', "this machine"
        assert "cannot be reached" in await asked("http://mcp.test/mcp", {"proxy": False})
        monkeypatch.setenv("NO_PROXY", ".test")
        assert "cannot be reached" in await asked("http://mcp.test/mcp", {})
        assert lines == []


async def test_a_proxy_that_is_not_there_is_named() -> None:
    """Ours: not the server is to be looked after."""
    said = await asked("http://mcp.test/mcp", {"proxy": "http://user:secret@127.0.0.1:1"})
    assert "its proxy does not answer" in said
    assert "secret" not in said


async def test_a_proxy_leads_to_a_server_by_https(authority: Authority) -> None:
    """RFC 9110, 9.3.6: what passes through is encrypted, and the proxy has credentials of its own."""
    entry: dict[str, Any] = {"tls": {"ca": str(authority.file)}}
    asked_for: list[bytes] = []
    status = b"200 Connected"

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked_for.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 %b\r\nVia: proxy\r\n\r\n" % status)
        if status.startswith(b"200"):
            up_reader, up_writer = await asyncio.open_connection(*address)
            await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))
        writer.close()

    async with serving(Remote(), authority.server()) as url, await asyncio.start_server(lead, "127.0.0.1", 0) as proxy:
        host, _, port = url.removeprefix("https://").partition("/")[0].partition(":")
        address = host, int(port)
        entry["proxy"] = f"http://user:secret@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        assert await asked(url, entry) == '{"a": 1}'
        place = f"{host}:{port}".encode()
        assert asked_for[0].startswith(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n" % (place, place))
        assert b"\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n" in asked_for[0]
        status = b"407 Proxy Authentication Required"
        assert "its proxy refuses with status 407" in await asked(url, entry)
