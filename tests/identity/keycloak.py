"""Keycloak as a process of its own: fetched by its package coordinates, unpacked once, started with a realm of ours.

Needs Java and Maven. Where they are missing, the tests that want it say so; in CI they fail.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from ..interop import peers
from ..ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "26.7.3"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
ARTIFACT = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:tar.gz"
FETCHED_IN = 900
BUILT_IN = 900
UP_IN = 400
PASSWORD = "a-pass-for-tests"
AUDIENCE = "muxway-api"
GATEWAY_SECRET = "a-secret-for-tests"


def _mapper(name: str, kind: str, **config: str) -> dict[str, Any]:
    return {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config}


def _audience(name: str) -> dict[str, Any]:
    return _mapper(
        f"audience {name}", "oidc-audience-mapper", **{"included.custom.audience": name, "access.token.claim": "true"}
    )


GROUPS = _mapper(
    "groups",
    "oidc-group-membership-mapper",
    **{"claim.name": "groups", "full.path": "false", "access.token.claim": "true", "id.token.claim": "true"},
)


def _user(name: str, *groups: str) -> dict[str, Any]:
    return {
        "username": name,
        "enabled": True,
        "email": f"{name}@example.com",
        "emailVerified": True,
        "firstName": name,
        "lastName": "Example",
        "credentials": [{"type": "password", "value": PASSWORD, "temporary": False}],
        "groups": [*groups],
    }


REALM = {
    "realm": "main",
    "enabled": True,
    "sslRequired": "none",
    "groups": [{"name": "dev"}, {"name": "ops"}],
    "users": [_user("ann", "/dev"), _user("bob", "/ops")],
    "clients": [
        {
            # What people's programs come with; the password is for tests, which have no browser here.
            "clientId": "programs",
            "publicClient": True,
            "directAccessGrantsEnabled": True,
            "standardFlowEnabled": False,
            "protocolMappers": [GROUPS, _audience(AUDIENCE), _audience("gateway")],
        },
        {
            # As whom the gateway signs people on, and trades tokens for those of a server.
            "clientId": "gateway",
            "secret": GATEWAY_SECRET,
            "publicClient": False,
            "standardFlowEnabled": True,
            "redirectUris": ["http://127.0.0.1/sign-on/callback", "http://127.0.0.1:*"],
            "attributes": {"standard.token.exchange.enabled": "true", "pkce.code.challenge.method": "S256"},
            "protocolMappers": [GROUPS, _audience("inner-server")],
        },
    ],
}


class Keycloak:
    """One that runs, with a realm that has groups."""

    def __init__(self, folder: Path) -> None:
        home = _home()
        port, management = free_port(), free_port()
        data = folder / "keycloak"
        # Its own files are left as they were fetched: what it builds and keeps is in this folder.
        shutil.copytree(home, data, symlinks=True)
        (data / "data" / "import").mkdir(parents=True)
        (data / "data" / "import" / "main.json").write_text(json.dumps(REALM))
        self._log = folder / "keycloak.log"
        command = [str(data / "bin" / "kc.sh"), "start", "--optimized", "--import-realm", "--http-host=127.0.0.1"]
        ports = [f"--http-port={port}", f"--http-management-port={management}"]
        ports += ["--http-enabled=true", "--hostname-strict=false"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *ports],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "JAVA_OPTS_APPEND": "-Xmx512m"},
            )
        self.issuer = f"http://127.0.0.1:{port}/realms/main"
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + UP_IN
        while True:
            try:
                urllib.request.urlopen(f"{self.issuer}/.well-known/openid-configuration", timeout=5).close()
            except OSError:
                said = self._log.read_text(errors="replace")[-2000:]
                assert self._process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.5)
            else:
                return

    def token(self, user: str) -> str:
        """An access token of a user, for a program of theirs."""
        form = {"grant_type": "password", "client_id": "programs", "username": user, "password": PASSWORD}
        asked = f"{self.issuer}/protocol/openid-connect/token"
        with urllib.request.urlopen(asked, urllib.parse.urlencode(form).encode(), timeout=20) as answer:
            return json.load(answer)["access_token"]

    def stop(self) -> None:
        # Java is a child of the script.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


def _home() -> Path:
    """Where it is unpacked, fetching it first if need be."""
    lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
    target = peers.ENVS / f"keycloak-{VERSION}"
    if lacking and not target.exists():
        _lack(f"Keycloak needs {' and '.join(lacking)}, which this machine does not have")
    peers.ENVS.mkdir(exist_ok=True)
    with (peers.ENVS / "keycloak.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    scratch = target.with_name(f"{target.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        done = subprocess.run(
            ["mvn", "--batch-mode", "--quiet", COPY, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={scratch}"],
            capture_output=True,
            text=True,
            cwd=scratch,
            timeout=FETCHED_IN,
            check=False,
        )
        found = [*scratch.glob("keycloak-quarkus-dist-*.tar.gz")]
        if done.returncode or not found:
            _lack(f"Keycloak {VERSION} could not be fetched by Maven: {(done.stdout + done.stderr)[-500:]}")
        with tarfile.open(found[0]) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = scratch / f"keycloak-{VERSION}"
        # Once, as it takes longer than all the rest.
        built = subprocess.run(
            [str(unpacked / "bin" / "kc.sh"), "build", "--db=dev-mem"],
            capture_output=True,
            text=True,
            timeout=BUILT_IN,
            check=False,
        )
        assert built.returncode == 0, built.stdout + built.stderr
        unpacked.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _lack(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
