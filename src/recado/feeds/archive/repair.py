"""Repair: writes a damaged Parquet file anew, with what can still be read and with rows from elsewhere.

Damaged rows are looked up in the archive's own journal, which keeps sealed records until their segment is
dropped, and then in other archives of the feed. Restored rows have their old offsets. Only if the columns that
name the messages of a row group are damaged as well, and several publishers have messages there, their order
in that group is that of the other archive.

R1  A message that a sound row of the archive has is not restored: it was found in another archive before.
R2  Rows that nothing can restore leave a gap in the offsets; `result` has their messages as lost.
R3  Memory is bounded: by a row group, or by FETCH_BYTES where a whole file is damaged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from typing import NamedTuple, Protocol

import numpy as np

from ..boundary import Batch, Query, Range
from ..vector import Span, Vector, within, without
from ..views import Lost
from .batches import batches_of, keys_of
from .columns import OF_BATCH
from .damage import (
    Damage,
    Run,
    Spans,
    at_offset,
    damages_of,
    runs_in,
    spans_of_file,
    spans_of_runs,
    subtract,
)
from .errors import CorruptArchive
from .files import ParquetReader
from .layout import ReadableTree
from .manifest import DataFile
from .recall import Recollection
from .records import StoredBatch

FETCH_BYTES = 4 << 20


class Source(Protocol):
    """Another archive of the feed."""

    def recall(self, query: Query) -> Recollection: ...


class Repaired(NamedTuple):
    """What has become of the rows of a damaged file."""

    path: str
    damaged: int
    from_journal: int
    from_archives: int
    restored: list[Range]
    lost: list[Lost]


class Repair:
    """Of one file. `rows` gives what it had, in order of offsets; then `result` says where it came from."""

    def __init__(
        self,
        tree: ReadableTree,
        file: DataFile,
        journal: Callable[[], Iterator[StoredBatch]],
        sources: Sequence[Source],
    ) -> None:
        """`journal` reads all batches that the journal still has."""
        self.damages = damages_of(tree, file)
        self._tree = tree
        self._file = file
        self._journal = journal
        self._sources = sources
        self._runs = {damage.group: runs_in(tree, damage) for damage in self.damages}
        self._known = spans_of_runs(run for runs in self._runs.values() for run in runs or ())
        every = self._known if None not in self._runs.values() else spans_of_file(file)
        self.wanted = {publisher: list(spans) for publisher, spans in every.items()}
        """Messages that are still to be restored."""
        self._from_journal = self._from_archives = 0
        self._restored_ranges: list[Range] = []

    @property
    def result(self) -> Repaired:
        return Repaired(
            str(self._tree.path(self._file.path)),
            sum(damage.end - damage.first for damage in self.damages),
            self._from_journal,
            self._from_archives,
            self._restored_ranges,
            [Lost(who, *span) for who, spans in self.wanted.items() for span in spans],
        )

    def rows(self) -> Iterator[StoredBatch]:
        damaged = {damage.group: damage for damage in self.damages}
        if None in damaged:
            yield from self._restored(damaged[None])
            return
        with ParquetReader(self._tree, self._file, OF_BATCH) as reader:
            first = self._file.first
            for number, rows in enumerate(reader.group_rows):
                if number in damaged:
                    yield from self._restored(damaged[number])
                else:
                    table = reader.group(number)
                    for stop, batch in batches_of(table, keys_of(table), np.ones(rows, np.bool_)):
                        yield self._at(batch, first + stop - batch.count)
                first += rows

    def _at(self, batch: Batch, offset: int) -> StoredBatch:
        return at_offset(batch, offset, self._file.stored[0])

    def _restored(self, damage: Damage) -> Iterator[StoredBatch]:
        kept = self._kept_by_journal(damage)
        runs = self._runs[damage.group]
        if runs is None:
            free = [(damage.first, damage.end - 1)]
            for run in kept:
                free = without(free, run.offset, run.offset + run.last - run.first)
            others = self._in_their_order(free)
        else:
            others = self._in_our_order(runs)
        for batch in merge(self._in_journal(kept), others, key=lambda each: each.offset):
            self._restored_ranges.append(Range(batch.publisher, batch.first, batch.last))
            yield batch

    def _kept_by_journal(self, damage: Damage) -> list[Run]:
        """The damaged rows that the journal has; they are not wanted any more."""
        kept: list[Run] = []
        with suppress(CorruptArchive):  # what the rest of the journal had is looked for elsewhere
            for stored in self._journal():
                low = stored.first + max(damage.first - stored.offset, 0)
                high = stored.first + min(damage.end, stored.end) - stored.offset - 1
                for first, last in within(self.wanted.get(stored.publisher, ()), low, high):
                    if low <= high:
                        subtract(self.wanted, stored.publisher, first, last)
                        offset = stored.offset + first - stored.first
                        kept.append(Run(offset, stored.publisher, first, last))
        return kept

    def _in_journal(self, kept: list[Run]) -> Iterator[StoredBatch]:
        """These rows, which are in the order of the journal."""
        rest = deque(kept)
        for stored in self._journal() if rest else ():
            while rest and stored.offset <= rest[0].offset < stored.end:
                run = rest.popleft()
                self._from_journal += run.last - run.first + 1
                part = stored.as_batch().part(run.first, run.last)
                yield at_offset(part, run.offset, stored.stored)
            if not rest:
                return

    def _in_our_order(self, runs: list[Run]) -> Iterator[StoredBatch]:
        pool: Spans = {}
        for run in runs:
            spans = within(self.wanted.get(run.publisher, ()), run.first, run.last)
            if spans:
                pool.setdefault(run.publisher, []).extend(spans)
        fetched: dict[bytes, list[Batch]] = {}
        for batch in self._fetched(pool):
            fetched.setdefault(batch.publisher, []).append(batch)
        for run in runs:
            for batch in fetched.get(run.publisher, ()):
                if batch.first <= run.last and run.first <= batch.last:
                    part = batch.part(run.first, run.last)
                    self._from_archives += part.count
                    yield self._at(part, run.offset + part.first - run.first)

    def _in_their_order(self, free: list[Span]) -> Iterator[StoredBatch]:
        """As many as there are free offsets for."""
        pool = {publisher: list(spans) for publisher, spans in self.wanted.items()}
        for publisher, spans in self._known.items():
            for span in spans:
                subtract(pool, publisher, *span)
        for batch in self._fetched(pool):
            at = batch.first
            while at <= batch.last and free:
                low, high = free[0]
                part = batch.part(at, min(batch.last, at + high - low))
                self._from_archives += part.count
                yield self._at(part, low)
                at = part.last + 1
                free = without(free, low, low + part.count - 1)
            if at <= batch.last:
                self.wanted.setdefault(batch.publisher, []).append((at, batch.last))
                return

    def _fetched(self, pool: Spans) -> Iterator[Batch]:
        """What other archives have of the messages in the pool, each once."""
        for source in self._sources:
            offset, more = 0, bool(pool)
            while more:
                ranges = tuple(Range(who, *span) for who, spans in pool.items() for span in spans)
                answer = source.recall(Query(Vector(), ranges, offset, FETCH_BYTES))
                for batch in answer.batches:
                    yield from self._take(batch, batch.first, batch.last, pool)
                offset, more = answer.offset, answer.more and bool(pool)

    def _take(self, batch: Batch, first: int, last: int, pool: Spans) -> Iterator[Batch]:
        """The parts of a batch within first..last that are in the pool; they are not wanted any more then."""
        for span in within(pool.get(batch.publisher, ()), first, last):
            subtract(pool, batch.publisher, *span)
            subtract(self.wanted, batch.publisher, *span)
            yield batch.part(*span)
