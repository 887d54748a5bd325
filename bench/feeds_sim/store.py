"""The store of a simulated archive: a list of entries; a crash leaves those that were synced, and a few more.

It answers as the real one does, by looking at everything: slow, and obviously right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from recado.feeds.boundary import ArchiveState, Batch, Entry, Query, Recalled
from recado.feeds.vector import Span, Vector, merged, within, without
from recado.feeds.views import Acknowledged, Found, Lost, Settled, ViewRecord


class Store:
    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries: list[Entry] = list(entries)
        self.durable = len(self.entries)
        """So many entries are on disk for sure."""
        state = self.state()
        self.stable, self.stable_offset = dict(state.vector), state.offset
        """Of those."""

    def append(self, entries: Sequence[Entry]) -> None:
        self.entries += entries

    def synced(self, count: int) -> list[Batch]:
        """The first `count` entries are on disk: what of them was not before."""
        new = self.entries[self.durable : count]
        self.durable = count
        for entry in new:
            if isinstance(entry, Batch | Lost):
                self.stable[entry.publisher] = max(entry.last, self.stable.get(entry.publisher, 0))
        batches = [entry for entry in new if isinstance(entry, Batch)]
        self.stable_offset += sum(batch.count for batch in batches)
        return batches

    def after_crash(self, random: Random) -> Store:
        return Store(self.entries[: random.randint(self.durable, len(self.entries))])

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """Each with the offset of its first message."""
        offset = 0
        for entry in self.entries:
            if isinstance(entry, Batch):
                yield offset, entry
                offset += entry.count

    def state(self) -> ArchiveState:
        entries = self.entries
        vector: dict[bytes, int] = {}
        for entry in entries:
            if isinstance(entry, Batch | Lost):
                vector[entry.publisher] = max(entry.last, vector.get(entry.publisher, 0))
        return ArchiveState(
            vector=Vector(vector),
            views=tuple(entry for entry in entries if isinstance(entry, ViewRecord)),
            settled=tuple(entry for entry in entries if isinstance(entry, Settled)),
            acknowledged=tuple(entry for entry in entries if isinstance(entry, Acknowledged)),
            offset=sum(entry.count for entry in entries if isinstance(entry, Batch)),
            lost=tuple(self.lost()),
        )

    def lost(self) -> Iterator[Lost]:
        """What was recorded as lost, and not found since."""
        spans: dict[bytes, list[Span]] = {}
        for entry in self.entries:
            if isinstance(entry, Lost):
                spans.setdefault(entry.publisher, []).append((entry.first, entry.last))
            elif isinstance(entry, Found):
                known = merged(spans.get(entry.publisher, ()))
                spans[entry.publisher] = without(known, entry.first, entry.last)
        for publisher, left in spans.items():
            yield from (Lost(publisher, *span) for span in left)

    def _late(self, batch: Batch) -> list[Batch]:
        """Of the same publisher and before it, though at a later offset: those were found."""
        batches = [entry for entry in self.entries if isinstance(entry, Batch)]
        later = batches[next(i for i, entry in enumerate(batches) if entry is batch) + 1 :]
        late = [e for e in later if e.publisher == batch.publisher and e.first < batch.first]
        return sorted(late, key=lambda entry: entry.first)

    def recall(self, number: int, query: Query, limit: int) -> Recalled:
        """At most about `limit` bytes, and as many as the query wants."""
        found: list[Batch] = []
        reached: dict[bytes, int] = {}
        next_offset, size = 0, 0
        is_repaired = any(isinstance(entry, Found) for entry in self.entries)
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
            if size >= min(limit, query.limit):
                return Recalled(number, found, True, Vector(reached), offset)
            next_offset = offset + batch.count
            reached[batch.publisher] = max(batch.last, reached.get(batch.publisher, 0))
            if next_offset > query.offset:
                skipped = max(query.offset - offset, 0)
                for part in _wanted(batch.part(batch.first + skipped, batch.last), query):
                    found.append(part)
                    size += len(part.block.data)
        return Recalled(number, found, False, self.state().vector, next_offset)


def _is_any(batch: Batch, query: Query) -> bool:
    return next(_wanted(batch, query), None) is not None


def _wanted(batch: Batch, query: Query) -> Iterator[Batch]:
    if not query.ranges:
        after = query.after.of(batch.publisher)
        holes = query.after.holes.get(batch.publisher, ())
        for first, last in (*within(holes, batch.first, batch.last), (after + 1, batch.last)):
            if first <= last:
                yield batch.part(max(first, batch.first), last)
        return
    for each in query.ranges:
        first, last = max(each.first, batch.first), min(each.last, batch.last)
        if each.publisher == batch.publisher and first <= last:
            yield batch.part(first, last)
