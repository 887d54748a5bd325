"""enrich: fields of a table, of the row in it that has the same key.

A table must have a key once, or rows would be doubled: that is looked at when the pipeline starts.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from ..definition.problems import PipelineError, Problem
from ..definition.step import Enrich
from .flow import Flow, Place, columns, dead_letters, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOUND: Final = "__found"


def enriched(step: Enrich, flow: Flow, place: Place) -> Flow:
    table = place.tables[step.table]
    lower = {name.lower() for name in step.on}
    brought = step.fields or tuple(name for name in table.columns if name.lower() not in lower)
    keys = {name: f"__key_{number}" for number, name in enumerate(step.on)}
    known = table.select(
        *(f.col(quoted(name)).alias(key) for name, key in keys.items()),
        *columns(brought),
        f.lit(True).alias(_FOUND),
    )
    same = [flow.rows[quoted(name)] == known[key] for name, key in keys.items()]
    joined = flow.rows.join(known, same, "left").drop(*keys.values())
    if step.missing == "keep":
        return flow.on(joined.drop(_FOUND))
    found = joined.where(f"{_FOUND} IS NOT NULL").drop(_FOUND)
    if step.missing == "drop":
        return flow.on(found)
    missing = joined.where(f"{_FOUND} IS NULL").select(*columns(flow.rows.columns))
    reason = f"{step.table} has no row with the same {', '.join(step.on)}"
    return flow.on(found, dead_letters(place, missing, reason))


def refuse_doubles(step: Enrich, table: DataFrame, pipeline: str, label: str) -> None:
    """Raises PipelineError if the table has a key twice. Rows without a key are like no other."""
    keyed = reduce(lambda rows, key: rows.where(key.isNotNull()), columns(step.on), table)
    counted = keyed.groupBy(*columns(step.on)).count().where("`count` > 1").limit(1).collect()
    for row in counted:
        key = ", ".join(f"{name} {row[name]!r}" for name in step.on)
        what = f"{step.table} has {row['count']} rows with {key}"
        raise PipelineError(pipeline, [Problem(label, what, "a row would be doubled")])
