"""`muxway check`: is this config good, and with `--connect`, are its servers?"""

from __future__ import annotations

import os
import re
import shlex
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import click

from muxway.catalog.client_profiles import PROFILES
from muxway.cli.certificates import Chains, chains_of
from muxway.cli.client_forms import Forms, forms_document, forms_of, show_forms
from muxway.cli.composed import composed_problems, rules_in_vain, subtool_problems
from muxway.cli.describing import holdings, middlewares, trouble
from muxway.cli.exits import CONFIG_INVALID, UNREACHABLE
from muxway.cli.help import Verb
from muxway.cli.options import chosen, config_option, debug_option, json_option, read_config
from muxway.cli.output import badge, dim, one_line, plural, show_json, show_table
from muxway.cli.session import awake, opened, quiet_log, run
from muxway.config.plan import plan
from muxway.errors import ConfigError, Problem, SpawnError
from muxway.log import masker, printable
from muxway.middleware.engine.loading import layers_of
from muxway.servers.state import Status
from muxway.servers.transports.command import child_environment, resolve
from muxway.setup.clear_secrets import mask_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from muxway.config import Config, ServerConfig
    from muxway.results import Server

_STDERR_SHOWN = 8
"""Last stderr lines shown of a server that failed."""
_SECRET_FLAG = re.compile(r"--?[\w-]*(?:token|secret|passw|pwd|key|auth|credential)[\w-]*", re.IGNORECASE)


@click.command(
    cls=Verb,
    examples=[
        "muxway check servers.json",
        "muxway check servers.json --connect",
        "muxway check servers.json --client cursor",
        "muxway check servers.json --plan",
        "muxway check new.json --against old.json",
        "muxway check --json | jq .problems",
    ],
)
@click.argument("file", required=False)
@config_option
@click.option("--connect", is_flag=True, help="Also start each server once and show its contents.")
@click.option(
    "--client",
    type=click.Choice([*PROFILES]),
    metavar="NAME",
    help="Also start each server and show how tools are adapted to the limits of this client. "
    f"One of: {', '.join(PROFILES)}.",
)
@click.option("--plan", "planned", is_flag=True, help="Show what a reload would change in the running gateway.")
@click.option("--against", metavar="OLD", help="Show what a reload would change from this other config.")
@json_option
@debug_option
def command(
    file: str | None,
    config: str | None,
    *,
    connect: bool,
    client: str | None,
    planned: bool,
    against: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Read the config, start nothing, print every problem with its line.

    Values of variables and of keys that look like secrets are never shown. With
    --connect, the steps of composed tools are checked against the servers' schemas.

    With --plan, the running gateway reads the file with its own variables and says
    which servers it would keep, start, swap (new process), adjust (same process)
    or stop. Nothing is changed.

    Exit 3 if the config cannot be used; 4 if, with --connect, a server or the
    issuer of gateway.auth failed, or, with --plan, no gateway runs this config.
    """
    file = chosen(file, config)
    quiet_log(debug=debug)
    loaded: Config | None = None
    try:
        loaded = read_config(file)
        _refuse_unusable(loaded)
        changes = _changes(loaded, against) if planned or against is not None else None
    except ConfigError as error:
        warnings = error.warnings if loaded is None else (*loaded.warnings, *programs_missing(loaded))
        if as_json:
            show_json(_document(file, problems=error.details, warnings=warnings))
        else:
            _show_problems(error)
            _show_warnings(warnings)
        raise click.exceptions.Exit(CONFIG_INVALID) from None
    if connect or client is not None:
        tried = run(_connect(loaded, client))
    else:
        tried = _Connected(doubts=programs_missing(loaded))
    loaded = replace(loaded, warnings=(*loaded.warnings, *tried.doubts))
    found, problems = tried.found, (*tried.problems, *tried.issuer_problems)
    ok = all(server.error is None or server.status is Status.RUNNING for server in found.values())
    ok = ok and not tried.issuer_problems
    if as_json:
        document = _document(
            loaded.source, loaded, found, tried.logins, tried.chains, ok=ok and not problems, problems=problems
        )
        if client is not None:
            document["client"] = forms_document(client, tried.forms)
        show_json(document if changes is None else {**document, "plan": changes.document})
    else:
        _show(loaded, found)
        _show_logins(tried.logins)
        _show_chains(tried.chains)
        if tried.issuer:
            click.echo(f"{badge('ok')}  issuer {one_line(tried.issuer)}")
        if client is not None:
            show_forms(client, tried.forms, off=not loaded.gateway.client_profiles)
        if changes is not None:
            _show_changes(changes)
        for problem in problems:
            click.echo(f"{badge('error')}  {one_line(str(problem))}")
    if tried.problems:
        raise click.exceptions.Exit(CONFIG_INVALID)
    if not ok:
        raise click.exceptions.Exit(UNREACHABLE)


def _refuse_unusable(config: Config) -> None:
    """Raise ConfigError for servers that can never be started, and for middleware that cannot be loaded.

    A gateway that runs goes on without such servers.
    """
    hopeless = [server for server in config.servers.values() if server.unusable and not server.optional]
    problems = [Problem(path=one.where, message=one.unusable, line=one.line) for one in hopeless]
    for view in (None, *config.views.values()):
        try:
            layers_of(config, view)
        except ConfigError as error:
            # Every view has the gateway's middleware, too.
            problems += [problem for problem in error.details if problem not in problems]
    if problems:
        lines = [f"{config.source}: {plural(len(problems), 'problem')}", *(f"  {problem}" for problem in problems)]
        raise ConfigError("invalid_schema", "\n".join(lines), tuple(problems))


def programs_missing(config: Config) -> list[Problem]:
    """Commands and folders that are not there, with what to do. Doubts only: the gateway may have another PATH."""
    doubts: list[Problem] = []
    for server in config.servers.values():
        if not server.enabled or server.unusable or server.command is None or server.name in config.objects:
            continue
        if server.cwd is not None and not Path(server.cwd).is_dir():
            why = masker(server.secrets)(printable(f"{server.cwd} is no folder; the server cannot be started in it"))
            doubts.append(Problem(path=f"{server.where}.cwd", message=why, line=server.line))
            continue
        path = child_environment(server.env, inherit=server.inherit_env, environ=os.environ).get("PATH")
        try:
            resolve(server.command, path=path, cwd=server.cwd)
        except SpawnError as error:
            why = masker(server.secrets)(printable(str(error)))
            doubts.append(Problem(path=f"{server.where}.command", message=why, line=server.line))
    return doubts


class _Changes(NamedTuple):
    """What a reload would do."""

    lines: Sequence[str]
    document: dict[str, Any]


def _changes(config: Config, against: str | None) -> _Changes:
    """What would change in a gateway with the other file, or in the one that runs this file. Raises ConfigError."""
    if against is not None:
        changes = plan(read_config(against), config)
        return _Changes(changes.lines(), changes.document())
    from muxway.cli.running import answered, pick

    gateway = pick(None, config.source)
    with answered():
        told = gateway.ask("plan")
    if told["problems"]:
        # With this shell's variables it is fine, with those of the gateway it is not.
        problems = tuple(Problem(path=f"pid {gateway.pid}", message=problem) for problem in told["problems"])
        raise ConfigError("invalid_schema", told["text"], problems)
    return _Changes(told["text"].splitlines(), told["plan"])


Found = dict[str, "Server"]
"""Server name → how it is."""
Logins = dict[str, dict[str, Any]]
"""Server name → how its login is."""


@dataclass(frozen=True)
class _Connected:
    """What was found out with `--connect`."""

    found: Found = field(default_factory=Found)
    problems: Sequence[Problem] = ()
    doubts: Sequence[Problem] = ()
    logins: Logins = field(default_factory=Logins)
    chains: Chains = field(default_factory=Chains)
    forms: Forms = field(default_factory=Forms)
    issuer_problems: Sequence[Problem] = ()
    """Why the issuer of `gateway.auth` lets nobody in."""
    issuer: str = ""
    """What is good about it, in words."""


async def _connect(config: Config, client: str | None) -> _Connected:
    async with opened(awake(config)) as gateway:
        found = {server.name: server for server in gateway.servers()}
        problems, doubts = composed_problems(config, gateway)
        problems += subtool_problems(config, gateway)
        notes = [(name, note) for name in config.views for note in gateway.notes(name)]
        doubts += [Problem(path=f"views.{name}", message=note) for name, note in notes]
        doubts += rules_in_vain(config, gateway)
        forms = forms_of(config, gateway, client)
        logins, chains = await _logins(config, found), await chains_of(config, found)
    refused: Sequence[Problem] = ()
    issuer = ""
    if config.gateway.auth is not None:
        from muxway.identity.inspection import inspect_issuer

        refused, more, good = await inspect_issuer(config.gateway.auth)
        doubts = [*doubts, *more]
        if good and not refused:
            issuer = f"{config.gateway.auth.issuer}: {', '.join(good)}"
    return _Connected(found, problems, doubts, logins, chains, forms, refused, issuer)


async def _logins(config: Config, found: Found) -> Logins:
    """How the logins are at servers that have any."""
    remote = [one for one in config.servers.values() if one.url is not None and one.name in found]
    if not remote:
        return {}
    from muxway.identity.inspection import inspect
    from muxway.identity.store import TokenStore

    store = TokenStore()
    every = [await inspect(one, store, locked_out=found[one.name].status is Status.LOGIN_NEEDED) for one in remote]
    return {one.name: facts for one, facts in zip(remote, every, strict=True) if facts is not None}


# --- for people -------------------------------------------------------------------------------


def _show_chains(chains: Chains) -> None:
    for name, chain in chains.items():
        for depth, certificate in enumerate(chain):
            click.echo(one_line(f"{name}: {'TLS certificate of' if depth == 0 else 'signed by'} {certificate}"))


def _show_problems(error: ConfigError) -> None:
    first, *rest = str(error).splitlines()
    click.echo(f"{badge('error')}  {first}")
    for line in rest:
        click.echo(line)


def _show_warnings(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        click.echo(f"{badge('warning')}  {warning}")


def _show(config: Config, found: Found) -> None:
    click.echo(f"{badge('valid')}  {config.source}: {plural(len(config.servers), 'server')}")
    if found:
        show_connected(config, found.values())
    else:
        show_table([_row(config, server) for server in config.servers.values()], indent=2)
    rows: list[list[str]] = []
    for tool in config.tools.values():
        compound = "compound tool of " + plural(sum(map(len, tool.subtools.values())), "tool")
        rows.append([tool.name, dim("composed tool of " + plural(len(tool.steps), "step") if tool.steps else compound)])
    rows += [[view, dim(f"view, at /mcp/{view}")] for view in config.views]
    rows += [[name, dim(f"middleware, around {what}")] for name, what in middlewares(config)]
    show_table(rows, indent=2)
    _show_warnings(config.warnings)


def _show_logins(logins: Logins) -> None:
    for name, facts in logins.items():
        scopes = " ".join(facts["scopes"] or ()) or "none"
        state = f"until {_when(facts['expiresAt'])}" if facts["loggedIn"] else "no login"
        renewed = ", renewed automatically" if facts["renewable"] else ""
        where, known = facts["authorizationServer"] or "no authorization server", facts["registration"] or "none"
        click.echo(one_line(f"{name}: {state}{renewed}; at {where}; client id: {known}; scopes: {scopes}"))
        for problem in facts.get("problems", ()):
            click.echo(f"{badge('warning')}  {one_line(name)}: {one_line(problem)}")


def _when(expires_at: float | None) -> str:
    if expires_at is None:
        return "no end that was told"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(expires_at))


def _row(config: Config, server: ServerConfig) -> list[str]:
    if server.name in config.objects:
        return [server.name, "in process", type(config.objects[server.name]).__name__]
    state = "disabled" if not server.enabled else "unusable" if server.unusable else server.transport
    return [server.name, state, shown(server)]


def _show_changes(changes: _Changes) -> None:
    if not changes.document["changes"]:
        click.echo(f"{badge('ok')}  a reload changes nothing")
        return
    click.echo("A reload would:")
    for line in changes.lines:
        click.echo(f"  {printable(line)}")


def show_connected(config: Config, found: Iterable[Server]) -> None:
    """Print one line per server, and below it what went wrong."""
    known = {server.name: server for server in found}
    rows: list[list[str]] = []
    for name in config.servers:
        if name not in known:
            rows.append([badge("disabled"), name, "", "", ""])
            continue
        server = known[name]
        has = holdings(server) if server.status in (Status.RUNNING, Status.SLEEPING) else ""
        # One that ended at once and waits for its next try has failed, for whoever looks only once.
        failed = server.error is not None and server.status is not Status.RUNNING
        word = "failed" if failed and server.status is not Status.LOGIN_NEEDED else server.status
        took = "" if failed else f"{(server.seconds or 0) * 1000:.0f} ms"
        rows.append([badge(word), name, has, took, server.revision or ""])
    show_table(rows, indent=2)
    for server in known.values():
        if server.error is not None:
            click.echo(f"\n{badge(trouble(server))}  {one_line(server.error)}")
            for line in server.stderr[-_STDERR_SHOWN:]:
                click.echo(f"    {dim('stderr')}  {one_line(line)}")
        for note in server.notes:
            click.echo(f"{badge('warning')}  {one_line(note)}")


def shown(server: ServerConfig) -> str:
    """How the server is reached, without its secrets."""
    if server.command is None:
        return masker(server.secrets)(_bare_url(server.url or ""))
    words = [server.command, *server.args]
    for index, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        if equals and _SECRET_FLAG.fullmatch(flag):
            words[index] = f"{flag}=***"
        elif index and _SECRET_FLAG.fullmatch(words[index - 1]) and not word.startswith("-"):
            words[index] = "***"
    clear = mask_of({"command": words[0], "args": words[1:]})
    words = [*map(masker(server.secrets), map(clear, words))]
    return one_line(" ".join(word if "***" in word else shlex.quote(word) for word in words))


def _bare_url(url: str) -> str:
    """The URL without what may be a secret in it: user, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "***" if parts.query else "", ""))


# --- for programs -----------------------------------------------------------------------------


def _document(
    file: str | None,
    config: Config | None = None,
    found: Found | None = None,
    logins: Logins | None = None,
    chains: Chains | None = None,
    *,
    ok: bool = False,
    problems: Sequence[Problem] = (),
    warnings: Sequence[Problem] = (),
) -> dict[str, Any]:
    """The one document of `--json`; the same keys whether or not the config could be read."""
    servers = () if config is None else config.servers.values()
    return {
        "ok": ok,
        "file": file,
        "servers": [
            _described(server, (found or {}).get(server.name), logins or {}, chains or {}) for server in servers
        ],
        "compoundTools": [] if config is None else [tool.name for tool in config.tools.values() if tool.subtools],
        "composedTools": [] if config is None else [tool.name for tool in config.tools.values() if tool.steps],
        "views": [] if config is None else [*config.views],
        "problems": _problems(problems),
        "warnings": _problems(warnings if config is None else config.warnings),
    }


def _described(server: ServerConfig, found: Server | None, logins: Logins, chains: Chains) -> dict[str, Any]:
    facts = {
        "name": server.name,
        "transport": server.transport,
        "enabled": server.enabled,
        "reachedBy": shown(server),
    }
    if found is None:
        return facts
    tail = list(found.stderr[-_STDERR_SHOWN:])
    login = {"login": logins[server.name]} if server.name in logins else {}
    chain = {"certificates": chains[server.name]} if server.name in chains else {}
    return {**facts, **describe(found), "ms": round((found.seconds or 0) * 1000), "stderr": tail, **login, **chain}


def describe(server: Server) -> dict[str, Any]:
    """A server and how it is, for programs."""
    return {
        "status": str(server.status),
        "error": server.error,
        "revision": server.revision,
        "tools": [tool.name for tool in server.tools],
        "prompts": server.prompts,
        "resources": server.resources,
        "resourceTemplates": server.resource_templates,
        "notes": list(server.notes),
    }


def _problems(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    return [
        {"path": p.path, "line": p.line, "code": p.code, "message": p.message, "variable": p.variable} for p in problems
    ]
