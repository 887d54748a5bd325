"""Durations in options, such as `10 minutes`, in Spark's notation."""

from __future__ import annotations

import re
from typing import Final

# As Spark parses it: only seconds may have a fraction.
_DURATION_PATTERN: Final = re.compile(
    r"(?P<whole>\d+) *(?P<unit>microsecond|millisecond|second|minute|hour|day|week)s?"
    r"|(?P<seconds>\d+\.\d+) *seconds?",
    re.IGNORECASE,
)
_UNIT_SECONDS: Final = {
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0,
    "week": 604_800.0,
}  # fmt: skip
_DURATION_MAX_S: Final = 9e12  # Spark stores microseconds in 64 bits


def parse_duration(text: str) -> float | None:
    """Return a duration such as `10 minutes` in seconds; None if it is invalid or exceeds Spark's range."""
    found = _DURATION_PATTERN.fullmatch(text.strip())
    if found is None:
        return None
    number = float(found["whole"] or found["seconds"])
    seconds = number * _UNIT_SECONDS[(found["unit"] or "second").lower()]
    return seconds if seconds <= _DURATION_MAX_S else None
