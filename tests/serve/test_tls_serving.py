"""`muxway serve` with a certificate: HTTPS for its clients, a new certificate without a restart."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muxway import demo

from ..certificates import Authority
from ..pace import PATIENCE
from .harness import BOTH, initialize
from .running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOKEN = "a-long-random-token-of-this-test"


class Https(Running):
    """The command as a process of its own, and a client that trusts its authority."""

    def __init__(self, folder: Path, authority: Authority, *args: str, gateway: dict[str, Any] | None = None) -> None:
        config = folder / "servers.json"
        config.write_text(json.dumps({**demo.config(), "gateway": gateway or {}}))
        self.log, self._client = folder / "stderr", authority.client()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "muxway", "serve", "-c", str(config), "--port", "0", *args],
                env={**os.environ, "MUXWAY_TOKEN": TOKEN},
                stderr=log,
            )
        self.port = int(self.until(r"muxway listens on https://[\d.]+:(\d+)")[1])

    def knock(self) -> tuple[int, dict[str, Any]]:
        """The status of an `initialize`, and the certificate that was shown."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=self._client)
        headers = {"Accept": BOTH, "Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        connection.request("POST", "/mcp", json.dumps(initialize()), headers)
        assert isinstance(connection.sock, ssl.SSLSocket)
        shown: dict[str, Any] = connection.sock.getpeercert() or {}
        status = connection.getresponse().status
        connection.close()
        return status, shown


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Https]]:
    started: list[Https] = []

    def start(*args: Any, **more: Any) -> Https:
        started.append(Https(tmp_path, *args, **more))
        return started[-1]

    yield start
    for served in started:
        served.process.terminate()
        assert served.process.wait(PATIENCE) == 0


def test_it_speaks_https_and_takes_a_new_certificate(serve: Callable[..., Https], tmp_path: Path) -> None:
    """docs/service.md#https: other machines reach it with the token; the files are read again when they change."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("shown")
    served = serve(authority, "--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(key))
    status, first = served.knock()
    assert status == 200
    cert.write_bytes(b"half of a new one")
    served.until("the new certificate cannot be used; the old one stays")
    assert served.knock() == (200, first)
    for new, old in zip(authority.issue("next"), (cert, key), strict=True):
        shutil.move(new, old)
    served.until("the certificate was replaced")
    status, second = served.knock()
    assert (status, second == first) == (200, False)


def test_the_certificate_may_stand_in_the_config(serve: Callable[..., Https], tmp_path: Path) -> None:
    """docs/configuration.md#certificate-of-the-gateway: beside the config file, say."""
    authority = Authority(tmp_path)
    authority.issue("shown")
    served = serve(authority, gateway={"tls": {"cert": "shown.pem", "key": "shown.key"}})
    assert served.knock()[0] == 200
