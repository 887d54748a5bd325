"""resequence: rows of each key in the order of a sequence number, without duplicates.

A batch has all its rows at once: they are sorted, and duplicate numbers become dead letters. A stream holds
rows that arrive early until the missing number arrives or `wait` is over; `ReorderBuffer` decides. The held
rows are in Spark's state and survive a restart.

Time advances only with batches: a gap is skipped in the first batch that starts at least `wait` after the gap
was found. With Spark's processing-time timeout instead, a stream with the trigger available-now would never
end.

The state function gets rows as pandas DataFrames, which have no NULL for numbers and support neither maps nor
structs. So each row is pickled to bytes before the state function, and unpickled after it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from ..definition.step import ResequenceStep
from .flow import Flow, StepContext, columns, make_dead_letters, quote_name
from .reorder_buffer import ReorderBuffer
from .watermark import to_seconds

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

_STATE_SCHEMA: Final = "expected long, held binary, since long"
_OUTPUT_SCHEMA: Final = "number long, packed binary, refused boolean"
_DUPLICATE_REASON: Final = "duplicate, or its number was skipped"
_REFUSED_COLUMN: Final = "__refused"


def apply_resequence(step: ResequenceStep, flow: Flow, context: StepContext) -> Flow:
    needed = columns([*step.by, step.sequence])
    has_null = reduce(or_, [column.isNull() for column in needed])
    without_key = make_dead_letters(
        context,
        flow.rows.where(has_null),
        f"{step.sequence} or its key is NULL: the row cannot be ordered",
    )
    rows = flow.rows.where(~has_null)
    marked = _mark_stream(step, rows) if context.is_streaming else _mark_batch(step, rows)
    if context.is_streaming:
        return replace(
            flow.with_rows(marked, without_key),
            after_batch=partial(_split_refused, context=context),
        )
    return _split_refused(flow.with_rows(marked, without_key), context)


def _split_refused(flow: Flow, context: StepContext) -> Flow:
    """Pass the rows in order; make dead letters of duplicates and of numbers that were skipped."""
    refused = flow.rows.where(_REFUSED_COLUMN).drop(_REFUSED_COLUMN)
    in_order = flow.rows.where(f"NOT {_REFUSED_COLUMN}").drop(_REFUSED_COLUMN)
    return flow.with_rows(in_order, make_dead_letters(context, refused, _DUPLICATE_REASON))


def _mark_batch(step: ResequenceStep, rows: DataFrame) -> DataFrame:
    """Return the rows of a batch in order, with a column that marks refused rows."""
    number = f.col(quote_name(step.sequence))
    copies = Window.partitionBy(*columns(step.by), number).orderBy(number)
    refused = (f.row_number().over(copies) > 1) | (number < step.start)
    keys = columns(step.by)
    marked = rows.withColumn(_REFUSED_COLUMN, refused)
    return marked.repartition(*keys).sortWithinPartitions(*keys, number)


def _mark_stream(step: ResequenceStep, rows: DataFrame) -> DataFrame:
    """Return the rows of a stream in order, with a column that marks refused rows."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.streaming.state import GroupStateTimeout

    schema = rows.schema
    arrow_type = to_arrow_type(schema, timezone="UTC")
    wait_ms = max(1, round(to_seconds(step.wait) * 1000))
    start = step.start

    def pack(whole: pa.Array) -> pa.Array:
        return pa.array([pickle.dumps(row) for row in whole.to_pylist()], pa.binary())

    def unpack(data: pa.Array) -> pa.Array:
        return pa.array([pickle.loads(each) for each in data.to_pylist()], arrow_type)

    def process_key(
        _: Any, arrived: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Process the new rows of one key, or its timeout. The watermark trails the clock by `wait`."""
        expected, held, since = state.get if state.exists else (start, None, None)
        buffer = ReorderBuffer[bytes](expected, dict(msgspec.msgpack.decode(held)) if held else {})
        watermark_ms = state.getCurrentWatermarkMs()
        is_overdue = since is not None and watermark_ms >= since
        ready = buffer.skip_gap() if state.hasTimedOut or is_overdue else []
        refused: list[tuple[int, bytes]] = []
        now_ms = watermark_ms + wait_ms
        for frame in arrived:
            if frame.empty:  # the call only reports a timeout
                continue
            now_ready, now_refused = buffer.add_rows(
                zip(frame["number"], frame["packed"], strict=True)
            )
            ready += now_ready
            refused += now_refused
            now_ms = max(now_ms, int(frame["seen"].max().timestamp() * 1000))
        if since is None or buffer.expected != expected:
            since = now_ms  # a different number is missing now
        encoded = msgspec.msgpack.encode(list(buffer.held.items())) if buffer.held else None
        state.update((buffer.expected, encoded, since if encoded else None))
        if encoded:
            state.setTimeoutTimestamp(max(since, watermark_ms + 1))
        yield from _to_pandas(ready, refused)

    # PySpark's stubs require the function type as well, but passing it causes a warning.
    packed = arrow_udf(pack, BinaryType())  # type: ignore[call-overload]
    unpacked = arrow_udf(unpack, schema)  # type: ignore[call-overload]
    keys = [f.col(quote_name(name)).alias(f"key_{at}") for at, name in enumerate(step.by)]
    number = f.col(quote_name(step.sequence)).cast("bigint").alias("number")
    whole = f.struct(*columns(rows.columns))
    seen = f.current_timestamp().alias("seen")
    return (
        rows.select(*keys, number, packed(whole).alias("packed"), seen)
        .withWatermark("seen", step.wait)
        .groupBy(*(f"key_{at}" for at in range(len(keys))))
        .applyInPandasWithState(
            process_key, _OUTPUT_SCHEMA, _STATE_SCHEMA, "append", GroupStateTimeout.EventTimeTimeout
        )
        .select(unpacked(f.col("packed")).alias("row"), "refused")
        .select("row.*", f.col("refused").alias(_REFUSED_COLUMN))
    )


def _to_pandas(
    ready: list[tuple[int, bytes]], refused: list[tuple[int, bytes]]
) -> Iterator[pd.DataFrame]:
    import pandas as pd

    if ready or refused:
        numbers, packed = zip(*ready, *refused, strict=True)
        yield pd.DataFrame(
            {
                "number": numbers,
                "packed": packed,
                "refused": [False] * len(ready) + [True] * len(refused),
            }
        )
