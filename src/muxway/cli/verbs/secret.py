"""`muxway secret`: secrets by name, for configs that only refer to them."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from muxway.cli.exits import Failed
from muxway.cli.help import SETTINGS, Verb
from muxway.cli.options import config_option, json_option
from muxway.cli.output import badge, dim, one_line, show_json, show_table
from muxway.config.documents import read_document
from muxway.config.find import find_config
from muxway.config.load import server_entries
from muxway.config.references import references_in
from muxway.config.report import as_mapping
from muxway.errors import ConfigError
from muxway.net.secret_store import LARGEST_SECRET, SecretStore, is_name

if TYPE_CHECKING:
    from muxway.config.report import Path


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Set, list and remove secrets that configs refer to."""


@command.command(
    "set",
    cls=Verb,
    examples=["muxway secret set github", "pass show github | muxway secret set github"],
)
@click.argument("name")
def set_secret(name: str) -> None:
    """Set the secret that `${secret:NAME}` refers to in a config.

    On a terminal you are asked for it, and your input is not shown. Otherwise it is
    read from stdin; a newline at its end is removed.

    It is stored in an encrypted file that only you can read. A gateway that runs
    with --watch restarts the servers that use it; otherwise run `muxway reload`.
    """
    if not is_name(name):
        raise click.BadParameter(
            "a name is printable, has no } and at most 200 characters.", param_hint="NAME"
        )  # fmt: skip
    if sys.stdin.isatty():
        value = str(click.prompt(one_line(name), hide_input=True, err=True))
    else:
        try:
            given = sys.stdin.buffer.read(4 * LARGEST_SECRET + 1).decode()
        except UnicodeDecodeError:
            raise Failed("the secret on stdin is not UTF-8.") from None
        value = given.removesuffix("\n").removesuffix("\r")
    if not 0 < len(value) <= LARGEST_SECRET:
        raise click.UsageError(f"a secret has between 1 and {LARGEST_SECRET:,} characters: pipe it in, or type it.")
    store = SecretStore()
    known = store.has(name)
    store.write(name, value)
    click.echo(f"{badge('ok')}  {one_line(name)} is {'changed' if known else 'set'}: ${{secret:{one_line(name)}}}")


@command.command("list", cls=Verb, examples=["muxway secret list", "muxway secret list --json"])
@config_option
@json_option
def show(config: str | None, *, as_json: bool) -> None:
    """List the secrets by name, when each was set, and which servers use it.

    Secrets that the config refers to but that are not set are listed, too. Values
    are never shown.

    Exit 1 if one cannot be decrypted.
    """
    users = _users(config)
    problems: dict[str, None] = {}
    known = {secret.name: secret.at for secret in SecretStore().all(problems)}
    rows = [(name, _written(known.get(name)), users.get(name, [])) for name in dict.fromkeys((*known, *users))]
    if as_json:
        show_json([{"name": name, "set": moment, "servers": servers} for name, moment, servers in rows])
    elif not rows:
        click.echo("There are no secrets. Set one with `muxway secret set NAME`.")
    else:
        shown = [(one_line(name), at or "not set", ", ".join(map(one_line, servers))) for name, at, servers in rows]
        show_table([("NAME", "SET", "USED BY"), *shown])
    if problems:
        raise Failed("\n".join(problems))


@command.command(cls=Verb, examples=["muxway secret rm github"])
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@config_option
def rm(names: tuple[str, ...], config: str | None) -> None:
    """Delete secrets. Servers that use one do not start without it."""
    users = _users(config)
    store = SecretStore()
    missing = [name for name in names if not store.remove(name)]
    for name in names:
        if name not in missing:
            click.echo(f"{badge('ok')}  {one_line(name)} is forgotten.")
            if users.get(name):
                click.echo(dim(f"It is used by {', '.join(map(one_line, users[name]))}."))
    if missing:
        what = "this secret is" if len(missing) == 1 else "these secrets are"
        raise Failed(
            f"{what} not set: {', '.join(map(one_line, missing))}; `muxway secret list` shows those there are."
        )


def _users(config: str | None) -> dict[str, list[str]]:
    """Which servers of the config refer to each secret; `gateway` and the like for what is not in a server."""
    try:
        document = read_document(find_config(config))
        root = as_mapping(document.value) or {}
        entries = [*server_entries(root, shlex.quote(document.source or ""))]
    except ConfigError:
        if config is not None:
            raise
        return {}
    places: dict[Path, str] = {place: name for name, place, _ in entries}
    containers = {place[0] for place in places}
    found: dict[str, dict[str, None]] = {}
    parts = [(name, entry) for name, _, entry in entries]
    parts += [(str(key), {key: value}) for key, value in root.items() if key not in containers]
    for user, value in parts:
        for _, name in references_in(value):
            found.setdefault(name, {})[user] = None
    return {name: [*servers] for name, servers in found.items()}


def _written(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
