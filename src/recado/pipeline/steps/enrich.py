"""enrich: add fields from the row of a lookup table that has the same key.

Keys must be unique in the table, or rows would be duplicated; this is checked when the pipeline starts.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from ..definition.problems import InvalidPipelineError, Problem
from ..definition.step import EnrichStep
from .flow import Flow, StepContext, columns, make_dead_letters, quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOUND_COLUMN: Final = "__found"


def apply_enrich(step: EnrichStep, flow: Flow, context: StepContext) -> Flow:
    table = context.tables[step.table]
    lower = {name.lower() for name in step.on}
    added = step.fields or tuple(name for name in table.columns if name.lower() not in lower)
    keys = {name: f"__key_{number}" for number, name in enumerate(step.on)}
    known = table.select(
        *(f.col(quote_name(name)).alias(key) for name, key in keys.items()),
        *columns(added),
        f.lit(True).alias(_FOUND_COLUMN),
    )
    same = [flow.rows[quote_name(name)] == known[key] for name, key in keys.items()]
    joined = flow.rows.join(known, same, "left").drop(*keys.values())
    if step.missing == "keep":
        return flow.with_rows(joined.drop(_FOUND_COLUMN))
    found = joined.where(f"{_FOUND_COLUMN} IS NOT NULL").drop(_FOUND_COLUMN)
    if step.missing == "drop":
        return flow.with_rows(found)
    missing = joined.where(f"{_FOUND_COLUMN} IS NULL").select(*columns(flow.rows.columns))
    reason = f"{step.table} has no row with the same {', '.join(step.on)}"
    return flow.with_rows(found, make_dead_letters(context, missing, reason))


def check_unique_keys(step: EnrichStep, table: DataFrame, pipeline: str, label: str) -> None:
    """Raise InvalidPipelineError if the table has a key twice. Rows with NULL in the key match nothing."""
    keyed = reduce(lambda rows, key: rows.where(key.isNotNull()), columns(step.on), table)
    counted = keyed.groupBy(*columns(step.on)).count().where("`count` > 1").limit(1).collect()
    for row in counted:
        key = ", ".join(f"{name} {row[name]!r}" for name in step.on)
        what = f"{step.table} has {row['count']} rows with {key}"
        raise InvalidPipelineError(pipeline, [Problem(label, what, "rows would be duplicated")])
