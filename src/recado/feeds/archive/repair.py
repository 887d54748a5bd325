"""Repair: rewrites a damaged Parquet file with its readable rows and with rows from elsewhere.

Damaged rows are looked up in the archive's own journal, which retains sealed records until their segment is
dropped, and then in other archives of the feed. Restored rows keep their old offsets, with one exception: if
the key columns of a row group are damaged as well, and several publishers have messages in it, its rows get the
order that they have in the other archive.

RP1  A message that is also in an intact row of the archive is not restored: the running archive has already
     fetched it from another archive.
RP2  Rows that cannot be restored leave a gap in the offsets; `result` lists their messages as lost.
RP3  Memory is bounded: by a row group, or by MAX_FETCH_BYTES where a whole file is damaged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from typing import NamedTuple, Protocol

import numpy as np

from ..boundary import ArchiveQuery, MessageBatch, MessageRange
from ..vector import Span, Vector, clip_spans, subtract_span
from ..views import LostRange
from .batches import build_batches, read_keys
from .columns import BATCH_COLUMNS
from .damage import (
    FileDamage,
    MessageRun,
    Spans,
    file_spans,
    find_damages,
    merge_runs,
    read_runs,
    subtract_from,
    to_stored_batch,
)
from .errors import CorruptArchiveError
from .files import ParquetReader
from .layout import ReadableTree
from .manifest import DataFile
from .query import QueryResult
from .records import StoredBatch

MAX_FETCH_BYTES = 4 << 20


class RepairSource(Protocol):
    """Another archive of the feed."""

    def query(self, query: ArchiveQuery) -> QueryResult: ...


class RepairResult(NamedTuple):
    """Result of the repair of a file."""

    path: str
    damaged_rows: int
    journal_rows: int
    archive_rows: int
    restored: list[MessageRange]
    lost: list[LostRange]


class FileRepair:
    """Repairs one file. `read_rows` yields its rows in order of offsets; `result` is valid after that."""

    def __init__(
        self,
        tree: ReadableTree,
        file: DataFile,
        journal: Callable[[], Iterator[StoredBatch]],
        sources: Sequence[RepairSource],
    ) -> None:
        """`journal` yields all batches that the journal still has."""
        self.damages = find_damages(tree, file)
        self._tree = tree
        self._file = file
        self._journal = journal
        self._sources = sources
        self._runs = {damage.group: read_runs(tree, damage) for damage in self.damages}
        self._known_spans = merge_runs(run for runs in self._runs.values() for run in runs or ())
        wanted = self._known_spans if None not in self._runs.values() else file_spans(file)
        self.wanted = {publisher: list(spans) for publisher, spans in wanted.items()}
        """Messages that are still to be restored."""
        self._from_journal = self._from_archives = 0
        self._restored_ranges: list[MessageRange] = []

    @property
    def result(self) -> RepairResult:
        return RepairResult(
            str(self._tree.path(self._file.path)),
            sum(damage.end - damage.first for damage in self.damages),
            self._from_journal,
            self._from_archives,
            self._restored_ranges,
            [
                LostRange(publisher, *span)
                for publisher, spans in self.wanted.items()
                for span in spans
            ],
        )

    def read_rows(self) -> Iterator[StoredBatch]:
        damaged = {damage.group: damage for damage in self.damages}
        if None in damaged:
            yield from self._restore(damaged[None])
            return
        with ParquetReader(self._tree, self._file, BATCH_COLUMNS) as reader:
            first = self._file.first
            for number, rows in enumerate(reader.group_rows):
                if number in damaged:
                    yield from self._restore(damaged[number])
                else:
                    table = reader.read_group(number)
                    for stop, batch in build_batches(
                        table, read_keys(table), np.ones(rows, np.bool_)
                    ):
                        yield self._at_offset(batch, first + stop - batch.count)
                first += rows

    def _at_offset(self, batch: MessageBatch, offset: int) -> StoredBatch:
        return to_stored_batch(batch, offset, self._file.stored[0])

    def _restore(self, damage: FileDamage) -> Iterator[StoredBatch]:
        in_journal = self._find_in_journal(damage)
        runs = self._runs[damage.group]
        if runs is None:
            free = [(damage.first, damage.end - 1)]
            for run in in_journal:
                free = subtract_span(free, run.offset, run.offset + run.last - run.first)
            fetched = self._fetch_in_source_order(free)
        else:
            fetched = self._fetch_in_own_order(runs)
        for batch in merge(
            self._read_from_journal(in_journal), fetched, key=lambda each: each.offset
        ):
            self._restored_ranges.append(MessageRange(batch.publisher, batch.first, batch.last))
            yield batch

    def _find_in_journal(self, damage: FileDamage) -> list[MessageRun]:
        """Return the damaged rows that the journal has; they are no longer wanted."""
        in_journal: list[MessageRun] = []
        with suppress(CorruptArchiveError):  # the rest of the journal is damaged; look elsewhere
            for stored in self._journal():
                low = stored.first + max(damage.first - stored.offset, 0)
                high = stored.first + min(damage.end, stored.end) - stored.offset - 1
                for first, last in clip_spans(self.wanted.get(stored.publisher, ()), low, high):
                    if low <= high:
                        subtract_from(self.wanted, stored.publisher, first, last)
                        offset = stored.offset + first - stored.first
                        in_journal.append(MessageRun(offset, stored.publisher, first, last))
        return in_journal

    def _read_from_journal(self, in_journal: list[MessageRun]) -> Iterator[StoredBatch]:
        """Yield these rows, which are in journal order."""
        rest = deque(in_journal)
        for stored in self._journal() if rest else ():
            while rest and stored.offset <= rest[0].offset < stored.end:
                run = rest.popleft()
                self._from_journal += run.last - run.first + 1
                part = stored.as_batch().clip(run.first, run.last)
                yield to_stored_batch(part, run.offset, stored.stored_us)
            if not rest:
                return

    def _fetch_in_own_order(self, runs: list[MessageRun]) -> Iterator[StoredBatch]:
        pool: Spans = {}
        for run in runs:
            spans = clip_spans(self.wanted.get(run.publisher, ()), run.first, run.last)
            if spans:
                pool.setdefault(run.publisher, []).extend(spans)
        fetched: dict[bytes, list[MessageBatch]] = {}
        for batch in self._fetch(pool):
            fetched.setdefault(batch.publisher, []).append(batch)
        for run in runs:
            for batch in fetched.get(run.publisher, ()):
                if batch.first <= run.last and run.first <= batch.last:
                    part = batch.clip(run.first, run.last)
                    self._from_archives += part.count
                    yield self._at_offset(part, run.offset + part.first - run.first)

    def _fetch_in_source_order(self, free: list[Span]) -> Iterator[StoredBatch]:
        """Yield rows in the order of the other archive, as many as there are free offsets."""
        pool = {publisher: list(spans) for publisher, spans in self.wanted.items()}
        for publisher, spans in self._known_spans.items():
            for span in spans:
                subtract_from(pool, publisher, *span)
        for batch in self._fetch(pool):
            at = batch.first
            while at <= batch.last and free:
                low, high = free[0]
                part = batch.clip(at, min(batch.last, at + high - low))
                self._from_archives += part.count
                yield self._at_offset(part, low)
                at = part.last + 1
                free = subtract_span(free, low, low + part.count - 1)
            if at <= batch.last:
                self.wanted.setdefault(batch.publisher, []).append((at, batch.last))
                return

    def _fetch(self, pool: Spans) -> Iterator[MessageBatch]:
        """Yield the messages of the pool that other archives have, each once."""
        for source in self._sources:
            offset, more = 0, bool(pool)
            while more:
                ranges = tuple(
                    MessageRange(publisher, *span)
                    for publisher, spans in pool.items()
                    for span in spans
                )
                answer = source.query(ArchiveQuery(Vector(), ranges, offset, MAX_FETCH_BYTES))
                for batch in answer.batches:
                    yield from self._take_matching(batch, batch.first, batch.last, pool)
                offset, more = answer.offset, answer.has_more and bool(pool)

    def _take_matching(
        self, batch: MessageBatch, first: int, last: int, pool: Spans
    ) -> Iterator[MessageBatch]:
        """Yield the parts of a batch within first..last that are in the pool, and remove them from it."""
        for span in clip_spans(pool.get(batch.publisher, ()), first, last):
            subtract_from(pool, batch.publisher, *span)
            subtract_from(self.wanted, batch.publisher, *span)
            yield batch.clip(*span)
