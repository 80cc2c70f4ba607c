"""What middleware takes out of the lists of a caller: that cannot be used, either.

Nothing is asked unless a middleware has a hook for a list. Then the list is made for a caller as if it had asked, and
what is missing from it is remembered for a while, or until the servers list something else.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.calls.call import Call
from muxway.calls.sinks import Nobody, Passing
from muxway.catalog.kinds import PROMPTS, RESOURCES, TOOLS
from muxway.errors import RpcError
from muxway.middleware.engine.base import HOOKS, Middleware
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from muxway.calls.call import Caller
    from muxway.calls.ports import Running, Sink
    from muxway.catalog.kinds import Kind
    from muxway.middleware.engine.running import Inside, Layer
    from muxway.routing.target import Target
    from muxway.wire.envelopes import Buffer, Raw

    Handle = Callable[[Call, Sink], Running | None]

_HOLDS: Final = 60.0
"""Seconds after which a list is made anew: a middleware may go by the time of day."""
_REMEMBERED: Final = 256
"""Callers, by what they say of themselves, whose lists are remembered."""
_MOST_PAGES: Final = 10_000


class _Seen(NamedTuple):
    of: Mapping[str, object]
    """What there was to be listed."""
    hidden: frozenset[str]
    until: float


class Hiding:
    """What callers of one chain do not get listed."""

    def __init__(self, layers: Sequence[Layer], handle: Handle, inside: Inside) -> None:
        """`handle` takes requests for lists, `inside` knows what there is to be listed."""
        self._handle = handle
        self._inside = inside
        self.all_of = inside.listed
        """What there is to be listed for a caller."""
        first = {
            kind: next((number for number, layer in enumerate(layers) if may_hide(layer.middleware, kind)), None)
            for kind in (TOOLS, PROMPTS, RESOURCES)
        }
        self.kinds = {kind: number for kind, number in first.items() if number is not None}
        """The lists that a middleware may take something out of, and which of the layers is the outermost that may."""
        self._seen: OrderedDict[tuple[object, ...], _Seen] = OrderedDict()

    def refusal(self, call: Call, target: Target) -> RpcError | None:
        """Why a request is not to be made; None if it is. KeyError: that is not known yet, see `look`."""
        kind = target.kind
        if kind is None or kind not in self.kinds or call.caller.depth or not target.names:
            return None
        seen = self._seen.get(_key(kind, call.caller))
        if seen is None or seen.of is not self.all_of(kind, call.caller) or seen.until < monotonic():
            raise KeyError(kind)
        name = target.names[-1] if target.chosen is not None else target.names[0]
        return self._inside.unknown(kind, _asked(call, target) or name, call.caller) if name in seen.hidden else None

    def hidden(self, kind: Kind, caller: Caller, settled: Callable[[Collection[str] | RpcError], None]) -> None:
        """Give what a caller does not get listed of a kind, or why nobody knows, to `settled`."""
        if kind not in self.kinds:
            settled(())
            return
        seen = self._seen.get(_key(kind, caller))
        everything = self.all_of(kind, caller)
        if seen is not None and seen.of is everything and seen.until >= monotonic():
            settled(seen.hidden)
            return
        self.look(kind, caller, lambda got: settled(got if isinstance(got, RpcError) else everything.keys() - got))

    def look(self, kind: Kind, caller: Caller, settled: Callable[[set[str] | RpcError], None]) -> None:
        """Make a list for a caller, and remember what is missing. `settled` takes what is there, or why nothing is."""
        _HidingLook(self, kind, caller, settled).turn(None)

    def ask(self, call: Call, sink: Sink) -> None:
        """Ask for one page of a list."""
        self._handle(call, sink)

    def note(self, kind: Kind, caller: Caller, listed: set[str], everything: Mapping[str, object]) -> None:
        """Of all that there was when the list was begun, a caller would get these."""
        self._seen[_key(kind, caller)] = _Seen(everything, frozenset(everything) - listed, monotonic() + _HOLDS)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


class _HidingLook(Passing):
    """One list, page by page. A `calls.ports.Sink`."""

    def __init__(
        self, hiding: Hiding, kind: Kind, caller: Caller, settled: Callable[[set[str] | RpcError], None]
    ) -> None:
        super().__init__(Nobody())
        self._hiding, self._kind, self._caller, self._settled = hiding, kind, caller, settled
        self._listed: set[str] = set()
        self._everything = hiding.all_of(kind, caller)
        self._pages = 0

    def turn(self, cursor: Raw | None) -> None:
        """Ask for a page."""
        self._pages += 1
        params = {} if cursor is None else {"cursor": cursor}
        self._hiding.ask(Call(self._caller, self._kind.method, params, everything=True), self)

    def done(self, *result: Buffer) -> None:
        fields = envelopes.members(b"".join(result)) or {}
        for item in envelopes.items(fields.get(self._kind.member, b"[]")) or ():
            name = envelopes.text((envelopes.members(item) or {}).get(self._kind.identity))
            if name is not None:
                self._listed.add(name)
        cursor = fields.get("nextCursor")
        if cursor is not None and not envelopes.is_null(cursor) and self._pages < _MOST_PAGES:
            self.turn(cursor)
            return
        self._hiding.note(self._kind, self._caller, self._listed, self._everything)
        self._settled(self._listed)

    def failed(self, error: RpcError) -> None:
        self._settled(error)


def may_hide(middleware: Middleware, kind: Kind) -> bool:
    """Whether what a middleware takes out of a list is hidden."""
    hook = HOOKS[kind.method]
    return middleware.hides and getattr(type(middleware), hook) is not getattr(Middleware, hook)


def _key(kind: Kind, caller: Caller) -> tuple[object, ...]:
    info, known = caller.client_info, caller.capabilities
    said = tuple(None if raw is None else bytes(raw) for raw in (info, known))
    return kind.name, caller.principal, caller.revision.date, said


def _asked(call: Call, target: Target) -> str | None:
    """The name that a request is for, as its caller wrote it: another spelling would say that there is such a thing."""
    params = call.params if target.call is None else target.call.params
    ref = envelopes.members(params.get("ref", b""))
    raw = target.spelled or (params if ref is None else ref).get("uri" if target.kind is RESOURCES else "name")
    return None if raw is None else envelopes.text(raw)
