"""The formats of the job, which exit at a critical moment on request.

If a file is put into the folder of a run, the next process that reaches that moment appends its process id to
the name of the file, and exits:

    spool-QUEUE       rows are safe in the spool, and not acknowledged
    sink-EXCHANGE     messages are confirmed by the broker, and Spark does not know it yet
    sink-FEED         likewise
    lake-doom         rows are in the lake, and Spark does not know it yet

A task that reads a queue or publishes to a broker records in the diary when it is retried.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from bench.feeds_siege.diary import Diary
from recado.pipeline.feed.source import FeedDataSource
from recado.pipeline.feed.writer import FeedStreamWriter, StagedFile
from recado.pipeline.queue.consumer import SpoolingConsumer
from recado.pipeline.queue.source import QueueSource, QueueStreamReader
from recado.pipeline.queue.writer import PublishedCount, QueueStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition, WriterCommitMessage
    from pyspark.sql.types import StructType

FOLDER: Final = "PIPELINE_CRASH"
"""The name of the environment variable with the folder of the run."""
DIARY: Final = "diary"
"""A file in it."""


def spool_doom(queue: str) -> str:
    return f"spool-{queue}"


def sink_doom(target: str | None) -> str:
    """Of an exchange, or a feed."""
    return f"sink-{target}"


LAKE: Final = "lake-doom"


def is_told(doom: str) -> bool:
    return (Path(os.environ[FOLDER]) / doom).exists()


def is_due(doom: str) -> bool:
    """Whether this process has to exit; then no other one does."""
    file = Path(os.environ[FOLDER]) / doom
    try:
        file.rename(f"{file}.{os.getpid()}")
    except FileNotFoundError:
        return False
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def note_if_again() -> None:
    task = TaskContext.get()
    assert task is not None
    if task.attemptNumber():
        with Diary(Path(os.environ[FOLDER]) / DIARY) as diary:
            diary.note("again")


class DoomedSource(QueueSource):
    """Registered under the same name, so that the job is written like any other."""

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 (Spark's name)
        whole = super().streamReader(schema)
        return DoomedReader(whole._options, whole._schema)

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> QueueStreamWriter:
        whole = super().streamWriter(schema, overwrite)
        return DoomedWriter.of(whole)


class DoomedReader(QueueStreamReader):
    def _open_consumer(self) -> SpoolingConsumer:
        is_new = self._consumer is None
        consuming = super()._open_consumer()
        if is_new:
            spool, synced = consuming._spool, consuming._spool.sync
            doom = spool_doom(self._options.queue)

            def sync() -> int:
                before = spool.durable
                durable = synced()
                if durable > before and is_due(doom):
                    die()
                return durable

            spool.sync = sync  # type: ignore[method-assign]
        return consuming

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        note_if_again()
        return super().read(partition)


class DoomedWriter(QueueStreamWriter):
    @classmethod
    def of(cls, writer: QueueStreamWriter) -> DoomedWriter:
        found = cls.__new__(cls)
        found.__dict__ = writer.__dict__
        return found

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedCount:
        note_if_again()
        done = super().write(iterator)
        if done.messages and is_due(sink_doom(self._options.exchange)):
            die()
        return done


class DoomedFeed(FeedDataSource):
    """The same for `format("recado")`, of which only the sink dies."""

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> FeedStreamWriter:
        whole = super().streamWriter(schema, overwrite)
        assert isinstance(whole, FeedStreamWriter)
        return DoomedFeedWriter.of(whole)


class DoomedFeedWriter(FeedStreamWriter):
    @classmethod
    def of(cls, writer: FeedStreamWriter) -> DoomedFeedWriter:
        found = cls.__new__(cls)
        found.__dict__ = writer.__dict__
        return found

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 (Spark's name)
    ) -> None:
        super().commit(messages, batchId)
        is_empty = not any(isinstance(each, StagedFile) and each.rows for each in messages)
        if not is_empty and is_due(sink_doom(self._options.feed)):
            die()
