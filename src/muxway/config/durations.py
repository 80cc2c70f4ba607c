"""Durations as people write them: a number of seconds, or text with a unit, as `500ms`, `30s`, `5m`, `1h`.

The only reader of durations, for config files, for options of the command and for those of middlewares.
"""

from __future__ import annotations

import math
import re
from typing import Final

UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LIKE: Final = 'a number of seconds or text like "30s", "500ms", "2m", "1h"'
_DURATION: Final = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(ms|s|m|h)?\s*", re.IGNORECASE)


def read(text: str) -> tuple[float, str] | None:
    """The number and its unit, which is empty if none is written; None if it is no duration."""
    match = _DURATION.fullmatch(text)
    return None if match is None else (float(match[1]), (match[2] or "").lower())


def seconds(given: float | str) -> float:
    """How many seconds that is; NaN, which no comparison lets pass, if it is no duration."""
    if not isinstance(given, str):
        return float(given)
    found = read(given)
    return math.nan if found is None else found[0] * UNITS[found[1] or "s"]
