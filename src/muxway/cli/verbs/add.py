"""`muxway add`: one more server in the config, tried before it is written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muxway.cli.changes import can_ask, dry_run_option, show_difference, target, target_option, write_config
from muxway.cli.describing import holdings, reason
from muxway.cli.exits import Unreachable
from muxway.cli.help import Verb
from muxway.cli.output import badge, dim, one_line
from muxway.cli.registry import (
    answers_for,
    base_of,
    look_up,
    name_and_version,
    registry_option,
    tell_optional,
    tell_standing,
)
from muxway.config.documents import format_of
from muxway.config.report import as_list, as_mapping
from muxway.config.values import SECRET_KEY, is_secret
from muxway.net.secret_store import SecretStore
from muxway.servers.state import Status
from muxway.setup.env_files import with_secrets
from muxway.setup.importing import container_of
from muxway.setup.packages import Addition, addition, short_name
from muxway.setup.registry.launching import KINDS
from muxway.setup.splicing import entries_in, with_entry
from muxway.setup.stored_secrets import NewSecrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.results import Server
    from muxway.setup.files import ReadFile
    from muxway.setup.registry.bundles import Bundle
    from muxway.setup.registry.questions import Question

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@click.command(
    cls=Verb,
    examples=[
        "muxway add io.github.owner/server --secret API_KEY",
        "muxway add pypi:mcp-server-time",
        "muxway add @modelcontextprotocol/server-filesystem ~/notes",
        "muxway add --name docs https://example.com/mcp",
        "muxway add --env GITHUB_TOKEN npm:some-github-server@1.2.3",
        "muxway add --name mine -- python3 -m my_server --verbose",
    ],
)
@click.argument("source")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@target_option
@click.option("--name", help="Name of the server.  [default: made from SOURCE]")
@click.option("--env", multiple=True, metavar="KEY[=VALUE]", help="Variable for it; without a value, you are asked.")
@click.option("--header", multiple=True, metavar="KEY=VALUE", help="HTTP header for a URL.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="Value that its registry entry asks for.")
@click.option("--secret", multiple=True, metavar="NAME", help="The same for a secret, from the environment or stdin.")
@click.option("--as", "kind", type=click.Choice(KINDS), help="Which of several packages in the registry to use.")
@registry_option
@click.option("--secret-store", is_flag=True, help="Keep secrets in muxway's secret store instead of NAME.env.")
@click.option("--no-try", is_flag=True, help="Do not start it before writing the config.")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@dry_run_option
def command(
    source: str,
    args: tuple[str, ...],
    config: str | None,
    name: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    given: tuple[str, ...],
    secret: tuple[str, ...],
    kind: str | None,
    registry: str | None,
    *,
    secret_store: bool,
    no_try: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Add one server to the config.

    SOURCE is a name in the MCP registry (io.github.owner/server, with @VERSION or
    else the latest), npm:NAME or pypi:NAME (likewise), an npm @scope/name, a URL, a
    program on PATH or by its path, or the bare name of a package if only npm or only
    PyPI has it. ARGS are passed to the server; put `--` before those that begin
    with a dash.

    A package is pinned to its exact version. The server is started once before
    anything is written. A server that needs a login is written without it, and you
    are told how to log in. Comments and order of the config are kept.

    If a registry entry needs values, you are asked for them, or give them with --set
    and --secret. Its secrets go into the secret store (`muxway secret`), and the
    config refers to them. Values given by --env that look like secrets go to
    NAME.env next to the config, which only you can read, or into the secret store.
    In a script, a variable without a value is taken from the environment.

    Exit 1 if SOURCE cannot be added, 4 if the server does not start.
    """
    file = target(config)
    form = format_of(file.path, file.text or "{")
    container = container_of(file.text, form, str(file.path))
    taken = [*entries_in(file.text, form, container)]
    kept = NewSecrets(SecretStore())
    wanted = None if shutil.which(source) else name_and_version(source)
    in_file: list[tuple[ReadFile, bytes]] = []
    bundle: Bundle | None = None
    if wanted is not None:
        if env or header:
            raise click.UsageError("a server of the registry takes --set and --secret, not --env and --header.")
        base = base_of(registry, file.path if file.data is not None else None)
        found, trial, bundle = _of_registry(base, wanted, kind, name, taken, [*args], (given, secret), kept)
        entry = found.entry
    else:
        if given or secret or kind or registry:
            raise click.UsageError(f"{one_line(source)} is no name of the registry, which alone takes these options.")
        found = _named(addition(source, [*args], os.environ, _tell), name, taken)
        found = _with_headers(_with_variables(found, env), header)
        trial = _with_env(found.entry, {key: value.replace("$", "$$") for key, value in found.secrets.items()})
        if found.secrets and secret_store:
            references = {key: kept.refer(found.name, key, value) for key, value in found.secrets.items()}
            entry = _with_env(found.entry, references)
        else:
            in_file = [with_secrets(file.path, found.name, found.secrets)] if found.secrets else []
            entry = {**found.entry, **({"envFile": in_file[0][0].path.name} if in_file else {})}
    after = with_entry(file.text, form, container, (found.name, entry))
    _show(found, entry, f"{found.name}.env" if in_file else "the secret store")
    for word in args:
        if word in (".", "..") or word.startswith(("./", "../")):
            whole = one_line(shlex.quote(str(Path(word).absolute())))
            click.echo(f"{badge('warning')}  {one_line(word)} starts wherever muxway is started: better write {whole}")
    show_difference(file, after)
    if dry_run:
        return
    if not yes and can_ask() and not click.confirm("Start it, and add it?" if not no_try else "Add it?"):
        click.echo("Nothing was changed.")
        return
    unpacked = bundle is not None and bundle.unpack()
    wants_login = False
    try:
        if not no_try:
            wants_login = _try(found.name, trial, {*kept.values.values(), *found.secrets.values()})
        kept.write()
        write_config(file, after, in_file)
    except BaseException:
        if bundle is not None and unpacked:
            bundle.remove()
        raise
    click.echo(f"{badge('ok')}  {found.name} is in {file.path}")
    there = () if config is None else ("-c", config)
    if wants_login:
        click.echo(f"Log in to it:  {one_line(shlex.join(['muxway', 'login', found.name, *there]))}")
    click.echo(dim(f"The way back: {one_line(shlex.join(['muxway', 'remove', found.name, *there]))}"))


def _of_registry(
    base: str,
    wanted: tuple[str, str | None],
    kind: str | None,
    name: str | None,
    taken: list[str],
    args: list[str],
    given: tuple[tuple[str, ...], tuple[str, ...]],
    kept: NewSecrets,
) -> tuple[Addition, dict[str, object], Bundle | None]:
    """A server of the registry: as it is written, with references to its secrets, and as it is tried, with them."""
    from muxway.cli.session import run

    record, recipe = run(look_up(base, *wanted, kind))
    tell_standing(record)
    found = _named(Addition(short_name(record.server.name), {}), name, taken)
    questions, answers = answers_for(recipe.questions, *given)
    tell_optional(questions, answers)

    def plainly(_: Question, value: str) -> str:
        return value.replace("$", "$$")

    def by_reference(question: Question, value: str) -> str:
        is_secret = questions[question.name].secret
        return kept.refer(found.name, question.name, value) if is_secret else plainly(question, value)

    trial = recipe.entry(answers, plainly, args)
    entry = recipe.entry(answers, by_reference, args)
    for shown, real in zip(as_list(entry.get("args")) or (), as_list(trial.get("args")) or (), strict=True):
        if str(real).startswith("-") and str(shown).startswith("${secret:"):
            raise click.UsageError("a secret that begins with `-` would be taken as an option of the program.")
    secrets = {name: "" for name, question in questions.items() if question.secret and answers.get(name)}
    pinned = recipe.pinned or f"{record.server.name} {one_line(record.server.version)}"
    return replace(found, entry=entry, pinned=pinned, secrets=secrets), trial, recipe.bundle


def _with_env(entry: dict[str, object], variables: Mapping[str, str]) -> dict[str, object]:
    return {**entry, "env": {**(as_mapping(entry.get("env")) or {}), **variables}} if variables else entry


def _named(found: Addition, name: str | None, taken: list[str]) -> Addition:
    chosen = found.name if name is None else name
    if not _NAME.fullmatch(chosen):
        raise click.BadParameter("give a name of letters, digits, `.`, `_` and `-`.", param_hint="--name")
    if chosen in taken:
        raise click.UsageError(f'the config has a server "{chosen}" already: give another --name, or remove it first.')
    return replace(found, name=chosen)


def _with_variables(found: Addition, given: tuple[str, ...]) -> Addition:
    """The server with its variables: those that look secret apart."""
    values: dict[str, str] = {}
    missing = list[str]()
    for item in given:
        key, equals, value = item.partition("=")
        if not _VARIABLE.fullmatch(key):
            raise click.BadParameter(f"{one_line(key)} is no name of a variable.", param_hint="--env")
        if equals:
            values[key] = value
        elif can_ask():
            values[key] = click.prompt(key, hide_input=bool(SECRET_KEY.search(key)))
        elif key in os.environ:
            values[key] = os.environ[key]
        else:
            missing.append(key)
    if missing:
        raise click.UsageError(
            f"there is no terminal to ask for {', '.join(missing)}: set it, or give --env KEY=VALUE."
        )
    if values and "url" in found.entry:
        raise click.UsageError("a URL takes no variables: give --header.")
    plain = {key: value for key, value in values.items() if not SECRET_KEY.search(key)}
    secrets = {key: value for key, value in values.items() if key not in plain}
    return replace(found, entry={**found.entry, **({"env": plain} if plain else {})}, secrets=secrets)


def _with_headers(found: Addition, given: tuple[str, ...]) -> Addition:
    if given and "url" not in found.entry:
        raise click.UsageError("only a URL takes --header: give --env.")
    pairs = [item.partition("=") for item in given]
    for key, equals, value in pairs:
        if not equals:
            raise click.BadParameter("write KEY=VALUE.", param_hint="--header")
        if SECRET_KEY.search(key) and "${" not in value:
            raise click.BadParameter(
                f"{one_line(key)} is a secret, and a config is no place for it: write '{key}=Bearer ${{secret:NAME}}' "
                "after `muxway secret set NAME`.",
                param_hint="--header",
            )
    headers = {key: value for key, _, value in pairs}
    return replace(found, entry={**found.entry, **({"headers": headers} if headers else {})})


def _show(found: Addition, entry: Mapping[str, object], place: str) -> None:
    if found.pinned:
        click.echo(f"Pinned: {found.pinned}")
    if "command" in entry:
        words = [str(entry["command"]), *map(str, as_list(entry.get("args")) or ())]
        click.echo(f"Runs: {one_line(shlex.join(words))}")
    for key in found.secrets:
        click.echo(f"{one_line(key)} goes to {place}, not into the config.")


def _tell(doing: str) -> None:
    click.echo(dim(f"{doing} …"), err=True)


def _try(name: str, entry: Mapping[str, object], secrets: set[str]) -> bool:
    """Start the server once, or connect to it, with these secrets in clear. Raises Unreachable if that fails.

    Returns whether it wants a login first, which nobody can make before it is in a config.
    """
    from muxway.cli.session import opened, quiet_log, run
    from muxway.config import parse_config

    async def look(config: Any) -> Server:
        async with opened(config) as gateway:
            return gateway.servers()[0]

    quiet_log(debug=False)
    remote = "url" in entry
    _tell("Connecting to it" if remote else "Starting it, to see whether it works")
    config = parse_config({"mcpServers": {name: entry}})
    # It may write them into its last words, and by their names alone nobody would know.
    known = config.servers[name]
    known = replace(known, secrets=known.secrets | {secret for secret in secrets if is_secret(secret)})
    server = run(look(replace(config, servers={name: known})))
    if server.status is Status.LOGIN_NEEDED:
        click.echo(f"{badge('login needed')}  {name}")
        return True
    if server.error is not None:
        what = "it does not answer" if remote else "it does not start"
        raise Unreachable(f"{what}, and was not added: {reason(name, server.error)}")
    click.echo(f"{badge('running')}  {name}  {holdings(server)}")
    return False
