"""Queries: read batches from an archive by offset, by vector, or by ranges of a publisher's messages.

Files and parts of the tail that cannot match are skipped: files by the publishers in the manifest, the start of
the tail by checkpoints of the vector. Clients usually continue where the last result ended, often within the
same row group; so recent row groups are cached.

Rows that were recorded as lost and found later have higher offsets than messages with higher sequences. In the
result of a query by vector, they are moved before the first message of their publisher with a higher sequence,
so that a recovering subscriber receives them in order (`insert_found`).

An unreadable row group is left out of the result but counts as reached: so the requesting member learns that
this archive does not have its messages. It is not read again; `RowGroupCache.take_new_damages` reports it once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..boundary import MAX_READ_BATCHES, ArchiveQuery, MessageBatch, MessageRange
from ..vector import Vector
from ..views import FoundRange, LostRange
from .batches import Mask, MessageKeys, build_batches, read_keys
from .columns import BATCH_COLUMNS
from .damage import FileDamage
from .errors import CorruptArchiveError
from .files import ParquetReader
from .layout import ReadableTree
from .manifest import DataFile, Manifest
from .records import StoredBatch, StoredRecord
from .sealer import publisher_ranges
from .tail import TailReader

_CACHED_BYTES = 128 << 20


class QueryResult(NamedTuple):
    """If `has_more`, continue at `offset`; `reached` is the archive's vector there."""

    batches: list[MessageBatch]
    has_more: bool
    reached: Vector
    offset: int


class TailCheckpoint(NamedTuple):
    """A position in the tail with the vector before it."""

    offset: int
    position: int
    vector: Mapping[bytes, int]


class RowGroup(NamedTuple):
    first: int
    table: pa.RecordBatch
    keys: MessageKeys


class RowGroupCache:
    """LRU cache of row groups; also remembers unreadable ones."""

    def __init__(self, tree: ReadableTree) -> None:
        self._tree = tree
        self._groups: OrderedDict[tuple[str, int], RowGroup] = OrderedDict()
        self._bytes = 0
        self.damaged: set[tuple[str, int | None]] = set()
        """By path and number of the row group; None for the whole file."""
        self._new_damages: list[FileDamage] = []

    def take_new_damages(self) -> list[FileDamage]:
        """Return the damages found since the last call."""
        found, self._new_damages = self._new_damages, []
        return found

    def note_damage(self, damage: FileDamage) -> None:
        self.damaged.add(damage.key)
        self._new_damages.append(damage)

    def groups(self, file: DataFile, start: int) -> Iterator[RowGroup]:
        """Yield the readable row groups of a file that have rows from an offset on."""
        if (file.path, None) in self.damaged:
            return
        try:
            reader = ParquetReader(self._tree, file, BATCH_COLUMNS)
        except CorruptArchiveError as error:
            self.note_damage(FileDamage(file, None, file.first, file.end, error))
            return
        with reader:
            rows = reader.group_rows
            firsts = list(accumulate(rows, initial=file.first))
            for number in range(max(bisect_right(firsts[:-1], start) - 1, 0), len(rows)):
                if (file.path, number) not in self.damaged:
                    try:
                        group = self._read_group(reader, file.path, number, firsts[number])
                    except CorruptArchiveError as error:
                        first, end = firsts[number : number + 2]
                        self.note_damage(FileDamage(file, number, first, end, error))
                    else:
                        yield group

    def _read_group(self, reader: ParquetReader, path: str, number: int, first: int) -> RowGroup:
        key = path, number
        group = self._groups.get(key)
        if group is None:
            table = reader.read_group(number)
            group = self._groups[key] = RowGroup(first, table, read_keys(table))
            self._bytes += table.nbytes
            while self._bytes > _CACHED_BYTES and len(self._groups) > 1:
                _, old = self._groups.popitem(last=False)
                self._bytes -= old.table.nbytes
        self._groups.move_to_end(key)
        return group


class _QueryFilter:
    """Which messages a query requests."""

    def __init__(self, query: ArchiveQuery) -> None:
        self._after = query.after
        self._ranges: dict[bytes, list[MessageRange]] = {}
        for each in query.ranges:
            self._ranges.setdefault(each.publisher, []).append(each)
        self.remaining = sum(each.last - each.first + 1 for each in query.ranges) or None

    def overlaps(self, publisher: bytes, first: int, last: int) -> bool:
        """Return whether any of these messages is requested."""
        if self._ranges:
            ranges = self._ranges.get(publisher, ())
            return any(each.first <= last and first <= each.last for each in ranges)
        if last > self._after.last_of(publisher):
            return True
        holes = self._after.holes.get(publisher, ())
        return any(low <= last and first <= high for low, high in holes)

    def is_past(self, vector: Mapping[bytes, int]) -> bool:
        """Return whether nothing up to this vector is requested."""
        if self._ranges:
            return all(
                vector.get(publisher, 0) < each.first
                for publisher, ranges in self._ranges.items()
                for each in ranges
            )
        return self._after.covers(vector)

    def select_rows(self, keys: MessageKeys) -> Mask:
        if not self._ranges:
            after = np.array([self._after.last_of(each) for each in keys.publishers], np.int64)
            selected = np.asarray(keys.sequence > after[keys.publisher])
            for number, publisher in enumerate(keys.publishers):
                for low, high in self._after.holes.get(publisher, ()):
                    within = (keys.sequence >= low) & (keys.sequence <= high)
                    selected |= (keys.publisher == number) & within
            return selected
        wanted = np.zeros(len(keys.sequence), np.bool_)
        for number, publisher in enumerate(keys.publishers):
            for each in self._ranges.get(publisher, ()):
                within = (keys.sequence >= each.first) & (keys.sequence <= each.last)
                wanted |= (keys.publisher == number) & within
        return wanted

    def clip_batch(self, batch: MessageBatch) -> Iterator[MessageBatch]:
        if not self._ranges:
            for low, high in self._after.holes.get(batch.publisher, ()):
                if low <= batch.last and batch.first <= high:
                    yield batch.clip(low, high)
            after = self._after.last_of(batch.publisher)
            if batch.last > after:
                yield batch.clip(after + 1, batch.last)
            return
        for each in sorted(self._ranges.get(batch.publisher, ()), key=lambda each: each.first):
            if each.first <= batch.last and batch.first <= each.last:
                yield batch.clip(each.first, each.last)


class QuerySource(NamedTuple):
    """The data of a query: files, then the tail from the last suitable checkpoint on."""

    cache: RowGroupCache
    manifest: Manifest
    checkpoints: Sequence[TailCheckpoint]
    lost: Sequence[tuple[int, LostRange]]
    end_offset: int
    """The offset after the tail."""

    def find_tail_start(self, query: ArchiveQuery) -> TailCheckpoint:
        wanted = _QueryFilter(query)
        useful = [
            each
            for each in self.checkpoints
            if each.offset <= query.offset or wanted.is_past(each.vector)
        ]
        return useful[-1] if useful else self.checkpoints[0]


class _ResultBuilder:
    """Collects the result of a query up to its limits."""

    def __init__(self, query: ArchiveQuery, begin: Mapping[bytes, int]) -> None:
        self.filter = _QueryFilter(query)
        self.batches: list[MessageBatch] = []
        self.reached = dict(begin)
        self._remaining_bytes = max(query.limit_bytes, 1)

    def is_full(self) -> bool:
        return (
            self._remaining_bytes <= 0
            or self.filter.remaining == 0
            or len(self.batches) >= MAX_READ_BATCHES
        )

    def add(self, batch: MessageBatch) -> None:
        self.batches.append(batch)
        self._remaining_bytes -= len(batch.block.data)
        if self.filter.remaining is not None:
            self.filter.remaining -= batch.count

    def mark_reached(self, publisher: bytes, last: int) -> None:
        if last > self.reached.get(publisher, 0):
            self.reached[publisher] = last


def run_query(
    source: QuerySource, query: ArchiveQuery, tail: TailReader, start: TailCheckpoint
) -> QueryResult:
    """Run a query; `tail` begins at the checkpoint `start`."""
    manifest = source.manifest
    begin = {bytes.fromhex(publisher): last for publisher, last in manifest.begin.items()}
    result = _ResultBuilder(query, begin)
    offset = manifest.first
    for file in manifest.files:
        stopped = _read_file(source.cache, file, query.offset, result)
        offset = file.end if stopped is None else stopped
        if stopped is not None:
            break
    else:
        result.reached.update(start.vector)
        # A checkpoint may be before rows that have just been sealed.
        first = max(query.offset, manifest.tail.offset)
        offset = _read_tail(tail, start, first, result)
    more = offset < source.end_offset and result.filter.remaining != 0
    for at, lost in source.lost:
        if at <= offset:
            result.mark_reached(lost.publisher, lost.last)
    return QueryResult(result.batches, more, Vector(result.reached), max(offset, query.offset))


def insert_found(
    query: ArchiveQuery,
    result: QueryResult,
    found: Sequence[tuple[int, FoundRange]],
    read: Callable[[ArchiveQuery], QueryResult],
) -> QueryResult:
    """Insert rows that were found late before the messages that follow them. If they do not fit in the limit of
    the query, the result ends with them; the next query, whose vector contains them, starts at the same offset.
    """
    wanted = _QueryFilter(query)
    late: dict[bytes, list[tuple[int, FoundRange]]] = {}
    for at, each in found:
        if wanted.overlaps(each.publisher, each.first, each.last):
            late.setdefault(each.publisher, []).append((at, each))
    batches: list[MessageBatch] = []
    inserted: list[FoundRange] = []
    for batch in result.batches:
        waiting = late.get(batch.publisher, [])
        for at, each in sorted(waiting, key=lambda one: one[1].first):
            if each.last >= batch.first:
                break
            waiting.remove((at, each))
            inserted.append(each)
            span = MessageRange(each.publisher, each.first, each.last)
            part = read(ArchiveQuery(Vector(), (span,), at, query.limit_bytes))
            batches += [one for batch_ in part.batches for one in wanted.clip_batch(batch_)]
            if part.has_more:
                return result._replace(batches=batches, has_more=True, offset=query.offset)
        if not any(
            each.publisher == batch.publisher and each.first <= batch.first <= each.last
            for each in inserted
        ):
            batches.append(batch)
    return result._replace(batches=batches)


def _read_file(
    cache: RowGroupCache, file: DataFile, start: int, result: _ResultBuilder
) -> int | None:
    """Add matching rows of a file; return the offset where the result was full, or None."""
    publishers = {bytes.fromhex(name): span for name, span in file.publishers.items()}
    wanted = result.filter
    if file.end > start and any(wanted.overlaps(each, *span) for each, span in publishers.items()):
        for group in cache.groups(file, start):
            if result.is_full():
                return group.first
            rows = wanted.select_rows(group.keys)
            rows[: max(start - group.first, 0)] = False
            for stop, batch in build_batches(group.table, group.keys, rows):
                result.add(batch)
                if result.is_full():
                    _mark_rows_reached(group.keys, stop, result)
                    return group.first + stop
            _mark_rows_reached(group.keys, len(rows), result)
    for publisher, (_, last) in publishers.items():
        result.mark_reached(publisher, last)
    return None


def _mark_rows_reached(keys: MessageKeys, stop: int, result: _ResultBuilder) -> None:
    part = keys._replace(publisher=keys.publisher[:stop], sequence=keys.sequence[:stop])
    for publisher, (_, last) in publisher_ranges(part).items():
        result.mark_reached(bytes.fromhex(publisher), last)


def _read_tail(tail: TailReader, start: TailCheckpoint, first: int, result: _ResultBuilder) -> int:
    offset = start.offset
    for _, stored in tail.records():
        if result.is_full():
            break
        if isinstance(stored, StoredRecord):
            continue
        if stored.end > first and result.filter.overlaps(
            stored.publisher, stored.first, stored.last
        ):
            _add_matching(stored, first, result)
        result.mark_reached(stored.publisher, stored.last)
        offset = stored.end
    return offset


def _add_matching(stored: StoredBatch, first: int, result: _ResultBuilder) -> None:
    batch = stored.as_batch()
    if stored.offset < first:
        batch = batch.clip(batch.first + first - stored.offset, batch.last)
    for part in result.filter.clip_batch(batch):
        result.add(part)
