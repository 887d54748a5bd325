"""split: one row for each element of an array.

The parts of a message get ids of their own, made of its id and their index. Otherwise a broker with
deduplication would drop the second part as a duplicate of the first.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import functions as f

from ..definition.fields import array_element_type, struct_members
from ..definition.step import SplitStep
from .flow import (
    Flow,
    StepContext,
    fields_of_rows,
    make_dead_letters,
    message_id_columns,
    quote_name,
)

_INDEX_COLUMN: Final = "__index"
_ELEMENT_COLUMN: Final = "__element"


def apply_split(step: SplitStep, flow: Flow, context: StepContext) -> Flow:
    rows = flow.rows
    fields = fields_of_rows(rows)
    array = f.col(quote_name(step.column))
    explode = f.posexplode_outer if step.empty == "keep" else f.posexplode
    parts = rows.select("*", explode(array).alias(_INDEX_COLUMN, _ELEMENT_COLUMN))
    inside = struct_members(array_element_type(fields.type_of(step.column)))
    if inside:
        parts = parts.drop(step.column).withColumns(
            {name: f.col(f"{_ELEMENT_COLUMN}.{quote_name(name)}") for name in inside}
        )
    else:
        parts = parts.withColumn(step.column, f.col(_ELEMENT_COLUMN))
    if ids := message_id_columns(fields):
        part_of = f.concat(f.coalesce(*ids), f.lit("#"), f.col(_INDEX_COLUMN).cast("string"))
        parts = parts.withColumn("message_id", f.coalesce(part_of, *ids))
    if step.index:
        parts = parts.withColumn(step.index, f.col(_INDEX_COLUMN))
    parts = parts.drop(_INDEX_COLUMN, _ELEMENT_COLUMN)
    if step.empty != "dead_letter":
        return flow.with_rows(parts)
    empty = rows.where(array.isNull() | (f.size(array) == 0))
    return flow.with_rows(parts, make_dead_letters(context, empty, f"{step.column} is empty"))
