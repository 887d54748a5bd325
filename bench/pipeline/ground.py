"""The common ground of all scenarios: one SparkSession, archives to read, and the timing of queries."""

from __future__ import annotations

import gc
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.views import NO_VIEW
from recado.pipeline import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH: Final = 500
FILES: Final = 6
PUBLISHERS: Final = 4
SYMBOLS: Final = 50
SETTINGS: Final = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


class Ground:
    def __init__(self, folder: Path, spark: SparkSession | None = None) -> None:
        """Use the given SparkSession, which stays open, or an own one."""
        self.folder = folder
        self._own = spark is None
        self.spark = spark or spark_session("bench", settings=SETTINGS)
        self._queries = 0

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._own:
            self.spark.stop()
        with warnings.catch_warnings():
            # PySpark leaves its sockets to the collector.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def archive(self, size: int, rows: int) -> Path:
        """Return an archive with so many rows with bodies of this size, all of them in files."""
        path = self.folder / f"archive-{size}-{rows}"
        if not path.exists():
            with ArchiveStore(path, "quotes", seal_rows=rows // FILES) as store:
                for first in range(0, rows, BATCH):
                    store.append([batch(first, size)])
                    if store.needs_sealing:
                        store.seal()
                store.seal()
        return path

    def scan(self, rows: DataFrame) -> float:
        """Seconds to have every column of every row."""
        begun = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begun

    def drain(self, rows: DataFrame) -> float:
        """Return the rows per second of a stream that reads everything, without its first batch, in which Spark
        starts."""
        query = rows.writeStream.format("noop").trigger(availableNow=True)
        started = query.option("checkpointLocation", str(self.place())).start()
        started.awaitTermination()
        batches = [each for each in progress(started) if each["numInputRows"]][1:]
        seconds = sum(each["durationMs"]["triggerExecution"] for each in batches) / 1e3
        return float(sum(each["numInputRows"] for each in batches) / seconds)

    def place(self) -> Path:
        """For the checkpoint of one query."""
        self._queries += 1
        return self.folder / f"query-{self._queries}"


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(each.json) for each in query.recentProgress]


def batch(first: int, size: int) -> MessageBatch:
    """Quotes in the order of publishing: runs of each publisher."""
    number = first // BATCH
    who = number % PUBLISHERS
    sequence = number // PUBLISHERS * BATCH + 1
    each = range(first, first + BATCH)
    bodies = [
        (b'{"symbol":"S%d","price":%d.25,"n":%d,"pad":"' % (n % 50, n % 977, n)) for n in each
    ]
    bodies = [(body + b"x" * size)[: size - 2] + b'"}' for body in bodies]
    block = Block.build(
        bodies,
        timestamps=[1_800_000_000_000_000 + n for n in each],
        keys=[b"S%d" % (n % SYMBOLS) for n in each],
    )
    return MessageBatch(who.to_bytes(16, "big"), sequence, block, NO_VIEW)
