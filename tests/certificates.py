"""An authority of a test's own, and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

HOUR = datetime.timedelta(hours=1)


class Authority:
    """Signs certificates; files go into a folder."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        """The authority itself, for those who trust it."""
        own = self._sign(self._name, self._key.public_key(), [], HOUR, is_authority=True)
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, host: str = "127.0.0.1", lasts: datetime.timedelta = HOUR, password: bytes | None = None
    ) -> tuple[Path, Path]:
        """A certificate for a host, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            of_host: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            of_host = x509.DNSName(host)
        signed = self._sign(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key(), [of_host], lasts
        )
        how = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
        cert_file, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
        return cert_file, key_file

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        hosts: list[x509.GeneralName],
        lasts: datetime.timedelta,
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - 2 * HOUR)
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            usage = dict.fromkeys(
                (
                    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
                    *("key_agreement", "encipher_only", "decipher_only"),
                ),
                False,
            )
            made = made.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return made.sign(self._key, hashes.SHA256())

    def server(self, name: str = "server", *, asks: bool = False, **more: object) -> ssl.SSLContext:
        """What a server listens with; it may ask clients for a certificate of this authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue(name, **more))  # type: ignore[arg-type]
        if asks:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self) -> ssl.SSLContext:
        """What a client connects with that trusts this authority alone."""
        return ssl.create_default_context(cafile=self.file)


async def shake_hands(
    tls: ssl.SSLObject,
    bios: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
    pipe: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Do a handshake by hand, so that what comes with its end can be said in the same breath."""
    (incoming, outgoing), (reader, writer) = bios, pipe
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65536))
        else:
            return
