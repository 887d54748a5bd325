"""The unsettled deliveries of a channel, by delivery tag.

UD1  Tags grow; entries are in order of tag and do not overlap.
UD2  A tag is settled once; the caller reports a tag that is not outstanding as an error.

An entry is a whole run, so that settling a run costs as much as settling a message. A message that is
settled out of order leaves a gap in its entry. Settled entries are removed when they outnumber the others,
so that one message that stays unsettled does not retain the rest.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from recado.amqp.traits import DEFAULT_TRAITS

from .run import Origin, Run

Holder = TypeVar("Holder")

# Replaces each settled entry before `_start`, so that its memory is freed at once.
_FREED_ENTRY: Any = None
_NO_MESSAGES = Run(Origin("", ""), DEFAULT_TRAITS, 0, 0, b"", [], False)
_JOINED_MESSAGES_MAX = 64  # because an entry stays in memory until its last message is settled


class DeliveredRun(Generic[Holder]):
    """A delivered run: message i has the tag `first_tag + i`."""

    __slots__ = ("_settled_indexes", "first_tag", "holder", "run", "unsettled_count")

    def __init__(self, first_tag: int, run: Run, holder: Holder) -> None:
        self.first_tag = first_tag
        self.run = run
        self.holder = holder
        self.unsettled_count = len(run.payloads)
        self._settled_indexes: set[int] | None = None

    def has(self, tag: int) -> bool:
        i = tag - self.first_tag
        return (
            i < len(self.run.payloads)
            and self.unsettled_count > 0
            and not (self._settled_indexes and i in self._settled_indexes)
        )

    @property
    def oldest_tag(self) -> int:
        """The lowest unsettled tag; there must be one."""
        settled = self._settled_indexes or ()
        return self.first_tag + next(i for i in range(len(self.run.payloads)) if i not in settled)

    def can_append(self, first_tag: int, run: Run) -> bool:
        """Whether single messages can be one entry: 3 µs less to settle each of them."""
        count = self.unsettled_count
        return (
            self.first_tag + count == first_tag
            and count == len(self.run.payloads)
            and count < _JOINED_MESSAGES_MAX
            and self.run.stride == 1
            and run.can_follow(self.run)
        )

    def append(self, run: Run) -> None:
        self.run.extend(run)
        self.unsettled_count += len(run.payloads)

    def settle(self, low: int, high: int) -> int:
        """Settle messages low..high-1, some of which may be settled already; return how many were not."""
        if self._settled_indexes is None and high - low == self.unsettled_count:
            self.unsettled_count = 0
            return high - low
        if self._settled_indexes is None:
            self._settled_indexes = set()
        before = len(self._settled_indexes)
        self._settled_indexes.update(range(low, high))
        count = len(self._settled_indexes) - before
        self.unsettled_count -= count
        return count

    def unsettled_ranges(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return the unsettled messages of low..high-1 as ranges."""
        settled = self._settled_indexes
        if not settled or settled.isdisjoint(range(low, high)):
            return [(low, high)]
        return [(i, i + 1) for i in range(low, high) if i not in settled]

    def unsettled_runs(self, low: int, high: int) -> list[Run]:
        """Return the unsettled messages of low..high-1 as runs without gaps, in order of tag."""
        run = self.run
        if self._settled_indexes is None and run.stride == 1:
            is_whole = low == 0 and high == len(run.payloads)
            return [run if is_whole else run.slice(low, high)]
        gaps = self._settled_indexes or ()
        return [run.slice(i, i + 1) for i in range(low, high) if i not in gaps]


class UnackedDeliveries(Generic[Holder]):
    __slots__ = ("_entries", "_settled_inside", "_start")

    def __init__(self) -> None:
        # A list with a start index, because a deque is slow to search: with one, 300,000 acks in random
        # order took 34 s.
        self._entries: list[DeliveredRun[Holder]] = []
        self._start = 0
        self._settled_inside = 0  # number of settled entries after the start

    def add(self, first_tag: int, run: Run, holder: Holder) -> None:
        entries = self._entries
        if len(run.payloads) == 1 and len(entries) > self._start:
            last = entries[-1]
            if last.holder is holder and last.can_append(first_tag, run):
                last.append(run)
                return
        entries.append(DeliveredRun(first_tag, run, holder))

    def count_unsettled(self) -> int:
        """Return the number of unsettled messages."""
        return sum(entry.unsettled_count for entry in self._entries[self._start :])

    def has(self, tag: int) -> bool:
        index = self._find(tag)
        return index >= 0 and self._entries[index].has(tag)

    def oldest(self) -> DeliveredRun[Holder] | None:
        """Return the entry with the lowest tags; call it after `compact`."""
        return self._entries[self._start] if self._start < len(self._entries) else None

    def certainly_holds_all(self, first: int, last: int) -> bool:
        """Whether every tag of a range is certainly unsettled; False may be wrong, True is right."""
        missing = last - first + 1
        for entry, low, high in self.spans(first, last):
            if entry.unsettled_count < len(entry.run.payloads):
                return False
            missing -= high - low
        return missing == 0

    def unsettled_tags(self, first: int, last: int) -> Iterator[int]:
        """Iterate over the unsettled tags of a range."""
        for entry, low, high in self.spans(first, last):
            for tag in range(entry.first_tag + low, entry.first_tag + high):
                if entry.has(tag):
                    yield tag

    def last_tag_within(self, first: int, last: int, count: int) -> int:
        """Return the last tag of first..last that is within the next `count` entries."""
        behind = max(self._find(first), self._start) + count
        if behind >= len(self._entries):
            return last
        return min(last, self._entries[behind].first_tag - 1)

    def count_entries(self, first: int, last: int) -> int:
        """Return about how many entries have tags in first..last."""
        return max(self._find(last) - max(self._find(first), self._start) + 1, 0)

    def _find(self, tag: int) -> int:
        """Return the index of the entry that may contain the tag, -1 if all start after it."""
        entries, start = self._entries, self._start
        if start == len(entries) or entries[start].first_tag > tag:
            return -1
        if len(entries) == start + 1 or entries[start + 1].first_tag > tag:
            return start
        return bisect_right(entries, tag, start, key=_first_tag) - 1

    def spans(self, first: int, last: int) -> Iterator[tuple[DeliveredRun[Holder], int, int]]:
        """Iterate over the entries with tags in first..last, each with its range low..high-1.

        The caller settles them. Entries with higher tags may be added meanwhile (UD1).
        """
        index = max(self._find(first), self._start)
        while index < len(self._entries):
            entry = self._entries[index]
            if entry.first_tag > last:
                return
            low = max(first - entry.first_tag, 0)
            high = min(last - entry.first_tag + 1, len(entry.run.payloads))
            if low < high and entry.unsettled_count:
                yield entry, low, high
            index += 1

    def settle(self, entry: DeliveredRun[Holder], low: int, high: int) -> int:
        count = entry.settle(low, high)
        if not entry.unsettled_count:
            self._settled_inside += 1
            entry.run = _NO_MESSAGES  # frees the memory now, not all at once in `compact`
        return count

    def compact(self) -> None:
        """Remove settled entries; call it after settling."""
        entries, start = self._entries, self._start
        while start < len(entries) and not entries[start].unsettled_count:
            entries[start] = _FREED_ENTRY
            start += 1
            self._settled_inside -= 1
        waste = start + self._settled_inside
        if start == len(entries) or (waste > 64 and waste * 2 > len(entries)):
            self._entries = [entry for entry in entries[start:] if entry.unsettled_count]
            self._settled_inside = start = 0
        self._start = start


def _first_tag(entry: "DeliveredRun[Holder]") -> int:
    return entry.first_tag
