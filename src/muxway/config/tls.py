"""Certificates: those that `muxway serve` shows, and those that a remote server is known by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muxway.config import kinds
from muxway.config.fields import Section, kind, settings

if TYPE_CHECKING:
    from muxway.config.report import Path
    from muxway.config.values import Reader


@settings
class ServerTls:
    """How a remote server is known, and how muxway is known to it, beside the system's certificate authorities."""

    ca: str | None = kinds.path(
        "File with additional certificate authorities (PEM) to trust for this server, for example your company's.",
        default=None,
        example="certs/company-ca.pem",
    )
    cert: str | None = kinds.path(
        "File with muxway's client certificate for this server (PEM, with its chain).",
        default=None,
        example="certs/muxway.pem",
    )
    key: str | None = kinds.path(
        "File with the private key of `cert` (PEM, not encrypted), if it is not in the same file.",
        default=None,
        example="certs/muxway.key",
    )
    verify: bool = kinds.flag(
        "Whether the server's certificate is checked. The check can be turned off only for URLs on this machine: "
        "127.0.0.1, ::1 or localhost.",
        default=True,
        example=True,
    )


@settings
class ListenerTls:
    """The certificate of `muxway serve`."""

    cert: str = kinds.path("File with the certificate (PEM), followed by its chain.", example="certs/mcp.pem")
    key: str | None = kinds.path(
        "File with its private key (PEM, not encrypted), if it is not in the same file.",
        default=None,
        example="certs/mcp.key",
    )


SERVER_TLS: Final = Section("mcpServers.*.tls", ServerTls)
LISTENER_TLS: Final = Section("gateway.tls", ListenerTls)


@kind("object", {"$ref": "#/$defs/serverTls"})
def server_tls(reader: Reader, place: Path, raw: object) -> ServerTls | None:
    """How a server is known."""
    found = ServerTls(**reader.section(SERVER_TLS, place, raw))
    if found.key is not None and found.cert is None:
        reader.report.error((*place, "cert"), "`key` needs the `cert` that it belongs to")
    return found


@kind("object", {"$ref": "#/$defs/tls"})
def listener_tls(reader: Reader, place: Path, raw: object) -> ListenerTls | None:
    """The certificate that we show."""
    values = reader.section(LISTENER_TLS, place, raw)
    return ListenerTls(**values) if "cert" in values else None


@kind("http:// or https:// URL of a proxy, or false", {"anyOf": [kinds.FILLED, {"const": False}]})
def proxy(reader: Reader, place: Path, raw: object) -> str | None:
    """A proxy on the way to a server; the empty text says that there is none, whatever the environment says."""
    if raw is False:
        return ""
    written = kinds.url.read(reader, place, raw)
    if written is not None and urlsplit(written).password:
        reader.note_secret("password", urlsplit(written).password or "")
    return written
