"""TLS contexts made of files, and what is to be said about a certificate."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from muxway.errors import MuxwayError


class TlsFileError(MuxwayError):
    """A file with a certificate or a key cannot be used. The text says which, and why."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in which a certificate and its key are."""

    cert: str
    key: str | None = None

    def load_into(self, context: ssl.SSLContext) -> None:
        """Show this certificate from now on. Raises TlsFileError, and then the context is as it was."""
        _must_be_readable(self.cert)
        _must_be_readable(self.key or self.cert)
        key, locked = self.key or self.cert, False

        def password() -> str:
            # Else it would be asked for on the terminal, where nobody may be.
            nonlocal locked
            locked = True
            return ""

        try:
            context.load_cert_chain(self.cert, self.key, password)
        except ssl.SSLError as error:
            if locked:
                why = f"the key in {key} is encrypted: give one that is not, in a file that only you can read"
            elif error.reason == "KEY_VALUES_MISMATCH":
                why = f"the key in {key} belongs to another certificate"
            else:
                why = f"this and {key} do not hold a certificate and its key in PEM form"
                if self.key is None:
                    why += "; if the key is in another file, name it: `--tls-key`, or `key` beside `cert`"
            raise TlsFileError(f"{self.cert}: {why}") from None

    def stamp(self) -> tuple[object, ...]:
        """Something that is another when a file has changed."""
        return tuple(_stamp(Path(path)) for path in (self.cert, self.key) if path is not None)


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """What listens with this certificate. Raises TlsFileError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    certificate.load_into(context)
    return context


def client_context(ca: str | None, certificate: Certificate | None, *, verify: bool = True) -> ssl.SSLContext:
    """What connects to servers of the system's authorities and of these. Raises TlsFileError."""
    context = ssl.create_default_context()
    if ca is not None:
        _must_be_readable(ca)
        try:
            context.load_verify_locations(cafile=ca)
        except ssl.SSLError:
            raise TlsFileError(f"{ca}: holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)") from None
    if certificate is not None:
        certificate.load_into(context)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def peer_chain(host: str, port: int, context: ssl.SSLContext) -> list[str]:
    """The certificates by which a server is known, one line each, its own first. Raises OSError, ssl.SSLError.

    Python tells of those between it and the authority only from 3.13 on.
    """
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
        verified = getattr(shown, "get_verified_chain", None)
        own = shown.getpeercert(binary_form=True)
        chain: list[bytes] = verified() if verified is not None else [own] if own is not None else []
        return [_described(certificate) for certificate in chain]
    finally:
        writer.close()


def _described(der: bytes) -> str:
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    return (
        f"{certificate.subject.rfc4514_string() or 'no name'}, issued by {certificate.issuer.rfc4514_string()}, "
        f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
    )


def _must_be_readable(path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise TlsFileError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
