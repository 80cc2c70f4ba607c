"""Calls that wait until somebody agrees, because a rule says `ask`.

The caller's own user is asked where the caller's program can do that, by elicitation. Otherwise the call waits, and
whoever runs the gateway answers, by `muxway approvals`. Nobody answers for ever: after a while the answer is no.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from muxway.calls.identity import Decision
from muxway.calls.incidents import attempt
from muxway.calls.ports import LOOP_CLOCK, log, printable
from muxway.calls.server_request import ServerRequest
from muxway.errors import InvalidParams, RpcError
from muxway.exchange.seal import INVALID, LIFETIME, digest
from muxway.wire import asking, envelopes
from muxway.wire.envelopes import Raw
from muxway.wire.revisions import NEWEST_HANDSHAKE

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.access.rules import Rule
    from muxway.calls.call import Call
    from muxway.calls.ports import Clock, Running, Sink, Timer
    from muxway.routing.target import Target
    from muxway.wire.envelopes import Params

    _Key = tuple[object, str, str, str]
    """Caller, server, method and name of what was agreed to."""
    Go = Callable[[Call, Sink], Running | None]

K = TypeVar("K")
V = TypeVar("V")

MOST: Final = 256
"""Calls that may wait for the operator."""
_MOST_OF_ONE: Final = 16
"""The same of one caller, so that nobody takes the places of all others."""
_MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of their arguments, all together."""
_REMEMBERED: Final = 1000
_OWN: Final = "mwr1."
"""What a state of ours begins with."""
_QUESTION: Final = "access"
_LONGEST_NAME: Final = 100
_LONGEST_ARGUMENTS: Final = 500
YES_OR_NO: Final = Raw(b'{"type":"object","properties":{}}')


class Memory(Generic[K, V]):
    """Things that are true for a while; the oldest goes when there are too many."""

    def __init__(self, clock: Clock = LOOP_CLOCK) -> None:
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def put(self, key: K, value: V, seconds: float) -> None:
        """Keep it for so long."""
        self._kept.pop(key, None)
        self._kept[key] = (self._clock.steady() + seconds, value)
        if len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)

    def get(self, key: K) -> V | None:
        """What is kept, if it still holds."""
        expires, value = self._kept.get(key, (0.0, None))
        return value if self._clock.steady() < expires else None

    def take(self, key: K) -> V | None:
        """The same, which is then kept no more."""
        value = self.get(key)
        self._kept.pop(key, None)
        return value

    def drop(self, which: Callable[[K], bool]) -> None:
        """Keep these no more."""
        for key in [key for key in self._kept if which(key)]:
            del self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)


def question(server: str, name: str, arguments: Any) -> Params:
    """What a user is asked: whether this may be called with these arguments."""
    # As values, not as they came: escapes could hide what the arguments say.
    told = envelopes.encode(arguments)[: 4 * _LONGEST_ARGUMENTS].decode(errors="ignore")
    of = f' of the server "{cut(server)}"' if server else ""
    message = f'Allow the tool "{cut(name)}"{of} to be called with {cut(told, _LONGEST_ARGUMENTS)}?'
    return {"message": Raw(envelopes.encode(message)), "requestedSchema": YES_OR_NO}


def cut(text: str, longest: int = _LONGEST_NAME) -> str:
    """A text as people may see it, not too long."""
    shown = printable(text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


class Approval(NamedTuple):
    """A call that waits for the operator."""

    id: str
    method: str
    name: str
    """The tool or prompt as it is listed, or the URI."""
    call: Call
    rule: str
    since: float
    target: Target
    view: str | None
    """The view that it came to; None: the whole."""

    @property
    def server(self) -> str:
        """The server that it is for; empty: none."""
        return self.target.server


class _Asking:
    """One call that waits for an answer."""

    __slots__ = (
        "_approvals",
        "_ask",
        "_call",
        "_go",
        "_over",
        "_running",
        "_sink",
        "_timer",
        "approval",
        "key",
        "size",
    )

    def __init__(self, approvals: Approvals, key: _Key | None, approval: Approval, sink: Sink, go: Go) -> None:
        self._approvals = approvals
        self._call = approval.call
        self._sink = sink
        self._go = go
        self._ask: ServerRequest | None = None
        self._over = False
        self._running: Running | None = None
        self.approval = approval
        self.key = key
        self.size = sum(memoryview(raw).nbytes for raw in approval.call.params.values())
        self._timer: Timer = approvals.clock.later(approvals.timeout, self._timed_out)

    def ask(self, params: Params) -> None:
        """Ask the caller's user."""
        self._ask = ServerRequest(
            "muxway", NEWEST_HANDSHAKE, asking.ELICIT, params, answer=self._answered, refuse=self._refused
        )
        self._sink.ask(self._ask)

    def _answered(self, answer: bytes) -> None:
        action = envelopes.text((envelopes.members(answer) or {}).get("action"))
        if action == "accept":
            self.allow()
        else:
            self.deny("the user declined it" if action == "decline" else "the user did not answer")

    def _refused(self, error: RpcError) -> None:
        self.deny(f"the user could not be asked: {error.message}")

    def _timed_out(self) -> None:
        self.deny(f"it was not approved within {self._approvals.timeout:g} s")

    def allow(self) -> None:
        """Go on with it."""
        if self._end():
            self._approvals.decided(self.approval)
            attempt(self._sink.failed, self._go_on)

    def _go_on(self) -> None:
        self._running = self._go(self._call, self._sink)

    def deny(self, why: str) -> None:
        """Somebody said no, or nobody said anything."""
        if self._end():
            self._approvals.refuse(self.approval, why, self._sink)

    def cancel(self, reason: str | None) -> None:
        """Its caller gave up."""
        self._end()
        if self._running is not None:
            self._running.cancel(reason)

    def _end(self) -> bool:
        over, self._over = self._over, True
        if over:
            return False
        self._timer.cancel()
        self._approvals.ended(self)
        if self._ask is not None:
            self._ask.withdraw()
        return True


class Approvals:
    """Who waits, and what was agreed to."""

    def __init__(self, clock: Clock = LOOP_CLOCK) -> None:
        self.clock = clock
        self.timeout = 300.0
        """Seconds after which nobody is waited for any more."""
        self.on_decided: Callable[[Approval, Decision], None] = lambda _, __: None
        """Told how each question ended."""
        self._waiting: dict[str, _Asking] = {}
        self._bytes = 0
        self._agreed: Memory[_Key, bool] = Memory(clock)
        self._asked: Memory[str, tuple[bytes, bytes]] = Memory(clock)
        """Our state → principal and digest of the call that a stateless caller was asked about."""

    def begin(
        self, rule: Rule, target: Target, call: Call, sink: Sink, go: Go, view: str | None = None
    ) -> Running | None:
        """Start a request, which came to this view, if somebody agrees to it.

        Raises:
            InvalidParams: it comes back with an answer, and nobody was asked about it.
        """
        caller = call.caller
        name = _name(target, call)
        who = _who(call)
        key = None if who is None else (who, target.server, call.method, name)
        if key is not None and self._agreed.get(key):
            return go(call, sink)
        approval = Approval("", call.method, name, call, rule.label, self.clock.now(), target, view)
        if caller.revision.stateless and (state := call.params.get("requestState")) is not None:
            spelled = envelopes.text(state) or ""
            if not spelled.startswith(_OWN):
                # A later round of a call that was agreed to: the seal of its state says so, and is looked at next.
                return go(call, sink)
            return self._answered(spelled, approval, sink, go)
        asked = _question(target, approval)
        if asking.refusal(caller.capabilities, caller.revision, asking.ELICIT, asked) is not None:
            return self._park(approval, key, sink, go)
        if caller.revision.stateless:
            self._ask_stateless(call, asked, sink)
            return None
        waiting = _Asking(self, key, approval, sink, go)
        waiting.ask(asked)
        return waiting

    # --- the caller's user ----------------------------------------------------------------------

    def _ask_stateless(self, call: Call, asked: Params, sink: Sink) -> None:
        state = _OWN + secrets.token_urlsafe(16)
        self._asked.put(state, (call.caller.principal, digest(call)), LIFETIME)
        params = asking.worded(call.caller.revision, asking.ELICIT, asked, "muxway")
        entry = {_QUESTION: {"method": asking.ELICIT, "params": Raw(params or b"{}")}}
        sink.done(envelopes.encode({"resultType": "input_required", "inputRequests": entry, "requestState": state}))

    def _answered(self, state: str, approval: Approval, sink: Sink, go: Go) -> Running | None:
        call = approval.call
        if self._asked.take(state) != (call.caller.principal, digest(call)):
            raise InvalidParams(INVALID)
        answers = envelopes.members(call.params.get("inputResponses", b"")) or {}
        action = envelopes.text((envelopes.members(answers.get(_QUESTION, b"")) or {}).get("action"))
        if action != "accept":
            self.refuse(approval, "the user declined it" if action == "decline" else "the user did not answer", sink)
            return None
        self.decided(approval)
        params = {name: raw for name, raw in call.params.items() if name not in ("requestState", "inputResponses")}
        return go(msgspec.structs.replace(call, params=params), sink)

    # --- the answer -----------------------------------------------------------------------------

    def decided(self, approval: Approval, why: str = "") -> None:
        """Let log and audit know how a question ended: the result alone does not say whether its server was asked."""
        caller = approval.call.caller
        identity = caller.identity
        who = {} if identity is None else {"key": identity.key} if identity.key else {"user": identity.user}
        log.info(
            "a call was not approved" if why else "a call was approved",
            **({"id": approval.id} if approval.id else {}),
            name=cut(approval.name),
            rule=approval.rule,
            **who,
            **({"why": why} if why else {}),
        )
        self.on_decided(
            approval,
            Decision(
                approved=not why,
                why=why,
                rule=approval.rule,
                method=approval.method,
                name=approval.name,
                server=approval.server,
                principal=caller.principal,
                identity=identity,
            ),
        )

    def refuse(self, approval: Approval, why: str, sink: Sink) -> None:
        """End a call that nobody agreed to. A model can read why a tool was not called."""
        self.decided(approval, why)
        if approval.method != "tools/call":
            sink.failed(RpcError(f"not allowed: {why}", data={"muxway": {"reason": "denied"}}))
            return
        text = f'The tool "{cut(approval.name)}" was not called: it needs to be approved, and {why}.'
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
        if approval.call.caller.revision.stateless:
            result = {"resultType": "complete", **result}
        sink.done(envelopes.encode(result))

    # --- the operator ---------------------------------------------------------------------------

    def _park(self, approval: Approval, key: _Key | None, sink: Sink, go: Go) -> Running | None:
        if len(self._waiting) >= MOST or self._bytes >= _MOST_BYTES:
            self.refuse(approval, "too many calls wait to be approved already", sink)
            return None
        who = _who(approval.call)
        if sum(_who(one.approval.call) == who for one in self._waiting.values()) >= _MOST_OF_ONE:
            self.refuse(approval, f"{_MOST_OF_ONE} calls of this caller wait to be approved already", sink)
            return None
        approval = approval._replace(id=self._new_id())
        waiting = self._waiting[approval.id] = _Asking(self, key, approval, sink, go)
        self._bytes += waiting.size
        how = f"muxway approvals allow {approval.id}"
        log.warning("a call waits to be approved", id=approval.id, name=cut(approval.name), rule=approval.rule, by=how)
        return waiting

    def _new_id(self) -> str:
        while (made := secrets.token_hex(3)) in self._waiting:
            pass
        return made

    def ended(self, one: _Asking) -> None:
        """It waits no more."""
        if self._waiting.pop(one.approval.id, None) is not None:
            self._bytes -= one.size

    def waiting(self) -> list[Approval]:
        """What waits for the operator, the oldest first."""
        return [one.approval for one in self._waiting.values()]

    def answer(self, id_: str, *, allow: bool, remember: float = 0.0) -> Approval:
        """What the operator says; with `remember`, a yes holds for so many seconds for calls like it.

        Raises:
            KeyError: nothing of this id waits any more.
        """
        one = self._waiting[id_]
        if allow:
            if remember and one.key is not None:
                self._agreed.put(one.key, True, remember)
            one.allow()
        else:
            one.deny("the operator of the gateway said no")
        return one.approval

    def forget(self, server: str | None) -> None:
        """A yes was for the tool that there was then. None: for all of them."""
        self._agreed.drop(lambda key: server is None or key[1] == server)

    def close(self) -> None:
        """The gateway stops."""
        for one in [*self._waiting.values()]:
            one.deny("the gateway stops")


def _who(call: Call) -> object:
    """Whose call it is; None: of somebody without credentials and without a session, who may be anybody."""
    return call.caller.principal or call.caller.party


def _name(target: Target, call: Call) -> str:
    if target.names:
        return target.names[0]
    return envelopes.text(call.params.get("name") or call.params.get("uri")) or ""


def _question(target: Target, approval: Approval) -> Params:
    arguments = approval.call.params.get("arguments")
    if approval.method == "tools/call":
        given: Any = {} if arguments is None else envelopes.value(arguments)
        return question(target.server, approval.name, given)
    verb = "read" if approval.method == "resources/read" else "used"
    what = "resource" if approval.method == "resources/read" else "prompt"
    of = f' of the server "{cut(target.server)}"' if target.server else ""
    message = f'Allow the {what} "{cut(approval.name)}"{of} to be {verb}?'
    return {"message": Raw(envelopes.encode(message)), "requestedSchema": YES_OR_NO}
