"""What a caller is told whose call needs a login first.

Only a person can help, so a person must hear of it, whatever the client makes of errors: a client that can send its
user to a web page gets the link; to the others a tool call gives a result, which models read, that says what to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from muxway.calls.sinks import as_error_result
from muxway.errors import URL_ELICITATION_REQUIRED, RpcError, UpstreamError, UpstreamSaid
from muxway.wire import asking, envelopes
from muxway.wire.revisions import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call, Caller
    from muxway.wire.envelopes import Buffer

WAIT: Final = 50.0
"""Seconds for which a call whose user has agreed to log in waits for that. Most clients wait for 60."""
_KEY: Final = "muxway-login"
_URL_MODE: Final = {"mode": msgspec.Raw(b'"url"')}


class LoginPage(NamedTuple):
    """Where a user can log in."""

    id: str
    url: str


class Logins:
    """How callers are sent there."""

    def __init__(self) -> None:
        self.page: Callable[[str, Caller], LoginPage | None] = lambda _, __: None
        """A server, a caller → a page of ours where just that caller's user can log in to it; None: there is none."""

    def told(self, call: Call, error: RpcError, server_info: bytes) -> bytes | RpcError:
        """What a call is answered with that failed with this error: mostly that, else another one, or a result.

        `server_info` is what the gateway calls itself, in JSON.
        """
        if not isinstance(error, UpstreamError) or error.reason != "login_needed":
            return error
        if (page := self._page_for(call, error.upstream)) is not None:
            said = {
                "mode": "url",
                "elicitationId": page.id,
                "url": page.url,
                "message": f'Log in to "{error.upstream}", which the call needs.',
            }
            if call.caller.revision.stateless:
                return _input_required(said, server_info)
            data = {"elicitations": [said]}
            message = f'server "{error.upstream}" needs a login'
            raw = envelopes.encode({"code": URL_ELICITATION_REQUIRED, "message": message, "data": data})
            required = UpstreamSaid(raw, message, URL_ELICITATION_REQUIRED, data)
            required.connection = self
            return required
        if call.method == "tools/call":
            return as_error_result(error.message, call.caller.revision, server_info)
        return error

    def _page_for(self, call: Call, upstream: str) -> LoginPage | None:
        if call.method not in asking.REPEATABLE or answered(call) is not None:
            return None
        return self.page(upstream, call.caller) if can_visit(call.caller) else None


def can_visit(caller: Caller) -> bool:
    """Whether a caller has said that it can send its user to a web page."""
    return asking.refusal(caller.capabilities, caller.revision, asking.ELICIT, _URL_MODE) is None


def answered(call: Call) -> bool | None:
    """Whether the user has agreed to log in; None if that was not asked, or not answered."""
    if not call.caller.revision.stateless or "inputResponses" not in call.params:
        return None
    answers = envelopes.members(call.params["inputResponses"]) or {}
    if _KEY not in answers:
        return None
    return envelopes.text((envelopes.members(answers[_KEY]) or {}).get("action")) == "accept"


def without_answer(call: Call) -> Call:
    """The same without what the user said about logging in, which is nothing for the server."""
    answers = envelopes.members(call.params["inputResponses"]) or {}
    left = {name: raw for name, raw in answers.items() if name != _KEY}
    params = {name: raw for name, raw in call.params.items() if name != "inputResponses"}
    if left:
        params["inputResponses"] = msgspec.Raw(envelopes.object_of(left.items()))
    return msgspec.structs.replace(call, params=params)


def _input_required(said: dict[str, str], server_info: bytes) -> bytes:
    params = {name: value for name, value in said.items() if name != "elicitationId"}
    asked = envelopes.encode({_KEY: {"method": asking.ELICIT, "params": params}})
    meta: Buffer = envelopes.object_of([(SERVER_INFO, server_info)])
    return b'{"resultType":"input_required","inputRequests":' + asked + b',"_meta":' + meta + b"}"
