"""`limit`: how many requests may come, and how many may run at once."""

from __future__ import annotations

import re
from collections import OrderedDict
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from muxway.errors import RpcError
from muxway.middleware.engine.base import Middleware
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from muxway.middleware.engine.base import Outcome, Request

_RATE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*([smh])\s*")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_COUNTED: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
_KEPT: Final = 10_000
"""Counters at most, but for those of requests that run."""
_LOOKED_AT: Final = 8
_A_WHILE_MS: Final = 1000
"""When to come back for a free place: nobody knows when there will be one."""
_ROUNDING: Final = 1e-6
_TASK: Final = 24 * 3600.0
"""Seconds after which a task counts no more, if nobody says before that it is over."""
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


class _Counter:
    """What one caller, server or tool has used."""

    __slots__ = ("paid_until", "running")

    def __init__(self) -> None:
        self.running = 0
        self.paid_until = 0.0
        """When its bucket is full again. One number says as much as a level and the time it was taken at."""


def _of_caller(request: Request) -> Hashable:
    caller = request.call.caller
    # The party of a caller without a token is an object that should not be kept alive by a counter.
    return caller.principal or (0 if caller.party is None else id(caller.party))


def _of_tool(request: Request) -> Hashable:
    # The listed name: callers have several spellings for a tool, and may invent as many names as they like.
    return request.tool.get("name") or (request.method, request.server)


_KEYS: Final[dict[str, Callable[[Request], Hashable]]] = {
    "caller": _of_caller,
    "server": lambda request: request.server,
    "tool": _of_tool,
    "all": lambda _: None,
}
"""`per` → what is counted together."""


class Limit(Middleware):
    """Refuse calls that come too fast, or too many at once, with an error that says when to come back.

    Counts what goes to a server: tool calls, reads, prompts and completions. Lists, which muxway answers itself, are
    free. What comes by a view counts with the rest. A call that became a task runs until the task is over: one of the
    gateway's own until it ends, one of a 2026-07-28 server until `tasks/get` or `tasks/cancel` says so, or its `ttlMs`.

    Options:
        rate: calls in a time, such as "10/s", "100/m" or "1000/h".
        burst: calls that may come at once after a pause; by default the number in `rate`.
        concurrent: calls that may run at the same time.
        per: what is counted by itself: each `caller` (its token, else its session; callers that have neither count as
            one), `server`, `tool`, or `all` together. Default: caller.

    The error is -32603 with `data.muxway` = `{"reason": "limited", "retryAfterMs": …}`; the call did not run.

    Costs about 7 µs a call, and memory for the 10,000 callers, servers or tools that were seen last.
    """

    shared = True

    def __init__(
        self,
        *,
        rate: str | float | None = None,
        burst: int | None = None,
        concurrent: int | None = None,
        per: Literal["caller", "server", "tool", "all"] = "caller",
    ) -> None:
        if rate is None and concurrent is None:
            raise ValueError('give `rate`, such as "10/s", or `concurrent`, such as 5, or both')
        if concurrent is not None and concurrent < 1:
            raise ValueError("`concurrent` must be 1 or more")
        if burst is not None and (rate is None or burst < 1):
            raise ValueError("`burst` must be 1 or more, and goes with `rate`")
        if per not in _KEYS:
            raise ValueError(f"`per` must be one of {', '.join(_KEYS)}")
        if isinstance(rate, float | int):
            raise ValueError(f'`rate` must say in which time: write "{rate:g}/s", "{rate:g}/m" or "{rate:g}/h"')
        self._rate = rate or ""
        self._concurrent = concurrent
        self._per = per
        self._interval = 0.0
        self._ahead = 0.0
        """Seconds by which a bucket may be paid for in advance: its depth."""
        if rate is not None:
            count, seconds = _parsed(rate)
            self._interval = seconds / count
            self._ahead = ((burst or max(1, int(count))) - 1) * self._interval + _ROUNDING
        self._key = _KEYS[per]
        self._counters: OrderedDict[Hashable, _Counter] = OrderedDict()
        self._tasks: dict[str, tuple[_Counter, float]] = {}
        """Calls that became tasks: where each counts, and until when if nobody says that it is over."""

    def before(self, request: Request) -> None:
        """Count it in, or refuse it."""
        if request.call.method not in _COUNTED:
            return
        key = self._key(request)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._add(key)
        else:
            self._counters.move_to_end(key)
        if self._concurrent is not None and counter.running >= self._concurrent:
            self._end_old_tasks()
        if self._concurrent is not None and counter.running >= self._concurrent:
            raise self._refusal(f"{self._concurrent} at once", _A_WHILE_MS)
        if self._interval:
            now = monotonic()
            paid_until = counter.paid_until
            if paid_until < now:
                paid_until = now
            early = paid_until - now - self._ahead
            if early > 0:
                raise self._refusal(self._rate.strip(), max(1, ceil(early * 1000)))
            counter.paid_until = paid_until + self._interval
        counter.running += 1

    def after(self, request: Request, outcome: Outcome) -> None:
        """Count it out; a task, when that is over."""
        call = request.call
        if call.method in _COUNTED:
            # It is there: counters of requests that run are not forgotten.
            counter = self._counters[self._key(request)]
            task = outcome.task if self._concurrent is not None and call.caller.revision.stateless else None
            if task is None:
                counter.running -= 1
            else:
                self._tasks[task] = (counter, monotonic() + _lifetime(outcome))
        elif self._tasks and call.method in ("tasks/get", "tasks/cancel") and _shows_end(call.method, outcome):
            self.task_ended(envelopes.text(call.params.get("taskId")) or "")

    def task_ended(self, name: str) -> None:
        """Count it out."""
        counter, _ = self._tasks.pop(name, (None, 0.0))
        if counter is not None:
            counter.running -= 1

    def _end_old_tasks(self) -> None:
        """Count out tasks that nobody asked after until their servers forgot them."""
        now = monotonic()
        for name in [name for name, (_, expires) in self._tasks.items() if expires <= now]:
            self.task_ended(name)

    def _add(self, key: Hashable) -> _Counter:
        if len(self._counters) >= _KEPT:
            self._forget_one()
        counter = self._counters[key] = _Counter()
        return counter

    def _forget_one(self) -> None:
        for _ in range(_LOOKED_AT):
            key, oldest = self._counters.popitem(last=False)
            if not oldest.running:
                return
            self._counters[key] = oldest

    def _refusal(self, limit: str, retry_after_ms: int) -> RpcError:
        whom = {"caller": "this caller", "server": "this server", "tool": "this tool", "all": "all callers together"}
        message = f"too many calls: the limit for {whom[self._per]} is {limit}; try again in {retry_after_ms} ms"
        return RpcError(message, data={"muxway": {"reason": "limited", "retryAfterMs": retry_after_ms}})


def _lifetime(outcome: Outcome) -> float:
    """Seconds for which a task is known, as its server says."""
    told = None if outcome.result is None else envelopes.number(outcome.result.mark("ttlMs"))
    return _TASK if told is None else min(max(told / 1000, 0.0), _TASK)


def _shows_end(method: str, outcome: Outcome) -> bool:
    result = outcome.result
    if result is None:
        return False
    return method == "tasks/cancel" or envelopes.text(result.mark("status")) in _ENDED


def _parsed(rate: str) -> tuple[float, float]:
    match = _RATE.fullmatch(rate)
    count = float(match[1]) if match is not None else 0.0
    if match is None or not 0 < count <= 1_000_000:
        raise ValueError('`rate` must be a number of calls in a second, minute or hour: "10/s", "100/m" or "1000/h"')
    return count, _UNITS[match[2]]
