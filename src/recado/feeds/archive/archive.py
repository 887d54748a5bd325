"""Read access to an archive: a snapshot that needs no cooperation of the writer and does not slow it down.

A snapshot contains everything that was durable when it was taken, and nothing later. Files that retention
removes meanwhile stay for the grace period; a snapshot that is read for longer may miss them and raises
`SnapshotExpiredError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.dataset as ds

from recado.selector import Selector, compile_predicate, parse, to_arrow_filter

from ..boundary import ArchiveQuery
from ..selector_fields import field_readers
from . import identity, views_table
from . import manifest as manifests
from .certainty import CERTAINTY_COLUMN, CertaintyClassifier
from .columns import BATCH_COLUMNS, SCHEMA, RowConstants, build_table, group_batches
from .errors import ArchiveError, CorruptArchiveError
from .files import ParquetReader, decode_dictionaries, verify_checksum
from .layout import DATA_FOLDER, JOURNAL_FOLDER, ReadableTree, ReadOnlyTree
from .manifest import DataFile, Manifest, ViewsFile
from .messages import ArchivedMessage, read_messages
from .query import QueryResult, QuerySource, RowGroupCache, TailCheckpoint, run_query
from .records import StoredBatch, StoredRecord
from .tail import SegmentGoneError, TailReader, durable_position

_DICTIONARY_COLUMNS = [*BATCH_COLUMNS, "routing_key", "headers", "properties"]


class SnapshotExpiredError(ArchiveError):
    """A file of the snapshot was deleted: it expired, and its grace period has ended."""


class JournalExtent(NamedTuple):
    """A range of positions in the journal; both ends are ends of records."""

    start: int
    end: int


class FileCheck(NamedTuple):
    """Result of checking a Parquet file, or the tail in the journal if `file` is None."""

    path: str
    file: DataFile | ViewsFile | None
    bytes: int
    damage: CorruptArchiveError | None


class Archive:
    """A snapshot of an archive; made by `open`, to be closed or used by `with`."""

    def __init__(self, tree: ReadableTree, manifest: Manifest, tail: TailReader) -> None:
        self.manifest = manifest
        self._tree = tree
        self._tail = tail
        self._cache = RowGroupCache(tree)
        self._end_offset: int | None = None

    @classmethod
    def open(cls, path: Path | str, extent: JournalExtent | None = None) -> Self:
        """Open a snapshot of the archive in a folder.

        With `extent`, only this part of the journal is read, and the tail contains only its rows. Raises
        `ArchiveNotFoundError`, `UnsupportedVersionError`, `CorruptArchiveError`.
        """
        return cls._open_tree(ReadOnlyTree(Path(path)), extent)

    @classmethod
    def _open_tree(cls, tree: ReadableTree, extent: JournalExtent | None = None) -> Self:
        manifest = manifests.read(tree.disk("."))
        while True:
            journal = tree.disk(JOURNAL_FOLDER)
            start, end = manifest.tail.position, durable_position(journal)
            if extent is not None:
                start, end = max(start, extent.start), min(end, extent.end)
            try:
                tail = TailReader(journal, start, end)
            except SegmentGoneError as error:
                newer = manifests.read(tree.disk("."))
                if newer.generation == manifest.generation:
                    location = f"position {error.position}"
                    raise CorruptArchiveError(
                        journal.folder, location, "the file is missing"
                    ) from None
                manifest = newer  # it was sealed in between
            else:
                return cls(tree, manifest, tail)

    def close(self) -> None:
        self._tail.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- contents ---------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Unique id of the archive; offsets are only meaningful together with it."""
        return identity.read(self._tree.disk("."), self.manifest)

    @property
    def feed(self) -> str:
        return self.manifest.feed

    @property
    def first_offset(self) -> int:
        """The offset of the first row."""
        return self.manifest.first

    @property
    def end_offset(self) -> int:
        """The offset after the last row."""
        if self._end_offset is None:
            self._end_offset = self.manifest.tail.offset
            for batch in self._tail_batches():
                self._end_offset = batch.end
        return self._end_offset

    @property
    def parquet_paths(self) -> list[str]:
        """The Parquet files, in order of offsets."""
        return [str(self._tree.path(file.path)) for file in self.manifest.files]

    def records(self) -> list[StoredRecord]:
        """Views, acknowledgements and other records, in order of offsets."""
        in_tail = (stored for _, stored in self._tail.records())
        later = [each for each in in_tail if isinstance(each, StoredRecord)]
        return views_table.read(self._tree, self.manifest.views) + later

    # -- rows -------------------------------------------------------------------------------------

    def batches(
        self,
        start: int = 0,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        selector: str | Selector | None = None,
        subscriber: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows with offsets in [start, stop), in order, as Arrow record batches.

        `columns` limits the columns, `selector` the rows. With `subscriber`, a column `certainty` says whether
        a subscriber of that name has received the row. Raises `ValueError` for an unknown column,
        `SelectorError`, `CorruptArchiveError`, `SnapshotExpiredError`.
        """
        names = _column_names(columns)
        if subscriber is not None:
            names.append(CERTAINTY_COLUMN)
        needs_all_columns = columns is None or selector is not None or subscriber is not None
        for table in self._select_rows(
            start, stop, None if needs_all_columns else names, selector, subscriber
        ):
            if table.num_rows:
                yield decode_dictionaries(table.select(names))

    def dictionary_batches(
        self,
        start: int = 0,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        selector: str | Selector | None = None,
        max_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the same rows as they are stored: some columns are dictionary-encoded, with a different
        dictionary per batch.

        Batches are row groups of the files, or with `max_bytes` pieces of about that size.
        """
        names = _column_names(columns)
        read = names if selector is None else None
        for table in self._select_rows(start, stop, read, selector, None, max_bytes):
            if table.num_rows:
                yield table.select(names)

    def messages(
        self,
        start: int = 0,
        stop: int | None = None,
        selector: str | Selector | None = None,
        subscriber: str | None = None,
    ) -> Iterator[ArchivedMessage]:
        """Yield the same rows as messages."""
        for table in self._select_rows(start, stop, None, selector, subscriber):
            yield from read_messages(table)

    def dataset(self) -> ds.Dataset:
        """Return the sealed rows as a pyarrow dataset, with the column `date`; rows of the tail are only in
        `batches`."""
        schema = SCHEMA.append(pa.field("date", pa.string()))
        if not self.manifest.files:
            return ds.dataset(schema.empty_table())
        return ds.dataset(
            self.parquet_paths,
            schema=schema,
            format="parquet",
            partitioning=ds.partitioning(pa.schema([("date", pa.string())]), flavor="hive"),
            partition_base_dir=str(self._tree.path(DATA_FOLDER)),
        )

    def _select_rows(
        self,
        start: int,
        stop: int | None,
        columns: Sequence[str] | None,
        selector: str | Selector | None,
        subscriber: str | None,
        max_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        parsed = parse(selector) if isinstance(selector, str) else selector
        classifier = None if subscriber is None else CertaintyClassifier(subscriber, self.records())
        for table in self._read_batches(start, stop, columns, max_bytes):
            if classifier is not None:
                table = classifier.add_column(table)
            if parsed is not None:
                table = apply_selector(table, parsed, self.feed)
            yield table

    def _read_batches(
        self, start: int, stop: int | None, columns: Sequence[str] | None, max_bytes: int | None
    ) -> Iterator[pa.RecordBatch]:
        for file in self.manifest.files:
            if file.end > start and (stop is None or file.first < stop):
                for first, table in self._read_file(file, start, stop, columns, max_bytes):
                    yield _slice_rows(table, first, start, stop)
        location = RowConstants(self.manifest.feed, self.manifest.exchange)
        for group in group_batches(self._tail_batches()):
            first = group[0].batch.offset
            if stop is not None and first >= stop:
                break
            if group[-1].batch.end > start:
                table = build_table(group, location)
                yield _slice_rows(
                    table if columns is None else table.select(columns), first, start, stop
                )

    def _read_file(
        self,
        file: DataFile,
        start: int,
        stop: int | None,
        columns: Sequence[str] | None,
        max_bytes: int | None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of a file that overlap [start, stop), with their first offsets."""
        try:
            reader = ParquetReader(self._tree, file, _DICTIONARY_COLUMNS)
        except FileNotFoundError:
            raise self._missing_error(file) from None
        end = file.end if stop is None else min(stop, file.end)
        with reader:
            first = file.first
            for number, rows in enumerate(reader.group_rows):
                if first < end and first + rows > start:
                    at = first
                    for table in _read_pieces(reader, number, columns, max_bytes):
                        if at + table.num_rows > start:
                            yield at, table
                        at += table.num_rows
                        if at >= end:
                            break
                first += rows

    def _missing_error(self, file: DataFile) -> ArchiveError:
        path = self._tree.path(file.path)
        newer = manifests.read(self._tree.disk("."))
        if file in newer.files:
            return CorruptArchiveError(path, "byte 0", "the file is missing")
        return SnapshotExpiredError(
            f"{path} was deleted by retention after the snapshot was taken; open it again"
        )

    def _tail_batches(self) -> Iterator[StoredBatch]:
        return (stored for _, stored in self._tail.records() if isinstance(stored, StoredBatch))

    def query(self, query: ArchiveQuery) -> QueryResult:
        """Run a query; row groups that cannot be read are left out."""
        tail = self.manifest.tail
        start = TailCheckpoint(tail.offset, tail.position, {})
        source = QuerySource(self._cache, self.manifest, (start,), (), self.end_offset)
        return run_query(source, query, self._tail, start)

    # -- verification -----------------------------------------------------------------------------

    def check_files(self) -> Iterator[FileCheck]:
        """Read every byte of each file, then the tail; yield a result for each."""
        for file in (*self.manifest.files, self.manifest.views):
            if file is not None:
                yield FileCheck(
                    str(self._tree.path(file.path)), file, file.bytes, self._damage(file)
                )
        damage = None
        try:
            for _ in self._tail.records():
                pass
        except CorruptArchiveError as error:
            damage = error
        yield FileCheck(str(self._tree.path(JOURNAL_FOLDER)), None, 0, damage)

    def _damage(self, file: DataFile | ViewsFile) -> CorruptArchiveError | None:
        folder, _, name = file.path.rpartition("/")
        try:
            verify_checksum(self._tree, folder, name, file.bytes, file.crc32)
        except CorruptArchiveError as error:
            return error
        except FileNotFoundError:
            return CorruptArchiveError(self._tree.path(file.path), "byte 0", "the file is missing")
        return None

    def verify(self) -> Iterator[CorruptArchiveError]:
        """Read every byte; yield the damages that were found."""
        return (checked.damage for checked in self.check_files() if checked.damage is not None)


def _column_names(columns: Sequence[str] | None) -> list[str]:
    names = list(SCHEMA.names if columns is None else columns)
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise ValueError(f"unknown column {unknown[0]!r}; the columns are {SCHEMA.names}")
    return names


def _read_pieces(
    reader: ParquetReader, number: int, columns: Sequence[str] | None, max_bytes: int | None
) -> Iterable[pa.RecordBatch]:
    if max_bytes is None:
        return [reader.read_group(number, columns)]
    return reader.read_pieces(number, columns, max_bytes)


def _slice_rows(table: pa.RecordBatch, first: int, start: int, stop: int | None) -> pa.RecordBatch:
    low = max(start - first, 0)
    high = table.num_rows if stop is None else min(stop - first, table.num_rows)
    return table.slice(low, max(high - low, 0))


def apply_selector(table: pa.RecordBatch, selector: Selector, feed: str) -> pa.RecordBatch:
    """Return the rows that match."""
    filter_ = to_arrow_filter(selector, table.schema)
    if filter_.expression is not None:
        filtered = pa.Table.from_batches([table]).filter(filter_.expression)
        table = (
            filtered.combine_chunks().to_batches()[0] if filtered.num_rows else table.slice(0, 0)
        )
    if filter_.residual is not None and table.num_rows:
        wanted = compile_predicate(filter_.residual, field_readers(feed))
        mask = pa.array([wanted(message) for message in read_messages(table)], pa.bool_())
        table = table.filter(mask)
    return table
