"""Publish rows on a feed: `format("recado")` as a sink.

Tasks write their rows to files, and the driver publishes them when all tasks are done (`staging_area`
explains why). A micro-batch that Spark retries is published under the same sequence numbers. A batch write
uses a new publisher, unless the options `staging` and `batch` identify it. Each streaming query has its own
publish record.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import encode_table
from recado.feeds.connection import FeedConnection
from recado.feeds.feed import ResumePoint

from ..options import OptionError
from ..queue.message_ids import make_message_ids
from ..row_schema import PROPERTY_TYPES
from .options import FeedWriteOptions, resolve_id_columns
from .staging_area import STAGED_SCHEMA, PublishRecord, StagingArea, digest_rows, split_rows

_CACHE_ENTRY_COUNT_MAX: Final = 10_000  # distinct headers and properties


@dataclass
class StagedFile(WriterCommitMessage):
    """The file that a task has written."""

    name: str
    rows: int


class StagedRowEncoder:
    """Encodes rows of a DataFrame as rows of a staged file. Columns are checked on creation."""

    def __init__(self, options: FeedWriteOptions, types: Mapping[str, str]) -> None:
        """`types` has Spark's type names of the columns. Raises OptionError."""
        self._columns = frozenset(types)
        self._id_columns = resolve_id_columns(options, types)
        self._cache: dict[tuple[str, str], bytes] = {}

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = (
            [b""] * batch.num_rows
            if self._id_columns is None
            else make_message_ids(batch, self._id_columns)
        )
        columns = {
            "offset": self._encode_numbers("offset", batch),
            "timestamp": self._encode_numbers("timestamp", batch),
            "message_id": ids,
            "routing_key": self._encode_bytes("routing_key", batch),
            "headers": self._encode_distinct("headers", batch, _encode_headers),
            "properties": self._encode_distinct("properties", batch, _encode_properties),
            "body": self._encode_bytes("body", batch),
        }
        return pa.RecordBatch.from_pydict(columns, schema=STAGED_SCHEMA)

    def _encode_numbers(self, name: str, batch: pa.RecordBatch) -> pa.Array | list[int]:
        if name not in self._columns:
            return [0] * batch.num_rows
        return batch.column(name).cast(pa.int64()).fill_null(0)

    def _encode_bytes(self, name: str, batch: pa.RecordBatch) -> pa.Array | list[bytes]:
        if name not in self._columns:
            return [b""] * batch.num_rows
        return batch.column(name).cast(pa.large_binary()).fill_null(b"")

    def _encode_distinct(
        self, name: str, batch: pa.RecordBatch, encode: Callable[[Any], bytes]
    ) -> list[bytes]:
        """Encode each distinct value once."""
        if name not in self._columns:
            return [b""] * batch.num_rows
        cache, encoded = self._cache, []
        for value in batch.column(name).to_pylist():
            if not value:
                encoded.append(b"")
                continue
            key = (name, str(value))
            if key not in cache:
                if len(cache) >= _CACHE_ENTRY_COUNT_MAX:
                    cache.clear()
                cache[key] = encode(value)
            encoded.append(cache[key])
        return encoded


def _encode_headers(headers: Sequence[tuple[str, str | None]]) -> bytes:
    return encode_table(dict(headers))


def _encode_properties(values: Mapping[str, Any]) -> bytes:
    known = {name: value for name, value in values.items() if name in PROPERTY_TYPES}
    if all(value is None for value in known.values()):
        return b""
    return encode_properties(Properties(**known))


# --- publishing ----------------------------------------------------------------------------------


def publish_batch(
    options: FeedWriteOptions, staging: StagingArea, staged_files: Sequence[StagedFile], batch: int
) -> None:
    """Publish the staged rows as one batch, and return when the broker has confirmed all of them.

    Raises OptionError if a staged file is missing, and the errors of feeds.
    """
    try:
        table = staging.read([each.name for each in staged_files])
    except FileNotFoundError:
        raise OptionError(
            f"{staging.folder} does not have all files that tasks wrote there: the option staging must name a "
            "folder that all machines share"
        ) from None
    if table.num_rows:
        record = staging.load_record().plan_batch(batch, table.num_rows, digest_rows(table))
        staging.save_record(record)
        asyncio.run(_publish_rows(options, record, table))
    staging.clear()


async def _publish_rows(options: FeedWriteOptions, record: PublishRecord, table: pa.Table) -> None:
    resume = ResumePoint(bytes.fromhex(record.publisher), record.first - 1)
    # Wait for an unavailable broker also when connecting, not only within a batch.
    async with FeedConnection(
        options.url, reconnect_timeout=options.reconnect_timeout, wait_for_broker=True
    ) as connection:
        feed = connection.feed(options.feed, resume=resume)
        for rows in split_rows(table):
            columns = {each: rows.column(each).to_pylist() for each in STAGED_SCHEMA.names}
            now_us = time.time_ns() // 1000
            await feed.publish_encoded(
                columns["body"],
                keys=columns["routing_key"],
                message_ids=columns["message_id"],
                headers=columns["headers"],
                properties=columns["properties"],
                timestamps=[each or now_us for each in columns["timestamp"]],
            )
        await feed.close()


class _StagingWriter:
    """The common part of both writers: writing in tasks, publishing in the driver."""

    def __init__(
        self, options: FeedWriteOptions, types: Mapping[str, str], folder: Path | None
    ) -> None:
        """Without `folder`, create a temporary one on this machine. Raises OptionError before that."""
        self._options = options
        self._encoder = StagedRowEncoder(options, types)
        folder = folder or Path(tempfile.mkdtemp(prefix="recado-", dir=_spark_local_dir()))
        self._staging = StagingArea(folder, options.writer or options.feed)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFile:
        """Runs in a task: write rows to a staged file."""
        return StagedFile(*self._staging.write(map(self._encoder.encode, iterator)))

    def publish(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Runs in the driver: publish the files of all tasks."""
        staged = [each for each in messages if isinstance(each, StagedFile)]
        publish_batch(self._options, self._staging, staged, batch)


class FeedBatchWriter(_StagingWriter, DataSourceArrowWriter):
    """A batch write, in a folder of its own unless the option `batch` identifies it."""

    def __init__(self, options: FeedWriteOptions, types: Mapping[str, str]) -> None:
        folder = None if options.staging is None else Path(options.staging)
        if folder is not None and options.batch is None:
            folder /= token_hex(16)
        super().__init__(options, types, folder)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        try:
            self.publish(messages, self._options.batch or 0)
        finally:
            self._remove_own_folder()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._staging.clear()
        self._remove_own_folder()

    def _remove_own_folder(self) -> None:
        """Remove a folder that only this write uses."""
        if self._options.batch is None:
            shutil.rmtree(self._staging.folder, ignore_errors=True)


def _spark_local_dir() -> str | None:
    """Return Spark's local directory, which Spark removes when it ends, even if the driver is killed."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


class FeedStreamWriter(_StagingWriter, DataSourceStreamArrowWriter):
    """A streaming write, whose batches Spark numbers."""

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 (Spark's name)
    ) -> None:
        self.publish(messages, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        self._staging.clear()
