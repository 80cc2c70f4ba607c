"""`muxway logout`: give logins back, and forget them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muxway.cli.exits import Failed
from muxway.cli.help import Verb
from muxway.cli.options import config_option, debug_option, json_option, read_config
from muxway.cli.output import one_line, show_json
from muxway.cli.session import quiet_log, run
from muxway.cli.verbs.login import find_server, key_option, owner_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.calls.identity import Owner
    from muxway.config import Config
    from muxway.config.model import ServerConfig
    from muxway.identity.store import Login, TokenStore


@click.command(cls=Verb, examples=["muxway logout linear", "muxway logout --all"])
@click.argument("server", required=False)
@click.option("--all", "everything", is_flag=True, help="All stored logins and keys, of every config.")
@key_option
@config_option
@json_option
@debug_option
def command(
    server: str | None, key: str | None, config: str | None, *, everything: bool, as_json: bool, debug: bool
) -> None:
    """Revoke and delete logins.

    The tokens are revoked at the authorization server. If that fails, you are told,
    and they are deleted here all the same. Keys that you entered for a server
    (`${user:NAME}`) are deleted.
    """
    from muxway.identity.credentials import login_key
    from muxway.identity.store import TokenStore

    quiet_log(debug=debug)
    if everything == (server is not None):
        raise click.UsageError("name a server, or say --all.")
    if everything and key is not None:
        raise click.UsageError("--all has those of API keys with it; leave out --key.")
    store = TokenStore()
    configs: dict[str, ServerConfig] = {}
    lost: dict[str, str] = {}
    if server is None:
        logins = store.all(lost)
    else:
        loaded = read_config(config)
        found, owner = find_server(loaded, server), owner_named(loaded, key)
        configs[server] = found
        if found.user_values:
            _forget_values(found, store, owner, as_json=as_json)
            return
        its = login_key(found, owner)
        logins = [one for one in store.all(lost) if tuple(one.key) == tuple(its)]
        lost = {file: why for file, why in lost.items() if file == its.digest}
        if not logins and not lost and not as_json:
            raise Failed(f'server "{one_line(server)}" has no login')
    done = run(_leave(logins, configs))
    for file, why in lost.items():
        store.discard(file)
        done.append({"server": server or "a login", "revoked": False, "why": f"it could not be taken back: {why}"})
    forgotten = store.forget_values() if server is None else []
    if as_json:
        show_json({"loggedOut": done, **({"forgotten": forgotten} if server is None else {})})
        return
    _show(done)
    for name in forgotten:
        click.echo(f"{one_line(name)}: forgotten")
    if not done and not forgotten:
        click.echo("There is no login.")


def forget_all_of(owner: Owner, config: Config) -> None:
    """Forget what somebody has at the servers of a configuration, and tell of the logins."""
    from muxway.identity.credentials import login_key
    from muxway.identity.store import TokenStore
    from muxway.identity.user_values import values_key

    store, servers = TokenStore(), dict(config.servers)
    for server in servers.values():
        store.keep_values(values_key(server, owner), {})
    found = [store.read(login_key(server, owner)) for server in servers.values() if server.url is not None]
    logins = [login for login in found if login is not None]
    if logins:
        _show(run(_leave(logins, servers)))


def _show(done: Sequence[Mapping[str, object]]) -> None:
    for one in done:
        said = "taken back and forgotten" if one["revoked"] else f"forgotten; {one_line(str(one['why']))}"
        click.echo(f"{one_line(str(one['server']))}: {said}")


def _forget_values(server: ServerConfig, store: TokenStore, owner: Owner, *, as_json: bool) -> None:
    """Forget what somebody gave for a server."""
    from muxway.identity.user_values import values_key

    key = values_key(server, owner)
    names = [*store.values(key)]
    store.keep_values(key, {})
    if as_json:
        show_json({"forgotten": names})
    elif names:
        click.echo(f"{one_line(server.name)}: {', '.join(names)} forgotten")
    else:
        raise Failed(f'server "{one_line(server.name)}" has nothing of yours')


async def _leave(logins: Sequence[Login], configs: Mapping[str, ServerConfig]) -> list[dict[str, object]]:
    from muxway.identity.sign_in import sign_out
    from muxway.identity.store import TokenStore

    store = TokenStore()
    done: list[dict[str, object]] = []
    for login in logins:
        why = await sign_out(login, store, configs.get(login.key[2]))
        done.append({"server": login.key[2], "revoked": why is None, **({} if why is None else {"why": why})})
    return done
