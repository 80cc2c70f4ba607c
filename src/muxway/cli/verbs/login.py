"""`muxway login`: log in to a server that wants to know who you are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import click

from muxway.cli.exits import Failed
from muxway.cli.help import Verb
from muxway.cli.options import config_option, debug_option, json_option, read_config
from muxway.cli.output import badge, one_line, show_json
from muxway.cli.session import quiet_log, run
from muxway.cli.verbs.key import owner_of_key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from muxway.calls.identity import Owner
    from muxway.config import Config
    from muxway.config.model import ServerConfig
    from muxway.identity.device import DeviceCode
    from muxway.identity.sign_in import SignIn
    from muxway.identity.store import Login

_SOON: Final = 2.0

key_option = click.option("--key", metavar="NAME", help="Login of the API key with this name: see `muxway key`.")


@click.command(
    cls=Verb,
    examples=[
        "muxway login linear",
        "muxway login github --scope repo --scope read:org",
        "muxway login sentry --no-browser   (over SSH)",
        "muxway login tracker --set TRACKER_KEY=-   (a key, from stdin)",
        "muxway login tracker --key ci   (for a machine that comes with an API key)",
    ],
)
@click.argument("server")
@click.option("--no-browser", is_flag=True, help="Print the login address; paste the one at which your browser ends.")
@click.option("--device", is_flag=True, help="Log in with a short code that you enter on any device.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="Request this scope, too. May be repeated.")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=-",
    help="Read the value of ${user:NAME} from stdin, one line each, instead of asking for it.",
)
@key_option
@config_option
@json_option
@debug_option
def command(
    server: str,
    config: str | None,
    scopes: tuple[str, ...],
    given: tuple[str, ...],
    key: str | None,
    *,
    no_browser: bool,
    device: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Log in to a server that needs OAuth or a personal API key.

    Opens a browser; over SSH, you paste the address at which a browser elsewhere
    ends, or use a code (--device). The login is stored encrypted, used by all your
    muxway processes, and renewed automatically. A running gateway notices it and
    starts the server; you do not need to restart anything.

    If the config of the server contains ${user:NAME}, you are asked for that key;
    your input is not shown.

    With --key, the login belongs to the machine that uses this API key, not to you.
    """
    from muxway.identity.discovery import OAuthError
    from muxway.identity.sign_in import SignIn
    from muxway.identity.store import TokenStore

    quiet_log(debug=debug)
    if device and no_browser:
        raise click.UsageError("--device needs no browser anyway; leave out --no-browser.")
    wanted = [scope for given in scopes for scope in given.split()]
    loaded = read_config(config)
    found, owner = find_server(loaded, server), owner_named(loaded, key)
    if key is not None and found.oauth.shared:
        raise Failed(f'server "{one_line(server)}" has one login for everybody (`oauth.shared`): leave out --key')
    if found.user_values or given:
        _take_values(found, given, owner, as_json=as_json)
        return
    try:
        sign_in = SignIn(found, TokenStore(), owner=owner, scopes=wanted)
        made = run(_by_device(sign_in, server) if device else _by_browser(sign_in, server, quiet=no_browser))
    except OAuthError as error:
        raise Failed(f'server "{one_line(server)}": {error}') from None
    if as_json:
        show_json(described(made, found))
    else:
        click.echo(f"{badge('logged in')}  to {one_line(server)} at {one_line(made.server.issuer)}")
        for name, fact in facts(made).items():
            click.echo(f"   {name}: {one_line(fact)}")
        refused = [] if made.token.scopes is None else [one for one in wanted if one not in made.token.scopes]
        if refused:
            click.echo(f"{badge('warning')}  not granted: {one_line(' '.join(refused))}")


def owner_named(config: Config, key: str | None) -> Owner:
    """Whose login is meant: that of an API key, or without one that of whoever runs muxway. Raises Failed."""
    from muxway.identity.store import LOCAL

    return LOCAL if key is None else owner_of_key(config, key)


def _take_values(server: ServerConfig, given: tuple[str, ...], owner: Owner, *, as_json: bool) -> None:
    """Ask for what the configuration leaves to each user, or read it from stdin, and keep it."""
    from muxway.identity.store import TokenStore
    from muxway.identity.user_values import WrongValue, checked, values_key

    names = [one.removesuffix("=-") for one in given]
    unknown = [name for name in names if name not in server.user_values]
    if any(not one.endswith("=-") for one in given):
        # What stands on a command line can be read by others, and is kept by the shell.
        raise click.UsageError("--set takes NAME=-, and the value from stdin.")
    if unknown:
        known = ", ".join(server.user_values) or "nothing"
        raise Failed(f'server "{one_line(server.name)}" wants {known} of its users, and no {one_line(unknown[0])}')
    store, key = TokenStore(), values_key(server, owner)
    values = store.values(key)
    try:
        for name in names or server.user_values:
            said = sys.stdin.readline().rstrip("\r\n") if names else _hidden(name)
            values[name] = checked(name, said)
    except WrongValue as wrong:
        raise Failed(str(wrong)) from None
    values = {name: value for name, value in values.items() if name in server.user_values}
    store.keep_values(key, values)
    missing = [name for name in server.user_values if name not in values]
    if as_json:
        show_json({"server": server.name, "given": [*values], "missing": missing})
    else:
        click.echo(f"{badge('logged in')}  to {one_line(server.name)} with {', '.join(values)}")
        if missing:
            click.echo(f"   still missing: {', '.join(missing)}")


def _hidden(name: str) -> str:
    if not sys.stdin.isatty():
        raise Failed(f"there is no terminal to ask for {name} at: use --set {name}=- and give it on stdin")
    return click.prompt(name, hide_input=True, err=True)


def find_server(config: Config, name: str) -> ServerConfig:
    """A server of the configuration. Raises Failed."""
    if name not in config.servers:
        remote = ", ".join(one_line(one.name) for one in config.servers.values() if one.url is not None)
        others = f"with a URL there are: {remote}" if remote else "there is none with a URL"
        raise Failed(f'no server is called "{one_line(name)}"; {others}')
    return config.servers[name]


async def _by_browser(sign_in: SignIn, server: str, *, quiet: bool) -> Login:
    opened = False

    def show(link: str) -> None:
        nonlocal opened
        answered()
        opened = not quiet and _open(link)
        name = one_line(server)
        click.echo(
            f"Log in to {name} in the browser that opens now. If none does, open this page:\n\n  {link}\n"
            if opened
            else f"Open this page to log in to {name}:\n\n  {link}\n",
            err=True,
        )
        if sign_in.reused:
            click.echo(f"If the page does not know the client any more, run `muxway logout {name}` first.", err=True)
        if not opened:
            click.echo("When the browser cannot come back here, paste the address that it ends at:", err=True)

    with _Pasted() as pasted, _told_if_slow(server) as answered:
        return await sign_in.by_browser(show, pasted.line)


async def _by_device(sign_in: SignIn, server: str) -> Login:
    def show(code: DeviceCode) -> None:
        answered()
        click.echo(
            f"To log in to {one_line(server)}, open\n\n  {code.link}\n\nand type in  {code.user_code}\n", err=True
        )
        if code.complete is not None:
            click.echo(f"or open {code.complete}", err=True)

    with _told_if_slow(server) as answered:
        return await sign_in.by_device(show)


@contextlib.contextmanager
def _told_if_slow(server: str) -> Generator[Callable[[], None]]:
    """Say what is waited for, unless what it gives is called soon: each of several addresses may take its time."""
    words = f"Asking {one_line(server)} where to log in; it, or its authorization server, is slow to answer."
    timer = asyncio.get_running_loop().call_later(_SOON, partial(click.echo, words, err=True))
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def _open(link: str) -> bool:
    """Show a page to the user, if there is a screen."""
    if sys.platform.startswith("linux") and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
        return False
    import threading
    import webbrowser

    # Started without a shell; the address has been looked at. Some browsers are waited for until they are closed.
    threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
    return True


class _Pasted:
    """Lines that somebody types in, or pastes, while something else is waited for."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._rest = b""
        self._last = ""

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, ValueError):  # neither a terminal nor a pipe, such as /dev/null
            asyncio.get_running_loop().add_reader(0, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(0)

    async def line(self) -> str:
        """The next one; never comes back where nobody types. Whoever asks again had no use for the last one."""
        if self._last.strip():
            click.echo(
                "This is not the address that this login ends at; that one begins with the redirect_uri of the link "
                "above, and has `code=` and `state=` in it. Paste it whole:",
                err=True,
            )
        self._last = await self._lines.get()
        return self._last

    def _read(self) -> None:
        # Not by way of Python's own buffer: what waits there makes nothing ready to be read.
        data = os.read(0, 1 << 16)
        if not data:
            asyncio.get_running_loop().remove_reader(0)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-(1 << 16) :]
        for line in lines:
            self._lines.put_nowait(line.decode("utf-8", "replace"))


def facts(login: Login) -> dict[str, str]:
    """What is worth knowing of a login, in words."""
    token = login.token
    renewed = "renewed automatically" if token.refresh or login.grant != "authorization_code" else "then log in again"
    left = None if token.expires_at is None else token.expires_at - time.time()
    until = "has no end that was told" if left is None else f"{'good for ' + _span(left) if left > 0 else 'has ended'}"
    return {
        "client id": login.registration.kind,
        "scopes": " ".join(token.scopes if token.scopes is not None else login.asked) or "none",
        "token": f"{until}, {renewed}",
    }


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def described(login: Login, server: ServerConfig | None = None) -> dict[str, object]:
    """The same as JSON. No secret is in it."""
    issuer, subject, name, url = login.key
    del server
    return {
        "server": name,
        "url": url,
        "user": {"issuer": issuer, "subject": subject},
        "authorizationServer": login.server.issuer,
        "grant": login.grant,
        "registration": login.registration.kind,
        "scopes": list(login.token.scopes if login.token.scopes is not None else login.asked),
        "resource": login.resource,
        "expiresAt": login.token.expires_at,
        "renewable": bool(login.token.refresh) or login.grant != "authorization_code",
    }
