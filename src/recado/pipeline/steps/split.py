"""split: a row for each element of an array.

The parts of a message have ids of their own, made of its id and their place: else a broker that knows the id
would take the second part for a repeat of the first.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import functions as f

from ..definition.fields import element, members
from ..definition.step import Split
from .flow import Flow, Place, dead_letters, fields_of, known_ids, quoted

_INDEX: Final = "__index"
_ELEMENT: Final = "__element"


def split(step: Split, flow: Flow, place: Place) -> Flow:
    rows = flow.rows
    fields = fields_of(rows)
    array = f.col(quoted(step.column))
    explode = f.posexplode_outer if step.empty == "keep" else f.posexplode
    parts = rows.select("*", explode(array).alias(_INDEX, _ELEMENT))
    inside = members(element(fields.type_of(step.column)))
    if inside:
        parts = parts.drop(step.column).withColumns(
            {name: f.col(f"{_ELEMENT}.{quoted(name)}") for name in inside}
        )
    else:
        parts = parts.withColumn(step.column, f.col(_ELEMENT))
    if ids := known_ids(fields):
        part_of = f.concat(f.coalesce(*ids), f.lit("#"), f.col(_INDEX).cast("string"))
        parts = parts.withColumn("message_id", f.coalesce(part_of, *ids))
    if step.index:
        parts = parts.withColumn(step.index, f.col(_INDEX))
    parts = parts.drop(_INDEX, _ELEMENT)
    if step.empty != "dead_letter":
        return flow.on(parts)
    nothing = rows.where(array.isNull() | (f.size(array) == 0))
    return flow.on(parts, dead_letters(place, nothing, f"{step.column} has nothing in it"))
