"""The store of a simulated archive: a list of entries; after a crash the synced ones remain, and a few more.

It has the interface of the real one, with linear searches: slow, and obviously right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from recado.feeds.boundary import (
    ArchiveEntry,
    ArchiveQuery,
    ArchiveRead,
    ArchiveState,
    MessageBatch,
)
from recado.feeds.vector import Span, Vector, clip_spans, merge_spans, subtract_span
from recado.feeds.views import (
    AcknowledgementRecord,
    FoundRange,
    LostRange,
    ViewRecord,
    ViewStability,
)


class Store:
    def __init__(self, entries: Sequence[ArchiveEntry] = ()) -> None:
        self.entries: list[ArchiveEntry] = list(entries)
        self.durable = len(self.entries)
        """So many entries are on disk for sure."""
        state = self.state()
        self.stable, self.stable_offset = dict(state.vector), state.next_offset
        """Of those."""

    def append(self, entries: Sequence[ArchiveEntry]) -> None:
        self.entries += entries

    def synced(self, count: int) -> list[MessageBatch]:
        """The first `count` entries are on disk; return those that were not before."""
        new = self.entries[self.durable : count]
        self.durable = count
        for entry in new:
            if isinstance(entry, MessageBatch | LostRange):
                self.stable[entry.publisher] = max(entry.last, self.stable.get(entry.publisher, 0))
        batches = [entry for entry in new if isinstance(entry, MessageBatch)]
        self.stable_offset += sum(batch.count for batch in batches)
        return batches

    def after_crash(self, random: Random) -> Store:
        return Store(self.entries[: random.randint(self.durable, len(self.entries))])

    def batches(self) -> Iterator[tuple[int, MessageBatch]]:
        """Each with the offset of its first message."""
        offset = 0
        for entry in self.entries:
            if isinstance(entry, MessageBatch):
                yield offset, entry
                offset += entry.count

    def state(self) -> ArchiveState:
        entries = self.entries
        vector: dict[bytes, int] = {}
        for entry in entries:
            if isinstance(entry, MessageBatch | LostRange):
                vector[entry.publisher] = max(entry.last, vector.get(entry.publisher, 0))
        return ArchiveState(
            vector=Vector(vector),
            views=tuple(entry for entry in entries if isinstance(entry, ViewRecord)),
            stability=tuple(entry for entry in entries if isinstance(entry, ViewStability)),
            acknowledgements=tuple(
                entry for entry in entries if isinstance(entry, AcknowledgementRecord)
            ),
            next_offset=sum(entry.count for entry in entries if isinstance(entry, MessageBatch)),
            lost=tuple(self.lost()),
        )

    def lost(self) -> Iterator[LostRange]:
        """Messages recorded as lost, and not found since."""
        spans: dict[bytes, list[Span]] = {}
        for entry in self.entries:
            if isinstance(entry, LostRange):
                spans.setdefault(entry.publisher, []).append((entry.first, entry.last))
            elif isinstance(entry, FoundRange):
                known = merge_spans(spans.get(entry.publisher, ()))
                spans[entry.publisher] = subtract_span(known, entry.first, entry.last)
        for publisher, left in spans.items():
            yield from (LostRange(publisher, *span) for span in left)

    def _late(self, batch: MessageBatch) -> list[MessageBatch]:
        """Of the same publisher and before it, though at a later offset: those were found."""
        batches = [entry for entry in self.entries if isinstance(entry, MessageBatch)]
        later = batches[next(i for i, entry in enumerate(batches) if entry is batch) + 1 :]
        late = [e for e in later if e.publisher == batch.publisher and e.first < batch.first]
        return sorted(late, key=lambda entry: entry.first)

    def recall(self, number: int, query: ArchiveQuery, limit: int) -> ArchiveRead:
        """Return at most about `limit` bytes, and as many messages as the query requests."""
        found: list[MessageBatch] = []
        reached: dict[bytes, int] = {}
        next_offset, size = 0, 0
        is_repaired = any(isinstance(entry, FoundRange) for entry in self.entries)
        for offset, batch in self.batches():
            if (
                is_repaired
                and offset >= query.offset
                and not query.ranges
                and _is_any(batch, query)
            ):
                for late in self._late(batch):
                    parts = list(_wanted(late, query))
                    found += parts
                    size += sum(len(part.block.data) for part in parts)
            if size >= min(limit, query.limit_bytes):
                return ArchiveRead(number, found, True, Vector(reached), offset)
            next_offset = offset + batch.count
            reached[batch.publisher] = max(batch.last, reached.get(batch.publisher, 0))
            if next_offset > query.offset:
                skipped = max(query.offset - offset, 0)
                for part in _wanted(batch.clip(batch.first + skipped, batch.last), query):
                    found.append(part)
                    size += len(part.block.data)
        return ArchiveRead(number, found, False, self.state().vector, next_offset)


def _is_any(batch: MessageBatch, query: ArchiveQuery) -> bool:
    return next(_wanted(batch, query), None) is not None


def _wanted(batch: MessageBatch, query: ArchiveQuery) -> Iterator[MessageBatch]:
    if not query.ranges:
        after = query.after.last_of(batch.publisher)
        holes = query.after.holes.get(batch.publisher, ())
        for first, last in (*clip_spans(holes, batch.first, batch.last), (after + 1, batch.last)):
            if first <= last:
                yield batch.clip(max(first, batch.first), last)
        return
    for each in query.ranges:
        first, last = max(each.first, batch.first), min(each.last, batch.last)
        if each.publisher == batch.publisher and first <= last:
            yield batch.clip(first, last)
