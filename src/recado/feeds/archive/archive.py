"""An archive as others read it: a snapshot, taken without asking the one who writes, who is not held up by it.

What was durable when it was taken is in it, and nothing that came later. Files that are collected meanwhile
stay for the grace period; a snapshot that is read for longer than that may miss them, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.dataset as ds

from recado.selector import Selector, arrow_filter, parse, predicate

from ..boundary import Query
from ..selecting import fields_of
from . import identity, views
from . import manifest as manifests
from .certainty import CERTAINTY, Judge
from .columns import OF_BATCH, SCHEMA, Place, groups, table_of
from .errors import ArchiveError, CorruptArchive
from .files import ParquetReader, check_bytes, plain
from .layout import DATA, JOURNAL, ReadableTree, ReadingTree
from .manifest import DataFile, Manifest, ViewsFile
from .messages import ArchivedMessage, messages_of
from .recall import Checkpoint, GroupCache, Recollection, Source, recall
from .records import StoredBatch, StoredRecord
from .tail import Gone, TailReader, durable_position

_FREQUENT = [*OF_BATCH, "routing_key", "headers", "properties"]


class SnapshotExpired(ArchiveError):
    """A file of the snapshot is gone: it was collected, and its grace period has ended."""


class Stretch(NamedTuple):
    """Of the journal: the records between two positions, both ends of groups or of records."""

    start: int
    end: int


class Checked(NamedTuple):
    """A Parquet file that was read, or with `file` None the tail in the journal."""

    path: str
    file: DataFile | ViewsFile | None
    bytes: int
    damage: CorruptArchive | None


class Archive:
    """Made by `open`, and to be closed."""

    def __init__(self, tree: ReadableTree, manifest: Manifest, tail: TailReader) -> None:
        self.manifest = manifest
        self._tree = tree
        self._tail = tail
        self._cache = GroupCache(tree)
        self._end: int | None = None

    @classmethod
    def open(cls, path: Path | str, stretch: Stretch | None = None) -> Self:
        """Raises NoArchive, UnknownVersion, CorruptArchive.

        Who knows which stretch of the journal is wanted has less of it to read, and sees only that of the tail.
        """
        return cls.snapshot(ReadingTree(Path(path)), stretch)

    @classmethod
    def snapshot(cls, tree: ReadableTree, stretch: Stretch | None = None) -> Self:
        manifest = manifests.read(tree.disk("."))
        while True:
            journal = tree.disk(JOURNAL)
            start, end = manifest.tail.position, durable_position(journal)
            if stretch is not None:
                start, end = max(start, stretch.start), min(end, stretch.end)
            try:
                tail = TailReader(journal, start, end)
            except Gone as error:
                newer = manifests.read(tree.disk("."))
                if newer.generation == manifest.generation:
                    place = f"position {error.position}"
                    raise CorruptArchive(journal.folder, place, "the file is missing") from None
                manifest = newer  # it was sealed in between
            else:
                return cls(tree, manifest, tail)

    def close(self) -> None:
        self._tail.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- what there is -----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """What names this archive, and no other: offsets are of one archive."""
        return identity.read(self._tree.disk("."), self.manifest)

    @property
    def feed(self) -> str:
        return self.manifest.feed

    @property
    def first(self) -> int:
        """The offset of the first row."""
        return self.manifest.first

    @property
    def end(self) -> int:
        """The offset behind the last row."""
        if self._end is None:
            self._end = self.manifest.tail.offset
            for batch in self._tail_batches():
                self._end = batch.end
        return self._end

    @property
    def paths(self) -> list[str]:
        """The Parquet files, in order of offsets."""
        return [str(self._tree.path(file.path)) for file in self.manifest.files]

    def records(self) -> list[StoredRecord]:
        """Views, acknowledgements and the like, in order of offsets."""
        in_tail = (stored for _, stored in self._tail.records())
        later = [each for each in in_tail if isinstance(each, StoredRecord)]
        return views.read(self._tree, self.manifest.views) + later

    # -- rows --------------------------------------------------------------------------------------

    def batches(
        self,
        start: int = 0,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        selector: str | Selector | None = None,
        subscriber: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows with offsets in [start, stop) that a selector wants, in order.

        With the name of a subscriber there is one more column: what is certain about its having got the row.
        """
        names = _names(columns)
        if subscriber is not None:
            names.append(CERTAINTY)
        whole = columns is None or selector is not None or subscriber is not None
        for table in self._rows(start, stop, None if whole else names, selector, subscriber):
            if table.num_rows:
                yield plain(table.select(names))

    def tables(
        self,
        start: int = 0,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        selector: str | Selector | None = None,
        most_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as they are read: some columns are indices into dictionaries, which differ by batch.

        Row groups as the files have them, or of their rows about so many bytes at a time.
        """
        names = _names(columns)
        read = names if selector is None else None
        for table in self._rows(start, stop, read, selector, None, most_bytes):
            if table.num_rows:
                yield table.select(names)

    def messages(
        self,
        start: int = 0,
        stop: int | None = None,
        selector: str | Selector | None = None,
        subscriber: str | None = None,
    ) -> Iterator[ArchivedMessage]:
        """The same rows as objects."""
        for table in self._rows(start, stop, None, selector, subscriber):
            yield from messages_of(table)

    def dataset(self) -> ds.Dataset:
        """The rows that are in files, with the column `date`; those of the tail are only in `batches`."""
        schema = SCHEMA.append(pa.field("date", pa.string()))
        if not self.manifest.files:
            return ds.dataset(schema.empty_table())
        return ds.dataset(
            self.paths,
            schema=schema,
            format="parquet",
            partitioning=ds.partitioning(pa.schema([("date", pa.string())]), flavor="hive"),
            partition_base_dir=str(self._tree.path(DATA)),
        )

    def _rows(
        self,
        start: int,
        stop: int | None,
        columns: Sequence[str] | None,
        selector: str | Selector | None,
        subscriber: str | None,
        most_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        asked = parse(selector) if isinstance(selector, str) else selector
        judge = None if subscriber is None else Judge(subscriber, self.records())
        for table in self._tables(start, stop, columns, most_bytes):
            if judge is not None:
                table = judge.add_column(table)
            if asked is not None:
                table = _chosen(table, asked, self.feed)
            yield table

    def _tables(
        self, start: int, stop: int | None, columns: Sequence[str] | None, most_bytes: int | None
    ) -> Iterator[pa.RecordBatch]:
        for file in self.manifest.files:
            if file.end > start and (stop is None or file.first < stop):
                for first, table in self._of_file(file, start, stop, columns, most_bytes):
                    yield _cut(table, first, start, stop)
        place = Place(self.manifest.feed, self.manifest.exchange)
        for group in groups(self._tail_batches()):
            first = group[0].batch.offset
            if stop is not None and first >= stop:
                break
            if group[-1].batch.end > start:
                table = table_of(group, place)
                yield _cut(table if columns is None else table.select(columns), first, start, stop)

    def _of_file(
        self,
        file: DataFile,
        start: int,
        stop: int | None,
        columns: Sequence[str] | None,
        most_bytes: int | None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """What a file has in [start, stop), with first offsets; rows around it may be in the first and last."""
        try:
            reader = ParquetReader(self._tree, file, _FREQUENT)
        except FileNotFoundError:
            raise self._missing(file) from None
        end = file.end if stop is None else min(stop, file.end)
        with reader:
            first = file.first
            for number, rows in enumerate(reader.group_rows):
                if first < end and first + rows > start:
                    at = first
                    for table in _pieces(reader, number, columns, most_bytes):
                        if at + table.num_rows > start:
                            yield at, table
                        at += table.num_rows
                        if at >= end:
                            break
                first += rows

    def _missing(self, file: DataFile) -> ArchiveError:
        path = self._tree.path(file.path)
        newer = manifests.read(self._tree.disk("."))
        if file in newer.files:
            return CorruptArchive(path, "byte 0", "the file is missing")
        return SnapshotExpired(f"{path} was collected since the archive was opened; open it again")

    def _tail_batches(self) -> Iterator[StoredBatch]:
        return (stored for _, stored in self._tail.records() if isinstance(stored, StoredBatch))

    def recall(self, query: Query) -> Recollection:
        """What a query asks for, leaving out row groups that cannot be read."""
        tail = self.manifest.tail
        start = Checkpoint(tail.offset, tail.position, {})
        source = Source(self._cache, self.manifest, (start,), (), self.end)
        return recall(source, query, self._tail, start)

    # -- verification ------------------------------------------------------------------------------

    def check(self) -> Iterator[Checked]:
        """Read every byte of each file of the archive, then the tail."""
        for file in (*self.manifest.files, self.manifest.views):
            if file is not None:
                yield Checked(str(self._tree.path(file.path)), file, file.bytes, self._damage(file))
        damage = None
        try:
            for _ in self._tail.records():
                pass
        except CorruptArchive as error:
            damage = error
        yield Checked(str(self._tree.path(JOURNAL)), None, 0, damage)

    def _damage(self, file: DataFile | ViewsFile) -> CorruptArchive | None:
        folder, _, name = file.path.rpartition("/")
        try:
            check_bytes(self._tree, folder, name, file.bytes, file.crc32)
        except CorruptArchive as error:
            return error
        except FileNotFoundError:
            return CorruptArchive(self._tree.path(file.path), "byte 0", "the file is missing")
        return None

    def verify(self) -> Iterator[CorruptArchive]:
        """Read every byte, and tell what is damaged."""
        return (checked.damage for checked in self.check() if checked.damage is not None)


def _names(columns: Sequence[str] | None) -> list[str]:
    names = list(SCHEMA.names if columns is None else columns)
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}; there are {SCHEMA.names}")
    return names


def _pieces(
    reader: ParquetReader, number: int, columns: Sequence[str] | None, most_bytes: int | None
) -> Iterable[pa.RecordBatch]:
    if most_bytes is None:
        return [reader.group(number, columns)]
    return reader.pieces(number, columns, most_bytes)


def _cut(table: pa.RecordBatch, first: int, start: int, stop: int | None) -> pa.RecordBatch:
    low = max(start - first, 0)
    high = table.num_rows if stop is None else min(stop - first, table.num_rows)
    return table.slice(low, max(high - low, 0))


def _chosen(table: pa.RecordBatch, selector: Selector, feed: str) -> pa.RecordBatch:
    chosen = arrow_filter(selector, table.schema)
    if chosen.expression is not None:
        filtered = pa.Table.from_batches([table]).filter(chosen.expression)
        table = (
            filtered.combine_chunks().to_batches()[0] if filtered.num_rows else table.slice(0, 0)
        )
    if chosen.residual is not None and table.num_rows:
        wanted = predicate(chosen.residual, fields_of(feed))
        mask = pa.array([wanted(message) for message in messages_of(table)], pa.bool_())
        table = table.filter(mask)
    return table
