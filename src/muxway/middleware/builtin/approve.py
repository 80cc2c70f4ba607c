"""`approve`: calls that change something wait until somebody agrees."""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from muxway.config import durations
from muxway.errors import InvalidParams, RpcError
from muxway.exchange.approvals import Memory, cut, question
from muxway.exchange.seal import INVALID, LIFETIME, digest
from muxway.middleware.engine.base import Middleware, Result
from muxway.middleware.engine.epochs import Epoch, Epochs
from muxway.middleware.engine.tools import hint, is_named, listed_name
from muxway.wire import asking, envelopes
from muxway.wire.envelopes import Raw

if TYPE_CHECKING:
    from muxway.middleware.engine.base import Next, Request
    from muxway.wire.envelopes import Params


_OWN: Final = "mwa1."
"""What a state of ours begins with; those of an exchange begin otherwise."""
_QUESTION: Final = "approve"


class Approve(Middleware):
    """Hold calls of tools until the caller's user agrees.

    The user is asked by the caller's own program, by elicitation, with the name of the tool, its server and the
    beginning of the arguments. If the answer is not yes, or the program cannot ask, the call does not reach the server,
    and its result says why and how to allow it. A tool that is not listed (such as a hidden one that a compound tool
    uses) is held, whatever its name: nothing is known about it.

    Options:
        tools: globs of the tools to hold, as listed. Without it: all that are not marked `readOnlyHint`.
        destructive_only: of the tools that are not marked read-only, hold only those that are not marked
            `destructiveHint: false` either.
        allow: globs of tools that need nobody's word.
        remember: seconds for which a yes holds for further calls of the same tool by the same caller, whatever
            the arguments; 0, so that each call is asked about. A server that is started anew, swapped or has other
            lists is asked about again.

    What a tool is marked as is its server's word: name the tools of servers that you do not trust. Put it after
    `cache`, and before `timeout`, `retry` and `secrets`, in the list: people are slow, and need not see secrets.

    Costs 10 µs for a call of a tool that is not asked about.
    """

    plain = True

    def __init__(
        self,
        *,
        tools: tuple[str, ...] = (),
        destructive_only: bool = False,
        allow: tuple[str, ...] = (),
        remember: float | str = 0.0,
    ) -> None:
        if tools and destructive_only:
            raise ValueError("give `tools` or `destructive_only`, not both: `tools` are held however they are marked")
        holds_for = durations.seconds(remember)
        if not 0 <= holds_for <= 24 * 3600:
            raise ValueError('`remember` must be a number of seconds from 0 to 86400, or text like "10m"')
        self._tools = tools
        self._destructive_only = destructive_only
        self._allowed = allow
        self._remember = holds_for
        self._agreed: Memory[tuple[object, str, str], bool] = Memory()
        """Caller, server and tool of a yes that still holds."""
        self._asked: Memory[str, tuple[bytes, bytes, Epoch]] = Memory()
        """Our state → principal and digest of the call that a stateless caller was asked about, and when that was."""
        self._going_on: Memory[bytes, bool] = Memory()
        """Digests of states under which servers go on with calls that were agreed to."""
        self._epochs = Epochs()

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Go on if somebody agrees."""
        if not self._holds(request):
            return await go(request)
        if self._agreed.get(_who(request)):
            return await self._go_on(request, go)
        asked = question(request.server, listed_name(request), request.arguments)
        caller = request.caller
        state = request.call.params.get("requestState") if caller.revision.stateless else None
        epoch: Epoch | None = self._epochs.now(request.server)
        if state is not None:
            action, epoch = self._answer_with(request, state)
        elif asking.refusal(caller.capabilities, caller.revision, asking.ELICIT, asked) is not None:
            return _refused(request, "this client cannot ask its user: it did not declare elicitation")
        elif caller.revision.stateless:
            return self._ask_stateless(request, asked)
        else:
            try:
                answer = await go.ask_caller(asking.ELICIT, asked)
            except RpcError as error:
                return _refused(request, f"the user could not be asked: {error.message}")
            action = envelopes.text((envelopes.members(answer) or {}).get("action"))
        if action == "decline":
            return _said(request, f"{_not_called(request)} the user declined it.")
        if action != "accept":
            return _refused(request, "the user did not answer")
        if self._remember and _who(request)[0] is not None and epoch == self._epochs.now(request.server):
            self._agreed.put(_who(request), True, self._remember)
        return await self._go_on(request, go)

    def forget(self, server: str | None) -> None:
        """A yes was for the tool that there was then."""
        self._epochs.forget(server)
        self._agreed.drop(lambda who: server is None or who[1] in (server, ""))

    def _holds(self, request: Request) -> bool:
        if not request.tool:
            return True
        if is_named(request, self._allowed):
            return False
        if self._tools:
            return is_named(request, self._tools)
        if hint(request, "readOnlyHint"):
            return False
        return not self._destructive_only or hint(request, "destructiveHint") is not False

    # --- stateless callers: asked by ending the call, which is made again with the answer ---------

    def _ask_stateless(self, request: Request, asked: Params) -> Result:
        state = _OWN + secrets.token_urlsafe(16)
        asked_now = (request.caller.principal, digest(request.call), self._epochs.now(request.server))
        self._asked.put(state, asked_now, LIFETIME)
        params = asking.worded(request.caller.revision, asking.ELICIT, asked, "muxway")
        entry = {_QUESTION: {"method": asking.ELICIT, "params": Raw(params or b"{}")}}
        return Result.of({"resultType": "input_required", "inputRequests": entry, "requestState": state})

    def _answer_with(self, request: Request, state: Raw) -> tuple[str | None, Epoch | None]:
        """What the user said in the round before, and when that was asked, unless it was the server who asked then.

        Raises:
            InvalidParams: nobody was asked about this call.
        """
        own = envelopes.text(state) or ""
        if not own.startswith(_OWN):
            # A round of the server's own. That there is one shows that the call was agreed to, if we saw it begin.
            if self._going_on.take(_short(state)):
                return "accept", None
            raise InvalidParams(INVALID)
        asked = self._asked.take(own)
        if asked is None or asked[:2] != (request.caller.principal, digest(request.call)):
            raise InvalidParams(INVALID)
        answers = envelopes.members(request.call.params.get("inputResponses", b"")) or {}
        return envelopes.text((envelopes.members(answers.get(_QUESTION, b"")) or {}).get("action")), asked[2]

    async def _go_on(self, request: Request, go: Next) -> Result:
        state = envelopes.text(request.call.params.get("requestState"))
        if state is not None and state.startswith(_OWN):
            request = request.replace(requestState=None, inputResponses=None)
        result = await go(request)
        kept = None if result.is_final else result.mark("requestState")
        if kept is not None:
            self._going_on.put(_short(kept), True, LIFETIME)
        return result


def _who(request: Request) -> tuple[object, str, str]:
    """Caller, server and tool. Callers that cannot be told from others are None."""
    return request.caller.principal or request.caller.party, request.server, listed_name(request)


def _short(state: Raw) -> bytes:
    return blake2b(bytes(state), digest_size=16).digest()


def _not_called(request: Request) -> str:
    return f'The tool "{cut(listed_name(request))}" was not called:'


def _refused(request: Request, why: str) -> Result:
    how = envelopes.encode({"use": "approve", "allow": [cut(listed_name(request))]}).decode()
    return _said(
        request,
        f"{_not_called(request)} it needs the user's approval, and {why}. "
        f"Whoever runs the gateway can allow it in the configuration, under `middleware`: {how}",
    )


def _said(request: Request, text: str) -> Result:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    return Result.of({"resultType": "complete", **result} if request.caller.revision.stateless else result)
