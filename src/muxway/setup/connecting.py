"""The entry of muxway in a client's file: put in, taken out again, and in between remembered how it was before.

A change is made first and applied later, so that it can be shown. Taking out gives back the very bytes if nobody wrote
the file since; else it takes out what was put in and puts back what was taken away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from muxway.config.report import as_mapping
from muxway.errors import MuxwayError
from muxway.setup import files
from muxway.setup.clients import NAME, file_of
from muxway.setup.splicing import Unspliceable, entries_in, with_entry, without_entry

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from muxway.setup.clients import KnownClient
    from muxway.setup.files import ReadFile

_PATIENCE = 60
"""Seconds for a client's own command."""


class NotConnected(MuxwayError):
    """A client cannot be connected, or disconnected, as it is now; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of one client's file."""

    client: KnownClient
    before: ReadFile
    after: bytes | None
    """None if the file goes."""
    entry: Mapping[str, object] | None
    """The entry that is put in; None if it is taken out."""
    command: tuple[str, ...] = ()
    """The client's own command that makes the change, if there is one."""
    replaced: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    """Entries that are taken away, by name."""
    again: bool = False
    """Whether an entry of ours was there already."""

    @property
    def text(self) -> str:
        """The text that the file will have."""
        return (self.after or b"").decode("utf-8")


def muxway_command() -> list[str]:
    """How to start this muxway from anywhere: clients on a desktop have another PATH than a shell."""
    beside = Path(sys.executable).parent / "muxway"
    if beside.exists():
        return [str(beside)]
    found = shutil.which("muxway")
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", "muxway"]


def container_in(client: KnownClient, text: str) -> tuple[str, ...]:
    """Where the servers are: opencode has two places, by its version."""
    if client.id == "opencode":
        with contextlib.suppress(Unspliceable):
            nested = as_mapping(entries_in(text, client.kind, client.container).get("servers"))
            if nested is not None and "command" not in nested and "url" not in nested:
                return ("mcp", "servers")
    return client.container


def connect(
    client: KnownClient, entry: Mapping[str, object], environ: Mapping[str, str], replaced: Collection[str] = ()
) -> Change | None:
    """What connects a client; None if it is connected.

    Raises:
        NotConnected: its file cannot be changed.
        FileRefused: its file must not be changed.
    """
    _refuse_if_running(client, environ)
    before = files.read(file_of(client, environ))
    text = before.text
    try:
        container = container_in(client, text)
        present = entries_in(text, client.kind, container)
        gone = [name for name in replaced if name in present and name != NAME]
        if _same(present.get(NAME), entry) and not gone:
            return None
        for name in gone:
            text = without_entry(text, client.kind, container, name)
        program = _own_command(client, environ) if NAME not in present and not gone else None
        if NAME in present:
            text = without_entry(text, client.kind, container, NAME)
        text = with_entry(text, client.kind, container, (NAME, entry))
    except MuxwayError as error:
        raise _refused(client, before, error, entry) from None
    command = _add_command(client, program, entry) if program is not None else ()
    taken = {name: present[name] for name in gone}
    return Change(client, before, text.encode(), entry, command, taken, again=NAME in present)


def disconnect(client: KnownClient, environ: Mapping[str, str]) -> Change | None:
    """What takes muxway out of a client and gives back what it had; None if muxway is not in it.

    Raises:
        NotConnected: its file cannot be changed.
        FileRefused: its file must not be changed.
    """
    _refuse_if_running(client, environ)
    before = files.read(file_of(client, environ))
    known = _recall(_note_of(client, before, environ))
    if known is not None and known["after"] == _digest(before.data):
        if known["created"]:
            return Change(client, before, None, None)
        if known["backup"] is not None:
            with contextlib.suppress(OSError):  # without the backup, it is done as for a file that was written since
                return Change(client, before, Path(known["backup"]).read_bytes(), None)
    text = before.text
    try:
        container = container_in(client, text)
        present = entries_in(text, client.kind, container)
        taken = cast("dict[str, Mapping[str, object]]", known["replaced"] if known is not None else {})
        restored = {name: old for name, old in taken.items() if name not in present}
        if NAME not in present and not restored:
            return None
        if NAME in present:
            text = without_entry(text, client.kind, container, NAME)
        for name, old in restored.items():
            value = {key: item for key, item in old.items() if key != "name" or client.shape != "listed"}
            text = with_entry(text, client.kind, container, (name, value))
    except MuxwayError as error:
        raise _refused(client, before, error, None) from None
    return Change(client, before, text.encode(), None)


def apply(change: Change, environ: Mapping[str, str]) -> Path | None:
    """Make the change; the backup of what was there before, if there was something.

    Raises:
        FileRefused: the file was changed meanwhile, or cannot be written.
        NotConnected: the client's own command failed.
    """
    note = _note_of(change.client, change.before, environ)
    folder, known = note.parent, _recall(note)
    ours = known is not None and known["after"] == _digest(change.before.data)
    if change.entry is None:
        backup = files.back_up(change.before, folder)
        files.replace(change.before, change.after)
        note.unlink(missing_ok=True)
        return backup
    earlier: dict[str, object] = known["replaced"] if known is not None and change.again else {}
    replaced = {**earlier, **change.replaced}
    kept = None if ours else files.back_up(change.before, folder)
    about: dict[str, object] = {"file": str(change.before.path), "replaced": replaced}
    if ours and known is not None:
        # The file is as we left it: the older backup is the one to go back to.
        about |= {"created": known["created"], "backup": known["backup"]}
    else:
        # Bytes that have muxway in them already are nothing to go back to.
        about |= {"created": kept is None, "backup": None if kept is None or change.again else str(kept)}
    old = files.read(note)
    # Noted before it is done: who ends us in between leaves a file that `disconnect` finds untouched.
    noted = files.replace(old, _noted(about, change.after))
    try:
        if change.command:
            _run(change, environ)
            files.replace(noted, _noted(about, files.read(change.before.path).data))
        else:
            files.replace(change.before, change.after)
    except MuxwayError:
        # Unless another muxway, which was quicker, has noted something since.
        with contextlib.suppress(MuxwayError):
            files.replace(noted, old.data)
        raise
    return kept


def is_connected(client: KnownClient, environ: Mapping[str, str]) -> bool:
    """Whether the client's file has an entry of our name.

    Raises:
        MuxwayError: its file cannot be read.
    """
    text = files.read(file_of(client, environ)).text
    return NAME in entries_in(text, client.kind, container_in(client, text))


def _same(present: object, entry: Mapping[str, object]) -> bool:
    mapping = as_mapping(present)
    return mapping is not None and {key: item for key, item in mapping.items() if key in entry} == entry


def _noted(about: Mapping[str, object], after: bytes | None) -> bytes:
    return json.dumps({**about, "after": _digest(after)}, indent=2).encode()


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _note_of(client: KnownClient, file: ReadFile, environ: Mapping[str, str]) -> Path:
    """Where it is noted how a file was before. A client may have several: its variables name another folder."""
    return files.state_folder(environ) / "clients" / client.id / f"connected-{files.label_of(file.path)}.json"


def _recall(note: Path) -> dict[str, Any] | None:
    """What was noted when a file got muxway; None if nothing, or nothing that can be used."""
    try:
        known = json.loads(note.read_bytes())
        is_whole = isinstance(known["after"], str) and isinstance(known["created"], bool)
        is_whole = is_whole and isinstance(known["backup"], str | None)
        return known if is_whole and all(isinstance(old, dict) for old in known["replaced"].values()) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _refused(
    client: KnownClient, file: ReadFile, error: MuxwayError, entry: Mapping[str, object] | None
) -> NotConnected:
    # Who splices a text does not know its file, and calls it so.
    what = f"{client.title} is left alone: {file.path}: {str(error).removeprefix('it: ')}"
    if entry is not None:
        shown = json.dumps({NAME: entry}, indent=2, ensure_ascii=False)
        what += f"\nPut this into `{'.'.join(client.container)}` yourself:\n{shown}"
    return NotConnected(what)


# --- a client's own program ---------------------------------------------------------------------------------------


def _refuse_if_running(client: KnownClient, environ: Mapping[str, str]) -> None:
    if not client.rewrites_file:
        return
    try:
        listed = subprocess.run(  # noqa: S603 - without a shell, with words of ours
            [shutil.which("ps", path=environ.get("PATH")) or "ps", "-axo", "comm="],
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return  # a machine without `ps`: then nobody can tell
    if {Path(line.strip()).name for line in listed.stdout.splitlines()} & {*client.rewrites_file}:
        raise NotConnected(
            f"{client.title} is running and would write its file anew from memory: quit it first, then try again."
        )


def _own_command(client: KnownClient, environ: Mapping[str, str]) -> str | None:
    return shutil.which(client.program, path=environ.get("PATH")) if client.program else None


def _add_command(client: KnownClient, program: str, entry: Mapping[str, object]) -> tuple[str, ...]:
    if client.program == "claude":
        return (program, "mcp", "add-json", "--scope", "user", NAME, json.dumps(entry, ensure_ascii=False))
    if "url" in entry:
        return (program, "mcp", "add", NAME, "--url", str(entry["url"]))
    return (program, "mcp", "add", NAME, "--", str(entry["command"]), *cast("list[str]", entry["args"]))


def _run(change: Change, environ: Mapping[str, str]) -> None:
    """Let the client's own command make the change, and see that it did."""
    client = change.client
    try:
        done = subprocess.run(  # noqa: S603 - a program of the user's, found on PATH, without a shell
            change.command, capture_output=True, text=True, timeout=_PATIENCE, check=False, env={**environ},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NotConnected(f"{client.title}: `{client.program} mcp add` failed: {error}") from None
    if done.returncode:
        raise NotConnected(f"{client.title}: `{client.program} mcp add` failed: {done.stderr.strip()[-500:]}")
    if not is_connected(client, environ):
        raise NotConnected(f"{client.title}: `{client.program} mcp add` said nothing, and added nothing.")
