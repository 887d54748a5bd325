"""split: a row for each element of an array.

The parts of a message have ids of their own, made of its id and their place: else a broker that knows the id
would take the second part for a repeat of the first.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from ..definition.fields import element, members
from ..definition.step import Split
from .flow import Flow, Place, dead_letters, fields_of, known_ids, quoted

_INDEX: Final = "__index"
_ELEMENT: Final = "__element"


def split(step: Split, flow: Flow, place: Place) -> Flow:
    rows = flow.rows
    fields = fields_of(rows)
    array = F.col(quoted(step.column))
    explode = F.posexplode_outer if step.empty == "keep" else F.posexplode
    parts = rows.select("*", explode(array).alias(_INDEX, _ELEMENT))
    inside = members(element(fields.type_of(step.column)))
    if inside:
        parts = parts.drop(step.column).withColumns(
            {name: F.col(f"{_ELEMENT}.{quoted(name)}") for name in inside}
        )
    else:
        parts = parts.withColumn(step.column, F.col(_ELEMENT))
    if ids := known_ids(fields):
        part_of = F.concat(F.coalesce(*ids), F.lit("#"), F.col(_INDEX).cast("string"))
        parts = parts.withColumn("message_id", F.coalesce(part_of, *ids))
    if step.index:
        parts = parts.withColumn(step.index, F.col(_INDEX))
    parts = parts.drop(_INDEX, _ELEMENT)
    if step.empty != "dead_letter":
        return flow.on(parts)
    nothing = rows.where(array.isNull() | (F.size(array) == 0))
    return flow.on(parts, dead_letters(place, nothing, f"{step.column} has nothing in it"))
