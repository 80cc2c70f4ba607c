"""`muxway logout`: give logins back, and forget them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muxway.cli.exits import Failed
from muxway.cli.help import Verb
from muxway.cli.options import config_option, debug_option, json_option, read_config
from muxway.cli.output import one_line, show_json
from muxway.cli.session import quiet_log, run
from muxway.cli.verbs.login import find_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.config.model import ServerConfig
    from muxway.identity.store import Login, TokenStore


@click.command(cls=Verb, examples=["muxway logout linear", "muxway logout --all"])
@click.argument("server", required=False)
@click.option("--all", "everything", is_flag=True, help="All logins and keys that are kept, of every config.")
@config_option
@json_option
@debug_option
def command(server: str | None, config: str | None, *, everything: bool, as_json: bool, debug: bool) -> None:
    """Give logins back, and forget them.

    The tokens are taken back at the authorization server. What cannot be taken back is
    forgotten all the same, and you are told. Keys that you gave a server (`${user:NAME}`)
    are forgotten.
    """
    from muxway.identity.credentials import login_key
    from muxway.identity.store import TokenStore

    quiet_log(debug=debug)
    if everything == (server is not None):
        raise click.UsageError("name a server, or say --all.")
    store = TokenStore()
    configs: dict[str, ServerConfig] = {}
    if server is None:
        logins = store.all()
    else:
        found = configs[server] = find_server(read_config(config), server)
        login = None if found.url is None else store.read(login_key(found))
        logins = [] if login is None else [login]
        if found.user_values:
            _forget_values(found, store, as_json=as_json)
            return
        if login is None and not as_json:
            raise Failed(f'server "{one_line(server)}" has no login')
    done = run(_leave(logins, configs))
    forgotten = store.forget_values() if server is None else []
    if as_json:
        show_json({"loggedOut": done, **({"forgotten": forgotten} if server is None else {})})
        return
    for one in done:
        said = "taken back and forgotten" if one["revoked"] else f"forgotten; {one_line(str(one['why']))}"
        click.echo(f"{one_line(str(one['server']))}: {said}")
    for name in forgotten:
        click.echo(f"{one_line(name)}: forgotten")
    if not done and not forgotten:
        click.echo("There is no login.")


def _forget_values(server: ServerConfig, store: TokenStore, *, as_json: bool) -> None:
    """Forget what the user gave for a server."""
    from muxway.identity.user_values import values_key

    key = values_key(server)
    names = [*store.values(key)]
    store.keep_values(key, {})
    if as_json:
        show_json({"forgotten": names})
    elif names:
        click.echo(f"{one_line(server.name)}: {', '.join(names)} forgotten")
    else:
        raise Failed(f'server "{one_line(server.name)}" has nothing of yours')


async def _leave(logins: Sequence[Login], configs: dict[str, ServerConfig]) -> list[dict[str, object]]:
    from muxway.identity.sign_in import sign_out
    from muxway.identity.store import TokenStore

    store = TokenStore()
    done: list[dict[str, object]] = []
    for login in logins:
        why = await sign_out(login, store, configs.get(login.key[2]))
        done.append({"server": login.key[2], "revoked": why is None, **({} if why is None else {"why": why})})
    return done
