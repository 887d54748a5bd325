"""The store of a simulated archive: a list of entries; a crash leaves those that were synced, and a few more.

It answers as the real one does, by looking at everything: slow, and obviously right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from recado.feeds.boundary import ArchiveState, Batch, Entry, Query, Recalled
from recado.feeds.vector import Vector
from recado.feeds.views import Acknowledged, Lost, Settled, ViewRecord


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
        )

    def recall(self, number: int, query: Query, limit: int) -> Recalled:
        """At most about `limit` bytes, and as many as the query wants."""
        found: list[Batch] = []
        reached: dict[bytes, int] = {}
        next_offset, size = 0, 0
        for offset, batch in self.batches():
            if size >= min(limit, query.limit):
                return Recalled(number, found, True, Vector(reached), offset)
            next_offset = offset + batch.count
            reached[batch.publisher] = batch.last
            if next_offset > query.offset:
                skipped = max(query.offset - offset, 0)
                for part in _wanted(batch.part(batch.first + skipped, batch.last), query):
                    found.append(part)
                    size += len(part.block.data)
        return Recalled(number, found, False, self.state().vector, next_offset)


def _wanted(batch: Batch, query: Query) -> Iterator[Batch]:
    if not query.ranges:
        after = query.after.of(batch.publisher)
        if after < batch.last:
            yield batch.part(max(after + 1, batch.first), batch.last)
        return
    for each in query.ranges:
        first, last = max(each.first, batch.first), min(each.last, batch.last)
        if each.publisher == batch.publisher and first <= last:
            yield batch.part(first, last)
