"""The token store: sealed, only the owner's, whole whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from muxway.identity.store import (
    LOCAL,
    AuthorizationServer,
    Login,
    LoginKey,
    Registration,
    Token,
    TokenStore,
    WantedLogin,
)
from muxway.net.sealed_files import LostError, SealedFolder, StoreError

KEY = LoginKey(*LOCAL, "linear", "https://mcp.example.com/mcp")


def login(key: LoginKey = KEY, access: str = "canary-access", refresh: str | None = "canary-refresh") -> Login:
    return Login(
        key=tuple(key),
        grant="authorization_code",
        server=AuthorizationServer(issuer="https://as.example.com", token_endpoint="https://as.example.com/token"),
        registration=Registration(kind="registered", client_id="c", client_secret="canary-secret"),
        token=Token(access=access, refresh=refresh, expires_at=time.time() + 3600, scopes=("read",)),
        made_at=1.0,
    )


def test_what_is_written_is_read_by_another_process(store: TokenStore) -> None:
    """docs/identity.md#the-token-store: one store for all muxway processes of a user."""
    store.write(login())
    assert TokenStore().read(KEY).token.access == "canary-access"
    assert [one.key for one in TokenStore().all()] == [tuple(KEY)]


def test_two_users_and_three_servers_are_six_logins(store: TokenStore) -> None:
    """docs/identity.md#the-token-store: a login is kept under (issuer, subject, server); nobody gets another's."""
    keys = [
        LoginKey("https://idp", user, server, f"https://{server}.example.com/mcp")
        for user in ("ann", "bob")
        for server in ("a", "b", "c")
    ]
    for key in keys:
        store.write(login(key, access=f"{key.subject}-{key.server}"))
    assert [store.read(key).token.access for key in keys] == [f"{key.subject}-{key.server}" for key in keys]
    assert store.read(keys[0]._replace(url="https://elsewhere.example.com/mcp")) is None
    assert store.read(keys[0]._replace(issuer="https://other")) is None


def test_no_secret_is_in_a_file(store: TokenStore) -> None:
    """docs/identity.md#the-token-store: sealed with AES-256-GCM."""
    store.write(login())
    content = b"".join(path.read_bytes() for path in store.folder.iterdir())
    assert b"canary" not in content
    assert b"linear" not in content
    assert b"example.com" not in content


def test_it_is_the_owners_alone_whatever_the_umask_is(store: TokenStore) -> None:
    """docs/identity.md#the-token-store: files 0600 in a folder 0700."""
    before = os.umask(0)
    try:
        store.write(login())
    finally:
        os.umask(before)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in store.folder.iterdir()} == {0o600}


def test_what_others_may_read_is_refused(store: TokenStore) -> None:
    """docs/identity.md#the-token-store: wrong rights are an error that says what to do, and nothing is changed."""
    store.write(login())
    for path in (store.folder, store.folder / "key", next(store.folder.glob("*.sealed"))):
        right = path.stat().st_mode & 0o777
        path.chmod(0o755 if path.is_dir() else 0o644)
        with pytest.raises(StoreError, match="open to other users") as told:
            TokenStore().read(KEY)
        assert str(path) in str(told.value)
        path.chmod(right)
    assert TokenStore().read(KEY) is not None


def test_links_are_not_followed(store: TokenStore, tmp_path: Path) -> None:
    """docs/identity.md#the-token-store: nobody puts another file in the place of one of ours."""
    store.write(login())
    file = next(store.folder.glob("*.sealed"))
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.raises(StoreError, match="it is a link"):
        TokenStore().read(KEY)


@pytest.mark.parametrize("change", ["cut", "flip", "swap", "other key", "no key", "empty"])
def test_a_damaged_file_is_told_and_nothing_is_lost_of_the_others(store: TokenStore, change: str) -> None:
    """docs/identity.md#the-token-store: what cannot be opened is said, with the file to remove."""
    other = KEY._replace(server="other")
    store.write(login())
    store.write(login(other))
    file = store.folder / f"{KEY.digest}.sealed"
    content = file.read_bytes()
    match change:
        case "cut":
            file.write_bytes(content[:-3])
        case "flip":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "swap":
            file.write_bytes((store.folder / f"{other.digest}.sealed").read_bytes())
        case "other key":
            (store.folder / "key").write_bytes(os.urandom(32))
        case "no key":
            (store.folder / "key").unlink()
        case _:
            file.write_bytes(b"")
    with pytest.raises(StoreError) as told:
        TokenStore().read(KEY)
    assert "log in again" in str(told.value)
    assert "canary" not in str(told.value)
    if change not in ("other key", "no key"):
        assert TokenStore().read(other).token.access == "canary-access"


def test_a_full_disk_leaves_the_old_login(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/identity.md#the-token-store: whole or not at all."""
    store.write(login(access="old"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device; nothing was changed"):
        store.write(login(access="new"))
    monkeypatch.undo()
    assert store.read(KEY).token.access == "old"
    assert [path.name for path in store.folder.iterdir() if path.name.endswith(".new")] == []


def test_many_processes_agree_on_one_key(tmp_path: Path) -> None:
    """Ours: whoever makes the folder first decides, also if all begin at the same moment."""
    code = (
        "import sys; from pathlib import Path; from muxway.net.sealed_files import SealedFolder\n"
        "SealedFolder(Path(sys.argv[1])).write(sys.argv[2], sys.argv[2].encode())"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "f"), f"n{number}"]) for number in range(8)]
    assert [process.wait(30) for process in started] == [0] * 8
    folder = SealedFolder(tmp_path / "f")
    assert [folder.read(f"n{number}") for number in range(8)] == [f"n{number}".encode() for number in range(8)]


# Each line that it hears makes it a process of its own, which writes until it is killed.
WRITERS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.identity.test_store import login
from muxway.identity.store import TokenStore
store = TokenStore()
for _ in iter(sys.stdin.readline, ""):
    if writer := os.fork():
        os.waitpid(writer, 0)
        print("ended", flush=True)
        continue
    number = 0
    while True:
        store.write(login(access=f"{number}-" + "x" * 20000 + f"-{number}"))
        number += 1
        if number == 1:
            print(os.getpid(), flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_whole_login(store: TokenStore) -> None:
    """docs/identity.md#the-token-store: `kill -9` at 50 moments of writing, each followed by a reading."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", WRITERS, root]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for number in range(50):
            print(file=writers.stdin, flush=True)
            writer = int(writers.stdout.readline())
            time.sleep((number % 10) * 0.0007)
            os.kill(writer, signal.SIGKILL)
            assert writers.stdout.readline() == "ended\n"
            access = store.read(KEY).token.access
            first, _, last = access.partition("-")
            assert last.endswith(f"-{first}")


async def test_the_lock_of_a_process_that_is_killed_is_free(store: TokenStore) -> None:
    """Ours: a crash during a refresh must not lock everybody out."""
    code = (
        "import asyncio\nfrom tests.identity.test_store import KEY\nfrom muxway.identity.store import TokenStore\n"
        "async def main():\n async with TokenStore().locked(KEY):\n  print('held', flush=True)\n"
        "  await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    root = str(Path(__file__).parents[2])
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=root)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    took = asyncio.ensure_future(store.locked(KEY).__aenter__())
    await asyncio.sleep(0.1)
    assert not took.done()
    holder.kill()
    await holder.wait()
    async with asyncio.timeout(30):
        await took


def test_what_a_server_asked_for_is_remembered_until_it_has_it(store: TokenStore) -> None:
    """docs/identity.md#laptop: `muxway login` asks for what the server wanted of the gateway."""
    store.want(KEY, WantedLogin(scopes=("read",), at=time.time()))
    assert store.wanted(KEY).scopes == ("read",)
    assert store.all() == []
    store.want(KEY, None)
    assert store.wanted(KEY) is None
    store.want(KEY, WantedLogin(scopes=("read",), at=time.time() - 48 * 3600))
    assert store.wanted(KEY) is None


def test_one_login_that_cannot_be_opened_hides_no_other(store: TokenStore) -> None:
    """docs/identity.md#the-token-store: what is lost is told of, and can be forgotten."""
    other = LoginKey(*LOCAL, "sentry", "https://mcp.sentry.example/mcp")
    store.write(login())
    store.write(login(other))
    (store.folder / f"{KEY.digest}.sealed").write_bytes(b"torn")
    problems: dict[str, str] = {}
    assert [one.key for one in store.all(problems)] == [tuple(other)]
    assert [*problems] == [KEY.digest]
    assert problems[KEY.digest].endswith("sealed with another key; log in again")
    with pytest.raises(LostError):
        store.read(KEY)
    store.discard(KEY.digest)
    assert store.read(KEY) is None


def test_the_key_may_be_in_the_systems_keyring(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/identity.md#the-token-store: with the extra, the folder holds no key."""
    kept: dict[tuple[str, str], str] = {}
    errors = SimpleNamespace(KeyringError=type("KeyringError", (Exception,), {}))
    ring = SimpleNamespace(
        set_password=lambda service, name, value: kept.__setitem__((service, name), value),
        get_password=lambda service, name: kept.get((service, name)),
    )
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    store.write(login())
    assert (store.folder / "key").read_bytes() == b"keyring\n"
    assert [len(bytes.fromhex(key)) for key in kept.values()] == [32]
    assert TokenStore().read(KEY).token.access == "canary-access"
    kept.clear()
    with pytest.raises(StoreError, match="not in the system's keyring any more; log in again"):
        TokenStore().read(KEY)
    # To log in again does it: there is a new key then.
    TokenStore().write(login(access="canary-again"))
    assert TokenStore().read(KEY).token.access == "canary-again"
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(StoreError, match=r"install muxway with the extra, `muxway\[keyring\]`"):
        TokenStore().read(KEY)


async def test_what_a_killed_process_had_written_is_put_in_place_by_the_next(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/identity.md#the-token-store: a rotated token is not lost while the disk is waited for."""

    class Killed(BaseException):
        pass

    def dies(_: int) -> None:
        raise Killed

    store.write(login(access="old"))
    scratch = store.folder / f"{KEY.digest}.next"
    with monkeypatch.context() as patched:
        patched.setattr("muxway.net.private_files.os.fsync", dies)
        # As a kill does: nothing is tidied up.
        patched.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            store.write(login(access="new"))
    assert scratch.exists()
    kept = store.read(KEY)
    assert kept is not None
    assert kept.token.access == "old"
    async with store.locked(KEY):
        store.finish(KEY)
        store.finish(KEY)
    kept = store.read(KEY)
    assert kept is not None
    assert kept.token.access == "new"
    assert not scratch.exists()
    # Half of it, or that of a login that was given back, is nothing.
    scratch.write_bytes((store.folder / f"{KEY.digest}.sealed").read_bytes()[:-1])
    scratch.chmod(0o600)
    store.finish(KEY)
    assert store.read(KEY) == kept
    scratch.write_bytes((store.folder / f"{KEY.digest}.sealed").read_bytes())
    store.remove(KEY)
    store.finish(KEY)
    assert store.read(KEY) is None
