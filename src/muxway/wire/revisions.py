"""The five protocol revisions, and how a request shows which one it is written in.

Two eras. Handshake revisions (2024-11-05 to 2025-11-25) open a session with `initialize`;
2026-07-28 has no session: each request carries an envelope in `params._meta` that names
its revision and what its caller can do. Both may arrive on one pipe, in any order.
Nobody outside this module and `bridge` compares revisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.errors import INVALID_PARAMS, METHOD_NOT_FOUND, InvalidParams, UnsupportedVersion
from muxway.wire import envelopes

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.wire.envelopes import Params

PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
CLIENT_INFO: Final = PREFIX + "clientInfo"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
RELATED_TASK: Final = PREFIX + "related-task"
PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105 - a protocol field, not a secret

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Least severe first."""

HOP_KEYS: Final = frozenset((PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN))
"""`_meta` keys that speak of one hop only: written anew towards each server, never forwarded."""


@dataclass(frozen=True, slots=True, eq=False)
class Revision:
    """One published revision, as far as the gateway must tell it from the others.

    Compared by identity, as there is one object of each: pairs of them are looked up on every call.
    """

    date: str
    stateless: bool = False
    """No handshake; every request carries its own envelope and every result a `resultType`."""
    batches: bool = False
    """A line may be a JSON array of messages."""
    progress_message: bool = True
    """Progress notices may carry a `message`."""
    annotations: bool = True
    """A tool may have `annotations`."""
    audio: bool = True
    """Content may be sound."""
    resource_links: bool = True
    """Content may be a link to a resource."""
    structured: bool = True
    """A result may have `structuredContent`, and a tool the `outputSchema` it follows."""
    any_structure: bool = False
    """Structured content and its schema may be of any JSON value; elsewhere, of an object only."""
    titles: bool = True
    """A tool may have a `title` of its own, outside its annotations."""
    icons: bool = True
    """A tool may have `icons`."""
    completions: bool = True
    """Servers declare whether they complete arguments."""
    completion_context: bool = True
    """A completion may be told the arguments that are known already."""
    elicitation: bool = True
    """A server may ask the user, with a form."""
    url_elicitation: bool = True
    """A server may send the user to a web page; forms may have defaults, titles and multiple choices."""
    sampling_arrays: bool = True
    """A sampling message may hold several blocks, and blocks about tools."""
    required_tasks: bool = False
    """A tool may say that it can only be run as a task."""

    @property
    def unknown_tool_code(self) -> int:
        """The JSON-RPC code for a tool that does not exist."""
        return INVALID_PARAMS if self.stateless else METHOD_NOT_FOUND


REVISIONS: Final = {
    revision.date: revision
    for revision in (
        Revision(
            "2024-11-05",
            progress_message=False,
            annotations=False,
            audio=False,
            resource_links=False,
            structured=False,
            titles=False,
            icons=False,
            completions=False,
            completion_context=False,
            elicitation=False,
            url_elicitation=False,
            sampling_arrays=False,
        ),
        Revision(
            "2025-03-26",
            batches=True,
            resource_links=False,
            structured=False,
            titles=False,
            icons=False,
            completion_context=False,
            elicitation=False,
            url_elicitation=False,
            sampling_arrays=False,
        ),
        Revision("2025-06-18", icons=False, url_elicitation=False, sampling_arrays=False),
        Revision("2025-11-25", required_tasks=True),
        Revision("2026-07-28", stateless=True, any_structure=True),
    )
}
NEWEST: Final = REVISIONS["2026-07-28"]
NEWEST_HANDSHAKE: Final = REVISIONS["2025-11-25"]
SUPPORTED: Final = tuple(reversed(REVISIONS))
"""Every revision we speak, newest first."""


def negotiate(requested: str | None) -> Revision:
    """The revision to answer an `initialize` with: the requested one if we speak it, else our newest."""
    revision = REVISIONS.get(requested or "")
    return NEWEST_HANDSHAKE if revision is None or revision.stateless else revision


MOST_INTRODUCTION: Final = 64 * 1024
"""Bytes of a client's capabilities, and of its name. They are kept with its session, and read for its calls."""


def introduction(what: str, raw: Raw | None) -> Raw | None:
    """What a client says of itself, fit to be kept: by itself, and not too large. Raises InvalidParams."""
    if raw is not None and memoryview(raw).nbytes > MOST_INTRODUCTION:
        raise _too_large(what)
    return envelopes.own(raw)


def _too_large(what: str) -> InvalidParams:
    return InvalidParams(f"{what} has more than the {MOST_INTRODUCTION} bytes that this server accepts there")


@dataclass(frozen=True, slots=True)
class RequestEnvelope:
    """What a stateless request says of its sender."""

    capabilities: Raw
    client_info: Raw | None
    log_level: int | None
    """As a number of `LOG_LEVELS`."""


def read_envelope(meta: Params | None) -> RequestEnvelope | None:
    """The 2026-07-28 envelope of a request; None when it is written in a handshake revision.

    Raises:
        InvalidParams: it has the version but not the capabilities, or they are too large.
        UnsupportedVersion: it names a revision that has no such envelope, or one we do not know.
    """
    if meta is None or PROTOCOL_VERSION not in meta:
        return None
    version = envelopes.text(meta[PROTOCOL_VERSION])
    capabilities = meta.get(CLIENT_CAPABILITIES)
    if version is None or capabilities is None or not envelopes.is_object(capabilities):
        missing = PROTOCOL_VERSION if version is None else CLIENT_CAPABILITIES
        kind = "a string" if version is None else "an object, {} if the client has none"
        raise InvalidParams(f'params._meta["{missing}"] is missing or wrong: it must be {kind}')
    if version != NEWEST.date:
        raise UnsupportedVersion(
            f"protocol version {version} has no stateless form here; use {NEWEST.date}, or `initialize` for older ones",
            data={"supported": list(SUPPORTED), "requested": version},
        )
    level, client_info = meta.get(LOG_LEVEL), meta.get(CLIENT_INFO)
    for name, raw in ((CLIENT_CAPABILITIES, capabilities), (CLIENT_INFO, client_info)):
        if raw is not None and memoryview(raw).nbytes > MOST_INTRODUCTION:
            raise _too_large(f'params._meta["{name}"]')
    return RequestEnvelope(capabilities, client_info, None if level is None else read_log_level(level))


def read_log_level(raw: Raw | bytes) -> int:
    """A log level as a number of `LOG_LEVELS`. Raises InvalidParams."""
    name = envelopes.text(raw)
    if name not in LOG_LEVELS:
        raise InvalidParams(f"the log level must be one of {', '.join(LOG_LEVELS)}")
    return LOG_LEVELS.index(name)
