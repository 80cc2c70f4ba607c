"""What must become of each fault: the bars of the suite, as data.

The faults themselves are in `muxway.testing.faulty`, which says what each one does. A bar has a figure for everything
that a client can see; the tests only compare.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

CALL_TIMEOUT = 2.0
CALL_MAX = 5.0
SETTINGS = {
    "callTimeout": CALL_TIMEOUT,
    "callMax": CALL_MAX,
    "listTimeout": 2,
    "maxMessageBytes": 2 * 1024 * 1024,
    "maxTools": 3000,
}
"""Short and small, so that silence takes seconds and too much is soon there."""
WITNESS_RATE = 20
WITNESS_STALL = 0.5
"""The longest that a call to a healthy server may take while all others misbehave."""
TURN = 0.05
"""Seconds of processor time that one turn of the loop may take, with lists of thousands of tools."""
MEMORY = 150
"""MB that the gateway may need at its peak beyond what it had before the faults."""
MOST_LISTS = 5
"""Times a list may be fetched because a server said 2,000 times that it has changed."""


@dataclass(frozen=True)
class Bar:
    """What must become of a call that meets a fault, and of its server."""

    outcome: Literal["answered", "failed", "settled"]
    """`settled`: answered or failed, as long as it is one of them."""
    within: float
    """Seconds until then."""
    reasons: tuple[str, ...] = ()
    """How the gateway may name the failure; nothing: not asked."""
    says: tuple[str, ...] = ()
    """What the message of the failure must have in it."""
    sibling: Literal["answered", "settled"] = "answered"
    """What must become of another call to the same server meanwhile."""
    back: float = 1.0
    """Seconds from the outcome until calls to that server succeed again."""
    life: Literal["same", "new", "remote"] = "same"
    """Whether that is the same process, one that was started for it (exactly one), or no process of ours at all."""
    told: bool = False
    """Whether the server must be told that nobody waits any more."""
    patience: float = CALL_TIMEOUT
    """Seconds after which a silent call to this server is given up."""
    later: Literal["answered", "settled"] = "answered"
    """What must become of further calls when it is back."""


DIES = Bar("failed", 1.0, ("lost",), sibling="settled", back=3.0, life="new")
"""A server that ends fails its call at once, and is started again, once."""
ENDS_AFTER = Bar("answered", 1.0, sibling="settled", back=3.0, life="new")
SILENT = Bar("failed", CALL_TIMEOUT + 1, ("timeout",), told=True)
"""A call without an answer is given up in time; other calls to the server go on."""
FROZEN = Bar("failed", CALL_TIMEOUT + 1, ("timeout",), sibling="settled", back=12.0, life="new")
"""A server that answers nothing at all is found out and replaced."""
POLLUTED = Bar("answered", 1.0)
"""Junk beside a good answer costs nothing."""
MALFORMED = Bar("failed", 1.0, ("malformed",))
"""An answer that cannot be used fails its call at once."""
DOUBTFUL = Bar("settled", 1.0)
"""An answer that may be repaired or refused, but not ignored."""
LOST_ID = Bar("settled", CALL_TIMEOUT + 1)
"""Nothing in the answer says whose it is: the clock decides at the latest."""
BIG = Bar("failed", 5.0, ("too_large", "timeout"), sibling="settled", back=3.0)
FLOOD = Bar("answered", 5.0, back=5.0, patience=20.0)
ASKS = Bar("answered", 2.0)
SLOW = Bar("answered", 4.0)

CALLS = {
    "exits": replace(DIES, says=("status 3", "panic: out of luck")),
    "exits-in-mid-line": replace(DIES, says=("status 3",)),
    "killed": replace(DIES, says=("SIGKILL",)),
    "forks-then-exits": replace(DIES, says=("status 3",)),
    "closes-stdout": DIES,
    "closes-stdin": replace(DIES, within=CALL_TIMEOUT + 1, reasons=("lost", "timeout")),
    "answers-then-exits": ENDS_AFTER,
    "answers-then-closes-stdin": ENDS_AFTER,
    "list-then-exit": ENDS_AFTER,
    "freezes": FROZEN,
    "stops": FROZEN,
    "never-answers": SILENT,
    "never-answers-and-refuses-pings": SILENT,
    "answers-late": SILENT,
    "answers-when-cancelled": SILENT,
    "scalar": SILENT,
    "other-id": SILENT,
    "progresses-for-ever": replace(SILENT, within=CALL_MAX + 1, says=("callMax",)),
    "no-end-of-line": POLLUTED,
    "prints": POLLUTED,
    "prints-much": replace(POLLUTED, within=5.0),
    "prints-json": POLLUTED,
    "prints-colour": POLLUTED,
    "prints-latin-1": POLLUTED,
    "prints-nul": POLLUTED,
    "prints-unended": POLLUTED,
    "byte-order-mark": POLLUTED,
    "cr-lf": POLLUTED,
    "dribbles": POLLUTED,
    "line-separators": POLLUTED,
    "methodless": POLLUTED,
    "odd-methods": POLLUTED,
    "odd-params": POLLUTED,
    "progresses-after-answer": POLLUTED,
    "answers-twice": POLLUTED,
    "answers-before-asked": POLLUTED,
    "cut-off": MALFORMED,
    "neither": MALFORMED,
    "result-null": MALFORMED,
    "result-array": MALFORMED,
    "result-text": MALFORMED,
    "error-text": MALFORMED,
    "error-null": MALFORMED,
    "error-codeless": MALFORMED,
    "error-code-text": MALFORMED,
    "huge-number": MALFORMED,
    "no-version": DOUBTFUL,
    "old-version": DOUBTFUL,
    "result-and-error": DOUBTFUL,
    "result-empty": DOUBTFUL,
    "content-unknown": DOUBTFUL,
    "content-wrong": DOUBTFUL,
    "id-text": POLLUTED,
    "id-twice": DOUBTFUL,
    "id-null": LOST_ID,
    "id-float": LOST_ID,
    "id-array": LOST_ID,
    "batch": DOUBTFUL,
    "not-a-number": DOUBTFUL,
    "half-a-character": DOUBTFUL,
    "latin-1": DOUBTFUL,
    "deep": DOUBTFUL,
    "big": BIG,
    "line-without-end": replace(BIG, back=12.0),
    "tiny-frames": FLOOD,
    "logs-much": FLOOD,
    "progresses-much": FLOOD,
    "list-changes": FLOOD,
    "list-then-silence": POLLUTED,
    "list-then-error": POLLUTED,
    "list-then-object": POLLUTED,
    "list-then-endless": POLLUTED,
    "unknown-notices": FLOOD,
    "stderr-flood": FLOOD,
    "stderr-without-lines": FLOOD,
    "pings-much": FLOOD,
    "pings": ASKS,
    "asks-the-unknown": ASKS,
    "asks-the-undeclared": ASKS,
    "slow": SLOW,
    "slow-with-progress": SLOW,
    "grandchild": POLLUTED,
    "daemon": POLLUTED,
    "tells-what-it-has": POLLUTED,
}
"""Every fault of a call → its bar, the slowest first: they wait while the others run."""

_BREAKS = Bar("failed", 1.0, ("lost", "malformed", "too_large", "overloaded"), life="remote")
_STALLS = Bar("failed", CALL_TIMEOUT + 1, ("timeout",), life="remote")
_ODD = Bar("answered", 1.0, life="remote")
_UNCLEAR = Bar("settled", 1.0, life="remote")

REMOTE_CALLS = {
    "stalls-before-headers": _STALLS,
    "stalls-after-headers": _STALLS,
    "drips": _STALLS,
    "only-comments": _STALLS,
    "away-for-a-second": replace(_BREAKS, sibling="settled", back=5.0),
    "resets": _BREAKS,
    "resets-in-mid-body": _BREAKS,
    "closes": _BREAKS,
    "not-http": _BREAKS,
    "cut-chunk": _BREAKS,
    "bad-chunk": _BREAKS,
    "two-lengths": _BREAKS,
    "huge-header": _BREAKS,
    "status-500": replace(_BREAKS, says=("500",)),
    "status-502": replace(_BREAKS, says=("502",)),
    "status-503": replace(_BREAKS, says=("503",)),
    "status-429": replace(_BREAKS, says=("429",)),
    "status-401": replace(_BREAKS, says=("401",)),
    "status-204": _BREAKS,
    "accepts-only": _BREAKS,
    "session-gone": replace(_UNCLEAR, sibling="settled", back=3.0),
    "login-page": _BREAKS,
    "no-content-type": _UNCLEAR,
    "empty-body": _BREAKS,
    "gzip-bomb": replace(_BREAKS, within=5.0),
    "endless-body": replace(_BREAKS, within=5.0),
    "endless-event": replace(_BREAKS, within=5.0),
    "events-end-early": _BREAKS,
    "redirect-elsewhere": _BREAKS,
    "other-id": _BREAKS,
    "other-id-first": _ODD,
    "answers-twice": _ODD,
    "junk-events": _ODD,
    "unreadable-event": _UNCLEAR,
    "cr-only-events": _ODD,
    "batch": _UNCLEAR,
    "http-1-0": _ODD,
    "early-hints": _UNCLEAR,
    # A request on a connection that is being closed may have arrived, so it is not sent again.
    "closes-after-each": replace(_UNCLEAR, sibling="settled", later="settled"),
}
"""Every fault of a call to a server by URL → its bar."""

_ENDS = replace(_BREAKS, sibling="settled", back=3.0)

STREAM_CALLS = {
    "stream-silent": _STALLS,
    "stream-other-id": _STALLS,
    "stream-ends": _ENDS,
    "stream-resets": _ENDS,
    "stream-endless-event": replace(_ENDS, within=5.0, reasons=("lost", "too_large", "timeout")),
    "stream-answers-twice": _ODD,
    "stream-answers-first": _ODD,
    "stream-junk": _ODD,
    "post-refused": replace(_BREAKS, says=("500",)),
    "post-reset": _BREAKS,
}
"""The same for servers that speak HTTP+SSE, which only those of the handshake era do."""


@dataclass(frozen=True)
class Start:
    """What must become of a server that starts like this."""

    ready: bool
    """Whether it can be used in the end."""
    within: float
    """Seconds until that is so, or until a call says why not."""
    says: tuple[str, ...] = ()
    """What the failure of a call must say."""
    stateless_says: tuple[str, ...] | None = None
    """The same for a server of the stateless era, where that is something else."""


BETA_READY = 2.0
"""Seconds from the start of the gateway until a healthy server can be used, whatever the others do."""
START_TIMEOUT = 4.0
MOST_STARTS = 8
"""Starts in the first minute of a server that always fails."""
MOST_PAGES = 100

_READY = Start(ready=True, within=5.0)
_LATER = Start(ready=True, within=10.0)
_FAILS = Start(ready=False, within=START_TIMEOUT + 1)
_TOO_LATE = replace(_FAILS, says=("startTimeout",))

STARTS = {
    "well": _READY,
    "exit": replace(_FAILS, says=("status 2", "the key is missing")),
    "exit-twice": _LATER,
    "slow": _READY,
    "very-slow": _LATER,
    "silence": _TOO_LATE,
    "deaf": _FAILS,
    "mute": _FAILS,
    "buffered": _TOO_LATE,
    "banner": _READY,
    "banner-unended": _READY,
    "junk-only": _TOO_LATE,
    "forked": replace(_FAILS, says=("status 0",)),
    "hello-error": replace(_FAILS, says=("the licence has expired",)),
    "hello-empty": _FAILS,
    "hello-ancient": replace(_FAILS, says=("1999-12-31",)),
    "hello-number": replace(_FAILS, says=("7",)),
    "hello-twice": _READY,
    "hello-other-id": _FAILS,
    "hello-asks": _READY,
    "hello-then-exit": replace(_FAILS, says=("status 4",)),
    "list-silence": _FAILS,
    "list-exit": replace(_FAILS, says=("status 5",)),
    "list-error": replace(_FAILS, says=("the list is lost",)),
    "list-object": _FAILS,
    "list-nulls": _READY,
    "list-circle": _READY,
    "list-endless": _LATER,
    "list-huge": _LATER,
    "list-empty-pages": _LATER,
    "list-new-each-start": _READY,
    "list-names": _READY,
    "list-bytes": _READY,
    "stderr": _LATER,
    "changes": _READY,
}
"""Every fault at the start → what must become of it."""
