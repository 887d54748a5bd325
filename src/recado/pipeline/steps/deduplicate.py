"""deduplicate: of rows with the same key, one.

A row without a key is a dead letter: nobody knows what it repeats.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from ..definition.step import Deduplicate
from .flow import Flow, Place, columns, dead_letters
from .watermark import watermarked


def deduplicated(step: Deduplicate, flow: Flow, place: Place) -> Flow:
    needed = [*step.by, *([step.time] if step.time and place.is_streaming else [])]
    unknown = reduce(or_, [column.isNull() for column in columns(needed)])
    reason = f"{' or '.join(needed)} is NULL: it cannot be told from others"
    dead = dead_letters(place, flow.rows.where(unknown), reason)
    rows = flow.rows.where(~unknown)
    if not place.is_streaming:
        return flow.on(rows.dropDuplicates(list(step.by)), dead)
    timed = watermarked(rows, step.time, place)
    return flow.on(timed.dropDuplicatesWithinWatermark(list(step.by)), dead)
