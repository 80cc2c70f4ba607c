"""`muxway key`: API keys for machines that cannot log in."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from muxway.calls.identity import key_owner
from muxway.cli.exits import BadConfig, Failed
from muxway.cli.help import SETTINGS, Verb
from muxway.cli.options import config_option, json_option, known_view, read_config
from muxway.cli.output import one_line, show_json, show_table
from muxway.config import durations

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.identity import Owner
    from muxway.config import Config
    from muxway.identity.keys import ApiKey, KeyFile

_T = TypeVar("_T")

_DAY = 86400.0


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Create, list and revoke API keys for machines."""


@command.command(
    cls=Verb,
    examples=[
        "muxway key create ci --expires 90d",
        "muxway key create agent --view reading -c servers.json",
    ],
)
@click.argument("name")
@config_option
@click.option("--view", metavar="NAME", help="The only view that the key gives access to.  [default: everything]")
@click.option(
    "--expires",
    metavar="WHEN",
    help='When the key expires: after a time ("90d", "12h") or on a day ("2027-01-31", UTC).  [default: never]',
)
@json_option
def create(name: str, config: str | None, view: str | None, expires: str | None, *, as_json: bool) -> None:
    """Create an API key and print it, only once.

    Clients of `muxway serve` send it as `Authorization: Bearer <key>`. Only a digest
    of it is stored. A running gateway accepts it within a second.
    """
    loaded = read_config(config)
    known_view(loaded, view)
    until = None if expires is None else _moment(expires)
    text = _tell(lambda keys: keys.create(name, view=view, expires=until), loaded)
    if as_json:
        show_json({"name": name, "key": text, "view": view, "expires": _written(until)})
        return
    click.echo(text)
    click.echo("This is the only time it is shown. Clients send it as: Authorization: Bearer <key>", err=True)


@command.command("list", cls=Verb, examples=["muxway key list"])
@config_option
@json_option
def show(config: str | None, *, as_json: bool) -> None:
    """List the API keys of a config, without the keys themselves."""
    loaded = read_config(config)

    def known(keys: KeyFile) -> list[ApiKey]:
        keys.read()
        return keys.keys

    found = _tell(known, loaded)
    now = time.time()
    rows = [
        {
            "name": key.name,
            "view": key.view,
            "created": _written(key.created),
            "expires": _written(key.expires),
            "expired": key.expires is not None and key.expires <= now,
        }
        for key in found
    ]
    if as_json:
        show_json(rows)
    elif not rows:
        click.echo("There are no keys. Make one with `muxway key create NAME`.")
    else:
        ends = [f"{row['expires']} (expired)" if row["expired"] else row["expires"] or "never" for row in rows]
        shown = [(str(row["name"]), str(row["view"] or "everything"), str(row["created"])) for row in rows]
        head = ("NAME", "OPENS", "MADE", "EXPIRES")
        show_table([head, *((*facts, str(end)) for facts, end in zip(shown, ends, strict=True))])


@command.command(cls=Verb, examples=["muxway key revoke ci"])
@click.argument("name")
@config_option
def revoke(name: str, config: str | None) -> None:
    """Revoke an API key. A running gateway refuses it within a second.

    Sessions that were opened with it end, and its logins at servers are deleted.
    """
    from muxway.cli.verbs.logout import forget_all_of

    loaded = read_config(config)
    owner = owner_of_key(loaded, name)
    _tell(lambda keys: keys.revoke(name), loaded)
    click.echo(f"{name} is revoked.")
    forget_all_of(owner, loaded)


def owner_of_key(config: Config, name: str) -> Owner:
    """Whose the logins are that belong to a key. Raises Failed."""

    def found(keys: KeyFile) -> ApiKey | None:
        keys.read()
        return next((key for key in keys.keys if key.name == name), None)

    key = _tell(found, config)
    if key is None:
        raise Failed(f'there is no key "{one_line(name)}"; `muxway key list` shows those there are.')
    return key_owner(key.name, key.mark)


def _tell(work: Callable[[KeyFile], _T], config: Config) -> _T:
    """Do something with the keys of a configuration, and tell if it cannot be done."""
    from muxway.identity.keys import KeyFile, KeyFileError, key_file

    path = key_file(config)
    if path is None:
        raise BadConfig("keys belong to a config file, and there is none: give one with --config.")
    try:
        return work(KeyFile(path))
    except KeyFileError as error:
        raise Failed(f"{error}.") from None


def _moment(text: str) -> float:
    """When that is, in seconds since 1970. Raises BadParameter."""
    given = text.strip()
    number = given[:-1]
    if given[-1:].lower() == "d" and number.isdecimal() and 0 < int(number) < 100_000:
        return time.time() + int(number) * _DAY
    seconds = durations.seconds(given) if not given.isdecimal() else float("nan")
    if seconds > 0:
        return time.time() + seconds
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        why = f'{text!r} is neither a time like "90d" or "12h" nor a day like 2027-01-31.'
        raise click.BadParameter(why, param_hint="--expires") from None
    ends = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if ends <= time.time():
        raise click.BadParameter(f"{text} is over.", param_hint="--expires")
    return ends


def _written(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
