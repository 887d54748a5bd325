"""What a robust channel published and the broker has not confirmed: kept, to be sent again if need be.

A message keeps its number over all connections, while each bare channel counts from 1 again. So it is
remembered which numbers were sent as which.

    own numbers      … 7  8  9 10 11 12 …            8 and 10 were confirmed on the last connection
    the channel's      1     2     3  4 …            → segments (1 is 7), (2 is 9), (3 is 11, 4 is 12, …)

O1  Numbers count up without gaps, whatever happens to connections.
O2  A number is told as settled exactly once.
O3  On each connection, what is not settled is sent once, in the order of the numbers.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from .confirms import ConfirmTracker

_MESSAGE_OVERHEAD_BYTES = 128  # bytes, about, of a message without its body and properties
_RESEND_BATCH_COUNT = 1000  # messages that are sent again at a time, about


class PublishBatch(msgspec.Struct, frozen=True):
    """Messages that were published together; the numbers are its own."""

    first_number: int
    exchange: str
    routing_key: str
    bodies: Sequence[bytes]
    properties: bytes
    mandatory: bool

    @property
    def end_number(self) -> int:
        return self.first_number + len(self.bodies)

    @property
    def memory_bytes(self) -> int:
        return sum(map(len, self.bodies)) + len(self.bodies) * _MESSAGE_OVERHEAD_BYTES


class UnconfirmedPublishes:
    def __init__(self) -> None:
        self.confirms = ConfirmTracker()
        self.memory_bytes = 0  # bytes, about, of all that is kept
        self._sent: deque[PublishBatch] = deque()
        self._unsent: deque[PublishBatch] = deque()
        self._segments: list[
            tuple[int, int]
        ] = []  # (the channel's number, our own) where they begin
        self._next_channel_number = 1  # the channel's number of what is sent next

    def add(
        self,
        exchange: str,
        routing_key: str,
        bodies: Sequence[bytes],
        properties: bytes,
        mandatory: bool,
    ) -> PublishBatch:
        """To be sent: at once, if the caller says `mark_sent`, or with `take_unsent`."""
        batch = PublishBatch(
            self.confirms.published_count + 1, exchange, routing_key, bodies, properties, mandatory
        )
        self.confirms.published_count += len(bodies)
        self.memory_bytes += batch.memory_bytes
        self._unsent.append(batch)
        return batch

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def mark_sent(self) -> None:
        """The one batch that was not, is sent."""
        batch = self._unsent.popleft()
        self._sent.append(batch)
        self._record_sent(batch.first_number, len(batch.bodies))

    def start_channel(self) -> None:
        """A new channel, on which nothing was sent yet."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._segments.clear()
        self._next_channel_number = 1

    def take_unsent(self) -> Iterator[PublishBatch]:
        """What is to be sent next: batches alike together, and in pieces if some of it is settled."""
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
        for done, some in groupby(numbers, self.confirms.is_settled):
            if not done:
                first, *rest = some
                count, at = 1 + len(rest), first - batch.first_number
                self._record_sent(first, count)
                yield msgspec.structs.replace(
                    batch, first_number=first, bodies=bodies[at : at + count]
                )

    def settle(self, numbers: range) -> list[range]:
        """The channel's numbers that the broker settled, as our own."""
        settled = []
        first, end = numbers.start, numbers.stop
        at = bisect_right(self._segments, first, key=_segment_start) - 1
        while first < end and at >= 0:
            start, own = self._segments[at]
            at += 1
            last = self._segments[at][0] if at < len(self._segments) else self._next_channel_number
            upto = min(end, last)
            settled += self.confirms.settle_range(own + first - start, upto - first)
            first = upto
            if at == len(self._segments):
                break
        while self._sent and self._sent[0].end_number <= self.confirms.settled_up_to + 1:
            self.memory_bytes -= self._sent.popleft().memory_bytes
        return settled

    def _record_sent(self, first_number: int, count: int) -> None:
        if self._segments:
            start, first = self._segments[-1]
            if first_number - first != self._next_channel_number - start:
                self._segments.append((self._next_channel_number, first_number))
        else:
            self._segments.append((self._next_channel_number, first_number))
        self._next_channel_number += count


def _has_same_route(one: PublishBatch, other: PublishBatch) -> bool:
    return (
        one.routing_key == other.routing_key
        and one.exchange == other.exchange
        and one.properties == other.properties
        and one.mandatory == other.mandatory
    )


def _segment_start(segment: tuple[int, int]) -> int:
    return segment[0]
