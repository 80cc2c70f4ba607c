"""Hosts and origins that may use the HTTP port, as users write them. One that could never match is refused."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

ANY: Final = "*"
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,252}[a-z0-9])?").fullmatch
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*").fullmatch
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def host(text: str) -> str:
    """A name or address by which clients reach muxway, as it is compared: without a port. Raises ValueError."""
    given = text.strip().lower()
    if given == ANY:
        return given
    if "/" in given:
        name = _split(given)[1] or "mcp.example.com"
        raise ValueError(f"is a URL, and must be the name in it: write {name}")
    name = _split(f"http://{_written(given) if is_address(given) else given}")[1]
    if name is None:
        raise ValueError("is no host name: write one like mcp.example.com, without a wildcard, or * for any")
    return name


def origin(text: str) -> str:
    """A web origin whose pages may use muxway, as browsers send it. Raises ValueError."""
    given = text.strip().lower()
    if given == ANY:
        return given
    if "://" not in given:
        _, name, port = _split(f"http://{given}")
        like = f"http://{_written(name)}{f':{port}' if port else ''}" if name else "https://app.example.com"
        raise ValueError(f"has no scheme, and browsers send one: write {like}")
    scheme, name, port = _split(given)
    if scheme is None or name is None:
        raise ValueError("is no web origin: write one like https://app.example.com, without a wildcard, or * for any")
    whole = f"{scheme}://{_written(name)}"
    if port is not None and port != _DEFAULT_PORTS.get(scheme):
        whole += f":{port}"
    rest = given.partition("://")[2].removesuffix("/")
    if any(sign in rest for sign in "/?#@"):
        raise ValueError(f"is more than an origin: write {whole}")
    return whole


def _split(url: str) -> tuple[str | None, str | None, int | None]:
    """Scheme, host and port; None for each that is missing or cannot be."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname or "", parts.port
    except ValueError:
        return None, None, None
    scheme = parts.scheme if _SCHEME(parts.scheme) else None
    return scheme, name if _NAME(name) or is_address(name) else None, port


def _written(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def is_address(name: str) -> bool:
    """Whether this is an IP address, and no name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
