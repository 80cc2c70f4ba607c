"""The HTTP door behind TLS: the same requests, clocks and limits."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from muxway.testing import ScriptedServer

from .harness import PATIENCE, Opened, a_web

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for this machine, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "server.pem"
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=file)


async def test_requests_streams_and_refusals_pass_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Ours: what listens takes a TLS context, and nothing else is different."""
    server, client = contexts
    async with a_web({"s": ScriptedServer(tools={"echo": None})}, tls=server, max_body_bytes=1000) as web:
        web.tls = client
        session = await web.session()
        answer = await session.ask("tools/call", {"name": "s__echo", "arguments": {"ok": 1}})
        assert (answer.status, answer.json["result"]["structuredContent"]) == (200, {"ok": 1})
        stream = await session.listen()
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        refused = await web.post(b"x" * 1001)
        assert (refused.status, refused.headers["connection"]) == (413, "close")


async def test_whoever_speaks_no_tls_is_cut_off(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Ours: and nobody else notices."""
    server, client = contexts
    async with a_web(tls=server) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert b"HTTP/1.1" not in await Opened(reader, writer).closed()
        writer.close()
        web.tls = client
        assert (await asyncio.wait_for(web.ask("GET", "/healthz"), PATIENCE)).status == 200
