"""The watermarks of a stream: how long it waits for late rows.

Spark allows one watermark per time column. So it has the longest delay of all steps that use the column, and
the first of these steps sets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..definition.duration import parse_duration
from ..definition.pipeline import Pipeline
from ..definition.step import AggregateStep, DeduplicateStep
from .flow import StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def to_seconds(duration: str) -> float:
    """Convert a duration that the checker has accepted."""
    seconds = parse_duration(duration)
    assert seconds is not None
    return seconds


def watermark_delays(pipeline: Pipeline) -> dict[str, str]:
    """Return the longest delay for each time column."""
    delays: dict[str, str] = {}
    for step in pipeline.steps:
        match step:
            case AggregateStep(time=time, late=delay) | DeduplicateStep(time=time, within=delay):
                if time and delay and to_seconds(delay) > to_seconds(delays.get(time, "0 seconds")):
                    delays[time] = delay
            case _:
                pass
    return delays


def set_watermark(rows: DataFrame, time: str, context: StepContext) -> DataFrame:
    """Set the watermark of a time column, unless an earlier step has set it."""
    delay = context.watermarks.get(time)
    if not context.is_streaming or delay is None or time in context.watermarked:
        return rows
    context.watermarked.add(time)
    return rows.withWatermark(time, delay)
