"""Recall: reading batches back from an archive, by offset, by vector, or by ranges of a publisher's messages.

What cannot have anything wanted is not read: a file by what the manifest says of its publishers, the
beginning of the tail by checkpoints of the vector. Those who ask for more go on where the last answer ended,
mostly within the row group that was read last; so the last few stay in memory.

Rows that were found after they had been recorded as lost have later offsets than what follows them. An answer
by vector gives them before the first row behind them: a subscriber that recovers gets them in order.

A row group that cannot be read is left out of the answer, and counts as reached: so the member that asks learns
that this archive does not have its messages. It is not read again; `GroupCache.found_damages` reports it once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..boundary import MOST_RECALLED, Batch, Query, Range
from ..vector import Vector
from ..views import Found, Lost
from .batches import Keys, Mask, batches_of, keys_of
from .columns import OF_BATCH
from .damage import Damage
from .errors import CorruptArchive
from .files import ParquetReader
from .layout import ReadableTree
from .manifest import DataFile, Manifest
from .records import StoredBatch, StoredRecord
from .sealing import spans_of
from .tail import TailReader

_CACHED_BYTES = 128 << 20


class Recollection(NamedTuple):
    """With `more`, ask on at `offset`; `reached` is the archive's vector there."""

    batches: list[Batch]
    more: bool
    reached: Vector
    offset: int


class Checkpoint(NamedTuple):
    """A place in the tail, and the vector before it."""

    offset: int
    position: int
    vector: Mapping[bytes, int]


class Group(NamedTuple):
    first: int
    table: pa.RecordBatch
    keys: Keys


class GroupCache:
    """The row groups that were read last, and those that cannot be read."""

    def __init__(self, tree: ReadableTree) -> None:
        self._tree = tree
        self._groups: OrderedDict[tuple[str, int], Group] = OrderedDict()
        self._bytes = 0
        self.damaged: set[tuple[str, int | None]] = set()
        """By path and number; without a number, the whole file."""
        self._found: list[Damage] = []

    def found_damages(self) -> list[Damage]:
        """Those that were found since the last call."""
        found, self._found = self._found, []
        return found

    def note_damage(self, damage: Damage) -> None:
        self.damaged.add(damage.key)
        self._found.append(damage)

    def groups(self, file: DataFile, start: int) -> Iterator[Group]:
        """Those of a file that can be read and have rows from an offset on."""
        if (file.path, None) in self.damaged:
            return
        try:
            reader = ParquetReader(self._tree, file, OF_BATCH)
        except CorruptArchive as error:
            self.note_damage(Damage(file, None, file.first, file.end, error))
            return
        with reader:
            rows = reader.group_rows
            firsts = list(accumulate(rows, initial=file.first))
            for number in range(max(bisect_right(firsts[:-1], start) - 1, 0), len(rows)):
                if (file.path, number) not in self.damaged:
                    try:
                        group = self._group(reader, file.path, number, firsts[number])
                    except CorruptArchive as error:
                        first, end = firsts[number : number + 2]
                        self.note_damage(Damage(file, number, first, end, error))
                    else:
                        yield group

    def _group(self, reader: ParquetReader, path: str, number: int, first: int) -> Group:
        key = path, number
        group = self._groups.get(key)
        if group is None:
            table = reader.group(number)
            group = self._groups[key] = Group(first, table, keys_of(table))
            self._bytes += table.nbytes
            while self._bytes > _CACHED_BYTES and len(self._groups) > 1:
                _, old = self._groups.popitem(last=False)
                self._bytes -= old.table.nbytes
        self._groups.move_to_end(key)
        return group


class _Wanted:
    """Which messages a query asks for."""

    def __init__(self, query: Query) -> None:
        self._after = query.after
        self._ranges: dict[bytes, list[Range]] = {}
        for each in query.ranges:
            self._ranges.setdefault(each.publisher, []).append(each)
        self.left = sum(each.last - each.first + 1 for each in query.ranges) or None

    def within(self, publisher: bytes, first: int, last: int) -> bool:
        """Whether any of these messages is wanted."""
        if self._ranges:
            ranges = self._ranges.get(publisher, ())
            return any(each.first <= last and first <= each.last for each in ranges)
        if last > self._after.of(publisher):
            return True
        holes = self._after.holes.get(publisher, ())
        return any(low <= last and first <= high for low, high in holes)

    def behind(self, vector: Mapping[bytes, int]) -> bool:
        """Whether nothing up to this vector is wanted."""
        if self._ranges:
            return all(
                vector.get(publisher, 0) < each.first
                for publisher, ranges in self._ranges.items()
                for each in ranges
            )
        return self._after.covers(vector)

    def rows(self, keys: Keys) -> Mask:
        if not self._ranges:
            after = np.array([self._after.of(each) for each in keys.publishers], np.int64)
            behind = np.asarray(keys.sequence > after[keys.publisher])
            for number, publisher in enumerate(keys.publishers):
                for low, high in self._after.holes.get(publisher, ()):
                    within = (keys.sequence >= low) & (keys.sequence <= high)
                    behind |= (keys.publisher == number) & within
            return behind
        wanted = np.zeros(len(keys.sequence), np.bool_)
        for number, publisher in enumerate(keys.publishers):
            for each in self._ranges.get(publisher, ()):
                within = (keys.sequence >= each.first) & (keys.sequence <= each.last)
                wanted |= (keys.publisher == number) & within
        return wanted

    def parts(self, batch: Batch) -> Iterator[Batch]:
        if not self._ranges:
            for low, high in self._after.holes.get(batch.publisher, ()):
                if low <= batch.last and batch.first <= high:
                    yield batch.part(low, high)
            after = self._after.of(batch.publisher)
            if batch.last > after:
                yield batch.part(after + 1, batch.last)
            return
        for each in sorted(self._ranges.get(batch.publisher, ()), key=lambda each: each.first):
            if each.first <= batch.last and batch.first <= each.last:
                yield batch.part(each.first, each.last)


class Source(NamedTuple):
    """What there is to read: files, then the tail from its last checkpoint on that is early enough."""

    cache: GroupCache
    manifest: Manifest
    checkpoints: Sequence[Checkpoint]
    lost: Sequence[tuple[int, Lost]]
    end: int
    """The offset behind the tail."""

    def tail_start(self, query: Query) -> Checkpoint:
        wanted = _Wanted(query)
        useful = [
            each
            for each in self.checkpoints
            if each.offset <= query.offset or wanted.behind(each.vector)
        ]
        return useful[-1] if useful else self.checkpoints[0]


class _Gathering:
    """The answer as it grows."""

    def __init__(self, query: Query, begin: Mapping[bytes, int]) -> None:
        self.wanted = _Wanted(query)
        self.batches: list[Batch] = []
        self.reached = dict(begin)
        self._room = max(query.limit, 1)

    def is_full(self) -> bool:
        return self._room <= 0 or self.wanted.left == 0 or len(self.batches) >= MOST_RECALLED

    def take(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._room -= len(batch.block.data)
        if self.wanted.left is not None:
            self.wanted.left -= batch.count

    def passed(self, publisher: bytes, last: int) -> None:
        if last > self.reached.get(publisher, 0):
            self.reached[publisher] = last


def recall(source: Source, query: Query, tail: TailReader, start: Checkpoint) -> Recollection:
    """`tail` begins at the checkpoint `start`."""
    manifest = source.manifest
    begin = {bytes.fromhex(publisher): last for publisher, last in manifest.begin.items()}
    answer = _Gathering(query, begin)
    offset = manifest.first
    for file in manifest.files:
        stopped = _from_file(source.cache, file, query.offset, answer)
        offset = file.end if stopped is None else stopped
        if stopped is not None:
            break
    else:
        answer.reached.update(start.vector)
        # A checkpoint may be before what a seal has just brought into files.
        first = max(query.offset, manifest.tail.offset)
        offset = _from_tail(tail, start, first, answer)
    more = offset < source.end and answer.wanted.left != 0
    for at, lost in source.lost:
        if at <= offset:
            answer.passed(lost.publisher, lost.last)
    return Recollection(answer.batches, more, Vector(answer.reached), max(offset, query.offset))


def in_order(
    query: Query,
    answer: Recollection,
    found: Sequence[tuple[int, Found]],
    read: Callable[[Query], Recollection],
) -> Recollection:
    """An answer by vector, with what was found late before what is behind it. Where that is much, it ends
    there, and the next question, with a later vector, gets the rest."""
    wanted = _Wanted(query)
    late: dict[bytes, list[tuple[int, Found]]] = {}
    for at, each in found:
        if wanted.within(each.publisher, each.first, each.last):
            late.setdefault(each.publisher, []).append((at, each))
    batches: list[Batch] = []
    given: list[Found] = []
    for batch in answer.batches:
        waiting = late.get(batch.publisher, [])
        for at, each in sorted(waiting, key=lambda one: one[1].first):
            if each.last >= batch.first:
                break
            waiting.remove((at, each))
            given.append(each)
            span = Range(each.publisher, each.first, each.last)
            part = read(Query(Vector(), (span,), at, query.limit))
            batches += [one for whole in part.batches for one in wanted.parts(whole)]
            if part.more:
                return answer._replace(batches=batches, more=True, offset=query.offset)
        if not any(
            each.publisher == batch.publisher and each.first <= batch.first <= each.last
            for each in given
        ):
            batches.append(batch)
    return answer._replace(batches=batches)


def _from_file(cache: GroupCache, file: DataFile, start: int, answer: _Gathering) -> int | None:
    """Gives the offset where the answer was full, if it was."""
    publishers = {bytes.fromhex(name): span for name, span in file.publishers.items()}
    wanted = answer.wanted
    if file.end > start and any(wanted.within(each, *span) for each, span in publishers.items()):
        for group in cache.groups(file, start):
            if answer.is_full():
                return group.first
            rows = wanted.rows(group.keys)
            rows[: max(start - group.first, 0)] = False
            for stop, batch in batches_of(group.table, group.keys, rows):
                answer.take(batch)
                if answer.is_full():
                    _pass_rows(group.keys, stop, answer)
                    return group.first + stop
            _pass_rows(group.keys, len(rows), answer)
    for publisher, (_, last) in publishers.items():
        answer.passed(publisher, last)
    return None


def _pass_rows(keys: Keys, stop: int, answer: _Gathering) -> None:
    part = keys._replace(publisher=keys.publisher[:stop], sequence=keys.sequence[:stop])
    for publisher, (_, last) in spans_of(part).items():
        answer.passed(bytes.fromhex(publisher), last)


def _from_tail(tail: TailReader, start: Checkpoint, first: int, answer: _Gathering) -> int:
    offset = start.offset
    for _, stored in tail.records():
        if answer.is_full():
            break
        if isinstance(stored, StoredRecord):
            continue
        if stored.end > first and answer.wanted.within(stored.publisher, stored.first, stored.last):
            _take_parts(stored, first, answer)
        answer.passed(stored.publisher, stored.last)
        offset = stored.end
    return offset


def _take_parts(stored: StoredBatch, first: int, answer: _Gathering) -> None:
    batch = stored.as_batch()
    if stored.offset < first:
        batch = batch.part(batch.first + first - stored.offset, batch.last)
    for part in answer.wanted.parts(batch):
        answer.take(part)
