"""The rows between two steps: rows that continue, rows for sinks, and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from ..definition.checker import DEAD_LETTER_FIELDS
from ..definition.fields import Fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON_COLUMN: Final = "__reason"
DEAD_LETTER_HEADERS: Final = {name: f"recado.{name}" for name in ("pipeline", "step", "reason")}
"""Headers that carry these columns of a dead letter, because a message has no such columns."""
_ROUTING_COLUMNS: Final = ("exchange", "routing_key")


@dataclass(frozen=True)
class StepContext:
    """The step that is being applied, the lookup tables, and the watermarks of the pipeline."""

    pipeline: str
    label: str
    is_streaming: bool
    tables: Mapping[str, DataFrame] = field(default_factory=dict)
    watermarks: Mapping[str, str] = field(default_factory=dict)
    """The watermark delay of each time column that a step of this pipeline uses."""
    watermarked: set[str] = field(default_factory=set)
    """Time columns whose watermark is already set. Shared by the contexts of all steps of one traversal."""


@dataclass(frozen=True)
class Flow:
    """The output of the steps so far."""

    rows: DataFrame
    sent: tuple[tuple[str, DataFrame], ...] = ()
    dead_letters: tuple[DataFrame, ...] = ()
    after_batch: Callable[[Flow], Flow] | None = None
    """The rest of a stateful step, applied to each batch that the streaming query emits.

    A step sets it to divide its output into several DataFrames. Within the query, each of them would run the
    stateful operator again.
    """

    def with_rows(self, rows: DataFrame, *dead_letters: DataFrame | None) -> Flow:
        """Return the flow with other rows, and with these dead letters added."""
        more = tuple(each for each in dead_letters if each is not None)
        return replace(self, rows=rows, dead_letters=(*self.dead_letters, *more))

    def send_to(self, sink: str, rows: DataFrame) -> Flow:
        """Return the flow with these rows added for a sink."""
        return replace(self, sent=(*self.sent, (sink, rows)))


def fields_of_rows(rows: DataFrame) -> Fields:
    return Fields(dict(rows.dtypes))


def quote_name(name: str) -> str:
    """Quote a column name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def columns(names: Iterable[str]) -> list[Column]:
    """Return columns by their exact names: a dot is part of the name."""
    return [f.col(quote_name(name)) for name in names]


def make_dead_letters(context: StepContext, rows: DataFrame, reason: str = "") -> DataFrame:
    """Return dead letters of rows that a step could not process.

    A dead letter has the row as the step received it, and the columns of a message that can be published
    again, with headers that say where and why it failed. The reason is the same for all rows, or in the
    column `REASON_COLUMN`.
    """
    fields = fields_of_rows(rows).drop([REASON_COLUMN])
    row = f.to_json(f.struct(*columns(fields.types)))
    reason_column = f.lit(reason) if reason else f.col(REASON_COLUMN)
    values = {
        "pipeline": f.lit(context.pipeline),
        "step": f.lit(context.label),
        "reason": reason_column,
        "row": row,
        "at": f.current_timestamp(),
        "message_id": f.coalesce(*message_id_columns(fields), f.sha2(row, 256)),
        "body": row.cast("binary"),
    }
    for name in _ROUTING_COLUMNS:
        if fields.type_of(name) == "string":
            values[name] = f.col(name)
    headers = f.create_map(
        *(part for name, key in DEAD_LETTER_HEADERS.items() for part in (f.lit(key), values[name]))
    )
    values["headers"] = headers
    if fields.type_of("headers") == "map<string,string>":
        # A row that was a dead letter before already has these headers, and Spark rejects duplicate keys.
        given = f.coalesce("headers", f.create_map().cast("map<string,string>"))
        own = f.map_filter(given, lambda key, _: ~key.isin(*DEAD_LETTER_HEADERS.values()))
        values["headers"] = f.map_concat(own, headers)
    if fields.type_of("body") in ("binary", "string"):
        values["body"] = f.coalesce(f.col("body").cast("binary"), values["body"])
    return rows.select(
        *(
            values.get(name, f.lit(None)).cast(kind or "string").alias(name)
            for name, kind in DEAD_LETTER_FIELDS.types.items()
        )
    )


def message_id_columns(fields: Fields) -> list[Column]:
    """Return columns that identify a message, the best first."""
    found = []
    if "message_id" in fields:
        found.append(f.col("message_id").cast("string"))
    if "publisher" in fields and "sequence" in fields:
        found.append(f.concat_ws(":", f.col("publisher"), f.col("sequence").cast("string")))
    return found
