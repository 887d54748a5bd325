"""`format("amqp")`: the data source that Spark calls. `consumer` and `writer` do the work.

Spark starts a process for the source of each query. The time until the first message is dominated by its
imports, so it imports only what it needs.
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

from recado.pipeline.location import to_local_path
from recado.pipeline.options import OptionError, parse_options, reject_catalog_table
from recado.pipeline.row_schema import (
    QUEUE_SCHEMA,
    check_read_schema,
    check_write_schema,
    select_columns,
    to_ddl,
)

from ..errors import PipelineError
from . import spool_record
from .options import QueueReadOptions, QueueWriteOptions, parse_broker_url
from .row_decoder import decode_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .consumer import SpoolingConsumer
    from .writer import QueueBatchWriter, QueueStreamWriter

OffsetJson = dict[str, Any]
_WRITE_TARGET: Final = "at an exchange"


class QueueSource(DataSource):
    """A queue as a stream; an exchange as a sink for batches and streams."""

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> str:
        """Return the default schema.

        `load()` calls this, so options are checked here, unless the user passes a schema.
        """
        reject_catalog_table("amqp", self.options, 'use spark.readStream.format("amqp")')
        parse_options(QueueReadOptions, "amqp", self.options)
        return to_ddl(QUEUE_SCHEMA)

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 - Spark's name
        options = parse_options(QueueReadOptions, "amqp", self.options)
        parse_broker_url(options.url)
        # Resolve the path in the driver: tasks have another working directory.
        options = replace(options, spool=str(to_local_path(options.spool)))
        return QueueStreamReader(
            options, select_columns(QUEUE_SCHEMA, check_read_schema(schema, QUEUE_SCHEMA, "amqp"))
        )

    def reader(self, schema: StructType) -> NoReturn:
        raise OptionError(
            'a queue is read as a stream: spark.readStream.format("amqp"); '
            "with .trigger(availableNow=True) it ends after reading the available messages"
        )

    def writer(self, schema: StructType, overwrite: bool) -> QueueBatchWriter:
        from .writer import QueueBatchWriter

        columns = check_write_schema(schema, _WRITE_TARGET, overwrite=overwrite)
        return QueueBatchWriter(parse_options(QueueWriteOptions, "amqp", self.options), columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:  # noqa: N802
        from .writer import QueueStreamWriter

        columns = check_write_schema(schema, _WRITE_TARGET, overwrite=overwrite)
        return QueueStreamWriter(parse_options(QueueWriteOptions, "amqp", self.options), columns)


class SpoolPartition(InputPartition):
    """The rows that one task reads."""

    def __init__(self, piece: spool_record.SpoolSlice) -> None:
        self.rows = piece


class SpoolMismatchError(PipelineError):
    """The checkpoint of the query and its spool do not belong together."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(
            f"{folder} is not the spool of this query's checkpoint: {why}. "
            "Move, copy and delete the spool and the checkpoint only together."
        )


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in the source process of the driver; workers get copies, on which Spark calls only `read`."""

    def __init__(self, options: QueueReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._folder = Path(options.spool)
        self._consumer: SpoolingConsumer | None = None
        self._is_started = False
        self._available_now = False
        self._initial: OffsetJson | None = None

    def _open_consumer(self) -> SpoolingConsumer:
        """Open the spool when first needed: Spark also creates readers from which nothing is read."""
        if self._consumer is None:
            from .consumer import SpoolingConsumer

            self._consumer = SpoolingConsumer(self._options)
            self._consumer.open()
        return self._consumer

    def _start_consumer(self) -> SpoolingConsumer:
        consumer = self._open_consumer()
        if not self._is_started:
            self._is_started = True
            consumer.start(available_now=self._available_now)
        return consumer

    # -- offsets: {"spool": its id, "next": the row that comes next} -----------------------------------

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return the same offset each time, because Spark may ask twice."""
        if self._initial is None:
            consumer = self._open_consumer()
            self._initial = {"spool": consumer.id, "next": consumer.committed}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_rows_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set a flag; `latestOffset` starts consuming, after checking that spool and checkpoint match."""
        self._available_now = True

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        first = self._row_of(start)
        if first > (end := self._open_consumer().durable_end()):
            why = f"the checkpoint is at row {first}, but the spool ends at row {end}"
            raise SpoolMismatchError(self._options.spool, why)
        consumer = self._start_consumer()
        consumer.mark_planned(first)
        if self._available_now:
            end = consumer.wait_for_rows(first)
        else:
            end = consumer.durable_end()
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        return {"spool": consumer.id, "next": end}

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """Return the end of the spool for the query progress, with the current outage and the duplicates."""
        consumer = self._consumer
        if consumer is None:
            return None
        found: OffsetJson = {"spool": consumer.id, "next": consumer.durable_end()}
        details = {"waiting": consumer.outage, "repeats": consumer.duplicates}
        return found | {name: value for name, value in details.items() if value}

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        pieces = self._open_consumer().slice_rows(self._row_of(start), self._row_of(end))
        return [SpoolPartition(piece) for piece in pieces]

    def commit(self, end: OffsetJson) -> None:
        self._open_consumer().commit(self._row_of(end))

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.stop()

    def _row_of(self, offset: OffsetJson) -> int:
        if offset["spool"] != self._open_consumer().id:
            raise SpoolMismatchError(self._options.spool, "its id differs")
        row = offset["next"]
        assert isinstance(row, int)
        return row

    # -- in the workers --------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpoolPartition)
        rows = spool_record.read_slice(self._folder, partition.rows)
        return decode_rows(rows, self._options.queue, self._schema)
