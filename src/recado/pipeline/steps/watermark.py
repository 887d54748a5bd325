"""How long a stream remembers: one watermark for each column of time, whichever steps look at it.

Spark takes only one. So it is that of the most patient step, and set by the first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..definition.pipeline import Pipeline
from ..definition.step import AggregateStep, DeduplicateStep
from .flow import StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNIT_SECONDS: Final = {
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1, "minute": 60, "hour": 3600, "day": 86_400,
    "week": 604_800,
}  # fmt: skip


def seconds(duration: str) -> float:
    """`10 minutes`, which was checked to be one."""
    found = re.fullmatch(r"\s*([\d.]+)\s*(\w+?)s?\s*", duration)
    assert found
    return float(found[1]) * _UNIT_SECONDS[found[2].lower()]


def watermark_delays(pipeline: Pipeline) -> dict[str, str]:
    """The longest patience with each column of time."""
    found: dict[str, str] = {}
    for step in pipeline.steps:
        match step:
            case AggregateStep(time=time, late=delay) | DeduplicateStep(time=time, within=delay):
                if time and delay and seconds(delay) > seconds(found.get(time, "0 seconds")):
                    found[time] = delay
            case _:
                pass
    return found


def set_watermark(rows: DataFrame, time: str, context: StepContext) -> DataFrame:
    """With the watermark of that column, unless a step before this has set it."""
    delay = context.watermarks.get(time)
    if not context.is_streaming or delay is None or time in context.watermarked:
        return rows
    context.watermarked.add(time)
    return rows.withWatermark(time, delay)
