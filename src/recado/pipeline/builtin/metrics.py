"""Broker metrics over time: from the counters on the feed `recado.metrics` to one row per node and interval.

Gauges (connections, messages ready …) are averaged, with their maximum. For totals the rate is computed,
between the first and the last sample of the interval. A node that restarts counts from 0 again, so each incarnation of
a node has rows of its own.
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
SECONDS_FIELDS: Final = ("processor_seconds", "sync_seconds", "late_seconds")
COUNTER_SCHEMA: Final = ", ".join(
    ["node string, at bigint, started bigint, alarm string"]
    + [f"{name} bigint" for name in (*GAUGES, *TOTALS)]
    + [f"{name} double" for name in SECONDS_FIELDS]
)
DEFAULT_INTERVAL: Final = "10 seconds"
DEFAULT_LATENESS: Final = "30 seconds"


def compute_metrics(
    rows: DataFrame, interval: str = DEFAULT_INTERVAL, late: str = DEFAULT_LATENESS
) -> DataFrame:
    """Aggregate rows of `format("recado")` or of `table` (archive_table.py), in a batch or a stream."""
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
    """The increase of a total from the first sample to the last."""
    return f.max_by(name, "at") - f.min_by(name, "at")


def _rate_per_second(name: str) -> Column:
    """The increase per second; NULL for a single sample."""
    return _increase(name) * 1e6 / f.nullif(_increase("at"), f.lit(0))
