"""The job that is killed: `python -m bench.pipeline_crash.job FOLDER MASTER`, queries in one Spark without end.

A failed query is restarted, as an operator would do; `FOLDER/diary` has a line for each batch and failure, for
retried tasks, and for checkpoints that were refused as older than their table. When a file `FOLDER/finish`
exists, each query reads what is left, and the job ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import reduce
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException

from bench.feeds_siege.diary import Diary
from bench.pipeline_crash.failpoints import (
    DIARY,
    FOLDER,
    LAKE,
    DoomedFeed,
    DoomedSource,
    is_due,
    is_told,
)
from bench.pipeline_crash.routes import (
    ANEW,
    APPENDED,
    ARCHIVE,
    CATALOGUED,
    KEPT,
    QUEUED,
    RENAMED,
    RESTORED,
    WRITTEN,
    Generation,
    Layout,
    Query,
    Source,
    Target,
    iceberg_table,
)
from recado.pipeline import spark_session
from recado.pipeline.definition.pipeline import AVAILABLE_NOW, Pipeline, Sink
from recado.pipeline.lake.batch import Batch
from recado.pipeline.runner import start
from recado.pipeline.session import register_sources
from recado.pipeline.writer import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK: Final = 0.1  # seconds between two checks of the queries
TRIGGER: Final = "300 milliseconds"
REFUSED: Final = "The checkpoint is older than the table"
"""The text of the error for a checkpoint that is older than its table."""
SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    # No incarnation is long enough for code generation and optimised compilation to pay off.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmn512m",
    "spark.log.level": "FATAL",
}


class Job:
    def __init__(self, folder: Path, spark: SparkSession, diary: Diary) -> None:
        self._folder = folder
        self._spark = spark
        self._diary = diary
        self._layout = Layout.read(folder)
        self._batches: dict[Query, int] = {}

    def run(self) -> None:
        queries: dict[Query, StreamingQuery] = {}
        while not self.is_to_finish:
            for name in self._layout.queries:
                query = queries.get(name)
                if query is None or not query.isActive:
                    if query is not None:
                        self.note_failure(name, query)
                    queries[name] = self.begin(name)
                else:
                    self.look(name, query)
            time.sleep(LOOK)  # Spark has no notification for it
        for query in queries.values():
            query.stop()
        self.finish(*(each for each in self._layout.queries if each is not Query.LAKE))
        self.finish(Query.LAKE)  # by now all that was not acknowledged is back in its queue
        self._diary.note("finished")

    @property
    def is_to_finish(self) -> bool:
        return (self._folder / "finish").exists()

    def look(self, name: Query, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is not None and last.numInputRows and last.batchId != self._batches.get(name):
            self._batches[name] = last.batchId
            self._diary.note(f"batch {name.value}")

    def note_failure(self, name: Query, query: StreamingQuery) -> None:
        if name in RESTORED and REFUSED in str(query.exception()):
            self._diary.note(f"refused {name.value}")
            Generation(self._folder, name).begin_next()
            return
        self._diary.note(f"failed {name.value}")
        print(f"{name.value} failed: {query.exception()}", flush=True)  # to the log

    def finish(self, *names: Query) -> None:
        queries = {name: self.begin(name, until_now=True) for name in names}
        for name, query in queries.items():
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if name not in RESTORED or REFUSED not in str(error):
                    raise
                self.note_failure(name, query)
                self.begin(name, until_now=True).awaitTermination()

    # -- the queries ------------------------------------------------------------------------------

    def begin(self, name: Query, *, until_now: bool = False) -> StreamingQuery:
        if name in RESTORED:
            return start(self.pipeline(name, AVAILABLE_NOW if until_now else TRIGGER), self._spark)
        writer = self.writer(name)
        if until_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=TRIGGER).start()

    def pipeline(self, name: Query, trigger: str) -> Pipeline:
        now, format_ = Generation(self._folder, name), RESTORED[name]
        place = {"path": str(now.table)}
        if format_ == "iceberg":
            place = {"table": iceberg_table(name.value), "warehouse": str(now.table)}
        archive = {"path": str(self._folder / "archive"), "startingOffsets": "earliest"}
        return (
            Pipeline(name.value, checkpoint=str(now.checkpoint), trigger=trigger)
            .read(ARCHIVE.name, "recado", **archive)
            .apply(numbered, stateful=False, fields={"source": "string", "number": "bigint"})
            .write("table", format_, **place)
        )

    def writer(self, name: Query) -> DataStreamWriter:
        if name is Query.LAKE:
            parts = [self.numbers(source) for source in self._layout.sources]
            rows = reduce(lambda one, other: one.union(other), parts)
            writer = rows.writeStream.foreachBatch(self.into_lake)
        elif name is Query.FEED:
            writer = self.archive().writeStream.format("recado").options(**self.feed(KEPT))
        else:
            writer = self.to_broker(self._layout.targets[name])
        return writer.option("checkpointLocation", str(self._folder / "checkpoints" / name.value))

    def numbers(self, source: Source) -> DataFrame:
        return numbered(self.queue(source) if source.broker else self.archive(), source.name)

    def archive(self) -> DataFrame:
        options = {"path": str(self._folder / "archive"), "startingOffsets": "earliest"}
        return self._spark.readStream.format("recado").options(**options).load()

    def queue(self, source: Source) -> DataFrame:
        options = {"url": self._layout.urls[source.broker], "queue": source.name}
        options["spool"] = str(self._folder / "spools" / source.name)
        if source.window is not None:
            options["dedupWindow"] = str(source.window)
        return self._spark.readStream.format("amqp").options(**options).load()

    def to_broker(self, target: Target) -> DataStreamWriter:
        url = self._layout.urls[target.broker]
        options = {"url": url, "exchange": target.exchange, "routingKey": ""}
        return self.archive().writeStream.format("amqp").options(**options)

    def feed(self, name: str) -> dict[str, str]:
        return {"url": self._layout.urls["recado"], "feed": name}

    def into_lake(self, rows: DataFrame, number: int) -> None:
        lake, tables = self._folder / "lake", self._layout.tables
        rows = rows.persist()  # or each use of it would read all sources again
        archived = rows.where(f"source = '{ARCHIVE.name}'")
        queued = rows.where(f"source <> '{ARCHIVE.name}'")
        batch = Batch("numbers", number)
        write_batch(archived, Sink("parquet", {"path": str(lake / WRITTEN)}), batch)
        write_batch(queued, Sink("delta", {"path": str(lake / QUEUED)}), batch)
        archived.write.mode("append").parquet(str(lake / APPENDED))
        if CATALOGUED in tables:
            write_batch(rows, iceberg(lake, CATALOGUED), batch)
        if RENAMED in tables:
            write_batch(archived, iceberg(lake, RENAMED), Batch(token_hex(8), number))
        if ANEW in self._layout.feeds:
            bodies = archived.selectExpr("number", "STRING(number) AS body")
            write_batch(bodies, Sink("recado", {**self.feed(ANEW), "idColumns": "number"}), batch)
        if is_told(LAKE) and self.is_of_all_sources(rows) and is_due(LAKE):
            os.killpg(0, signal.SIGKILL)  # this process, and Spark's
        rows.unpersist()

    def is_of_all_sources(self, rows: DataFrame) -> bool:
        found = rows.select("source").distinct().collect()
        return len(found) == len(self._layout.sources)


def numbered(rows: DataFrame, source: str = ARCHIVE.name) -> DataFrame:
    return rows.selectExpr(
        f"'{source}' AS source", "CAST(CAST(body AS STRING) AS BIGINT) AS number"
    )


def iceberg(lake: Path, table: str) -> Sink:
    return Sink("iceberg", {"table": iceberg_table(table), "warehouse": str(lake / table)})


def main() -> None:
    folder, master = Path(sys.argv[1]), sys.argv[2]
    os.environ[FOLDER] = str(folder)  # for those that Spark starts
    with Diary(folder / DIARY) as diary:
        spark = spark_session("crash", master=master, settings=SETTINGS)
        register_sources(spark, DoomedSource, DoomedFeed)
        Job(folder, spark, diary).run()
        spark.stop()


if __name__ == "__main__":
    main()
