"""The job that is killed: `python -m bench.pipeline_crash.job FOLDER`. Some queries in one Spark, without end.

A query that fails is started again, as whoever operates it would; `FOLDER/diary` has a line for each batch and
failure. When there is a file `FOLDER/finish`, each query reads what is left, and the job ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bench.feeds_crash.diary import Diary
from bench.pipeline_crash.doomed import FOLDER, LAKE, DoomedSource, is_due
from recado.pipeline import spark_session
from recado.pipeline.lake.batch import Batch
from recado.pipeline.lake.parquet import write_parquet
from recado.pipeline.lake.settings import TableOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK: Final = 0.1  # seconds between two looks at the queries
TRIGGER: Final = "300 milliseconds"
SETTINGS: Final = {
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "FATAL",
}


class Task(msgspec.Struct, frozen=True):
    """What the job is to do."""

    recado: str
    """The URL of one broker, and of the other."""
    rabbitmq: str
    routes: list[str]
    careful: bool
    """Whether the mechanisms are on; without them the job must be caught."""


class Route(msgspec.Struct, frozen=True):
    """One query: where its rows come from, and where they go to."""

    name: str
    source: str
    """A queue, or nothing: the archive."""
    target: str
    """A queue, or nothing: the lake."""
    broker: str


ARCHIVE_LAKE: Final = Route("archive-lake", "", "", "")
IDS_LAKE: Final = Route("ids-lake", "with-ids", "", "rabbitmq")
PLAIN_LAKE: Final = Route("plain-lake", "without-ids", "", "recado")
ARCHIVE_RECADO: Final = Route("archive-recado", "", "once", "recado")
ARCHIVE_RABBITMQ: Final = Route("archive-rabbitmq", "", "again", "rabbitmq")
ROUTES: Final = (ARCHIVE_LAKE, IDS_LAKE, PLAIN_LAKE, ARCHIVE_RECADO, ARCHIVE_RABBITMQ)


class Job:
    def __init__(self, folder: Path, spark: SparkSession, diary: Diary) -> None:
        self._folder = folder
        self._spark = spark
        self._diary = diary
        self._task = msgspec.json.decode((folder / "task.json").read_bytes(), type=Task)
        self._routes = [route for route in ROUTES if route.name in self._task.routes]
        self._batches: dict[str, int] = {}

    def run(self) -> None:
        queries: dict[Route, StreamingQuery] = {}
        while not self.is_to_finish:
            for route in self._routes:
                query = queries.get(route)
                if query is None or not query.isActive:
                    if query is not None:
                        self._diary.note(f"failed {route.name}")
                    queries[route] = self.begin(route)
                else:
                    self.look(route, query)
            time.sleep(LOOK)  # Spark tells nobody
        for query in queries.values():
            query.stop()
        for route in self._routes:
            self.finish(route)
        self._diary.note("finished")

    @property
    def is_to_finish(self) -> bool:
        return (self._folder / "finish").exists()

    def begin(self, route: Route) -> StreamingQuery:
        """One after the other: Spark gives each of its helpers ten seconds to start."""
        query = self.start(route)
        while query.isActive and query.lastProgress is None and not self.is_to_finish:
            time.sleep(LOOK)
        return query

    def look(self, route: Route, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is not None and last.numInputRows and last.batchId != self._batches.get(route.name):
            self._batches[route.name] = last.batchId
            self._diary.note(f"batch {route.name}")

    def finish(self, route: Route) -> None:
        """What is left, and with a second run what came back to its queue meanwhile."""
        for _ in range(2):
            query = self.start(route, to_the_end=True)
            query.awaitTermination()

    def start(self, route: Route, *, to_the_end: bool = False) -> StreamingQuery:
        rows = self.archive() if not route.source else self.queue(route)
        writer = rows.writeStream.option(
            "checkpointLocation", str(self._folder / "checkpoints" / route.name)
        )
        if route.target:
            url = self.url(route)
            options = {"url": url, "exchange": "", "routingKey": route.target}
            writer = writer.format("amqp").options(**options)
        else:
            writer = writer.foreachBatch(self.into_lake(route))
        if to_the_end:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=TRIGGER).start()

    def url(self, route: Route) -> str:
        return self._task.recado if route.broker == "recado" else self._task.rabbitmq

    def archive(self) -> DataFrame:
        options = {"path": str(self._folder / "archive"), "startingOffsets": "earliest"}
        return self._spark.readStream.format("recado").options(**options).load()

    def queue(self, route: Route) -> DataFrame:
        spool = str(self._folder / "spools" / route.name)
        options = {"url": self.url(route), "queue": route.source, "spool": spool}
        if not self._task.careful:
            options["dedupWindow"] = "0"
        return self._spark.readStream.format("amqp").options(**options).load()

    def into_lake(self, route: Route) -> Callable[[DataFrame, int], None]:
        path = self._folder / "lake" / route.name

        def write(rows: DataFrame, number: int) -> None:
            numbers = rows.selectExpr("CAST(CAST(body AS STRING) AS BIGINT) AS number")
            if self._task.careful:
                write_parquet(numbers, TableOptions(path=str(path)), Batch(route.name, number))
            else:
                numbers.write.mode("append").parquet(str(path))
            if is_due(LAKE):
                os.killpg(0, signal.SIGKILL)  # this process, and Spark's

        return write


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
