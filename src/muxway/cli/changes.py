"""Files that verbs change: shown as a difference without secrets, written with a backup, told with the way back."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from muxway.cli.output import badge, dim, heading, one_line, plural
from muxway.config.documents import format_of
from muxway.config.find import NAMES, VARIABLES, find_config, user_config_folder
from muxway.errors import ConfigError
from muxway.net.secret_store import SecretStore
from muxway.setup import files
from muxway.setup.clear_secrets import mask_of
from muxway.setup.clients import CLIENTS, file_of, is_there
from muxway.setup.env_files import moved, with_secrets
from muxway.setup.importing import FoundServer, servers_in
from muxway.setup.splicing import plain_data
from muxway.setup.stored_secrets import NewSecrets, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from muxway.setup.clients import KnownClient
    from muxway.setup.files import ReadFile
    from muxway.setup.importing import Merged

_F = TypeVar("_F", bound="Callable[..., object]")


def dry_run_option(command: _F) -> _F:
    """`--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")(command)


def target_option(command: _F) -> _F:
    """`--config FILE`, which need not be there yet."""
    from muxway.cli.options import one_config

    return click.option(
        "-c",
        "--config",
        metavar="FILE",
        multiple=True,
        callback=one_config,
        help="Config to change; created if missing.  [default: the one that other commands read, else "
        "muxway.json in the user's config folder]",
    )(command)


def known_client(name: str) -> KnownClient:
    """The client of that name. Raises BadParameter."""
    if name in CLIENTS:
        return CLIENTS[name]
    from muxway.config.report import nearest

    near = nearest(name, CLIENTS)
    hint = f"Did you mean {near}?" if near else f"There are: {', '.join(CLIENTS)}."
    raise click.BadParameter(f'"{one_line(name)}" is no client that muxway knows. {hint}', param_hint="CLIENT")


def clients_here() -> list[KnownClient]:
    """The clients that this user has."""
    return [client for client in CLIENTS.values() if is_there(client, os.environ)]


def target(config: str | None) -> ReadFile:
    """The config to change, as it is now.

    Raises:
        FileRefused: it must not be touched, or cannot be read.
        BadParameter: it is a program.
    """
    if config is None and not any(map(os.environ.get, VARIABLES)):
        try:
            path = find_config()
        except ConfigError:
            path = user_config_folder(os.environ) / NAMES[0]
        if path.name == ".mcp.json":
            # A project's file of other clients. Ours is another.
            path = user_config_folder(os.environ) / NAMES[0]
    else:
        path = Path(config or next(filter(None, map(os.environ.get, VARIABLES))))
    if path.suffix == ".py":
        raise click.BadParameter(f"{path} is a program; name a config that muxway can write.", param_hint="--config")
    return files.read(path.absolute())


def servers_of(file: ReadFile, origin: str, *, of_client: bool = False) -> list[FoundServer]:
    """The servers of a file. Raises ConfigError."""
    form = format_of(file.path, file.text)
    return servers_in(file.text, form, file.path, origin, os.environ, of_client=of_client)


def servers_of_client(client: KnownClient) -> list[FoundServer]:
    """The servers that a client has, muxway left out. Raises MuxwayError."""
    found = servers_of(files.read(file_of(client, os.environ)), client.id, of_client=True)
    return [server for server in found if not server.is_muxway]


def show_difference(file: ReadFile, after: str | None) -> None:
    """Print what changes in a file, line by line. What looks like a secret is hidden, wherever it stands."""
    kind = format_of(file.path, file.text or after or "{")
    name = one_line(str(file.path))
    before = [] if file.data is None else file.text.splitlines()
    lines = [*difflib.unified_diff(
        before, [] if after is None else after.splitlines(), name if file.data is not None else "/dev/null",
        name if after is not None else "/dev/null", lineterm="",
    )]  # fmt: skip
    mask = mask_of(*(plain_data(text, kind, str(file.path)) for text in (file.text, after or "")), lines=lines)
    for line in lines:
        shown = one_line_of(mask(line))
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        click.echo(click.style(shown, fg=colour) if colour else shown)


def one_line_of(line: str) -> str:
    """A line of a file as it may be shown: its indentation stays, what moves the cursor does not."""
    from muxway.log import printable

    return "\t".join(map(printable, line.split("\t")))


def move_secrets_option(command: _F) -> _F:
    """`--move-secrets` and `--secret-store`."""
    command = click.option("--secret-store", is_flag=True, help="Move plain-text secrets into muxway's secret store.")(
        command
    )
    return click.option(
        "--move-secrets",
        is_flag=True,
        help="Move plain-text secrets in variables into NAME.env next to the config.",
    )(command)


def wants_store(merged: Merged, *, move_secrets: bool, secret_store: bool, quiet: bool) -> bool:
    """Whether secrets in clear go to the store: as the options say, or as the user does. Raises UsageError."""
    if move_secrets and secret_store:
        raise click.UsageError("give --move-secrets or --secret-store: a secret is kept in one place.")
    if move_secrets or secret_store or not any(one.secrets for one in merged.added):
        return secret_store
    if quiet or not can_ask():
        click.echo("To move secrets into muxway's secret store, add --secret-store.")
        return False
    return click.confirm("Move the secrets into muxway's secret store?", default=True)


def into_store(merged: Merged, secrets: NewSecrets) -> Merged:
    """The servers with references in place of the secrets that stand in clear in them. Raises StoreError."""
    added = list[FoundServer]()
    for server in merged.added:
        entry, places = stored(server.name, server.entry, secrets)
        added.append(replace(server, entry=entry))
        if places:
            click.echo(f"{one_line(', '.join(places))} of {one_line(server.name)} goes to the secret store")
    return replace(merged, added=tuple(added))


def without_secrets(merged: Merged, file: ReadFile) -> tuple[Merged, list[tuple[ReadFile, bytes]]]:
    """The servers without the secrets among their variables, and the files that get these. Raises FileRefused."""
    added = list[FoundServer]()
    secret_files: list[tuple[ReadFile, bytes]] = []
    taken = set[str]()
    for server in merged.added:
        # A name may be anything; that of a file may not, and two of them may become the same.
        plain = name = re.sub(r"[^\w.-]", "_", server.name).lstrip(".") or "server"
        number = 2
        while name.lower() in taken:
            name, number = f"{plain}-{number}", number + 1
        entry, secrets = moved(name, server.entry)
        added.append(replace(server, entry=entry))
        if secrets:
            taken.add(name.lower())
            secret_files.append(with_secrets(file.path, name, secrets))
            click.echo(f"{one_line(', '.join(secrets))} of {one_line(server.name)} goes to {name}.env")
    return replace(merged, added=tuple(added)), secret_files


def tell_of_readers(merged: Merged, file: ReadFile) -> None:
    """Warn of secrets that are going to stand in clear in a config that is there, and open to others."""
    if file.data is not None and file.mode & 0o077 and any(server.secrets for server in merged.added):
        how = f"chmod 600 {shlex.quote(str(file.path))}"
        click.echo(
            f"{badge('warning')}  others can read {one_line(str(file.path))}: {one_line(how)}, or --secret-store"
        )


def write_config(file: ReadFile, text: str, secret_files: Iterable[tuple[ReadFile, bytes]] = ()) -> None:
    """Replace the config, keeping a backup, after the files that it names. Raises FileRefused."""
    for secrets, data in secret_files:
        files.replace(secrets, data)
    files.back_up(file, files.state_folder(os.environ) / "configs")
    files.replace(file, text.encode())


def show_merged(merged: Merged, file: ReadFile) -> None:
    """Tell what is imported, what is there already, what is left, and what to look at."""
    if merged.added:
        click.echo(heading(f"{plural(len(merged.added), 'server')} for {file.path}"))
    for server in merged.added:
        click.echo(f"  {one_line(server.name)}  {dim(f'from {one_line(server.origin)}')}")
    for server, name in merged.same:
        click.echo(
            f"  {one_line(server.name)}  {dim(f'of {one_line(server.origin)} is there already, as {one_line(name)}')}"
        )
    for server in merged.left:
        if not server.is_muxway:
            why = one_line(server.problem)
            click.echo(f"{badge('warning')}  {one_line(server.name)} of {one_line(server.origin)} stays there: {why}")
    for server in merged.added:
        if server.secrets:
            places = ", ".join(map(one_line, server.secrets))
            click.echo(f"{badge('warning')}  {one_line(server.name)} has secrets in clear: {places}")
        for name in server.texts:
            text = one_line(f"${{secret:{name}}}")
            where = one_line(server.origin)
            click.echo(
                f"{badge('warning')}  {one_line(server.name)} has {text}, which is mere text in {where} and stays it; "
                "if the secret is meant, write it into the config"
            )
        for name in server.references:
            if SecretStore().read(name) is not None:
                click.echo(f"  {one_line(server.name)} gets the secret {one_line(name)}, which is set already")
    show_variables(merged.added)


def show_variables(servers: Iterable[FoundServer]) -> None:
    """Tell which variables are not set here that servers refer to."""
    for server in servers:
        unset = [name for name in server.variables if name not in os.environ]
        if unset:
            click.echo(f"{badge('warning')}  {one_line(server.name)} needs {', '.join(unset)}, not set here")
        for name in server.references:
            if SecretStore().read(name) is None:
                how = f"muxway secret set {shlex.quote(name)}"
                click.echo(f"{badge('warning')}  {one_line(server.name)} needs a secret: {one_line(how)}")


def can_ask() -> bool:
    """Whether a person is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()
