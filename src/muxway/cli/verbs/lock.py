"""`muxway lock`: what the servers are is written down, reviewed, and compared with what they are later."""

from __future__ import annotations

import difflib
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from muxway.catalog import lock_text
from muxway.catalog.locking import CLASSES, LOCKED_KINDS, LockedServer, compare
from muxway.cli.exits import CONFIG_INVALID, FAILED, BadConfig, Failed, Unreachable
from muxway.cli.help import Verb, VerbWithParts
from muxway.cli.options import config_option, debug_option, json_option, read_config
from muxway.cli.output import badge, dim, one_line, plural, show_json
from muxway.cli.session import awake, only, opened, quiet_log, run
from muxway.cli.verbs.check import shown
from muxway.config.documents import format_of
from muxway.config.report import as_list, as_mapping
from muxway.log import printable
from muxway.servers.lock import lock_path
from muxway.setup import lock_files
from muxway.setup.splicing import plain_data

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from muxway.catalog.locking import Drift
    from muxway.config import Config, ServerConfig

Servers = dict[str, LockedServer]

_VARIABLE = re.compile(r"\$\{[^}:]*(?::(?!-)[^}:]*)?\}")
"""A variable without a default."""


class _Answers(NamedTuple):
    """What the servers say now."""

    now: Servers
    away: dict[str, str]
    """Servers that could not be asked, and why."""


@click.group(
    cls=VerbWithParts,
    examples=["muxway lock", "muxway lock --check", "muxway lock diff", "muxway lock accept github/create_issue"],
)
@config_option
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a server differs, 3 if that cannot be told.")
@json_option
@debug_option
@click.pass_context
def command(context: click.Context, config: str | None, *, check: bool, as_json: bool, debug: bool) -> None:
    """Record the tools of all servers, and report later changes.

    Starts each server and writes its tools, prompts, templates, instructions and
    package to muxway.lock next to the config. If `gateway.lock` is `enforce`, the
    gateway hides what is not in the lock, and refuses calls to what has changed.

    Exit 1 if a server differs with --check, 3 if --check cannot tell, 4 if a
    server could not be started and was not locked before.
    """
    if context.invoked_subcommand is not None:
        return
    quiet_log(debug=debug)
    loaded = read_config(config)
    if check:
        _check(loaded, config, as_json=as_json)
    else:
        _write(loaded, as_json=as_json)


def _write(config: Config, *, as_json: bool) -> None:
    path = lock_path(config)
    before = _known(config) or {}
    seen = run(_look(config, before))
    kept = {name: before[name] for name in seen.away if name in before}
    locked = {**seen.now, **kept}
    lost = [name for name in seen.away if name not in before]
    changed = _put(config, locked)
    if as_json:
        show_json({"file": str(path), "changed": changed, "servers": [*locked], "kept": [*kept], "failed": seen.away})
    else:
        things = sum(len(records) for one in locked.values() for records in one.records.values())
        said = f"{path}: {plural(len(locked), 'server')}, {plural(things, 'definition')}"
        click.echo(f"{badge('ok')}  {printable(said)}{'' if changed else ', as before'}")
        for name in kept:
            click.echo(f"{badge('warning')}  {one_line(name)} stays as it was locked: {one_line(seen.away[name])}")
    if lost:
        raise Unreachable("; ".join(one_line(f"{name} is not locked: {seen.away[name]}") for name in lost))


def _check(config: Config, given: str | None, *, as_json: bool) -> None:
    before = _known(config)
    if before is None:
        raise BadConfig(f"there is no {lock_path(config)}: run `muxway lock`")
    seen = run(_look(config, before))
    drifts = _drifts(before, seen)
    if as_json:
        show_json({"ok": not any(drifts.values()) and not seen.away, "failed": seen.away, "drift": _document(drifts)})
    else:
        _show(drifts, given)
        for name, why in seen.away.items():
            click.echo(f"{badge('warning')}  {one_line(name)} cannot be compared: {one_line(why)}")
    if any(drifts.values()):
        raise click.exceptions.Exit(FAILED)
    if seen.away:
        raise click.exceptions.Exit(CONFIG_INVALID)
    if not as_json:
        _tell_same()


@command.command(cls=Verb, examples=["muxway lock diff", "muxway lock diff -c servers.json"])
@config_option
@debug_option
def diff(config: str | None, *, debug: bool) -> None:
    """Show how the servers differ from muxway.lock, line by line.

    Exit 3 if there is no lock to compare with.
    """
    quiet_log(debug=debug)
    loaded = read_config(config)
    before = _known(loaded)
    if before is None:
        raise BadConfig(f"there is no {lock_path(loaded)}: run `muxway lock`")
    seen = run(_look(loaded, before))
    _show(_drifts(before, seen), config)
    after = {**{name: one for name, one in before.items() if name in seen.away}, **seen.now}
    old, new = (lock_text.written(one).splitlines() for one in (before, after))
    lines = [*difflib.unified_diff(old, new, "muxway.lock", "now", lineterm="", n=1)]
    for line in lines:
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        click.echo(click.style(printable(line), fg=colour))
    for name, why in seen.away.items():
        click.echo(f"{badge('warning')}  {one_line(name)} cannot be compared: {one_line(why)}")
    if not lines and not seen.away:
        _tell_same()


@command.command(
    cls=Verb,
    examples=["muxway lock accept github/create_issue", "muxway lock accept github"],
)
@click.argument("what", metavar="SERVER[/NAME]")
@config_option
@debug_option
def accept(what: str, config: str | None, *, debug: bool) -> None:
    """Lock a server, or one tool, prompt or template of it, as it is now.

    A gateway that runs this config uses the new lock at once, without a restart.

    Exit 4 if the server cannot be started.
    """
    quiet_log(debug=debug)
    loaded = read_config(config)
    server, name = _named_in(what, loaded.servers)
    before = _known(loaded) or {}
    seen = run(_look(loaded, before, {server}))
    if server in seen.away:
        raise Unreachable(f"{server} cannot be asked what it is: {one_line(seen.away[server])}")
    now = seen.now[server]
    if name:
        now = _only(before.get(server), now, name)
    # It was started anew: what it says to whoever looks need not be what it says to whoever accepts.
    for drift in compare(before.get(server, LockedServer()), now):
        _show_one(server, drift)
    _put(loaded, {**before, server: now})
    click.echo(f"{badge('ok')}  {one_line(what)} is locked as it is now")


def _named_in(what: str, servers: Collection[str]) -> tuple[str, str]:
    """The server and the thing that `SERVER/NAME` means; both may have slashes. Raises UsageError."""
    server = max((one for one in servers if what == one or what.startswith(f"{one}/")), key=len, default=None)
    if server is None:
        there = ", ".join(map(one_line, servers))
        raise click.UsageError(f"there is no server {one_line(what.partition('/')[0])!r}. There are: {there}.")
    return server, what.removeprefix(server).removeprefix("/")


def _only(before: LockedServer | None, now: LockedServer, name: str) -> LockedServer:
    """What was locked of a server, with one thing as it is now."""
    locked = before or replace(now, records={}, instructions="")
    records = {kind.name: dict(locked.of(kind)) for kind in LOCKED_KINDS}
    found = False
    for kind in LOCKED_KINDS:
        gone = records[kind.name].pop(name, None)
        if name in now.of(kind):
            records[kind.name][name] = now.of(kind)[name]
        found |= gone is not None or name in now.of(kind)
    if not found:
        raise Failed(f"there is no tool, prompt or template {one_line(name)!r}, neither locked nor now")
    return replace(locked, records=records)


# --- parts ----------------------------------------------------------------------------------------


def _known(config: Config) -> Servers | None:
    try:
        return lock_files.read(lock_path(config))
    except lock_text.BadLock as error:
        raise BadConfig(printable(str(error))) from None


async def _look(config: Config, before: Mapping[str, LockedServer], names: Collection[str] | None = None) -> _Answers:
    """Start the servers, and see what they say."""
    wanted = [name for name, one in config.servers.items() if one.enabled and (names is None or name in names)]
    async with opened(awake(only(config, wanted))) as gateway:
        found, unread = gateway.locked_now(), gateway.unlockable()
        away = {
            one.name: unread.get(one.name) or one.error or f"it is {one.status}"
            for one in gateway.servers()
            if one.name not in found
        }
    now = {name: replace(one, source=_source(config, name, before.get(name))) for name, one in found.items()}
    return _Answers(now, away)


def _source(config: Config, name: str, before: LockedServer | None) -> dict[str, str]:
    """Where a server comes from. A hash that is known is not asked for again: a registry may be away."""
    server = config.servers[name]
    source = {"reachedBy": shown(_as_written(server, config.source))}
    package = lock_files.package_of(server)
    if package is not None:
        source["package"] = str(package)
        known = None if before is None else before.source
        same = known is not None and known.get("package") == str(package)
        hashed = lock_files.integrity(package) or (known.get("integrity") if known is not None and same else None)
        if hashed is not None:
            source["integrity"] = hashed
    return source


def _as_written(server: ServerConfig, file: str | None) -> ServerConfig:
    """The server with variables by their names: the home folder of whoever locked it is not what was reviewed."""
    document = None if file is None else _document_of(Path(file))
    where = server.written.where.removesuffix(f".{server.name}")
    entry = as_mapping((as_mapping((as_mapping(document) or {}).get(where)) or {}).get(server.name)) or {}
    if server.command is None:
        return replace(server, url=_named(entry.get("url"), server.url or ""))
    given = entry.get("command")
    words = [*(as_list(given) or [given]), *(as_list(entry.get("args")) or ())]
    real = [server.command, *server.args]
    if len(words) != len(real):
        return server
    command, *args = map(_named, words, real)
    return replace(server, command=command, args=tuple(args))


def _named(written: object, real: str) -> str:
    """The text as it is written, if it has variables; but not with their defaults, which may be secret."""
    if not isinstance(written, str) or "${" not in written or "${" in _VARIABLE.sub("", written):
        return real
    return written


def _document_of(file: Path) -> object:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{file} cannot be read any more: {error}") from None
    return plain_data(text, format_of(file, text), str(file))


def _put(config: Config, servers: Servers) -> bool:
    """Write the lock, and have the gateways that run this config go by it. Returns whether it has changed."""
    path = lock_path(config)
    try:
        changed = lock_files.write(path, servers)
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}") from None
    from muxway.cli.running import matching
    from muxway.control.client import ControlError, find

    for gateway in matching(find(), None, config.source):
        try:
            gateway.ask("lock")
        except ControlError as error:
            why = one_line(str(error))
            click.echo(f"{badge('warning')}  the gateway with pid {gateway.pid} has not read it: {why}", err=True)
    return changed


def _drifts(before: Servers, seen: _Answers) -> dict[str, list[Drift]]:
    found = {name: compare(before.get(name, LockedServer()), now) for name, now in seen.now.items()}
    # A server that was taken out of the config is not there to differ.
    return {name: drifts for name, drifts in found.items() if drifts}


def _document(drifts: Mapping[str, list[Drift]]) -> list[dict[str, object]]:
    return [
        {
            "server": server,
            "kind": one.kind or None,
            "name": one.name,
            "class": difference.class_,
            "what": difference.what,
        }
        for server, found in drifts.items()
        for one in found
        for difference in one.differences
    ]


def _tell_same() -> None:
    click.echo(f"{badge('ok')}  all servers are as they were locked")


def _show(drifts: Mapping[str, list[Drift]], config: str | None) -> None:
    """What differs, and the command that takes it; with the config if that was given."""
    same = [] if config is None else ["-c", config]
    for server, found in drifts.items():
        for one in sorted(found, key=lambda drift: CLASSES.index(drift.class_)):
            _show_one(server, one)
            what = f"{server}/{one.name}" if one.kind else server
            taken = one_line(shlex.join(["muxway", "lock", "accept", what, *same]))
            click.echo(f"    {dim(taken if one.kind else f'{taken}   (all of the server)')}")


def _show_one(server: str, drift: Drift) -> None:
    click.echo(f"{badge(drift.class_)}  {one_line(server)}: {one_line(drift.label)}")
    for difference in drift.differences:
        click.echo(f"    {dim(difference.class_)}  {one_line(difference.what)}")
