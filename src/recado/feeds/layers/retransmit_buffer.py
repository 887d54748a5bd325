"""A bounded buffer of recently released messages, for members that missed them."""

from collections import deque

from ..boundary import MessageBatch, MessageRange


class RetransmitBuffer:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._total_bytes = 0
        self._eviction_order: deque[bytes] = deque()  # publishers of the batches, oldest first
        self._batches: dict[bytes, deque[MessageBatch]] = {}

    def add(self, batch: MessageBatch) -> None:
        self._batches.setdefault(batch.publisher, deque()).append(batch)
        self._eviction_order.append(batch.publisher)
        self._total_bytes += _buffered_size(batch)
        while self._total_bytes > self._max_bytes and self._eviction_order:
            publisher = self._eviction_order.popleft()
            batches = self._batches[publisher]
            self._total_bytes -= _buffered_size(batches.popleft())
            if not batches:
                del self._batches[publisher]

    def find(self, wanted: MessageRange) -> list[MessageBatch]:
        found: list[MessageBatch] = []
        for batch in reversed(self._batches.get(wanted.publisher, ())):
            if batch.last < wanted.first:
                break
            if batch.first <= wanted.last:
                found.append(batch.clip(wanted.first, wanted.last))
        found.reverse()
        return found


def find_missing(wanted: MessageRange, found: list[MessageBatch]) -> list[MessageRange]:
    """Return the ranges that are not in these batches, which are in order."""
    gaps, first = [], wanted.first
    for batch in found:
        if batch.first > first:
            gaps.append(MessageRange(wanted.publisher, first, batch.first - 1))
        first = max(first, batch.last + 1)
    if first <= wanted.last:
        gaps.append(MessageRange(wanted.publisher, first, wanted.last))
    return gaps


def _buffered_size(batch: MessageBatch) -> int:
    # 200: estimated memory of a batch beyond its data
    return 200 + len(batch.block.data)
