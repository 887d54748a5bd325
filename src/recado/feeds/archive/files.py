"""Parquet files: written atomically, never changed, and read by row group.

A file gets its name only after all of it is on disk. Pages have checksums, which every reader here verifies;
the manifest has a checksum of the whole file for `verify_checksum`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from errno import EMFILE, ENFILE, ENOENT, ENOMEM
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from recado.journal.checksum import crc32
from recado.journal.disk import Disk, DiskFile

from .columns import BATCH_COLUMNS, SCHEMA
from .errors import CorruptArchiveError
from .layout import PART_SUFFIX, ReadableTree
from .manifest import DataFile, ViewsFile

_DICTIONARY_COLUMNS: Final = [*BATCH_COLUMNS, "routing_key", "headers", "properties"]
_STATISTICS_COLUMNS: Final = ["offset", "publisher", "sequence", "timestamp", "routing_key"]
_READ_CHUNK_BYTES: Final = 1 << 20
_OUT_OF_RESOURCES: Final = (EMFILE, ENFILE, ENOMEM)
"""These errors say nothing about the file."""


class WrittenFile(NamedTuple):
    bytes: int
    crc32: str
    footer: str


class _ParquetSink:
    """Adapts a disk's file to pyarrow's writer."""

    closed = False

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self.size = 0
        self.crc = 0

    def write(self, data: bytes) -> int:
        self._file.write(self.size, bytes(data))
        self.crc = crc32(data, self.crc)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass  # the caller syncs it first


def write_parquet(
    disk: Disk, name: str, schema: pa.Schema, tables: Iterable[pa.Table]
) -> WrittenFile:
    """Write a row group for each table. When this returns, the file is durable under its name."""
    part = name + PART_SUFFIX
    file = disk.open(part, create=True)
    try:
        try:
            sink = _ParquetSink(file)
            dictionaries = [each for each in _DICTIONARY_COLUMNS if each in schema.names]
            with pq.ParquetWriter(
                sink,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=dictionaries,
                write_statistics=[each for each in _STATISTICS_COLUMNS if each in schema.names],
                write_page_checksum=True,
                store_schema=False,
            ) as writer:
                for table in tables:
                    writer.write_table(table, row_group_size=table.num_rows)
            footer = _footer_checksum(file.read, sink.size)
            file.sync()
        finally:
            file.close()
    except BaseException:
        disk.remove(part)
        raise
    disk.rename(part, name)
    disk.sync_folder()
    return WrittenFile(sink.size, f"{sink.crc:08x}", footer)


def _footer_checksum(read: Callable[[int, int], bytes], size: int) -> str:
    """Return the checksum of a file's footer:  … | metadata | its size u32 | "PAR1" |"""
    length = int.from_bytes(read(size - 8, 4), "little") + 8
    return f"{crc32(read(max(size - length, 0), length)):08x}"


class ParquetReader:
    """An open Parquet file of an archive. Any damage raises a CorruptArchiveError that names the row group."""

    def __init__(
        self, tree: ReadableTree, file: DataFile | ViewsFile, dictionaries: Sequence[str] = ()
    ) -> None:
        self.file = file
        self._path = tree.path(file.path)
        with self._report_damage("the footer"):
            self._source = tree.parquet(file.path)
            try:
                self._check_footer()
                self._parquet = pq.ParquetFile(
                    self._source,
                    read_dictionary=list(dictionaries),
                    page_checksum_verification=True,
                )
            except BaseException:
                self._source.close()
                raise
        rows = self._parquet.metadata.num_rows
        if rows != file.rows:
            self.close()
            raise CorruptArchiveError(
                self._path, "the footer", f"{rows} rows instead of {file.rows}"
            )

    def _check_footer(self) -> None:
        size = self._source.size()
        if size != self.file.bytes:
            raise ValueError(f"{size} bytes instead of {self.file.bytes}")
        if (
            _footer_checksum(lambda at, count: self._source.read_at(count, at), size)
            != self.file.footer
        ):
            raise ValueError("wrong checksum of the footer")

    def close(self) -> None:
        self._parquet.close()
        self._source.close()

    def __enter__(self) -> ParquetReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def group_rows(self) -> list[int]:
        metadata = self._parquet.metadata
        return [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)]

    def read_group(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        with self._report_damage(f"row group {number}"):
            table = self._parquet.read_row_group(number, columns and list(columns))
            return _validate_dictionaries(table.combine_chunks().to_batches()[0])

    def read_pieces(
        self, number: int, columns: Sequence[str] | None, max_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the same rows in pieces of about `max_bytes`, which reuse the memory of the pieces before:
        allocating fresh memory costs more than reading."""
        with self._report_damage(f"row group {number}"):
            rows = max(1, int(max_bytes / self._row_bytes(number, columns)))
            wanted = columns and list(columns)
            for batch in self._parquet.iter_batches(rows, [number], wanted, use_threads=False):
                yield _validate_dictionaries(batch)

    def _row_bytes(self, number: int, columns: Sequence[str] | None) -> float:
        """Estimate the memory that a row takes; dictionary-encoded values take at least their index."""
        group = self._parquet.metadata.row_group(number)
        each = (group.column(index) for index in range(group.num_columns))
        wanted = [one for one in each if columns is None or one.path_in_schema in columns]
        stored = sum(one.total_uncompressed_size for one in wanted)
        return float(stored / group.num_rows + 4 * len(wanted))

    @contextmanager
    def _report_damage(self, location: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            missing = str(self._path)
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), missing) from None
        except MemoryError:
            raise
        except OSError as error:
            if error.errno in _OUT_OF_RESOURCES:
                raise
            raise CorruptArchiveError(self._path, location, str(error)) from error
        except (pa.ArrowException, ValueError, IndexError) as error:
            raise CorruptArchiveError(self._path, location, str(error)) from error


def _validate_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Page headers have no checksum, and a wrong one can produce indices beyond the dictionary.
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column.validate(full=True)
    return batch


def verify_checksum(tree: ReadableTree, folder: str, name: str, size: int, crc: str) -> None:
    """Compare every byte with the checksum in the manifest; raise `CorruptArchiveError`."""
    path = tree.path(f"{folder}/{name}")
    file = tree.disk(folder).open(name)
    try:
        if file.size() != size:
            raise CorruptArchiveError(
                path, f"byte {min(file.size(), size)}", f"{file.size()} bytes instead of {size}"
            )
        found = 0
        for at in range(0, size, _READ_CHUNK_BYTES):
            found = crc32(file.read(at, _READ_CHUNK_BYTES), found)
    finally:
        file.close()
    if f"{found:08x}" != crc:
        raise CorruptArchiveError(
            path, "an unknown location", f"checksum {found:08x} instead of {crc}"
        )


def decode_dictionaries(table: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionary columns, as in `SCHEMA`."""
    known = [
        SCHEMA.field(each.name) if each.name in SCHEMA.names else each.with_type(pa.string())
        for each in table.schema
    ]
    return table.cast(pa.schema(known))
