"""Bars from a feed of quotes: open, high, low, close and more of each symbol and second, or minute.

vwap         the volume-weighted average price: Σ price × size / Σ size
volatility   realised: √ Σ ln²(price / previous price), over the trades within the bar

Bars use the event time `at` of the market, not the time of publishing. Trades of one publisher at the same
time are ordered by their sequence, so every archive of the feed produces the same bars. A stream emits a bar
once, when the watermark passes its end: a trade that is more than `late` older than the newest one is left out
(Spark counts those: `numRowsDroppedByWatermark`), but included in the bars that a batch computes from the
archive.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from ..definition import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TICK_FIELDS: Final = {
    "kind": "string",
    "at": "long",
    "symbol": "string?",
    "price": "double?",
    "size": "long?",
}
BAR_FIELDS: Final = {
    "width": "string",
    "start": "timestamp",
    "end": "timestamp",
    "symbol": "string",
    "open": "double",
    "high": "double",
    "low": "double",
    "close": "double",
    "volume": "long",
    "trades": "long",
    "vwap": "double",
    "volatility": "double",
}
ONE_SECOND: Final = "1 second"
ONE_MINUTE: Final = "1 minute"
DEFAULT_LATENESS: Final = "10 seconds"
TRADE_VALUE_SQL: Final = (
    "CASE WHEN kind <> 'trade' THEN 0 WHEN symbol <> '' AND price > 0 AND size > 0 THEN price * size "
    "ELSE raise_error('a trade without symbol, price or size') END"
)


def bars_pipeline(
    archive: str,
    table_path: str,
    checkpoint: str,
    *,
    width: str = ONE_SECOND,
    late: str = DEFAULT_LATENESS,
    trigger: str = "",
) -> Pipeline:
    """Return a pipeline from the archive of a feed of quotes to a table of bars.

    Args:
        archive: the folder of the archive.
        table_path: the folder of the Parquet table. Messages that are not ticks go to `TABLE_PATH-dead`.
        checkpoint: the folder for the progress of the stream.
        width: the length of a bar.
        late: how long a bar waits for late trades, in the market's time.
        trigger: as in `Pipeline`.
    """
    return (
        Pipeline("bars", checkpoint=checkpoint, trigger=trigger)
        .read("quotes", "recado", path=archive, startingOffsets="earliest")
        .translate(json=TICK_FIELDS, compute={"value": TRADE_VALUE_SQL})
        .filter(where="kind = 'trade'")
        .apply(partial(compute_bars, width=width, late=late), fields=BAR_FIELDS)
        .write("bars", "parquet", path=table_path)
        .write("dead_letters", "parquet", path=f"{table_path}-dead")
    )


def compute_bars(
    trades: DataFrame, width: str = ONE_SECOND, late: str = DEFAULT_LATENESS
) -> DataFrame:
    """Compute bars of trades, in a batch or a stream.

    The rows have `symbol`, `at` in µs, `price`, `size`, `publisher` and `sequence`.
    """
    timed = trades.withColumn("time", f.timestamp_micros("at")).withWatermark("time", late)
    when = f.struct("at", "publisher", "sequence")
    in_order = f.array_sort(f.collect_list(f.struct(when.alias("when"), "price")))
    value = f.col("price") * f.col("size")
    return _shape(
        timed.groupBy(f.window("time", width).alias("bar"), "symbol").agg(
            f.min_by("price", when).alias("open"),
            f.max("price").alias("high"),
            f.min("price").alias("low"),
            f.max_by("price", when).alias("close"),
            f.sum("size").alias("volume"),
            f.count("*").alias("trades"),
            (f.sum(value) / f.sum("size")).alias("vwap"),
            f.sqrt(_sum_array(_squared_log_returns(in_order, "price", "price"))).alias(
                "volatility"
            ),
        ),
        width,
    )


def widen_bars(narrow: DataFrame, width: str = ONE_MINUTE) -> DataFrame:
    """Combine bars into wider ones, equal to those computed from the trades; batch only."""
    in_order = f.array_sort(f.collect_list(f.struct("start", "open", "close")))
    within, value = f.pow("volatility", f.lit(2.0)), f.col("vwap") * f.col("volume")
    return _shape(
        narrow.groupBy(f.window("start", width).alias("bar"), "symbol").agg(
            f.min_by("open", "start").alias("open"),
            f.max("high").alias("high"),
            f.min("low").alias("low"),
            f.max_by("close", "start").alias("close"),
            f.sum("volume").alias("volume"),
            f.sum("trades").alias("trades"),
            (f.sum(value) / f.sum("volume")).alias("vwap"),
            f.sqrt(
                f.sum(within) + _sum_array(_squared_log_returns(in_order, "close", "open"))
            ).alias("volatility"),
        ),
        width,
    )


def _shape(grouped: DataFrame, width: str) -> DataFrame:
    named = grouped.select(f.lit(width).alias("width"), "bar.start", "bar.end", "*")
    return named.select(*BAR_FIELDS)


def _squared_log_returns(in_order: Column, close_field: str, open_field: str) -> Column:
    """Return ln² of `open_field` of each element over `close_field` of the one before."""
    count = f.size(in_order) - 1
    before, after = f.slice(in_order, 1, count), f.slice(in_order, 2, count)
    return f.zip_with(
        before,
        after,
        lambda one, other: f.pow(f.log(other[open_field] / one[close_field]), f.lit(2.0)),
    )


def _sum_array(numbers: Column) -> Column:
    return f.aggregate(numbers, f.lit(0.0), lambda so_far, each: so_far + each)
