"""A feed as a stream, and Spark's own stream of the same Parquet files.

Both read with all cores. Spark would assign a file of less than 4 MiB to one core, and these are smaller,
because the bodies compress well; so it is configured to split each into as many parts as there are cores. Both
are read once before the measurement: the JVM has compiled Spark's reader in other scenarios, but not ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.book import Book
from bench.pipeline.ground import FILES, Ground
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side
from recado.pipeline.archive_table import ARCHIVE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = {100: 3_000_000, 1024: 1_200_000}
"""A file of them has an even number of row groups, so that two cores can share it."""
QUICK_SHARE: Final = 10
PART_BYTES: Final = "spark.sql.files.maxPartitionBytes"
READ: Final = "`offset` bigint, `timestamp` timestamp, `routing_key` string, `body` binary"
"""The columns of a query on messages. Spark's own reader prunes columns by itself; other sources need a schema.
"""


def scenario(size: int, title: str, *, full_only: bool = False) -> Scenario:
    return Scenario(
        f"stream-{size}",
        f"streaming rows of {title} from a feed",
        "rows/s",
        Comparison.TIMES_MORE,
        full_only,
        peer="Spark's Parquet file stream",
        note="offset, time, key and body, into a sink that drops them; a batch is as large as a file",
    )


SIZES: Final = {100: scenario(100, "100 B"), 1024: scenario(1024, "1 KiB", full_only=True)}
SCENARIOS: Final = tuple(SIZES.values())


def run(plan: Plan, book: Book, ground: Ground) -> Iterator[str]:
    for size, each in SIZES.items():
        if not plan.includes(each):
            continue
        rows = ROWS[size] // (QUICK_SHARE if plan.quick else 1)
        path = ground.archive(size, rows)
        with all_cores(ground.spark, path):
            ground.drain(feed(ground.spark, path, rows))
            if plan.with_peer:
                ground.drain(files(ground.spark, path))
            for _ in range(plan.rounds):
                rate = ground.drain(feed(ground.spark, path, rows))
                book.enter(each.name, Side.RECADO, Sample(rate))
                if plan.with_peer:
                    rate = ground.drain(files(ground.spark, path))
                    book.enter(each.name, Side.PEER, Sample(rate))
        yield each.name


@contextmanager
def all_cores(spark: SparkSession, path: Path) -> Iterator[None]:
    """Within it Spark's own reader makes a task for each core of every file."""
    largest = max(file.stat().st_size for file in (path / "data").rglob("*.parquet"))
    spark.conf.set(PART_BYTES, -(-largest // spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        spark.conf.unset(PART_BYTES)


def feed(spark: SparkSession, path: Path, rows: int) -> DataFrame:
    reader = spark.readStream.format("recado").option("startingOffsets", "earliest")
    return reader.option("maxRowsPerTrigger", rows // FILES).schema(READ).load(str(path))


def files(spark: SparkSession, path: Path) -> DataFrame:
    reader = spark.readStream.schema(ARCHIVE_COLUMNS).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(path / "data")).select("offset", "timestamp", "routing_key", "body")
