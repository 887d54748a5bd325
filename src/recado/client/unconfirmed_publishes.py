"""The unconfirmed publishes of a robust channel, stored so that they can be published again after a
reconnection.

A message keeps its sequence number across connections, but each plain channel counts from 1 again. So this
class maps the numbers of the current plain channel to sequence numbers, by spans in which both count up
together:

    sequence numbers   … 7  8  9 10 11 12 …          8 and 10 were confirmed on the last connection
    channel's numbers    1     2     3  4 …          → spans (1 is 7), (2 is 9), (3 is 11, 4 is 12, …)

CUP1  Sequence numbers have no gaps, even if connections are lost.
CUP2  A sequence number is reported as settled exactly once.
CUP3  On each connection every unsettled message is sent once, in the order of the sequence numbers.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from .confirms import ConfirmTracker

_MESSAGE_OVERHEAD_BYTES = 128  # estimate for a message without its body and properties
_RESEND_BATCH_COUNT = 1000  # messages published again between two calls of `drain`, approximately


class PublishBatch(msgspec.Struct, frozen=True):
    """Messages that were published together, with consecutive sequence numbers."""

    first_number: int
    exchange: str
    routing_key: str
    bodies: Sequence[bytes]
    properties: bytes
    mandatory: bool

    @property
    def end_number(self) -> int:
        """The sequence number after that of the last message."""
        return self.first_number + len(self.bodies)

    @property
    def memory_bytes(self) -> int:
        return sum(map(len, self.bodies)) + len(self.bodies) * _MESSAGE_OVERHEAD_BYTES


class UnconfirmedPublishes:
    """Stores messages until they are settled, and maps the channel's numbers to sequence numbers."""

    def __init__(self) -> None:
        self.confirms = ConfirmTracker()
        self.memory_bytes = 0  # estimate for all stored messages
        self._sent: deque[PublishBatch] = deque()
        self._unsent: deque[PublishBatch] = deque()
        # (first number of the channel, first sequence number) of each span
        self._spans: list[tuple[int, int]] = []
        self._next_channel_number = 1  # of the next message that is sent

    def add(
        self,
        exchange: str,
        routing_key: str,
        bodies: Sequence[bytes],
        properties: bytes,
        mandatory: bool,
    ) -> PublishBatch:
        """Store messages as unsent.

        A connected caller sends them at once and calls `mark_sent`; otherwise recovery sends them later, with
        `take_unsent`.
        """
        first = self.confirms.published_count + 1
        self.confirms.published_count += len(bodies)
        batch = PublishBatch(first, exchange, routing_key, bodies, properties, mandatory)
        self.memory_bytes += batch.memory_bytes
        self._unsent.append(batch)
        return batch

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def mark_sent(self) -> None:
        """The caller has sent the only unsent batch."""
        batch = self._unsent.popleft()
        self._sent.append(batch)
        self._record_sent(batch.first_number, len(batch.bodies))

    def start_channel(self) -> None:
        """A new plain channel replaces the last one; nothing was sent on it yet."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._spans.clear()
        self._next_channel_number = 1

    def take_unsent(self) -> Iterator[PublishBatch]:
        """Yield the next batches to send: consecutive batches of one route joined, settled messages omitted."""
        batch = self._unsent.popleft()
        self._sent.append(batch)
        bodies = list(batch.bodies)
        while (
            self._unsent
            and len(bodies) < _RESEND_BATCH_COUNT
            and _has_same_route(batch, self._unsent[0])
        ):
            bodies += self._unsent[0].bodies
            self._sent.append(self._unsent.popleft())
        numbers = range(batch.first_number, batch.first_number + len(bodies))
        for is_settled, group in groupby(numbers, self.confirms.is_settled):
            if not is_settled:
                first, *rest = group
                count, index = 1 + len(rest), first - batch.first_number
                self._record_sent(first, count)
                yield msgspec.structs.replace(
                    batch, first_number=first, bodies=bodies[index : index + count]
                )

    def settle(self, numbers: range) -> list[range]:
        """Settle messages by their numbers on the plain channel; return the newly settled sequence numbers."""
        settled = []
        first, end = numbers.start, numbers.stop
        index = bisect_right(self._spans, first, key=_span_start) - 1
        while first < end and index >= 0:
            start, first_number = self._spans[index]
            index += 1
            is_last = index == len(self._spans)
            span_end = self._next_channel_number if is_last else self._spans[index][0]
            stop = min(end, span_end)
            settled += self.confirms.settle_range(first_number + first - start, stop - first)
            first = stop
            if is_last:
                break
        while self._sent and self._sent[0].end_number <= self.confirms.settled_up_to + 1:
            self.memory_bytes -= self._sent.popleft().memory_bytes
        return settled

    def _record_sent(self, first_number: int, count: int) -> None:
        if self._spans:
            start, first = self._spans[-1]
            if first_number - first != self._next_channel_number - start:
                self._spans.append((self._next_channel_number, first_number))
        else:
            self._spans.append((self._next_channel_number, first_number))
        self._next_channel_number += count


def _has_same_route(one: PublishBatch, other: PublishBatch) -> bool:
    return (
        one.routing_key == other.routing_key
        and one.exchange == other.exchange
        and one.properties == other.properties
        and one.mandatory == other.mandatory
    )


def _span_start(span: tuple[int, int]) -> int:
    return span[0]
