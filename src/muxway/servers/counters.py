"""What has happened at one server, whichever connection it was on.

Written to for every call, so it is counters and two lists; whoever shows the figures does the arithmetic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from math import ceil
from typing import Final

_SHORTEST: Final = 1e-5
"""Seconds: what is quicker than this counts as taking this long."""
_WIDTH: Final = 1.05
"""How much longer the calls of one bucket may take than those of the bucket before."""
_BUCKETS: Final = 400
"""The last one holds whatever takes longer than 50 minutes."""
_BOUNDS: Final = tuple(_SHORTEST * _WIDTH**bucket for bucket in range(1, _BUCKETS))
"""Seconds that are too many for each bucket but the last."""


class ServerCounters:
    """The counters of one server. They last, while its connections come and go."""

    __slots__ = (
        "buckets",
        "calls",
        "cancelled",
        "dropped",
        "failed",
        "junk",
        "refused",
        "said",
        "timeouts",
        "took",
    )

    def __init__(self) -> None:
        self.calls = 0
        """Calls that were sent and are over, whatever became of them."""
        self.said = 0
        """Of these: answered with an error of the server's own."""
        self.failed = 0
        """Of these: not answered, or not in a way that can be read; time-outs among them."""
        self.timeouts = 0
        """Of these: given up because no answer came in time."""
        self.cancelled = 0
        """Of these: given up by their callers."""
        self.refused = 0
        """Calls that were never sent, because the server had its hands full."""
        self.dropped = 0
        """Answers and notices for nothing that is open: late, repeated or invented."""
        self.junk = 0
        """Lines that were no messages, and answers that were none."""
        self.took: list[float] = []
        """Seconds that the latest answered calls took. They are put into buckets many at a time, which is quicker."""
        self.buckets = [0] * _BUCKETS
        """How many of the others took how long; each bucket is for times 5 % longer than the one before."""

    @property
    def errors(self) -> int:
        """Calls that ended with an error, the server's own or one of ours."""
        return self.said + self.failed

    def sort_in(self) -> None:
        """Put what the latest calls took into the buckets."""
        # Event loops count in milliseconds: few of them differ.
        for seconds, calls in Counter(self.took).items():
            self.buckets[bisect_right(_BOUNDS, seconds)] += calls
        self.took.clear()

    def quantile(self, q: float) -> float | None:
        """Seconds within which this part (0 to 1) of the calls was answered, up to 5 % too many; None without calls."""
        self.sort_in()
        total = sum(self.buckets)
        if not total:
            return None
        rank = min(max(ceil(q * total), 1), total)
        upto = accumulate(self.buckets)
        return _SHORTEST * _WIDTH ** (1 + next(bucket for bucket, count in enumerate(upto) if count >= rank))
