"""The watermarks of a stream: how long it waits for late rows.

Spark allows one watermark per time column. So it has the longest delay of all steps that use the column, and the first of these
steps sets it.
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
    """Return the longest delay for each time column."""
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
    """Set the watermark of a time column, unless an earlier step has set it."""
    delay = context.watermarks.get(time)
    if not context.is_streaming or delay is None or time in context.watermarked:
        return rows
    context.watermarked.add(time)
    return rows.withWatermark(time, delay)
