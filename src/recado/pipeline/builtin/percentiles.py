"""Latency figures of the Trading System, computed by Spark from its archive.

They equal those that `recado trading report` computes with pyarrow, except for rounding that depends on the
order of a sum. A percentile is interpolated between the two nearest values. The message that describes a run is
published after its asks, so an unfinished run is not included. If asks of a run are missing or duplicate, its
`complete` is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ASK_SCHEMA: Final = "run string, client bigint, number bigint, began bigint, nanoseconds bigint"
RUN_SCHEMA: Final = (
    "run string, transport string, broker string, latency_us bigint, clients bigint, asks bigint, "
    "at bigint, traded bigint, processor map<string,double>"
)
QUANTILES: Final = {"p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
MICROSECOND_NS: Final = 1e3


def compute_figures(rows: DataFrame) -> DataFrame:
    """Return one row per finished run: rate, mean and percentiles in µs, and its duration in seconds."""
    asks = _parse_bodies(rows, "asked", ASK_SCHEMA)
    began, ended = f.min("began"), f.max(f.col("began") + f.col("nanoseconds"))
    took = f.col("nanoseconds")
    quantiles = [f.percentile(took, q).alias(name) for name, q in QUANTILES.items()]
    run_figures = asks.groupBy("run").agg(
        f.count("*").alias("counted"),
        f.count_distinct("client", "number").alias("different"),
        ((ended - began) / 1e9).alias("seconds"),
        f.mean(took).alias("mean"),
        *quantiles,
    )
    times = [(f.col(name) / MICROSECOND_NS).alias(name) for name in ("mean", *QUANTILES)]
    counted, different = (f.coalesce(name, f.lit(0)) for name in ("counted", "different"))
    expected = f.col("asks")
    return (
        _parse_bodies(rows, "run", RUN_SCHEMA, "offset")
        .join(run_figures, "run", "left")
        .select(
            "offset",
            *(field.split()[0] for field in RUN_SCHEMA.split(", ")),
            counted.alias("counted"),
            different.alias("different"),
            ((counted == expected) & (different == expected)).alias("complete"),
            (f.col("counted") / f.col("seconds")).alias("rate"),
            *times,
            "seconds",
        )
        .orderBy("offset")
    )


def select_best_runs(of_runs: DataFrame) -> DataFrame:
    """Return the best complete run for each combination of latency, transport, broker and number of clients.

    Of the runs with the most asks it is the one with the lowest mean, as in the dissertation by Carmo.
    """
    kind = Window.partitionBy("latency_us", "transport", "broker", "clients")
    ranked = f.row_number().over(kind.orderBy(f.desc("asks"), "mean", "offset"))
    return (
        of_runs.where("complete")
        .withColumn("rank", ranked)
        .where("rank = 1")
        .drop("rank")
        .orderBy("latency_us", "clients", f.desc("transport"), "broker")
    )


def _parse_bodies(rows: DataFrame, key: str, schema: str, *extra_columns: str) -> DataFrame:
    body: Column = f.from_json(f.col("body").cast("string"), schema)
    matching = rows.where(f.col("routing_key") == key)
    return matching.select(*extra_columns, body.alias("body")).select(*extra_columns, "body.*")
