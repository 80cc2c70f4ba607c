"""Running the gateway over HTTP until a signal ends it. Loads everything; `serve` does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from muxway.cli.describing import counted, middlewares
from muxway.cli.ending import DRAIN, Ending, settle_memory
from muxway.cli.exits import BadConfig
from muxway.cli.hiding import hide_from_children
from muxway.cli.options import wrong_usage_is_wrong_config
from muxway.cli.session import loop_factory
from muxway.clients.transports.guard import is_loopback
from muxway.clients.transports.http import HttpClientTransport, Trouble
from muxway.clients.transports.http_server import HttpServer
from muxway.config.plan import plan
from muxway.control.serving import ControlSocket
from muxway.control.watching import Reloader
from muxway.gateway import Gateway
from muxway.log import EventLog
from muxway.net.sealed_files import StoreError
from muxway.net.tls import TlsFileError, server_context
from muxway.servers.state import Status

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from muxway.calls.identity import Denial
    from muxway.cli.verbs.serve import AcceptedTokens
    from muxway.clients.authenticator import Authenticator
    from muxway.clients.transports.guard import Guard
    from muxway.config import Config
    from muxway.config.plan import Plan
    from muxway.control.watching import WatchedConfig
    from muxway.identity.authorization_endpoints import AuthorizationEndpoints
    from muxway.identity.connect import ConnectPages
    from muxway.identity.keys import KeyFile
    from muxway.identity.sealed_cookies import SealedCookies
    from muxway.identity.server_logins import ServerLogins
    from muxway.identity.sign_on import SignOn
    from muxway.identity.verify import AccessTokens
    from muxway.net.message_trace import MessageTrace
    from muxway.net.processes.launch import ReaperProcess
    from muxway.net.tls import Certificate

_FILES_EVERY = 0.5
"""Seconds between two looks at the files of API keys and of the certificate."""

log = EventLog("http")


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str
    listener: socket.socket
    tls: bool = False

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "https" if self.tls else "http"

    @property
    def url(self) -> str:
        """The base URL by which a client on this machine reaches it."""
        port = self.listener.getsockname()[1]
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def own_urls(self) -> list[str]:
        """Base URLs that mean this gateway and no other, as far as the address alone says that."""
        names = ("127.0.0.1", "localhost", "[::1]") if is_loopback(self.host) else ()
        return [f"{self.scheme}://{name}:{self.listener.getsockname()[1]}" for name in names]

    @property
    def url_for_others(self) -> str | None:
        """The base URL to give to other machines, if it is bound to every address and one of them is known."""
        probe = {"0.0.0.0": "192.0.2.1", "": "192.0.2.1", "::": "2001:db8::1"}.get(self.host)  # noqa: S104
        if probe is None:
            return None
        family = socket.AF_INET6 if ":" in probe else socket.AF_INET
        # Nothing is sent: the system only chooses the address from which it would be.
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            try:
                asking.connect((probe, 9))
            except OSError:
                return None
            own = asking.getsockname()[0]
        return f"{self.scheme}://{f'[{own}]' if ':' in own else own}:{self.listener.getsockname()[1]}"


@dataclass
class ShownCertificate:
    """The certificate that is shown, and what shows it. Connections that are open keep the one that they saw."""

    certificate: Certificate
    context: ssl.SSLContext

    def __post_init__(self) -> None:
        self._stamp = self.certificate.stamp()

    def look(self) -> None:
        """Show the new one if the files have changed. One that cannot be used is told of, and the old one stays."""
        stamp = self.certificate.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            # On one that nobody uses: the two files may be half replaced.
            server_context(self.certificate)
            self.certificate.load_into(self.context)
        except TlsFileError as error:
            log.error("the new certificate cannot be used; the old one stays", why=str(error))
        else:
            log.info("the certificate was replaced", file=self.certificate.cert)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What no reload changes, but for the guard, which follows the configuration."""

    address: Address
    guard: Guard
    credentials: Callable[[Config], AcceptedTokens]
    """Who may come in if this is the configuration. Raises ClickException if that cannot be."""
    tls: ShownCertificate | None = None
    """What HTTPS is spoken with; None: plain HTTP."""
    view: str | None = None
    """What is served at `/mcp`; everything if there is none."""
    keep_open: bool = False
    """Whether the servers go on when nobody is there."""
    trace: MessageTrace | None = None
    """Who is told of every message, if somebody is."""
    watch: bool = False
    """Whether to reload when a file of the configuration changes."""


class _Serving:
    """The HTTP transport, and the gateway behind it: a fresh one after it was stopped for want of clients."""

    def __init__(self, config: Config, reaper: ReaperProcess, terms: Terms) -> None:
        self._config = config
        self._terms = terms
        self._stopping: set[asyncio.Future[None]] = set()
        self._prepared: Gateway | None = None
        """What is to run next, if the configuration has changed while nothing did."""
        self._was_ready = False
        self.gateway: Gateway | None = Gateway(config, reaper=reaper, trace=terms.trace)
        self.transport = HttpClientTransport(
            self.gateway.runtime,
            guard=terms.guard,
            view=terms.view,
            ready=self._ready,
            troubles=self._troubles,
            on_denied=self._denied,
            on_wanted=self._wake,
            on_deserted=(lambda: None) if terms.keep_open else self._rest,
            metronome=self.gateway.metronome,
        )
        self._tokens: AccessTokens | None = None
        self._keys: KeyFile | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._pages: ConnectPages | None = None
        self._connect: tuple[object, ConnectPages] | None = None
        self._cookies: tuple[str | None, SealedCookies] | None = None
        self._sign_on: tuple[object, SignOn] | None = None
        self._server: tuple[object, AuthorizationEndpoints] | None = None
        self._server = self._authorization(config)
        self._admit(config, terms.credentials(config))

    def _sealed_cookies(self, key: str | None) -> SealedCookies:
        """What browsers keep for us, the same while the key is."""
        from muxway.identity.sealed_cookies import SealedCookies

        if self._cookies is None or self._cookies[0] != key:
            self._cookies = key, SealedCookies(key)
        return self._cookies[1]

    def _signing_on(self, config: Config) -> SignOn | None:
        """Who signs people on in a browser, the same while the terms are; None: nobody does."""
        settings, auth = config.gateway, config.gateway.auth
        if auth is None or auth.sign_on is None:
            return None
        from muxway.identity.sign_on import SignOn

        # What is served with TLS is not called http, whatever it is called.
        public = settings.public_url or (self._terms.address.url if self._terms.address.tls else None)
        terms = (auth, public, settings.state_key)
        if self._sign_on is None or self._sign_on[0] != terms:
            cookies = self._sealed_cookies(settings.state_key)
            self._sign_on = terms, SignOn(auth, auth.sign_on, public_url=public, cookies=cookies)
        return self._sign_on[1]

    def _authorization(self, config: Config) -> tuple[object, AuthorizationEndpoints] | None:
        """Our own authorization server, if there is to be one, and the terms that it goes by. Raises BadConfig."""
        auth, sign_on = config.gateway.auth, self._signing_on(config)
        if auth is None or auth.server is None or sign_on is None:
            return None
        if self._server is not None and self._server[0] == (auth, sign_on):
            # What it knows of codes and clients is not lost.
            return self._server
        from muxway.identity.own_server import open_server
        from muxway.identity.resource_metadata import ProtectedResources

        own = self._terms.address.own_urls
        resources = ProtectedResources(config, auth, own, self._terms.view, self._terms.address.scheme)
        try:
            server = open_server(config.gateway.public_url or own[0], auth, auth.server, sign_on, resources)
        except StoreError as error:
            raise BadConfig(f"gateway.auth.server: {error}.") from None
        return (auth, sign_on), server

    def _admit(self, config: Config, credentials: AcceptedTokens) -> None:
        """Let in whom this configuration lets in."""
        self._admitting = _terms_of(config, credentials)
        tokens, views, self._keys, is_open, own = credentials
        settings = config.gateway.auth
        if self._tokens is not None and self._tokens.settings != settings:
            self._tokens.close()
            self._tokens = None
        authenticator: Authenticator | None = None
        if settings is not None:
            # Only for those who have it: the libraries take their part of a start.
            from muxway.identity.resource_metadata import ProtectedResources
            from muxway.identity.verify import AccessTokens, ResourceServer

            # What is known of an issuer that stays is not lost.
            self._tokens = self._tokens or AccessTokens(settings)
            address = self._terms.address
            resources = ProtectedResources(config, settings, address.own_urls, self._terms.view, address.scheme)
            server = None if self._server is None else self._server[1]
            if server is not None:
                server.resources, resources.server = resources, server.issuer
            authenticator = ResourceServer(self._tokens, resources, self._keys, server)
        elif self._keys is not None:
            from muxway.identity.keys import KeyHolders

            authenticator = KeyHolders(self._keys, demands=not (is_open or tokens or views))
        self.transport.forwards = tuple(
            dict.fromkeys(name for server in config.servers.values() for name in server.forward)
        )
        self._serve_pages(config)
        self.transport.admit(tokens, views, authenticator, None if own is None else own.text)

    def _serve_pages(self, config: Config) -> None:
        """Serve what people are shown: where they log in to servers, if there is any, and where they allow programs."""
        self._pages, self.transport.pages.pages, self.transport.pages.endpoints = None, {}, {}
        sign_on = self._signing_on(config)
        if any(server.url is not None or server.user_values for server in config.servers.values()):
            self._pages = self._connecting(config, sign_on)
            self.transport.pages.pages = self._pages.handlers
        if self._server is not None and sign_on is not None:
            from muxway.identity.sign_on import CALLBACK

            server = self._server[1]
            self.transport.pages.pages = {**self.transport.pages.pages, **server.pages, CALLBACK: sign_on.callback}
            self.transport.pages.endpoints = server.endpoints
        if self.gateway is not None:
            self.gateway.logins.connect_pages = self._pages

    def _connecting(self, config: Config, sign_on: SignOn | None) -> ConnectPages:
        """Where users log in to servers, the same while the terms are: what has begun there is not lost."""
        base = config.gateway.public_url or self._terms.address.url
        cookies = self._sealed_cookies(config.gateway.state_key)
        terms = (base, cookies, sign_on)
        if self._connect is None or self._connect[0] != terms:
            from muxway.identity.connect import ConnectPages

            self._connect = terms, ConnectPages(base, self._logins, cookies, sign_on)
        return self._connect[1]

    def _logins(self) -> ServerLogins | None:
        """Those of the gateway; None: it rests."""
        return None if self.gateway is None else self.gateway.logins

    def watch_files(self) -> None:
        """Take new API keys, drop those that are gone, and show a new certificate, as long as this runs."""
        # First of all: whatever goes wrong below, keys that are revoked later must not go on counting.
        self._watch = asyncio.get_running_loop().call_later(_FILES_EVERY, self.watch_files)
        if self._terms.tls is not None:
            self._terms.tls.look()
        if self._keys is not None and self._keys.has_changed():
            self.transport.review()

    def _denied(self, denial: Denial) -> None:
        if self.gateway is not None:
            self.gateway.turned_away(denial)

    def _ready(self) -> bool:
        """Whether every server has had its time to start; servers that are started later do not turn clients away."""
        if not self._was_ready:
            servers = () if self.gateway is None else self.gateway.servers()
            self._was_ready = all(server.status is not Status.INITIALIZING for server in servers)
        return self._was_ready

    def _troubles(self) -> list[Trouble]:
        servers = () if self.gateway is None else self.gateway.servers()
        return [
            Trouble(server.name, server.status, server.error, server.retry_in)
            for server in servers
            if server.status not in (Status.RUNNING, Status.SLEEPING)
        ]

    def _rest(self) -> None:
        if self.gateway is not None:
            log.info("the last client has left; servers are stopped until the next one comes")
            stopping = asyncio.ensure_future(self.gateway.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            self.gateway = None

    def _wake(self) -> None:
        if self.gateway is None:
            self.gateway, self._prepared = self._prepared or Gateway(self._config, trace=self._terms.trace), None
            self.transport.gateway.runtime = self.gateway.runtime
            self.transport.metronome = self.gateway.metronome
            self.gateway.logins.connect_pages = self._pages
            self.gateway.start()

    async def apply(self, config: Config) -> Plan:
        """Serve this configuration from now on. Raises ConfigError, and then changes nothing."""
        with wrong_usage_is_wrong_config(config):
            credentials = self._terms.credentials(config)
            server = self._authorization(config)
        # Who may come in and what there is to use change together: nobody has new servers by the old terms meanwhile,
        # nor old ones by the new terms.
        changing = _terms_of(config, credentials) != self._admitting
        with self.transport.held() if changing else contextlib.nullcontext():
            changes = await self._change(config)
            self._server = server
            self._admit(config, credentials)
        return changes

    async def _change(self, config: Config) -> Plan:
        if self.gateway is None:
            changes = plan(self._config, config)
            # Nothing is started, but what cannot be used shows, and views are known to the transport.
            self._prepared = Gateway(config, trace=self._terms.trace)
            self.transport.gateway.runtime = self._prepared.runtime
        else:
            changes = await self.gateway.apply(config)
        if (config.gateway.host, config.gateway.port) != (self._config.gateway.host, self._config.gateway.port):
            log.warning("another address or port counts from the next start on", bound=self._terms.address.url)
        self._config = config
        self._terms.guard.allow(config.gateway.allowed_hosts, config.gateway.allowed_origins)
        return changes

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._tokens is not None:
            self._tokens.close()
        await asyncio.gather(*self._stopping)
        if self.gateway is not None:
            await self.gateway.stop()


def _terms_of(config: Config, credentials: AcceptedTokens) -> tuple[object, ...]:
    """All that decides who may come in, and to what."""
    views = {view.name: (view.audience, view.scopes) for view in config.views.values()}
    keys = None if credentials.keys is None else credentials.keys.path
    settings = config.gateway
    return credentials.tokens, credentials.views, keys, credentials.is_open, settings.auth, settings.public_url, views


def run_http(source: WatchedConfig, config: Config, reaper: ReaperProcess, terms: Terms) -> int:
    """Serve this configuration, and what becomes of it. Returns the exit code."""
    _allow_many_connections()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(source, config, reaper, terms))


async def _serve(source: WatchedConfig, config: Config, reaper: ReaperProcess, terms: Terms) -> int:
    serving = _Serving(config, reaper, terms)
    server = HttpServer(serving.transport, trace=terms.trace)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    reloader = Reloader(source, config, serving.apply)
    control = ControlSocket(lambda: serving.gateway, terms.address.url, reloader)
    ending = Ending(asked.set, reloader.ask)
    assert serving.gateway is not None  # noqa: S101 - it was made a moment ago
    # Before the first server is started.
    hide_from_children()
    serving.gateway.start()
    serving.transport.open()
    serving.watch_files()
    await server.start(terms.address.listener, None if terms.tls is None else terms.tls.context)
    announcing = loop.create_task(_announce(config, serving.gateway, terms))
    await control.start()
    if terms.watch:
        reloader.watch()
    settle_memory()
    serving.gateway.metronome.begin()
    try:
        await asked.wait()
        await control.stop()
        await reloader.stop()
        await serving.transport.close(DRAIN)
    finally:
        ending.begin()
        announcing.cancel()
        await asyncio.gather(server.stop(), serving.stop())
    return ending.code


async def _announce(config: Config, gateway: Gateway, terms: Terms) -> None:
    """Tell the user where it listens, how to connect, and, once it is known, what is up."""
    url = terms.address.url
    tokens, views, keys, _, own = terms.credentials(config)
    others = terms.address.url_for_others
    entry: dict[str, object] = {"type": "http", "url": f"{others or url}/mcp"}
    if tokens or views:
        # One that was made is shown this once: logs are read by others, and kept.
        shown = tokens[0] if own is not None and own.fresh else "<the token>"
        entry["headers"] = {"Authorization": f"Bearer {shown}"}
    lines = [
        f"muxway listens on {url}",
        f"  MCP (Streamable HTTP):  {url}/mcp",
        f"  HTTP+SSE (2024-11-05):  {url}/sse",
        *([f"  From other machines:    {others}/mcp"] if others is not None else []),
        f"  Connect a client:       {json.dumps({'mcpServers': {'muxway': entry}})}",
    ]
    lines += [f"  View {name + ':':<19}{url}/mcp/{name}" for name in gateway.runtime.snapshot.views]
    if config.gateway.auth is not None:
        where = config.gateway.auth.issuer
        if config.gateway.auth.server is not None:
            where = f"{config.gateway.public_url or url}, users sign on at {where}"
        lines.append(f"  Clients log in at:      {where}")
    if own is not None:
        lines.append(f"  Token:                  in {own.path}; this system cannot tell users apart, so one was made")
    if keys is not None and keys.keys:
        lines.append(f"  API keys:               {', '.join(key.name for key in keys.keys)}")
    if views and not tokens:
        lines.append("  Tokens:                 only of views; clients can use nothing else unless you set --token")
    if around := middlewares(config):
        lines.append(f"  Middleware:             {', '.join(name for name, _ in around)}")
    click.echo("\n".join(lines), err=True)
    await gateway.settled()
    servers = gateway.servers()
    up = [server for server in servers if server.status is Status.RUNNING]
    listed = (gateway.tools(), gateway.prompts(), gateway.resources(), gateway.resource_templates())
    click.echo(f"{len(up)} of {len(servers)} servers up, {counted(*map(len, listed))}", err=True)
    if asleep := [server.name for server in servers if server.status is Status.SLEEPING]:
        click.echo(f"  started when needed: {', '.join(asleep)}", err=True)
    # Why has been logged already.
    if down := [server.name for server in servers if server.status not in (Status.RUNNING, Status.SLEEPING)]:
        click.echo(f"  not up: {', '.join(down)}; see above, or ask `muxway status`", err=True)


def _allow_many_connections() -> None:
    """Each connection takes a file descriptor; the usual soft limit is far below what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
