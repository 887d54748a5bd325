"""deduplicate: pass one of the rows with the same key, and drop the others.

A row whose key is NULL becomes a dead letter, because it cannot be compared with other rows; in a stream also a
row whose time is NULL.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from ..definition.step import DeduplicateStep
from .flow import Flow, StepContext, columns, make_dead_letters
from .watermark import set_watermark


def apply_deduplicate(step: DeduplicateStep, flow: Flow, context: StepContext) -> Flow:
    needed = [*step.by, *([step.time] if step.time and context.is_streaming else [])]
    unknown = reduce(or_, [column.isNull() for column in columns(needed)])
    reason = f"{' or '.join(needed)} is NULL: the row cannot be compared"
    dead = make_dead_letters(context, flow.rows.where(unknown), reason)
    rows = flow.rows.where(~unknown)
    if not context.is_streaming:
        return flow.with_rows(rows.dropDuplicates(list(step.by)), dead)
    timed = set_watermark(rows, step.time, context)
    return flow.with_rows(timed.dropDuplicatesWithinWatermark(list(step.by)), dead)
