"""Brokers over time: from the counters on the feed `recado.metrics` to a line for each node and interval.

What a node has at a moment (connections, messages ready …) is averaged and its greatest is told; of totals
the rate is, between the first and the last look within the interval. A node that was restarted begins again
with its totals, so the lives of a node are lines of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GAUGES: Final = (
    "connections",
    "channels",
    "queues",
    "consumers",
    "messages_ready",
    "messages_unacknowledged",
    "memory_used",
    "journal_bytes",
    "blocked",
)
TOTALS: Final = ("published", "confirmed", "delivered", "acknowledged", "syncs")
SECONDS_TOTALS: Final = ("processor_seconds", "sync_seconds", "late_seconds")
COUNTER_SCHEMA: Final = ", ".join(
    ["node string, at bigint, started bigint, alarm string"]
    + [f"{name} bigint" for name in (*GAUGES, *TOTALS)]
    + [f"{name} double" for name in SECONDS_TOTALS]
)
DEFAULT_INTERVAL: Final = "10 seconds"
DEFAULT_LATENESS: Final = "30 seconds"


def compute_metrics(
    rows: DataFrame, interval: str = DEFAULT_INTERVAL, late: str = DEFAULT_LATENESS
) -> DataFrame:
    """Of rows as `format("recado")` and `recado.table` have them, in batch and in streaming."""
    body = f.from_json(f.col("body").cast("string"), COUNTER_SCHEMA).alias("body")
    samples = (
        rows.select(body)
        .select("body.*")
        .where("node IS NOT NULL AND at IS NOT NULL")
        .withColumn("seen", f.timestamp_micros("at"))
        .withColumn("started", f.timestamp_micros("started"))
        .withWatermark("seen", late)
    )
    return (
        samples.groupBy(f.window("seen", interval).alias("interval"), "node", "started")
        .agg(
            f.count("*").alias("looks"),
            *(f.avg(name).alias(name) for name in GAUGES),
            *(f.max(name).alias(f"{name}_max") for name in GAUGES),
            *(_rate_per_second(name).alias(f"{name}_per_second") for name in TOTALS),
            _rate_per_second("processor_seconds").alias("processors"),
            (_increase("sync_seconds") / f.nullif(_increase("syncs"), f.lit(0))).alias(
                "seconds_per_sync"
            ),
            f.max("late_seconds").alias("late_seconds_max"),
            f.max("alarm").alias("alarm"),
        )
        .select("interval.start", "interval.end", "*")
        .drop("interval")
    )


def _increase(name: str) -> Column:
    """Of a total, from the first look to the last."""
    return f.max_by(name, "at") - f.min_by(name, "at")


def _rate_per_second(name: str) -> Column:
    """In a second; NULL for a single look."""
    return _increase(name) * 1e6 / f.nullif(_increase("at"), f.lit(0))
