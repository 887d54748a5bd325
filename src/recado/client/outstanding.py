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

from .confirms import Confirms

_WEIGHT = 128  # bytes, about, of a message without its body and properties
_TOGETHER = 1000  # messages that are sent again at a time, about


class Batch(msgspec.Struct, frozen=True):
    """Messages that were published together; the numbers are its own."""

    first: int
    exchange: str
    key: str
    bodies: Sequence[bytes]
    properties: bytes
    mandatory: bool

    @property
    def end(self) -> int:
        return self.first + len(self.bodies)

    @property
    def weight(self) -> int:
        return sum(map(len, self.bodies)) + len(self.bodies) * _WEIGHT


class Outstanding:
    def __init__(self) -> None:
        self.confirms = Confirms()
        self.weight = 0  # bytes, about, of all that is kept
        self._sent: deque[Batch] = deque()
        self._unsent: deque[Batch] = deque()
        self._segments: list[
            tuple[int, int]
        ] = []  # (the channel's number, our own) where they begin
        self._next = 1  # the channel's number of what is sent next

    def add(
        self, exchange: str, key: str, bodies: Sequence[bytes], properties: bytes, mandatory: bool
    ) -> Batch:
        """To be sent: at once, if the caller says `sent_now`, or with `take_unsent`."""
        batch = Batch(self.confirms.published + 1, exchange, key, bodies, properties, mandatory)
        self.confirms.published += len(bodies)
        self.weight += batch.weight
        self._unsent.append(batch)
        return batch

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def sent_now(self) -> None:
        """The one batch that was not, is sent."""
        batch = self._unsent.popleft()
        self._sent.append(batch)
        self._send(batch.first, len(batch.bodies))

    def restart(self) -> None:
        """A new channel, on which nothing was sent yet."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._segments.clear()
        self._next = 1

    def take_unsent(self) -> Iterator[Batch]:
        """What is to be sent next: batches alike together, and in pieces if some of it is settled."""
        batch = self._unsent.popleft()
        self._sent.append(batch)
        bodies = list(batch.bodies)
        while self._unsent and len(bodies) < _TOGETHER and _alike(batch, self._unsent[0]):
            bodies += self._unsent[0].bodies
            self._sent.append(self._unsent.popleft())
        numbers = range(batch.first, batch.first + len(bodies))
        for done, some in groupby(numbers, self.confirms.is_settled):
            if not done:
                first, *rest = some
                count, at = 1 + len(rest), first - batch.first
                self._send(first, count)
                yield msgspec.structs.replace(batch, first=first, bodies=bodies[at : at + count])

    def settle(self, numbers: range) -> list[range]:
        """The channel's numbers that the broker settled, as our own."""
        settled = []
        first, end = numbers.start, numbers.stop
        at = bisect_right(self._segments, first, key=_start) - 1
        while first < end and at >= 0:
            start, own = self._segments[at]
            at += 1
            last = self._segments[at][0] if at < len(self._segments) else self._next
            upto = min(end, last)
            settled += self.confirms.settle_each(own + first - start, upto - first)
            first = upto
            if at == len(self._segments):
                break
        while self._sent and self._sent[0].end <= self.confirms.upto + 1:
            self.weight -= self._sent.popleft().weight
        return settled

    def _send(self, own: int, count: int) -> None:
        if self._segments:
            start, first = self._segments[-1]
            if own - first != self._next - start:
                self._segments.append((self._next, own))
        else:
            self._segments.append((self._next, own))
        self._next += count


def _alike(one: Batch, other: Batch) -> bool:
    return (
        one.key == other.key
        and one.exchange == other.exchange
        and one.properties == other.properties
        and one.mandatory == other.mandatory
    )


def _start(segment: tuple[int, int]) -> int:
    return segment[0]
