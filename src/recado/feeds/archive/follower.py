"""A reader that polls an archive repeatedly and reads only new records of the journal.

It is for readers that process an archive by offsets in small steps, such as a streaming source. It provides the
first and last offset, the last sequence of each publisher before an offset, the offset that belongs to a time,
the offset after a number of bytes, and the extent of the journal that contains some rows.

FO1  `tail_batches` are the batches of the tail in order of offsets, each with its end position; the first
     begins at `manifest.tail.offset` or later.
FO2  `end_offset` is the offset after the last of them; if there are none, the offset at which the tail begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from . import identity
from . import manifest as manifests
from .archive import Archive, JournalExtent
from .errors import ArchiveNotFoundError, CorruptArchiveError
from .layout import JOURNAL_FOLDER, MANIFEST_FILE, ReadOnlyTree
from .manifest import DataFile
from .records import StoredBatch
from .tail import SegmentGoneError, TailReader, durable_position

LastSequences = dict[str, int]
"""The last sequence of each publisher, by its hexadecimal id."""

NO_JOURNAL = JournalExtent(0, 0)
"""For archives of which only the Parquet files are read."""


class TailBatch(NamedTuple):
    """Location of a batch in the tail."""

    offset: int
    rows: int
    publisher: str
    first: int
    start_position: int
    """Position in the journal."""
    end_position: int

    @property
    def end_offset(self) -> int:
        return self.offset + self.rows


class ArchiveFollower:
    def __init__(self, path: Path | str) -> None:
        """Raises `ArchiveNotFoundError`, `UnsupportedVersionError`, `CorruptArchiveError`."""
        self.path = Path(path)
        self._tree = ReadOnlyTree(self.path)
        self._manifest_stamp: tuple[int, int] | None = None
        self.tail_batches: list[TailBatch] = []
        self._read_position = 0
        self.refresh()

    @property
    def feed(self) -> str:
        return self.manifest.feed

    @property
    def first_offset(self) -> int:
        return self.manifest.first

    @property
    def end_offset(self) -> int:
        return self.tail_batches[-1].end_offset if self.tail_batches else self.manifest.tail.offset

    def refresh(self) -> None:
        """Read a new manifest and new journal records, if there are any."""
        while True:
            self._refresh_manifest()
            journal = self._tree.disk(JOURNAL_FOLDER)
            durable = durable_position(journal)
            if durable <= self._read_position:
                return
            try:
                tail = TailReader(journal, self._read_position, durable)
            except SegmentGoneError as error:
                stamp = self._manifest_stamp
                self._refresh_manifest()
                if self._manifest_stamp == stamp:
                    location = f"position {error.position}"
                    raise CorruptArchiveError(
                        journal.folder, location, "the file is missing"
                    ) from None
                continue  # it was sealed in between
            try:
                start = self._read_position
                for position, stored in tail.records():
                    if isinstance(stored, StoredBatch) and stored.offset >= self.end_offset:
                        publisher = stored.publisher.hex()
                        batch = TailBatch(
                            stored.offset, stored.rows, publisher, stored.first, start, position
                        )
                        self.tail_batches.append(batch)
                    self._read_position = start = position
            finally:
                tail.close()
            return

    def _refresh_manifest(self) -> None:
        try:
            facts = (self.path / MANIFEST_FILE).stat()
        except FileNotFoundError:
            raise ArchiveNotFoundError(
                f"no archive in {self.path}: {MANIFEST_FILE} is missing"
            ) from None
        stamp = facts.st_ino, facts.st_mtime_ns
        if stamp == self._manifest_stamp:
            return
        root = self._tree.disk(".")
        self.manifest = manifests.read(root)
        self._manifest_stamp = stamp
        found = identity.read(root, self.manifest)
        if found != getattr(self, "id", found):
            self.tail_batches.clear()  # another archive has replaced the one that we knew
            self._read_position = 0
        self.id = found
        tail = self.manifest.tail
        sealed = bisect_right(self.tail_batches, tail.offset, key=lambda batch: batch.offset)
        if sealed and self.tail_batches[sealed - 1].end_offset > tail.offset:
            sealed -= 1
        del self.tail_batches[:sealed]
        self._read_position = max(self._read_position, tail.position)

    # -- lookups ----------------------------------------------------------------------------------

    def last_sequences(self, start: int, stop: int) -> LastSequences:
        """Return the last sequence of each publisher with rows in [start, stop)."""
        found: LastSequences = {}
        partial_ranges = []
        for file in self.manifest.files:
            if file.end <= start or file.first >= stop:
                continue
            if start <= file.first and file.end <= stop:
                _merge_sequences(
                    found, {publisher: last for publisher, (_, last) in file.publishers.items()}
                )
            elif len(file.publishers) == 1 and _is_contiguous(file):
                ((publisher, (first, _)),) = file.publishers.items()
                _merge_sequences(found, {publisher: first + min(stop, file.end) - file.first - 1})
            else:
                partial_ranges.append((max(start, file.first), min(stop, file.end)))
        for low, high in partial_ranges:
            _merge_sequences(found, self._read_last_sequences(low, high))
        for batch in self._tail_between(start, stop):
            last = batch.first + min(batch.end_offset, stop) - batch.offset - 1
            _merge_sequences(found, {batch.publisher: last})
        return found

    def last_sequences_before(self, offset: int) -> LastSequences:
        """Return the last sequence of each publisher before an offset, including deleted rows."""
        found = dict(self.manifest.begin)
        _merge_sequences(found, self.last_sequences(self.first_offset, offset))
        return found

    def _read_last_sequences(self, start: int, stop: int) -> LastSequences:
        found: LastSequences = {}
        with Archive.open(self.path, NO_JOURNAL) as archive:
            for table in archive.dictionary_batches(start, stop, ["publisher", "sequence"]):
                last = pa.Table.from_batches([table]).group_by("publisher")
                rows = last.aggregate([("sequence", "max")])
                publishers = rows.column("publisher").to_pylist()
                _merge_sequences(
                    found,
                    dict(zip(publishers, rows.column("sequence_max").to_pylist(), strict=True)),
                )
        return found

    def find_offset_at(self, timestamp_us: int) -> int:
        """Return the offset of the first row with a timestamp at or after a time; the end if there is none."""
        files = [file for file in self.manifest.files if file.timestamps[1] >= timestamp_us]
        ranges = [(file.first, file.end) for file in files]
        if self.tail_batches:
            ranges.append((self.tail_batches[0].offset, self.end_offset))
        extent = self.journal_extent(0, self.end_offset)
        with Archive.open(self.path, extent) as archive:
            for start, stop in ranges:
                for table in archive.dictionary_batches(start, stop, ["offset", "timestamp"]):
                    times = table.column("timestamp").cast(pa.int64())
                    location = pc.index(pc.greater_equal(times, timestamp_us), True).as_py()
                    if location >= 0:
                        return int(table.column("offset")[location].as_py())
        return self.end_offset

    def offset_after_bytes(self, start: int, max_bytes: int) -> int:
        """Return the offset after about `max_bytes` bytes of rows from `start` on, at least one row."""
        left = float(max_bytes)
        at = start
        for end_offset, row_bytes in self._row_sizes(start):
            rows = end_offset - at
            if rows * row_bytes > left:
                return max(at + int(left / row_bytes), start + 1)
            left -= rows * row_bytes
            at = end_offset
        return at

    def _row_sizes(self, start: int) -> Iterator[tuple[int, float]]:
        """Yield ranges of rows from an offset on: where each ends, and the bytes per row."""
        for file in self.manifest.files:
            if file.end > start:
                yield file.end, file.bytes / file.rows
        for batch in self._tail_between(start, self.end_offset):
            yield batch.end_offset, (batch.end_position - batch.start_position) / batch.rows

    def _tail_between(self, start: int, stop: int) -> Iterator[TailBatch]:
        at = bisect_right(self.tail_batches, start, key=lambda batch: batch.end_offset)
        for batch in self.tail_batches[at:]:
            if batch.offset >= stop:
                break
            yield batch

    def journal_extent(self, start: int, stop: int) -> JournalExtent:
        """Return the extent of the journal that contains the rows of [start, stop)."""
        first = next(self._tail_between(start, stop), None)
        if first is None:
            return NO_JOURNAL
        last = self.tail_batches[
            bisect_right(self.tail_batches, stop - 1, key=lambda batch: batch.offset) - 1
        ]
        return JournalExtent(first.start_position, last.end_position)

    def first_uncovered_offset(self, vector: Mapping[str, int]) -> int:
        """Return the first offset that may contain messages which are not in the vector."""
        for file in self.manifest.files:
            if any(
                last > vector.get(publisher, 0) for publisher, (_, last) in file.publishers.items()
            ):
                return file.first
        for batch in self.tail_batches:
            if batch.first + batch.rows - 1 > vector.get(batch.publisher, 0):
                return batch.offset
        return self.end_offset


def _is_contiguous(file: DataFile) -> bool:
    ((first, last),) = file.publishers.values()
    return last - first + 1 == file.rows


def _merge_sequences(into: LastSequences, more: Mapping[str, int]) -> None:
    """Keep the larger last sequence of each publisher in `into`."""
    for publisher, last in more.items():
        if last > into.get(publisher, 0):
            into[publisher] = last
