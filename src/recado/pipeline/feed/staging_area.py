"""The staging area between the tasks of a write and the feed: rows in files, and a publish record.

Tasks are retried and finish in any order, so they publish nothing. They write their rows to files in a
folder that the driver can read. The driver publishes them as one publisher, in an order that depends only on
the rows. Before that, it records which batch has which sequence numbers. If it is killed on the way, Spark
retries the batch, and it is published again under the same numbers, which archives and subscribers discard as
duplicates.

FS1  The publish record is durable before the first message of its batch is published.
FS2  A batch with the recorded number must have the recorded rows, or it is refused. A batch with a lower
     number is refused: Spark retries only its last batch, so it belongs to another query.
FS3  A publish record that is a copy, as in a checkpoint restored from a backup, may be older than the last
     published batch. The numbers after it may be in use, and messages under these numbers would be discarded
     as duplicates. So a copy is used only to retry its batch; the next batch gets a new publisher. A file
     beside the record, the seal, has the inode and change time of the record, which a copy does not share.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from ..errors import PipelineError
from ..location import to_local_path

STAGED_SUFFIX: Final = ".arrow"
_CHUNK_ROW_COUNT: Final = 10_000

STAGED_SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("message_id", pa.large_binary()),
        ("routing_key", pa.large_binary()),
        ("headers", pa.large_binary()),
        ("properties", pa.large_binary()),
        ("body", pa.large_binary()),
    ]
)
"""The columns of a staged file: the message, and the sort keys. Timestamps in µs; 0 if there is none."""


class BatchChangedError(PipelineError):
    """A retried batch has other rows than the first time."""


class StaleBatchError(PipelineError):
    """A batch has a lower number than the last published one: it belongs to another query."""


class PublishRecord(msgspec.Struct, frozen=True):
    """The last batch that a writer has published, or is publishing."""

    publisher: str
    batch: int = -1
    first: int = 1
    """The sequence number of its first row."""
    rows: int = 0
    digest: str = ""
    is_copy: bool = False
    """Whether later batches may have been published (FS3)."""

    def plan_batch(self, batch: int, rows: int, digest: str) -> PublishRecord:
        """Return the record for a batch. Raises BatchChangedError or StaleBatchError (FS2)."""
        if batch < self.batch:
            raise StaleBatchError(
                f"batch {self.batch} is already published, so batch {batch} belongs to another query. "
                "The folder of the option staging is used by two queries, or the checkpoint of the "
                "query was deleted or an older one restored. Put back the newest checkpoint; or set "
                "another folder or writer, and rows published since then are published again"
            )
        if batch > self.batch and self.is_copy:
            return PublishRecord(secrets.token_hex(16), batch, 1, rows, digest)  # FS3
        if batch > self.batch:
            return PublishRecord(self.publisher, batch, self.first + self.rows, rows, digest)
        if (rows, digest) != (self.rows, self.digest):
            raise BatchChangedError(
                f"batch {batch} had {self.rows} rows when it was first published, and now has {rows}, or "
                "different ones. The query must produce the same rows when it is repeated. If an older "
                "checkpoint was restored, put back the newest one"
            )
        return self


class StagingArea:
    """The staged files and the publish record of one writer. Writers of other names may share the folder."""

    def __init__(self, folder: Path | str, name: str) -> None:
        self.folder = to_local_path(str(folder))  # absolute: tasks have another working directory
        # The name of a feed may contain slashes.
        self._record_file = self.folder / f"{quote(name, safe='')}.json"
        self._seal_file = self._record_file.with_suffix(".seal")
        self._file_prefix = sha256(name.encode()).hexdigest()[:16]

    def write(self, batches: Iterator[pa.RecordBatch]) -> tuple[str, int]:
        """Write the rows of a task to a new file; return its name and the number of rows."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._file_prefix}-{secrets.token_hex(16)}{STAGED_SUFFIX}"
        rows = 0
        with (
            pa.OSFile(str(self.folder / name), "wb") as file,
            pa.ipc.new_file(file, STAGED_SCHEMA) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return name, rows

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read these files, in an order that depends only on the rows."""
        tables = []
        for name in names:
            with pa.memory_map(str(self.folder / name)) as file, pa.ipc.open_file(file) as reader:
                tables.append(reader.read_all())
        if not tables:
            return STAGED_SCHEMA.empty_table()
        table = pa.concat_tables(tables)
        keys = [(each, "ascending") for each in ("offset", "timestamp", "message_id")]
        keys += [(each, "ascending") for each in ("routing_key", "body", "headers", "properties")]
        return table.take(pc.sort_indices(table, sort_keys=keys))

    def clear(self) -> None:
        """Remove the files of this writer, including those of abandoned tasks."""
        for path in self.folder.glob(f"{self._file_prefix}-*{STAGED_SUFFIX}"):
            path.unlink(missing_ok=True)

    # -- the publish record ------------------------------------------------------------------------

    def load_record(self) -> PublishRecord:
        """Load the publish record, or create one with a new publisher."""
        try:
            record = msgspec.json.decode(self._record_file.read_bytes(), type=PublishRecord)
        except FileNotFoundError:
            return PublishRecord(secrets.token_hex(16))
        try:
            is_sealed = self._seal_file.read_text() == self._seal_text()
        except FileNotFoundError:
            is_sealed = True  # written before seals were introduced
        return record if is_sealed else replace(record, is_copy=True)

    def save_record(self, record: PublishRecord) -> None:
        """Store the publish record; it is durable on return (FS1)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self._record_file.with_name(f"{self._record_file.name}.part")
        with part.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._record_file)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # If the process is killed before this, an older seal makes the record a copy (FS3): the next batch
        # gets a new publisher, which is safe.
        part = self._seal_file.with_name(f"{self._seal_file.name}.part")
        part.write_text(self._seal_text())
        part.replace(self._seal_file)

    def _seal_text(self) -> str:
        found = self._record_file.stat()
        return f"{found.st_ino} {found.st_ctime_ns}"


def digest_rows(table: pa.Table) -> str:
    """Return a digest of ids, routing keys and bodies."""
    digest = sha256()
    for batch in split_rows(table):
        for name in ("message_id", "routing_key", "body"):
            for value in batch.column(name).to_pylist():
                digest.update(b"%d:%b" % (len(value), value))
    return digest.hexdigest()


def split_rows(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most 10,000."""
    for start in range(0, table.num_rows, _CHUNK_ROW_COUNT):
        yield table.slice(start, _CHUNK_ROW_COUNT).combine_chunks().to_batches()[0]
