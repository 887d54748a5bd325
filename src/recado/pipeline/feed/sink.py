"""`format("recado")` as a sink: rows become messages of a feed.

Tasks leave their rows in files, and the driver publishes them when all tasks are done (`staging` says why). A
micro-batch that Spark repeats is on the feed once. A write that is no stream is published by a publisher of its
own, unless the options `staging` and `batch` say which batch of what it is. A stream has a note for each query.
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
from recado.feeds.feed import Earlier
from recado.feeds.link import Link

from ..options import OptionError
from ..queue.ids import ids_of
from ..rows import PROPERTIES
from .options import Writing, checked_columns
from .staging import ROWS, Note, Staging, chunks, digest_of

_KEPT: Final = 10_000  # different headers and properties that are remembered


@dataclass
class Staged(WriterCommitMessage):
    """The file that a task has left."""

    name: str
    rows: int


class Columns:
    """How the rows of a DataFrame become those of a file; checked when it is made."""

    def __init__(self, options: Writing, types: Mapping[str, str]) -> None:
        """`types` are the names that Spark has for the types of the columns."""
        self._names = frozenset(types)
        self._ids = checked_columns(options, types)
        self._known: dict[tuple[str, str], bytes] = {}

    def staged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = [b""] * batch.num_rows if self._ids is None else ids_of(batch, self._ids)
        columns = {
            "offset": self._numbers("offset", batch),
            "timestamp": self._numbers("timestamp", batch),
            "message_id": ids,
            "routing_key": self._octets("routing_key", batch),
            "headers": self._encoded("headers", batch, _table),
            "properties": self._encoded("properties", batch, _properties),
            "body": self._octets("body", batch),
        }
        return pa.RecordBatch.from_pydict(columns, schema=ROWS)

    def _numbers(self, name: str, batch: pa.RecordBatch) -> pa.Array | list[int]:
        if name not in self._names:
            return [0] * batch.num_rows
        return batch.column(name).cast(pa.int64()).fill_null(0)

    def _octets(self, name: str, batch: pa.RecordBatch) -> pa.Array | list[bytes]:
        if name not in self._names:
            return [b""] * batch.num_rows
        return batch.column(name).cast(pa.large_binary()).fill_null(b"")

    def _encoded(
        self, name: str, batch: pa.RecordBatch, encode: Callable[[Any], bytes]
    ) -> list[bytes]:
        """Equal ones are encoded once."""
        if name not in self._names:
            return [b""] * batch.num_rows
        known, found = self._known, []
        for value in batch.column(name).to_pylist():
            if not value:
                found.append(b"")
                continue
            key = (name, str(value))
            if key not in known:
                if len(known) >= _KEPT:
                    known.clear()
                known[key] = encode(value)
            found.append(known[key])
        return found


def _table(headers: Sequence[tuple[str, str | None]]) -> bytes:
    return encode_table(dict(headers))


def _properties(values: Mapping[str, Any]) -> bytes:
    known = {name: value for name, value in values.items() if name in PROPERTIES}
    if all(value is None for value in known.values()):
        return b""
    return encode_properties(Properties(**known))


# --- publishing ----------------------------------------------------------------------------------


def publish(options: Writing, staging: Staging, staged: Sequence[Staged], batch: int) -> None:
    """All rows that the tasks have left, as this batch. When it returns the broker has confirmed them."""
    try:
        table = staging.read([each.name for each in staged])
    except FileNotFoundError:
        raise OptionError(
            f"{staging.folder} has not all that tasks have written there: the option staging must name a "
            "folder that all machines share"
        ) from None
    if table.num_rows:
        planned = staging.note().planned(batch, table.num_rows, digest_of(table))
        staging.keep(planned)
        asyncio.run(_publish(options, planned, table))
    staging.clear()


async def _publish(options: Writing, note: Note, table: pa.Table) -> None:
    earlier = Earlier(bytes.fromhex(note.publisher), note.first - 1)
    # A broker that is away is waited for, between two batches as within one.
    async with Link(options.url, give_up=options.give_up, patient=True) as link:
        feed = await link.feed(options.feed, earlier=earlier)
        for rows in chunks(table):
            column = {each: rows.column(each).to_pylist() for each in ROWS.names}
            now = time.time_ns() // 1000
            await feed.publish_encoded(
                column["body"],
                keys=column["routing_key"],
                message_ids=column["message_id"],
                headers=column["headers"],
                properties=column["properties"],
                timestamps=[each or now for each in column["timestamp"]],
            )
        await feed.close()


class _Writer:
    """What both writers have in common: a task's work, and the driver's."""

    def __init__(self, options: Writing, types: Mapping[str, str], folder: Path | None) -> None:
        """Without a folder it has one of its own, on this machine; made when all else was checked."""
        self._options = options
        self._columns = Columns(options, types)
        folder = folder or Path(tempfile.mkdtemp(prefix="recado-", dir=_spark_folder()))
        self._staging = Staging(folder, options.writer or options.feed)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return Staged(*self._staging.write(map(self._columns.staged, iterator)))

    def finish(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        staged = [each for each in messages if isinstance(each, Staged)]
        publish(self._options, self._staging, staged, batch)


class FeedWriter(_Writer, DataSourceArrowWriter):
    """In a folder of its own, unless it is the batch of something."""

    def __init__(self, options: Writing, types: Mapping[str, str]) -> None:
        folder = None if options.staging is None else Path(options.staging)
        if folder is not None and options.batch is None:
            folder /= token_hex(16)
        super().__init__(options, types, folder)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        try:
            self.finish(messages, self._options.batch or 0)
        finally:
            self._tidy()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._staging.clear()
        self._tidy()

    def _tidy(self) -> None:
        """A folder for this write alone is of no more use."""
        if self._options.batch is None:
            shutil.rmtree(self._staging.folder, ignore_errors=True)


def _spark_folder() -> str | None:
    """Of what Spark removes when it ends, also because the driver was killed; it tells its Pythons."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


class FeedStreamWriter(_Writer, DataSourceStreamArrowWriter):
    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 (Spark's name)
    ) -> None:
        self.finish(messages, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        self._staging.clear()
