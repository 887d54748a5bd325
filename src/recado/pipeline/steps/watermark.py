"""How long a stream remembers: one watermark for each column of time, whichever steps look at it.

Spark takes only one. So it is that of the most patient step, and set by the first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..definition.pipeline import Pipeline
from ..definition.step import Aggregate, Deduplicate
from .flow import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SECONDS: Final = {
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1, "minute": 60, "hour": 3600, "day": 86_400,
    "week": 604_800,
}  # fmt: skip


def seconds(duration: str) -> float:
    """`10 minutes`, which was checked to be one."""
    found = re.fullmatch(r"\s*([\d.]+)\s*(\w+?)s?\s*", duration)
    assert found
    return float(found[1]) * _SECONDS[found[2].lower()]


def delays(pipeline: Pipeline) -> dict[str, str]:
    """The longest patience with each column of time."""
    found: dict[str, str] = {}
    for step in pipeline.steps:
        match step:
            case Aggregate(time=time, late=patience) | Deduplicate(time=time, within=patience):
                if time and patience and seconds(patience) > seconds(found.get(time, "0 seconds")):
                    found[time] = patience
            case _:
                pass
    return found


def watermarked(rows: DataFrame, time: str, place: Place) -> DataFrame:
    """With the watermark of that column, unless a step before this has set it."""
    delay = place.watermarks.get(time)
    if not place.is_streaming or delay is None or time in place.watermarked:
        return rows
    place.watermarked.add(time)
    return rows.withWatermark(time, delay)
