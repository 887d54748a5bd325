"""`format("amqp")`: what Spark is told of it. The work is done by `consuming` and `sink`.

Each query has a process of its own for its source, which imports what it needs and no more: the time until the
first message comes is the time of its imports.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from recado.pipeline.location import folder_of
from recado.pipeline.options import OptionError, read, refuse_catalog_table
from recado.pipeline.rows import QUEUE, chosen, ddl
from recado.pipeline.schemas import appended, asked

from . import spooled
from .settings import SinkOptions, SourceOptions, checked_url
from .unfolding import unfold

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .consuming import Consuming
    from .sink import QueueStreamWriter, QueueWriter

Offset = dict[str, Any]
OUT: Final = "at an exchange"


class QueueSource(DataSource):
    """A queue as a stream; an exchange as a sink of batches and streams."""

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> str:
        """Called by `load()`, so options are checked here; not if the user gives a schema."""
        refuse_catalog_table("amqp", self.options, 'use spark.readStream.format("amqp")')
        read(SourceOptions, "amqp", self.options)
        return ddl(QUEUE)

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 - Spark's name
        options = read(SourceOptions, "amqp", self.options)
        checked_url(options.url)
        # Resolved here, in the driver: tasks have another working directory.
        options = replace(options, spool=str(folder_of(options.spool)))
        return QueueStreamReader(options, chosen(QUEUE, asked(schema, QUEUE, "amqp")))

    def reader(self, schema: StructType) -> NoReturn:
        raise OptionError(
            'a queue is read as a stream: spark.readStream.format("amqp"); '
            "with .trigger(availableNow=True) it ends when all that is there now was read"
        )

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        from .sink import QueueWriter

        columns = appended(schema, OUT, overwrite=overwrite)
        return QueueWriter(read(SinkOptions, "amqp", self.options), columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:  # noqa: N802
        from .sink import QueueStreamWriter

        columns = appended(schema, OUT, overwrite=overwrite)
        return QueueStreamWriter(read(SinkOptions, "amqp", self.options), columns)


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, piece: spooled.Piece) -> None:
        self.piece = piece


class AnotherSpool(Exception):
    """The query's checkpoint and its spool do not belong together."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(
            f"{folder} is not the spool that this query's checkpoint speaks of: {why}. "
            "The two belong together: move, copy and delete them together only."
        )


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the driver's helper process; only `read` is called in the workers, which get a copy of it."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._folder = Path(options.spool)
        self._consuming: Consuming | None = None
        self._started = False
        self._only_what_is_there = False
        self._initial: Offset | None = None

    def _opened(self) -> Consuming:
        """Opened when first needed: Spark makes readers also where nothing is to be read."""
        if self._consuming is None:
            from .consuming import Consuming

            self._consuming = Consuming(self._options)
            self._consuming.open()
        return self._consuming

    def _running(self) -> Consuming:
        consuming = self._opened()
        if not self._started:
            self._started = True
            consuming.start(only_what_is_there=self._only_what_is_there)
        return consuming

    # -- offsets: {"spool": its id, "next": the row that comes next} -----------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        """Spark may ask twice, and needs the same answer."""
        if self._initial is None:
            consuming = self._opened()
            self._initial = {"spool": consuming.id, "next": consuming.first}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_rows_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing is taken yet: only `latestOffset` is told of which spool the checkpoint speaks."""
        self._only_what_is_there = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        first = self._row(start)
        if first > (end := self._opened().latest()):
            why = f"the checkpoint is at row {first}, and the spool ends at {end}"
            raise AnotherSpool(self._options.spool, why)
        consuming = self._running()
        consuming.hand_out(first)
        if self._only_what_is_there:
            end = consuming.latest_beyond(first)
        else:
            end = consuming.latest()
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        return {"spool": consuming.id, "next": end}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Shown in the query's progress: how far the spool goes, what keeps it from going on, and how many
        messages were no rows since their ids were known."""
        consuming = self._consuming
        if consuming is None:
            return None
        found: Offset = {"spool": consuming.id, "next": consuming.latest()}
        told = {"waiting": consuming.trouble, "repeats": consuming.repeats}
        return found | {name: value for name, value in told.items() if value}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        pieces = self._opened().pieces(self._row(start), self._row(end))
        return [Part(piece) for piece in pieces]

    def commit(self, end: Offset) -> None:
        self._opened().commit(self._row(end))

    def stop(self) -> None:
        if self._consuming is not None:
            self._consuming.stop()

    def _row(self, offset: Offset) -> int:
        if offset["spool"] != self._opened().id:
            raise AnotherSpool(self._options.spool, "it has another id")
        row = offset["next"]
        assert isinstance(row, int)
        return row

    # -- in the workers --------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        rows = spooled.read(self._folder, partition.piece)
        return unfold(rows, self._options.queue, self._schema)
