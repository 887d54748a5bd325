"""What a member keeps of the messages that passed lately, for those who missed them. Bounded in bytes."""

from collections import deque

from ..boundary import Batch, Range


class Window:
    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._order: deque[bytes] = deque()  # whose is the next to go
        self._kept: dict[bytes, deque[Batch]] = {}

    def keep(self, batch: Batch) -> None:
        self._kept.setdefault(batch.publisher, deque()).append(batch)
        self._order.append(batch.publisher)
        self._size += _size(batch)
        while self._size > self._most and self._order:
            publisher = self._order.popleft()
            kept = self._kept[publisher]
            self._size -= _size(kept.popleft())
            if not kept:
                del self._kept[publisher]

    def find(self, wanted: Range) -> list[Batch]:
        found: list[Batch] = []
        for batch in reversed(self._kept.get(wanted.publisher, ())):
            if batch.last < wanted.first:
                break
            if batch.first <= wanted.last:
                found.append(batch.part(wanted.first, wanted.last))
        found.reverse()
        return found


def lacking(wanted: Range, found: list[Batch]) -> list[Range]:
    """What of it is not in these, which are in order."""
    gaps, first = [], wanted.first
    for batch in found:
        if batch.first > first:
            gaps.append(Range(wanted.publisher, first, batch.first - 1))
        first = max(first, batch.last + 1)
    if first <= wanted.last:
        gaps.append(Range(wanted.publisher, first, wanted.last))
    return gaps


def _size(batch: Batch) -> int:
    return 200 + len(batch.block.data)
