"""The job that is killed: `python -m bench.pipeline_crash.job FOLDER`. Three queries in one Spark, without end.

A query that fails is started again, as whoever operates it would; `FOLDER/diary` has a line for each batch and
failure. When there is a file `FOLDER/finish`, each query reads what is left, and the job ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bench.feeds_crash.diary import Diary
from bench.pipeline_crash.doomed import FOLDER, LAKE, DoomedSource, is_due, is_told
from bench.pipeline_crash.routes import (
    APPENDED,
    ARCHIVE,
    QUEUES,
    SOURCES,
    TO_RABBITMQ,
    TO_RECADO,
    URLS,
    WRITTEN,
    Query,
    Source,
    Target,
)
from recado.pipeline import spark_session
from recado.pipeline.lake.batch import Batch
from recado.pipeline.lake.parquet import write_parquet
from recado.pipeline.lake.settings import TableOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK: Final = 0.1  # seconds between two looks at the queries
TRIGGER: Final = "300 milliseconds"
SETTINGS: Final = {
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "FATAL",
}


class Job:
    def __init__(self, folder: Path, spark: SparkSession, diary: Diary) -> None:
        self._folder = folder
        self._spark = spark
        self._diary = diary
        self._urls = msgspec.json.decode((folder / URLS).read_bytes(), type=dict[str, str])
        self._batches: dict[Query, int] = {}

    def run(self) -> None:
        queries: dict[Query, StreamingQuery] = {}
        while not self.is_to_finish:
            for name in Query:
                query = queries.get(name)
                if query is None or not query.isActive:
                    if query is not None:
                        self._diary.note(f"failed {name.value}")
                    queries[name] = self.writer(name).trigger(processingTime=TRIGGER).start()
                else:
                    self.look(name, query)
            time.sleep(LOOK)  # Spark tells nobody
        for query in queries.values():
            query.stop()
        self.finish(*Query)
        self.finish(Query.LAKE)  # what came back to its queues meanwhile
        self._diary.note("finished")

    @property
    def is_to_finish(self) -> bool:
        return (self._folder / "finish").exists()

    def look(self, name: Query, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is not None and last.numInputRows and last.batchId != self._batches.get(name):
            self._batches[name] = last.batchId
            self._diary.note(f"batch {name.value}")

    def finish(self, *names: Query) -> None:
        queries = [self.writer(name).trigger(availableNow=True).start() for name in names]
        for query in queries:
            query.awaitTermination()

    # -- the queries ------------------------------------------------------------------------------

    def writer(self, name: Query) -> DataStreamWriter:
        match name:
            case Query.LAKE:
                rows = self.numbers(ARCHIVE)
                for source in QUEUES:
                    rows = rows.union(self.numbers(source))
                writer = rows.writeStream.foreachBatch(self.into_lake)
            case Query.RECADO:
                writer = self.to_broker(TO_RECADO)
            case Query.RABBITMQ:
                writer = self.to_broker(TO_RABBITMQ)
        return writer.option("checkpointLocation", str(self._folder / "checkpoints" / name.value))

    def numbers(self, source: Source) -> DataFrame:
        rows = self.queue(source) if source.broker else self.archive()
        return rows.selectExpr(
            f"'{source.name}' AS source", "CAST(CAST(body AS STRING) AS BIGINT) AS number"
        )

    def archive(self) -> DataFrame:
        options = {"path": str(self._folder / "archive"), "startingOffsets": "earliest"}
        return self._spark.readStream.format("recado").options(**options).load()

    def queue(self, source: Source) -> DataFrame:
        options = {"url": self._urls[source.broker], "queue": source.name}
        options["spool"] = str(self._folder / "spools" / source.name)
        if source.window is not None:
            options["dedupWindow"] = str(source.window)
        return self._spark.readStream.format("amqp").options(**options).load()

    def to_broker(self, target: Target) -> DataStreamWriter:
        options = {"url": self._urls[target.broker], "exchange": target.exchange, "routingKey": ""}
        return self.archive().writeStream.format("amqp").options(**options)

    def into_lake(self, rows: DataFrame, number: int) -> None:
        lake = self._folder / "lake"
        rows = rows.persist()  # or each use of it would read all sources again
        write_parquet(rows, TableOptions(path=str(lake / WRITTEN)), Batch("numbers", number))
        archived = rows.where(f"source = '{ARCHIVE.name}'")
        archived.write.mode("append").parquet(str(lake / APPENDED))
        if is_told(LAKE) and self.is_of_all_sources(rows) and is_due(LAKE):
            os.killpg(0, signal.SIGKILL)  # this process, and Spark's
        rows.unpersist()

    def is_of_all_sources(self, rows: DataFrame) -> bool:
        found = rows.select("source").distinct().collect()
        return len(found) == len(SOURCES)


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ[FOLDER] = str(folder)  # for those that Spark starts
    with Diary(folder / "diary") as diary:
        spark = spark_session("crash", master="local[2]", settings=SETTINGS)
        spark.dataSource.register(DoomedSource)
        Job(folder, spark, diary).run()
        spark.stop()


if __name__ == "__main__":
    main()
