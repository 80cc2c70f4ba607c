"""`muxway add`: one more server in the config, tried before it is written."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from muxway.cli.changes import can_ask, dry_run_option, show_difference, target, target_option, write_config
from muxway.cli.describing import holdings, reason
from muxway.cli.exits import Unreachable
from muxway.cli.help import Verb
from muxway.cli.output import badge, dim, one_line
from muxway.config.documents import format_of
from muxway.config.report import as_list, as_mapping
from muxway.config.values import SECRET_KEY
from muxway.net.secret_store import SecretStore
from muxway.setup.env_files import with_secrets
from muxway.setup.importing import container_of
from muxway.setup.packages import addition
from muxway.setup.splicing import entries_in, with_entry
from muxway.setup.stored_secrets import NewSecrets

if TYPE_CHECKING:
    from muxway.results import Server
    from muxway.setup.packages import Addition

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@click.command(
    cls=Verb,
    examples=[
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
@click.option("--name", help="What to call it.  [default: made from SOURCE]")
@click.option("--env", multiple=True, metavar="KEY[=VALUE]", help="Variable for it; without a value, you are asked.")
@click.option("--header", multiple=True, metavar="KEY=VALUE", help="HTTP header for a URL.")
@click.option("--secret-store", is_flag=True, help="Keep secrets in muxway's sealed store instead of NAME.env.")
@click.option("--no-try", is_flag=True, help="Write it without starting it first.")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@dry_run_option
def command(
    source: str,
    args: tuple[str, ...],
    config: str | None,
    name: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    *,
    secret_store: bool,
    no_try: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Add one server to the config: a package, a URL or a program.

    SOURCE is npm:NAME or pypi:NAME (with @VERSION, else the newest), @scope/name of
    npm, a URL, a program on PATH or by its path, or a package's bare name if only
    one of the two has it. ARGS are the server's own; those that begin with a dash
    stand behind `--`.

    A package is pinned to its exact version. The server is started once before
    anything is written. Comments and order of the config stay.

    Values of secret-looking variables go to NAME.env beside the config, which only
    you can read, or into the sealed store, and never into the config. Where nobody
    can be asked, a variable without a value is taken from the environment.

    Exit 1 if SOURCE cannot be added, 4 if the server does not start.
    """
    file = target(config)
    kind = format_of(file.path, file.text or "{")
    container = container_of(file.text, kind)
    found = addition(source, [*args], os.environ)
    found = _named(found, name, [*entries_in(file.text, kind, container)])
    found = _with_headers(_with_variables(found, env), header)
    kept = NewSecrets(SecretStore())
    in_file = with_secrets(file.path, found.name, found.secrets) if found.secrets and not secret_store else None
    entry = {**found.entry, **({"envFile": in_file[0].path.name} if in_file is not None else {})}
    if found.secrets and secret_store:
        references = {key: kept.refer(found.name, key, value) for key, value in found.secrets.items()}
        entry["env"] = {**(as_mapping(entry.get("env")) or {}), **references}
    after = with_entry(file.text, kind, container, (found.name, entry))
    _show(found, "the sealed store" if secret_store else f"{found.name}.env")
    show_difference(file, after)
    if dry_run:
        return
    if not yes and can_ask() and not click.confirm("Start it, and add it?" if not no_try else "Add it?"):
        click.echo("Nothing was changed.")
        return
    if not no_try:
        _try(found)
    kept.write()
    write_config(file, after, [] if in_file is None else [in_file])
    click.echo(f"{badge('ok')}  {found.name} is in {file.path}")
    click.echo(dim(f"The way back: muxway remove {shlex.quote(found.name)}"))


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
        raise click.UsageError(f"nobody can be asked here for {', '.join(missing)}: set it, or give --env KEY=VALUE.")
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


def _show(found: Addition, place: str) -> None:
    if found.pinned:
        click.echo(f"Pinned: {found.pinned}")
    if "command" in found.entry:
        words = [str(found.entry["command"]), *map(str, as_list(found.entry.get("args")) or ())]
        click.echo(f"Runs: {one_line(shlex.join(words))}")
    for key in found.secrets:
        click.echo(f"{key} goes to {place}, not into the config.")


def _try(found: Addition) -> None:
    """Start the server once. Raises Unreachable if it does not start."""
    from muxway.cli.session import opened, quiet_log, run
    from muxway.config import parse_config

    async def look(config: Any) -> Server:
        async with opened(config) as gateway:
            return gateway.servers()[0]

    quiet_log(debug=False)
    environment: Any = found.entry.get("env") or {}
    # As text: what looks like a reference in a secret is none.
    secrets = {key: value.replace("$", "$$") for key, value in found.secrets.items()}
    entry = {**found.entry, **({"env": {**environment, **secrets}} if secrets else {})}
    server = run(look(parse_config({"mcpServers": {found.name: entry}})))
    if server.error is not None:
        raise Unreachable(f"it does not start, and was not added: {reason(found.name, server.error)}")
    click.echo(f"{badge('running')}  {found.name}  {holdings(server)}")
