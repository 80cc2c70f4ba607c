"""Every error muxway raises, with the code it has on the wire.

    MuxwayError
    ├── ConfigError             the configuration cannot be used (every problem listed)
    ├── SpawnError              a child process could not be started
    ├── UnknownName             the gateway has no server or view of this name; a KeyError, too
    └── RpcError                ends one request; carries its JSON-RPC code
        ├── ParseError          not JSON                                              -32700
        ├── InvalidRequest      JSON, but no JSON-RPC request we may take             -32600
        ├── MethodNotFound      unknown in this revision, or not offered              -32601
        ├── InvalidParams       wrong parameters                                      -32602
        ├── ToolNotFound        no such tool: handshake revisions -32601, 2026-07-28  -32602
        ├── UnsupportedVersion  the request names a revision we do not speak that way -32022
        ├── UpstreamSaid        the server's own error, passed on unchanged
        └── UpstreamError       the server is lost, broken, slow or not running     -32603

An error is raised where the fact is known and turned into JSON in one place,
`wire.envelopes.error_body`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042
STATELESS_CODES = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
"""Errors that only a server of 2026-07-28 gives."""


class MuxwayError(Exception):
    """Base of everything muxway raises on purpose."""


ConfigErrorCode = Literal["file_not_found", "invalid_json", "invalid_schema", "missing_env_var", "missing_secret"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong (or doubtful) in a configuration."""

    path: str
    """Where, as a dotted path: `mcpServers.github.args.1`."""
    message: str
    """What is wrong and what to do about it, in one sentence."""
    code: ConfigErrorCode = "invalid_schema"
    """The kind of problem."""
    value: object = None
    """The offending value, where it helps and is no secret."""
    line: int | None = None
    """Line in the file, from 1, where known."""
    variable: str | None = None
    """The environment variable that is missing, for `missing_env_var`; the reference, for `missing_secret`."""

    def __str__(self) -> str:
        if self.path == "$":
            # The whole file: the message names it.
            return self.message
        where = f"{self.path} (line {self.line})" if self.line is not None else self.path
        return f"{where}: {self.message}"


class ConfigError(MuxwayError):
    """The configuration cannot be used. Lists every problem found, not just the first."""

    def __init__(
        self,
        code: ConfigErrorCode,
        message: str,
        details: tuple[Problem, ...] = (),
        *,
        warnings: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code: ConfigErrorCode = code
        self.details = details
        self.warnings = warnings
        """What is only doubtful. Not in the message: it is not why the configuration cannot be used."""


class SpawnError(MuxwayError):
    """A child process could not be started; the message says why and what to install or fix."""


class UnknownName(MuxwayError, KeyError):
    """The gateway has nothing of this name; the message says what there is. A `KeyError`, too."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = ", ".join(known)
        super().__init__(
            f'there is no {what} "{name}"; there are: {names}' if names else f'there is no {what} "{name}"'
        )

    def __str__(self) -> str:
        # That of a KeyError is for keys: it has quotes around it.
        return str(self.args[0])


class RpcError(MuxwayError):
    """Ends one request. `code` and `data` are what the caller sees in the JSON-RPC error."""

    code: int = INTERNAL_ERROR

    def __init__(self, message: str, *, code: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        if code is not None:
            self.code = code


class ParseError(RpcError):
    """What arrived is not JSON."""

    code = PARSE_ERROR


class InvalidRequest(RpcError):
    """JSON, but not a JSON-RPC request that may be made here and now."""

    code = INVALID_REQUEST


class MethodNotFound(RpcError):
    """The method does not exist in the caller's revision, or is not offered."""

    code = METHOD_NOT_FOUND


class InvalidParams(RpcError):
    """The method exists, its parameters are wrong."""

    code = INVALID_PARAMS


class ToolNotFound(RpcError):
    """No tool has this name. The code depends on the caller's revision (`Revision.unknown_tool_code`)."""

    code = METHOD_NOT_FOUND


class NameNotPrefixed(ToolNotFound, InvalidParams):
    """No tool has this name, which names no server either."""

    code = INVALID_PARAMS


class CallRefused(InvalidParams):
    """A call is not made, for a reason that the model which wants it can put right. It is told by a tool's result."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class UnsupportedVersion(RpcError):
    """A stateless request names a protocol revision that is not spoken that way."""

    code = UNSUPPORTED_VERSION


class UpstreamSaid(RpcError):
    """The server answered with an error of its own. `raw` is that error object, byte for byte."""

    def __init__(self, raw: bytes, message: str, code: int, data: Any = None) -> None:
        super().__init__(message, code=code, data=data)
        self.raw = raw
        self.connection: object = None
        """Where it came from: ids in it mean something there only."""


Reason = Literal[
    "lost", "timeout", "malformed", "too_large", "not_running", "overloaded", "unsupported", "login_needed"
]


class UpstreamError(RpcError):
    """The server did not give a usable answer: it is gone, slow, broken or was never there."""

    def __init__(self, upstream: str, reason: Reason, message: str, *, retry_after: float | None = None) -> None:
        """An error; `retry_after` is in how many seconds another try may succeed, where that is known."""
        said: dict[str, object] = {"reason": reason, "upstream": upstream}
        if retry_after is not None:
            said["retryAfterMs"] = max(1, round(retry_after * 1000))
        super().__init__(message, data={"muxway": said})
        self.upstream = upstream
        self.reason: Reason = reason
        self.retry_after = retry_after
