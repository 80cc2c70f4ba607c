"""`muxway serve`: the gateway over HTTP. All that is heavy is loaded only once it runs."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from muxway import log
from muxway.cli.exits import BadConfig, Failed
from muxway.cli.help import Verb
from muxway.cli.options import chosen, config_option, known_view, trace_to, watch_option
from muxway.cli.verbs import stdio
from muxway.config import places
from muxway.net.processes.launch import ReaperProcess

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from muxway.config import Config
    from muxway.identity.keys import KeyFile, OwnToken
    from muxway.net.tls import Certificate

_F = TypeVar("_F", bound="Callable[..., object]")

_BACKLOG = 2048
_PLACEHOLDERS = frozenset(("changeme", "change-me", "secret", "token", "password", "your-token", "xxx"))


class _Port(click.IntRange):
    name = "port number"
    """What a wrong one is called in click's message."""


def _with_stdio_options(command: _F) -> _F:
    """Whatever `muxway stdio` takes, with the same meaning."""
    shared = [option for option in stdio.command.params if option.name not in ("config", "watch")]
    command.__click_params__ = [*reversed(shared), *getattr(command, "__click_params__", [])]  # pyright: ignore[reportFunctionMemberAccess]
    return command


def _read_by(
    read: Callable[[str], str],
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[str, ...] | None]:
    """How an option with a list of names is read: None if it is not given, so that the config decides."""

    def one(text: str) -> str:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} {error}.") from None

    return lambda _context, _option, given: tuple(map(one, given)) or None


@click.command(
    cls=Verb,
    examples=[
        "muxway serve --config servers.json",
        "muxway serve -c servers.json --port 8080",
        "MUXWAY_TOKEN=... muxway serve -c servers.json --host 0.0.0.0 --tls-cert a.pem",
    ],
)
@config_option
@click.option(
    "--host",
    envvar="HOST",
    metavar="ADDRESS",
    help="Address to listen on.  [env: HOST; default: gateway.host, or 127.0.0.1]",
)
@click.option(
    "--port",
    envvar="PORT",
    type=_Port(0, 65535),
    metavar="N",
    help="Port to listen on; 0 for any free port.  [env: PORT; default: gateway.port, or 3006]",
)
@click.option(
    "--token",
    "tokens",
    envvar="MUXWAY_TOKEN",
    multiple=True,
    metavar="TEXT",
    help="Bearer token that clients must send. May be repeated. Other users of this machine can see the command "
    "line: better use the variable.  [env: MUXWAY_TOKEN; default: gateway.token of the config]",
)
@click.option(
    "--tls-cert",
    envvar="MUXWAY_TLS_CERT",
    metavar="FILE",
    help="Certificate (PEM, with its chain) to serve HTTPS. Reloaded when it changes."
    "  [env: MUXWAY_TLS_CERT; default: gateway.tls]",
)
@click.option(
    "--tls-key",
    envvar="MUXWAY_TLS_KEY",
    metavar="FILE",
    help="Private key (PEM) of --tls-cert, if it is not in the same file.  [env: MUXWAY_TLS_KEY]",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Accept clients without a token from any user and machine that can connect, and tokens without TLS.",
)
@click.option(
    "--allow-origin",
    "allowed_origins",
    envvar="MUXWAY_ALLOW_ORIGIN",
    multiple=True,
    callback=_read_by(places.origin),
    metavar="URL",
    help="Web origin whose pages may connect (CORS); * for any (needs a token). If only this machine can connect, "
    "its own pages may, too."
    "  [env: MUXWAY_ALLOW_ORIGIN; default: gateway.allowedOrigins]",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    envvar="MUXWAY_ALLOW_HOST",
    multiple=True,
    callback=_read_by(places.host),
    metavar="NAME",
    help="Another host name that clients may use; * for any.  [env: MUXWAY_ALLOW_HOST; default: gateway.allowedHosts]",
)
@click.option(
    "--keep-open",
    is_flag=True,
    help="Keep the servers running when the last /sse client disconnects.  [env: KEEP_SERVER_OPEN=1]",
)
@watch_option(default=True)
@_with_stdio_options
def command(
    file: str | None,
    config: str | None,
    *,
    debug: bool,
    trace_file: str | None,
    tokens: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    insecure: bool,
    keep_open: bool,
    view: str | None,
    watch: bool,
    **overrides: Any,
) -> None:
    """Serve MCP over HTTP, for clients of every revision.

    FILE is a config, or a Python file with a chain (muxway.chain).

    /mcp serves Streamable HTTP sessions (2025-03-26 to 2025-11-25) and stateless
    requests (2026-07-28); /sse serves HTTP+SSE (2024-11-05); /healthz and /readyz
    are health checks. Views of the config are at /mcp/NAME and /sse/NAME; with
    --view, one view is at /mcp and /sse.

    Only you can connect, from this machine, unless there is a --token,
    gateway.auth or an API key (muxway key). Another --host needs one of these, and
    --tls-cert, so that it is not sent in clear text.

    When the last client of /sse disconnects, and no client has used /mcp, the
    servers are stopped until the next client connects. --keep-open keeps them.

    Reloads the config when its file changes, and on SIGHUP. Servers whose entry
    did not change keep running.

    Address, port, allowed hosts and origins can also be set in the config; options
    override it. A reload applies allowed hosts and origins, but not address and
    port.

    Ends on SIGTERM (exit 0) or Ctrl-C (exit 130). Running calls get 5 seconds to
    finish.
    """

    def credentials(config: Config) -> AcceptedTokens:
        known_view(config, view)
        return _credentials(config, tokens, bound.host, insecure=insecure, own=own, tls=certificate is not None)

    from muxway.clients.transports.guard import is_loopback
    from muxway.identity.keys import OwnToken
    from muxway.net import peer_user

    own: OwnToken | None = None
    file = chosen(file, config)
    stdio.start_log(os.environ, debug=debug)
    # Its own start-up overlaps all that is loaded from here on.
    reaper = ReaperProcess()
    try:
        source = stdio.config_source(file, **overrides)
        loaded = source.read()
        bound = loaded.gateway
        # Whether it is open to its user alone does not depend on what a reload brings.
        own_user = is_loopback(bound.host) and not insecure
        if own_user and not peer_user.can_tell():
            own_user, own = False, OwnToken()
        certificate = _certificate(loaded, tls_cert, tls_key)
        credentials(loaded)
        context = None if certificate is None else _context(certificate)
        listener = _bind(bound.host, bound.port)
    except BaseException:
        reaper.close()
        raise
    for warning in loaded.warnings:
        log.EventLog("config").warning("config", problem=warning)
    from muxway.cli.http_serving import Address, ShownCertificate, Terms, run_http
    from muxway.clients.transports.guard import Guard

    terms = Terms(
        address=Address(bound.host, listener, tls=context is not None),
        tls=None if certificate is None or context is None else ShownCertificate(certificate, context),
        guard=Guard(
            host=bound.host,
            allow_hosts=bound.allowed_hosts,
            allow_origins=bound.allowed_origins,
            own_user=own_user,
        ),
        credentials=credentials,
        view=view,
        keep_open=keep_open or os.environ.get("KEEP_SERVER_OPEN") == "1",
        trace=trace_to(trace_file),
        watch=watch,
    )
    raise click.exceptions.Exit(run_http(source, loaded, reaper, terms))


class AcceptedTokens(NamedTuple):
    """Who may come in."""

    tokens: tuple[str, ...]
    """Those that open everything."""
    views: Mapping[str, str]
    """Those that open one view, and which."""
    keys: KeyFile | None = None
    """The API keys, which count beside them."""
    is_open: bool = True
    """Whether those who have none of these may come in, too."""
    own: OwnToken | None = None
    """The only token, if it was made because nobody chose one."""


def _credentials(
    config: Config,
    given: tuple[str, ...],
    host: str,
    *,
    insecure: bool,
    own: OwnToken | None = None,
    tls: bool = False,
) -> AcceptedTokens:
    """What the command line and the configuration say together. Raises BadConfig, UsageError."""
    from muxway.clients.transports.guard import is_loopback

    written = config.gateway.token
    tokens = given or (() if written is None else (written,))
    views = {token: view.name for view in config.views.values() for token in view.tokens}
    if shared := [views[token] for token in tokens if token in views]:
        raise BadConfig(f'the token is also one of the view "{shared[0]}": each needs its own.')
    auth = config.gateway.auth
    keys = _known_keys(config)
    is_open = not (auth or tokens or views) and (insecure or is_loopback(host))
    _check_safety(host, (*tokens, *views), insecure=insecure or auth is not None or bool(keys and keys.keys))
    _check_secrecy(config, host, tls=tls, insecure=insecure)
    if auth is not None and not (config.gateway.public_url or auth.audience or is_loopback(host)):
        raise BadConfig(
            "gateway.auth needs to know which tokens are for this gateway: set gateway.publicUrl to the URL by which "
            "clients reach it, or gateway.auth.audience to what the issuer writes into its tokens."
        )
    if auth is not None and auth.server is not None and not (config.gateway.public_url or is_loopback(host)):
        raise BadConfig("gateway.auth.server needs gateway.publicUrl: the URL by which clients and browsers reach it.")
    if places.ANY in config.gateway.allowed_origins and not (tokens or views or auth):
        raise BadConfig(
            "the allowed origin * lets every web page that is open on this machine call every tool: set a token as "
            "well (MUXWAY_TOKEN, or gateway.token in the config), or name the origins."
        )
    if is_open and own is not None:
        # Nobody can tell here whose connection it is: whoever runs us can read this token, and nobody else.
        return AcceptedTokens((_made(own),), views, keys, is_open=False, own=own)
    return AcceptedTokens(tokens, views, keys, is_open)


def _check_secrecy(config: Config, host: str, *, tls: bool, insecure: bool) -> None:
    """Whether what clients show is seen by nobody on the way. Raises UsageError."""
    from muxway.clients.transports.guard import is_loopback

    public_url = (config.gateway.public_url or "").lower()
    if tls and not insecure and public_url.startswith("http://"):
        raise click.UsageError(
            "gateway.publicUrl begins with http://, and this speaks HTTPS: clients would be sent where nobody answers, "
            "with their tokens in clear. Write https://; or say --insecure if a proxy in front of this speaks HTTP."
        )
    behind_https = public_url.startswith("https://")
    if not (tls or insecure or behind_https or is_loopback(host)):
        raise click.UsageError(
            f"tokens would travel to {host} in clear, for everybody on the way to read: give a certificate "
            "(--tls-cert, or gateway.tls in the config); if a proxy in front of this speaks HTTPS, set "
            "gateway.publicUrl to its https:// address; or say --insecure if the network is yours alone."
        )


def _certificate(config: Config, cert: str | None, key: str | None) -> Certificate | None:
    """What the command line says, else what the configuration says."""
    from muxway.net.tls import Certificate

    if key is not None and cert is None:
        raise click.UsageError("--tls-key needs the --tls-cert that it belongs to.")
    if cert is not None:
        return Certificate(cert, key)
    written = config.gateway.tls
    return None if written is None else Certificate(written.cert, written.key)


def _context(certificate: Certificate) -> ssl.SSLContext:
    from muxway.net.tls import TlsFileError, server_context

    try:
        return server_context(certificate)
    except TlsFileError as error:
        raise BadConfig(f"{error}.") from None


def _made(own: OwnToken) -> str:
    from muxway.identity.keys import KeyFileError

    try:
        return own.text
    except KeyFileError as error:
        raise BadConfig(f"{error}. Or set MUXWAY_TOKEN.") from None


def _known_keys(config: Config) -> KeyFile | None:
    """The API keys of a configuration, read; None if it has no place for any. Raises BadConfig."""
    from muxway.identity.keys import KeyFile, KeyFileError, key_file

    path = key_file(config)
    if path is None:
        return None
    keys = KeyFile(path)
    try:
        keys.read()
    except KeyFileError as error:
        raise BadConfig(f"{error}.") from None
    return keys


def _check_safety(host: str, tokens: tuple[str, ...], *, insecure: bool) -> None:
    from muxway.clients.transports.guard import is_loopback

    for token in tokens:
        if not token or token.lower() in _PLACEHOLDERS:
            raise BadConfig("the token is empty or a placeholder: choose a long random one, as `openssl rand -hex 32`.")
        if not token.isascii() or any(character <= " " or character == "\x7f" for character in token):
            raise BadConfig("the token may hold visible ASCII characters only: it travels in a header.")
    if not (tokens or insecure or is_loopback(host)):
        raise click.UsageError(
            f"others could reach {host} and call every tool: set MUXWAY_TOKEN (or --token, or gateway.token in the "
            "config), gateway.auth, or a key (`muxway key create`); bind to 127.0.0.1; or say --insecure if something "
            "else keeps strangers out."
        )


def _bind(host: str, port: int) -> Any:
    import socket

    try:
        family, _, _, _, where = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(where)
            # Clients that come before everything is loaded wait here instead of being refused.
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise Failed(f"cannot listen on {host} port {port}: {error.strerror or error}. Try another {other}.") from None
    listener.setblocking(False)
    return listener
