"""aggregate: one row for each key, or for each key and window of time.

In a stream a window is given out once, when no row of it is expected any more: `late` after its end, by the
times of the rows. What comes later still belongs to no window; Spark counts it, and the report tells the
number.
"""

from __future__ import annotations

from pyspark.sql import functions as f

from ..definition.following import WINDOW
from ..definition.step import Aggregate
from .flow import Flow, Place, columns, dead_letters, quoted
from .watermark import watermarked


def aggregated(step: Aggregate, flow: Flow, place: Place) -> Flow:
    rows = flow.rows
    measures = [f.expr(sql).alias(name) for name, sql in step.measures.items()]
    if not step.window:
        return flow.on(rows.groupBy(*columns(step.by)).agg(*measures))
    time = f.col(quoted(step.time))
    timeless = None
    if (
        step.time not in place.watermarked
    ):  # else the step that set it let no row without a time pass
        timeless = dead_letters(
            place, rows.where(time.isNull()), f"{step.time} is NULL: in no window"
        )
    timed = watermarked(rows.where(time.isNotNull()), step.time, place)
    window = f.window(time, step.window, step.slide or None).alias("__window")
    found = timed.groupBy(window, *columns(step.by)).agg(*measures)
    bounds = [
        f.col(f"__window.{side}").alias(name)
        for side, name in zip(("start", "end"), WINDOW, strict=True)
    ]
    return flow.on(found.select(*bounds, *columns([*step.by, *step.measures])), timeless)
