"""The first words on a connection: which era does this server speak, and what can it do?

A stateless server is asked with `server/discover`; any other answer than its own, or
silence, means a handshake server, and `initialize` follows. No single error code is
trusted to say "handshake": servers in the field answer the unknown method in many ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from muxway.errors import (
    METHOD_NOT_FOUND,
    STATELESS_CODES,
    UNSUPPORTED_VERSION,
    MuxwayError,
    UpstreamError,
    UpstreamSaid,
)
from muxway.wire import envelopes
from muxway.wire.envelopes import as_object
from muxway.wire.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    NEWEST,
    NEWEST_HANDSHAKE,
    PROTOCOL_VERSION,
    REVISIONS,
    SERVER_INFO,
    Revision,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.servers.connection import Connection

Era = Literal["auto", "modern", "legacy"]

_PROBE: Final = 5.0
"""Seconds of silence after which the server is taken for a handshake server that ignores what it does not know."""


class NegotiationFailed(MuxwayError):
    """The server and we found no common way to speak."""


class DiedOfProbe(MuxwayError):
    """The server ended when it was asked `server/discover`: some old servers crash on what they do not know."""

    def __init__(self, lost: UpstreamError) -> None:
        super().__init__(lost.message)
        self.lost = lost
        """How it ended."""


class TakesNoHandshake(MuxwayError):
    """The server refused `initialize` as stateless servers do, and is of no use any more: some are then for ever
    of the era that they do not speak."""


@dataclass(frozen=True, slots=True)
class Negotiated:
    """How a server introduced itself."""

    revision: Revision
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any] | None
    """What it declared it can do, as it came; None if it declared nothing at all."""
    instructions: str = ""
    """What it wants a model to know about it."""

    def has(self, capability: str) -> bool:
        """Whether it declared this capability."""
        return self.capabilities is not None and capability in self.capabilities

    def announces(self, capability: str) -> bool:
        """Whether it says when what it lists under this capability changes."""
        declared = as_object(None if self.capabilities is None else self.capabilities.get(capability))
        return declared.get("listChanged") is True

    @property
    def completes(self) -> bool:
        """Whether it may be asked to complete arguments: the first revision has no word for it, so it is tried."""
        return self.has("completions") or not self.revision.completions

    @property
    def vague(self) -> bool:
        """Whether it may have more than it declared: some servers of the first revision declare nothing."""
        return self.capabilities is None or (not self.capabilities and not self.revision.completions)


async def greet(
    connection: Connection,
    era: Era,
    client_info: Mapping[str, str],
    capabilities: Mapping[str, object],
    timeout: float,
    *,
    handshake_first: bool = False,
) -> Negotiated:
    """Open the conversation and set the connection to the revision found.

    Args:
        connection: where to speak.
        era: which era to speak, if that is known.
        client_info: how the gateway introduces itself.
        capabilities: what is declared in a handshake.
        timeout: seconds for each answer.
        handshake_first: whether a server that may speak both eras is to speak that with the handshake.

    Raises:
        NegotiationFailed: no common revision, or an answer that makes no sense.
        DiedOfProbe: it should be started anew and greeted with era "legacy".
        TakesNoHandshake: it should be started anew and greeted with era "modern".
        UpstreamSaid, UpstreamError: it refused, or went away.
    """
    if era == "legacy":
        return await _initialize(connection, client_info, capabilities, timeout)
    meta = _envelope(client_info)
    if handshake_first and era == "auto":
        try:
            return await _initialize(connection, client_info, capabilities, timeout)
        except UpstreamSaid as error:
            try:
                found = await _discover(connection, meta, timeout)
            except (UpstreamSaid, UpstreamError):
                found = None
            if found is not None:
                return found
            if error.code in (UNSUPPORTED_VERSION, METHOD_NOT_FOUND):
                raise TakesNoHandshake(error.message) from error
            # What it has against us it has said in answer to the handshake.
            raise
    found, refused = None, None
    try:
        found = await _discover(connection, meta, timeout if era == "modern" else min(_PROBE, timeout))
    except UpstreamSaid as error:
        refused = error
    except UpstreamError as error:
        if error.reason == "login_needed":
            # However it is greeted, it wants to know first who we are.
            raise
        if era == "modern":
            asked = f"{error.message} (asked in {NEWEST.date})"
            raise UpstreamError(error.upstream, error.reason, asked, retry_after=error.retry_after) from error
        if connection.gone:
            raise DiedOfProbe(error) from error
    if found is None and era == "modern":
        said = "" if refused is None else f"; it says: {refused.message}"
        raise NegotiationFailed(f"does not speak 2026-07-28, which `era` asks for{said}") from refused
    if found is not None:
        return found
    try:
        return await _initialize(connection, client_info, capabilities, timeout)
    except UpstreamSaid as error:
        if error.code == METHOD_NOT_FOUND and refused is not None:
            # If it knows only `server/discover`, what it has against us it has said before.
            raise (error if refused.code == METHOD_NOT_FOUND else refused) from error
        if error.code not in (UNSUPPORTED_VERSION, METHOD_NOT_FOUND):
            raise
        # A stateless server that was only slow to start: it has answered `initialize` the way such servers do.
        found = await _discover(connection, meta, timeout)
        if found is None:
            raise
        return found


def _envelope(client_info: Mapping[str, str]) -> bytes:
    body = {PROTOCOL_VERSION: NEWEST.date, CLIENT_INFO: dict(client_info)}
    return envelopes.encode(body)[1:-1]


async def _discover(connection: Connection, meta: bytes, timeout: float) -> Negotiated | None:
    """The greeting of a stateless server; None if this is none. Raises UpstreamSaid if it refuses, which any may."""
    try:
        asked = b"{" + meta + envelopes.key(CLIENT_CAPABILITIES) + b"{}}"
        raw = await connection.own.ask("server/discover", {"_meta": asked}, timeout=timeout)
    except UpstreamSaid as error:
        if error.code not in STATELESS_CODES:
            raise
        supported = as_object(error.data).get("supported")
        result: dict[str, Any] = {}
    else:
        result = envelopes.value(raw)
        supported = result.get("supportedVersions")
        if not isinstance(supported, list):
            return None
    if isinstance(supported, list) and NEWEST.date not in supported:
        if any(date in REVISIONS for date in cast("list[object]", supported)):
            return None
        raise NegotiationFailed(f"speaks only {supported}; muxway speaks {', '.join(REVISIONS)}")
    connection.speak(NEWEST, meta)
    info = as_object(as_object(result.get("_meta")).get(SERVER_INFO))
    return _greeting(NEWEST, info, result)


async def _initialize(
    connection: Connection, client_info: Mapping[str, str], capabilities: Mapping[str, object], timeout: float
) -> Negotiated:
    params = {
        "protocolVersion": NEWEST_HANDSHAKE.date,
        "capabilities": dict(capabilities),
        "clientInfo": dict(client_info),
    }
    raw = await connection.own.ask(
        "initialize", {name: envelopes.encode(value) for name, value in params.items()}, timeout=timeout
    )
    result = envelopes.value(raw)
    revision = REVISIONS.get(str(result.get("protocolVersion")))
    if revision is None or revision.stateless:
        speaks = result.get("protocolVersion")
        raise NegotiationFailed(
            f"answered initialize with protocol version {speaks!r}; muxway speaks {', '.join(REVISIONS)}"
        )
    connection.speak(revision)
    connection.own.notify("notifications/initialized")
    return _greeting(revision, as_object(result.get("serverInfo")), result)


def _greeting(revision: Revision, info: Mapping[str, Any], result: Mapping[str, Any]) -> Negotiated:
    instructions = result.get("instructions")
    return Negotiated(
        revision,
        info,
        as_object(result["capabilities"]) if isinstance(result.get("capabilities"), dict) else None,
        instructions if isinstance(instructions, str) else "",
    )
