"""An archive as one sees it who comes again and again: of the journal only what is new is read.

A `Follower` answers what a reader by offsets asks: where the archive begins and ends, what of each publisher is
before an offset, at which offset a time begins, how many rows are so many bytes, and in which stretch of the
journal rows are.

W1  `batches` are those of the tail, in order of offsets, each with the position behind it; the first begins at
    `manifest.tail.offset` or later.
W2  `end` is the offset behind the last of them, or that of the tail.
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
from .archive import Archive, Stretch
from .errors import CorruptArchive, NoArchive
from .layout import JOURNAL, MANIFEST, ReadingTree
from .manifest import DataFile
from .records import StoredBatch
from .tail import Gone, TailReader, durable_position

Sequences = dict[str, int]
"""Of publishers, by their hexadecimal digits, the last sequence."""


class TailBatch(NamedTuple):
    """A batch of the tail, without what is in it."""

    offset: int
    rows: int
    publisher: str
    first: int
    start: int
    """Its position in the journal."""
    end: int

    @property
    def behind(self) -> int:
        return self.offset + self.rows


class Follower:
    def __init__(self, path: Path | str) -> None:
        """Raises NoArchive, UnknownVersion, CorruptArchive."""
        self.path = Path(path)
        self._tree = ReadingTree(self.path)
        self._stamp: tuple[int, int] | None = None
        self.batches: list[TailBatch] = []
        self._position = 0
        self.look()

    @property
    def feed(self) -> str:
        return self.manifest.feed

    @property
    def first(self) -> int:
        return self.manifest.first

    @property
    def end(self) -> int:
        return self.batches[-1].behind if self.batches else self.manifest.tail.offset

    def look(self) -> None:
        """See what is there now."""
        while True:
            self._look_at_manifest()
            journal = self._tree.disk(JOURNAL)
            durable = durable_position(journal)
            if durable <= self._position:
                return
            try:
                tail = TailReader(journal, self._position, durable)
            except Gone as error:
                stamp = self._stamp
                self._look_at_manifest()
                if self._stamp == stamp:
                    place = f"position {error.position}"
                    raise CorruptArchive(journal.folder, place, "the file is missing") from None
                continue  # it was sealed in between
            try:
                start = self._position
                for position, stored in tail.records():
                    if isinstance(stored, StoredBatch) and stored.offset >= self.end:
                        self.batches.append(
                            TailBatch(
                                *(stored.offset, stored.rows, stored.publisher.hex()),
                                *(stored.first, start, position),
                            )
                        )
                    self._position = start = position
            finally:
                tail.close()
            return

    def _look_at_manifest(self) -> None:
        try:
            facts = (self.path / MANIFEST).stat()
        except FileNotFoundError:
            raise NoArchive(f"there is no archive in {self.path}: {MANIFEST} is missing") from None
        stamp = facts.st_ino, facts.st_mtime_ns
        if stamp == self._stamp:
            return
        root = self._tree.disk(".")
        self.manifest = manifests.read(root)
        self._stamp = stamp
        found = identity.read(root, self.manifest)
        if found != getattr(self, "id", found):
            self.batches.clear()  # another archive took the place of the one we knew
            self._position = 0
        self.id = found
        tail = self.manifest.tail
        sealed = bisect_right(self.batches, tail.offset, key=lambda batch: batch.offset)
        if sealed and self.batches[sealed - 1].behind > tail.offset:
            sealed -= 1
        del self.batches[:sealed]
        self._position = max(self._position, tail.position)

    # -- what is where -----------------------------------------------------------------------------

    def sequences(self, start: int, stop: int) -> Sequences:
        """Of each publisher with rows in [start, stop) the last sequence among them."""
        found: Sequences = {}
        partly = []
        for file in self.manifest.files:
            if file.end <= start or file.first >= stop:
                continue
            if start <= file.first and file.end <= stop:
                _join(found, {who: last for who, (_, last) in file.publishers.items()})
            elif len(file.publishers) == 1 and _is_whole(file):
                ((who, (first, _)),) = file.publishers.items()
                _join(found, {who: first + min(stop, file.end) - file.first - 1})
            else:
                partly.append((max(start, file.first), min(stop, file.end)))
        for low, high in partly:
            _join(found, self._read_sequences(low, high))
        for batch in self._between(start, stop):
            last = batch.first + min(batch.behind, stop) - batch.offset - 1
            _join(found, {batch.publisher: last})
        return found

    def sequences_before(self, offset: int) -> Sequences:
        """Of each publisher the last sequence before an offset, also of what was collected."""
        found = dict(self.manifest.begin)
        _join(found, self.sequences(self.first, offset))
        return found

    def _read_sequences(self, start: int, stop: int) -> Sequences:
        found: Sequences = {}
        with Archive.open(self.path, Stretch(0, 0)) as archive:
            for table in archive.tables(start, stop, ["publisher", "sequence"]):
                last = pa.Table.from_batches([table]).group_by("publisher")
                rows = last.aggregate([("sequence", "max")])
                publishers = rows.column("publisher").to_pylist()
                _join(
                    found,
                    dict(zip(publishers, rows.column("sequence_max").to_pylist(), strict=True)),
                )
        return found

    def offset_at(self, micros: int) -> int:
        """Of the first row whose timestamp is not before a time in µs; the end if there is none."""
        files = [file for file in self.manifest.files if file.timestamps[1] >= micros]
        places = [(file.first, file.end) for file in files]
        if self.batches:
            places.append((self.batches[0].offset, self.end))
        stretch = self.stretch(0, self.end)
        with Archive.open(self.path, stretch) as archive:
            for start, stop in places:
                for table in archive.tables(start, stop, ["offset", "timestamp"]):
                    times = table.column("timestamp").cast(pa.int64())
                    place = pc.index(pc.greater_equal(times, micros), True).as_py()
                    if place >= 0:
                        return int(table.column("offset")[place].as_py())
        return self.end

    def offset_after_bytes(self, start: int, most: int) -> int:
        """Behind how many rows from an offset on about so many bytes are stored, and one row at least."""
        left = float(most)
        at = start
        for behind, each in self._sizes(start):
            rows = behind - at
            if rows * each > left:
                return max(at + int(left / each), start + 1)
            left -= rows * each
            at = behind
        return at

    def _sizes(self, start: int) -> Iterator[tuple[int, float]]:
        """Rows from an offset on: up to where, and how many bytes each takes."""
        for file in self.manifest.files:
            if file.end > start:
                yield file.end, file.bytes / file.rows
        for batch in self._between(start, self.end):
            yield batch.behind, (batch.end - batch.start) / batch.rows

    def _between(self, start: int, stop: int) -> Iterator[TailBatch]:
        at = bisect_right(self.batches, start, key=lambda batch: batch.behind)
        for batch in self.batches[at:]:
            if batch.offset >= stop:
                break
            yield batch

    def stretch(self, start: int, stop: int) -> Stretch:
        """Of the journal, with the rows of [start, stop) that are in it."""
        first = next(self._between(start, stop), None)
        if first is None:
            return Stretch(0, 0)
        last = self.batches[
            bisect_right(self.batches, stop - 1, key=lambda batch: batch.offset) - 1
        ]
        return Stretch(first.start, last.end)

    def covered(self, vector: Mapping[str, int]) -> int:
        """Up to where nothing is new to one who has had all that is in a vector."""
        for file in self.manifest.files:
            if any(last > vector.get(who, 0) for who, (_, last) in file.publishers.items()):
                return file.first
        for batch in self.batches:
            if batch.first + batch.rows - 1 > vector.get(batch.publisher, 0):
                return batch.offset
        return self.end


def _is_whole(file: DataFile) -> bool:
    ((first, last),) = file.publishers.values()
    return last - first + 1 == file.rows


def _join(into: Sequences, more: Mapping[str, int]) -> None:
    for who, last in more.items():
        if last > into.get(who, 0):
            into[who] = last
