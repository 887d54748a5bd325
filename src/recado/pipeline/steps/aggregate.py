"""aggregate: one row per key, or per key and time window.

A stream emits a window once, when the watermark passes its end. The watermark is the latest time of any row minus
the option `late` of the step; if several steps use the same time column, minus the longest delay of these steps
(`watermark`). Spark drops rows that arrive even later and counts them; the report has the number.
"""

from __future__ import annotations

from pyspark.sql import functions as f

from ..definition.schema_inference import WINDOW_COLUMNS
from ..definition.step import AggregateStep
from .flow import Flow, StepContext, columns, make_dead_letters, quote_name
from .watermark import set_watermark


def apply_aggregate(step: AggregateStep, flow: Flow, context: StepContext) -> Flow:
    rows = flow.rows
    measures = [f.expr(sql).alias(name) for name, sql in step.measures.items()]
    if not step.window:
        return flow.with_rows(rows.groupBy(*columns(step.by)).agg(*measures))
    time = f.col(quote_name(step.time))
    without_time = None
    # Otherwise the step that set the watermark has removed rows without a time.
    if step.time not in context.watermarked:
        without_time = make_dead_letters(
            context, rows.where(time.isNull()), f"{step.time} is NULL: the row is in no window"
        )
    timed = set_watermark(rows.where(time.isNotNull()), step.time, context)
    window = f.window(time, step.window, step.slide or None).alias("__window")
    found = timed.groupBy(window, *columns(step.by)).agg(*measures)
    bounds = [
        f.col(f"__window.{side}").alias(name)
        for side, name in zip(("start", "end"), WINDOW_COLUMNS, strict=True)
    ]
    return flow.with_rows(found.select(*bounds, *columns([*step.by, *step.measures])), without_time)
