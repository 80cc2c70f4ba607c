"""`muxway auth`: which logins there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muxway.calls.identity import key_name
from muxway.cli.help import Verb
from muxway.cli.options import config_option, json_option, read_config
from muxway.cli.output import badge, one_line, show_json, show_table
from muxway.cli.verbs.login import described, facts
from muxway.errors import ConfigError

if TYPE_CHECKING:
    from muxway.config import Config
    from muxway.identity.store import Login, TokenStore


@click.command(cls=Verb, examples=["muxway auth", "muxway auth status --json"])
@click.argument("what", type=click.Choice(["status"]), default="status", required=False)
@config_option
@json_option
def command(what: str, config: str | None, *, as_json: bool) -> None:
    """Show the stored logins and when they expire.

    Also shows, by name, the keys that you entered for servers of the config. No
    server is contacted; `muxway check --connect` does that.
    """
    del what
    from muxway.identity.store import TokenStore

    store = TokenStore()
    problems: dict[str, str] = {}
    logins = store.all(problems)
    try:
        loaded = read_config(config)
    except (ConfigError, click.ClickException):
        if config is not None:
            raise
        loaded = None
    without = [] if loaded is None else _without(loaded, logins)
    keys = {} if loaded is None else _keys(loaded, store)
    if as_json:
        document: dict[str, Any] = {"store": str(store.folder), "logins": [described(login) for login in logins]}
        document |= {"notLoggedIn": without, "keys": keys, "problems": [*problems.values()]}
        show_json(document)
        return
    rows = [[badge("logged in"), _whose(login), one_line(login.server.issuer), _words(login)] for login in logins]
    rows += [
        [badge("no login"), one_line(name), "", "`muxway login` makes one, if the server wants it"] for name in without
    ]
    for name, key in keys.items():
        word, said = ("login needed", f"needs {', '.join(key['missing'])}") if key["missing"] else ("logged in", "")
        rows.append([badge(word), one_line(name), "", said or f"{', '.join(key['kept'])} is kept"])
    if rows:
        show_table(rows)
    else:
        click.echo("There is no login. `muxway login NAME` makes one.")
    for problem in problems.values():
        click.echo(f"{badge('error')}  {one_line(problem)}")


def _whose(login: Login) -> str:
    """The server, and who logs in there if it is not whoever runs muxway."""
    from muxway.identity.store import LOCAL

    issuer, subject, server, _ = login.key
    if (issuer, subject) == LOCAL:
        return one_line(server)
    key = key_name((issuer, subject))
    return one_line(f"{server} (user {subject})" if key is None else f"{server} (key {key})")


def _words(login: Login) -> str:
    said = facts(login)
    return f"{said['token']}; scopes: {one_line(said['scopes'])}"


def _without(config: Config, logins: list[Login]) -> list[str]:
    """Servers that muxway could log in to, and has not."""
    from muxway.identity.credentials import login_key, takes_login

    known = {tuple(login.key) for login in logins}
    servers = config.servers.values()
    return [one.name for one in servers if one.enabled and takes_login(one) and tuple(login_key(one)) not in known]


def _keys(config: Config, store: TokenStore) -> dict[str, dict[str, list[str]]]:
    """Server → which of the keys that it wants of its user are there, and which are not."""
    from muxway.identity.user_values import values_key

    found: dict[str, dict[str, list[str]]] = {}
    for server in config.servers.values():
        if server.enabled and server.user_values:
            there = store.values(values_key(server))
            found[server.name] = {
                "kept": [name for name in server.user_values if name in there],
                "missing": [name for name in server.user_values if name not in there],
            }
    return found
