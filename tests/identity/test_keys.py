"""API keys: made once, kept as digests, good where they should be, gone when they are revoked."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from muxway.calls.identity import Identity
from muxway.cli import cli
from muxway.clients.authenticator import Admitted, Rejected
from muxway.clients.transports.guard import Guard
from muxway.identity.keys import KeyFile, KeyFileError, KeyHolders
from muxway.testing import ScriptedServer

from ..serve.harness import a_web, initialize
from ..serve.test_serve import Served
from .issuing import PUBLIC, TestIssuer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from muxway.clients.authenticator import Verdict

VIEWS: dict[str, Any] = {"reading": {"tools": ["up__*"]}, "writing": {}}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys" / "gateway.json")


def test_a_key_is_shown_once_and_kept_as_a_digest(file: KeyFile) -> None:
    """docs/identity-team.md#machines: `mxw_<name>_<random>`; the file has nothing that opens anything."""
    key = file.create("ci")
    assert key.startswith("mxw_ci_")
    assert len(key) >= 7 + 43
    assert key not in file.path.read_text()
    assert key.removeprefix("mxw_ci_") not in file.path.read_text()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.read()
    verdict = file.check(key.encode())
    assert isinstance(verdict, Admitted)
    assert (verdict.identity.key, verdict.view) == ("ci", None)


def test_what_is_no_key_is_refused(file: KeyFile) -> None:
    """Ours: of another name, another random part, another gateway; longer, shorter, empty."""
    key = file.create("ci")
    file.create("ci-2")
    file.read()
    elsewhere = KeyFile(file.path.with_name("other.json")).create("ci")
    other = (key[:-1], f"{key}x", key.replace("ci", "ci-2"), key.upper(), elsewhere)
    for wrong in (*other, "mxw_", "mxw_ci", "mxw_ci_", "mxw__"):
        verdict = file.check(wrong.encode())
        assert isinstance(verdict, Rejected), wrong
        assert (verdict.status, verdict.error) == (401, "invalid_token")


@pytest.mark.parametrize("name", ["", "CI", "a_b", "a b", "-a", "a-", "x" * 33, "ä", "a/b", "../a"])
def test_a_name_that_could_be_misread_is_refused(name: str, file: KeyFile) -> None:
    """Ours: the name stands in the key, between two `_`."""
    with pytest.raises(KeyFileError, match="the name of a key"):
        file.create(name)
    assert not file.path.exists()


def test_a_name_is_given_once(file: KeyFile) -> None:
    """Ours: who makes a key again must not find that two are good."""
    file.create("ci")
    with pytest.raises(KeyFileError, match="revoke it first"):
        file.create("ci")
    assert file.revoke("ci")
    assert not file.revoke("ci")
    file.create("ci")


def test_an_expired_key_is_refused_and_noticed(file: KeyFile) -> None:
    """docs/identity-team.md#machines."""
    now = time.time()
    later = KeyFile(file.path, clock=lambda: now + ahead)
    ahead = 0.0
    key = later.create("ci", expires=now + 60)
    later.read()
    admitted = later.check(key.encode())
    assert isinstance(admitted, Admitted)
    assert not later.has_changed()
    assert later.still_admits("ci", admitted.identity.subject, None)
    ahead = 61.0
    assert later.has_changed()
    assert not later.has_changed()
    assert isinstance(later.check(key.encode()), Rejected)
    assert not later.still_admits("ci", admitted.identity.subject, None)


def test_a_key_that_was_made_anew_is_another_one(file: KeyFile) -> None:
    """docs/identity-team.md#machines: what a leaked key has open ends also if its name is given again at once."""
    holders = KeyHolders(file, demands=True)
    leaked = file.create("ci")
    file.read()
    before = holders.check(leaked.encode(), "/mcp")
    assert isinstance(before, Admitted)
    file.revoke("ci")
    made = file.create("ci")
    assert file.has_changed()
    after = holders.check(made.encode(), "/mcp")
    assert isinstance(after, Admitted)
    assert not holders.still_admits(before.identity, None)
    assert holders.still_admits(after.identity, None)
    assert after.principal == before.principal


@pytest.mark.parametrize(
    "fault",
    [
        *("torn", "list", "digest", "writable", "link", "empty", "folder", "pipe"),
        *("text", "list of texts", "list of nothing", "list of lists", "created", "expires"),
    ],
)
def test_a_file_that_cannot_be_trusted_opens_nothing(fault: str, file: KeyFile) -> None:
    """Ours: whoever has damaged it may have meant to revoke one."""
    key = file.create("ci")
    file.read()
    good = file.path.read_bytes()
    if fault == "link":
        file.path.rename(file.path.with_name("elsewhere"))
        file.path.symlink_to("elsewhere")
    elif fault == "writable":
        file.path.chmod(0o666)
    elif fault in ("folder", "pipe"):
        file.path.unlink()
        file.path.mkdir(mode=0o700) if fault == "folder" else os.mkfifo(file.path, 0o600)
    else:
        longer = good.replace(b'"sha256":"', b'"sha256":"00')
        broken = {"torn": good[:-9], "list": b"[]", "digest": longer, "empty": b""}
        (kept,) = json.loads(good)["keys"]
        odd = {"text": "ci", "list of texts": ["ci"], "list of nothing": [None], "list of lists": [[1]]}
        odd |= {name: [{**kept, name: 10**399}] for name in ("created", "expires")}
        broken |= {name: json.dumps({"keys": keys}).encode() for name, keys in odd.items()}
        file.path.write_bytes(broken[fault])
    assert file.has_changed()
    assert isinstance(file.check(key.encode()), Rejected)
    with pytest.raises(KeyFileError):
        file.read()


def test_keys_made_at_once_are_all_there(file: KeyFile) -> None:
    """Ours: two commands at the same moment lose nothing."""
    made = [threading.Thread(target=KeyFile(file.path).create, args=(f"k{number}",)) for number in range(16)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join(20)
    file.read()
    assert sorted(key.name for key in file.keys) == sorted(f"k{number}" for number in range(16))


# --- at the door --------------------------------------------------------------------------------


async def test_a_key_opens_its_view_and_nothing_else(file: KeyFile) -> None:
    """docs/identity-team.md#machines."""
    every, one = file.create("all"), file.create("reader", view="reading")
    gone = file.create("late", view="gone")
    file.read()
    async with a_web({"up": ScriptedServer()}, top={"views": VIEWS}) as web:
        web.door.admit((), {}, KeyHolders(file, demands=True))
        assert (await web.post(initialize())).status == 401
        for path in ("/mcp", "/mcp/reading", "/mcp/writing"):
            assert (await web.post(initialize(), bearer(every), path=path)).status == 200
        assert (await web.post(initialize(), bearer(one))).status == 200
        assert (await web.post(initialize(), bearer(one), path="/mcp/reading")).status == 200
        assert (await web.post(initialize(), bearer(one), path="/mcp/writing")).status == 403
        assert (await web.post(initialize(), bearer(gone))).status == 404


async def test_a_bad_key_is_refused_where_nobody_would_need_one(file: KeyFile) -> None:
    """Ours: a credential that was shown gets one verdict; it is not taken for none."""
    good = file.create("ci")
    file.read()
    async with a_web({"up": ScriptedServer()}) as web:
        web.door.admit((), {}, KeyHolders(file, demands=False))
        assert (await web.post(initialize())).status == 200
        answer = await web.post(initialize(), bearer(f"{good}x"))
        assert answer.status == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        assert (await web.post(initialize(), bearer(good))).status == 200


async def test_wrong_tokens_are_counted_where_there_are_keys_as_well(file: KeyFile) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: a guesser of tokens gets ten a minute."""
    file.create("ci")
    file.read()
    async with a_web({"up": ScriptedServer()}, guard=Guard(tokens=["right"])) as web:
        web.door.admit(["right"], {}, KeyHolders(file, demands=False))
        statuses = [(await web.post(initialize(), bearer(f"wrong-{number}"))).status for number in range(12)]
        assert statuses[:10] == [401] * 10
        assert statuses[-1] == 429


async def test_a_revoked_key_ends_what_it_opened(file: KeyFile) -> None:
    """docs/identity-team.md#machines: sessions and streams, not only the next request."""
    ci, other = file.create("ci"), file.create("other")
    file.read()
    async with a_web({"up": ScriptedServer()}) as web:
        web.door.admit((), {}, KeyHolders(file, demands=True))
        client, stays = await web.session(headers=bearer(ci)), await web.session(headers=bearer(other))
        stream = await client.listen()
        assert stream.status == 200
        KeyFile(file.path).revoke("ci")
        assert file.has_changed()
        web.door.review()
        assert await stream.messages() == []
        assert (await client.ask("tools/list")).status == 401
        assert (await stays.ask("tools/list")).status == 200
        assert web.door.sessions == 1


async def test_keys_and_access_tokens_are_told_apart_by_their_looks(file: KeyFile) -> None:
    """docs/identity-team.md#more-than-one-kind."""
    key = file.create("ci")
    file.read()
    issuer = TestIssuer()
    server = issuer.server()
    server._keys = file
    async with a_web({"up": ScriptedServer()}, authenticator=server) as web:
        assert (await web.post(initialize(), bearer(key))).status == 200
        assert (await web.post(initialize(), bearer(issuer.token()))).status == 200
        answer = await web.post(initialize(), bearer(f"{key}x"))
        assert answer.status == 401
        assert f'resource_metadata="{PUBLIC}' in answer.headers["www-authenticate"]


# --- by the command -----------------------------------------------------------------------------


@pytest.fixture
def muxway(tmp_path: Path) -> Callable[..., Any]:
    """The command, in front of a config with a view."""
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"up": {"command": "none"}}, "views": VIEWS}))

    def run(*words: str) -> Any:
        return CliRunner().invoke(cli, ["key", *words, "-c", str(config)])

    return run


def test_the_command_makes_lists_and_revokes(muxway: Callable[..., Any]) -> None:
    """docs/cli.md#muxway-key-create."""
    made = muxway("create", "ci", "--view", "reading", "--expires", "90d")
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    assert key.startswith("mxw_ci_")
    assert "only time" in made.stderr
    listed = muxway("list")
    assert "ci" in listed.output
    assert "reading" in listed.output
    assert key not in listed.output
    (row,) = json.loads(muxway("list", "--json").output)
    assert (row["name"], row["view"], row["expired"]) == ("ci", "reading", False)
    assert muxway("revoke", "ci").exit_code == 0
    assert muxway("revoke", "ci").exit_code == 1
    assert "no keys" in muxway("list").output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["create", "CI"], 1),
        (["create", "ci", "--view", "none"], 2),
        (["create", "ci", "--expires", "soon"], 2),
        (["create", "ci", "--expires", "2001-01-01"], 2),
        (["create", "ci", "--expires", "5"], 2),
        (["create", "ci", "--expires", ""], 2),
    ],
)
def test_what_cannot_be_meant_is_told(words: list[str], code: int, muxway: Callable[..., Any]) -> None:
    """docs/cli.md#muxway-key-create."""
    failed = muxway(*words)
    assert failed.exit_code == code, failed.output
    assert "Traceback" not in failed.output
    assert json.loads(muxway("list", "--json").output) == []


def test_a_gateway_that_runs_takes_and_drops_keys_within_a_second(tmp_path: Path) -> None:
    """docs/identity-team.md#machines: without a restart, and whatever the address is."""
    config = str(tmp_path / "servers.json")

    def key(*words: str) -> str:
        done = CliRunner().invoke(cli, ["key", *words, "-c", config])
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    served = Served(tmp_path)
    try:
        made = key("create", "ci")

        def status() -> int:
            return served.ask("POST", "/mcp", initialize(), Authorization=f"Bearer {made}")[0]

        assert _soon(status, 200) < 1.5
        assert "mxw_" not in served.said()
        key("revoke", "ci")
        assert _soon(status, 401) < 1.5
        assert served.ask("POST", "/mcp", initialize())[0] == 200
    finally:
        served.end()


def _soon(status: Callable[[], int], wanted: int) -> float:
    """Seconds until a request is answered so."""
    began = time.monotonic()
    while status() != wanted:
        assert time.monotonic() < began + 10
        time.sleep(0.05)
    return time.monotonic() - began


async def test_a_verdict_that_comes_after_a_reload_is_not_believed(file: KeyFile) -> None:
    """docs/reload.md: who may come in is what counts now, also for a request whose token was being asked about."""
    coming: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    class Slow(KeyHolders):
        def judges(self, token: bytes) -> bool:
            return bool(token)

        def check(self, token: bytes, path: str) -> Any:
            asked.set()
            return coming

    async with a_web({"up": ScriptedServer()}) as web:
        web.door.admit((), {}, Slow(file, demands=True))
        answer = asyncio.ensure_future(web.post(initialize(), bearer("opaque")))
        async with asyncio.timeout(30):
            await asked.wait()
        web.door.admit((), {}, KeyHolders(file, demands=True))
        coming.set_result(Admitted(b"former", Identity(user="former")))
        assert (await answer).status == 401
        assert web.door.sessions == 0
