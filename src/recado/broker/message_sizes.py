"""The sizes of the messages that clients publish."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from recado.amqp.frames import BODY_SIZE, read_body_sizes

from .histogram import Histogram

LIMITS_BYTES: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
"""RabbitMQ's, which dashboards query."""
_unpack_size = BODY_SIZE.unpack_from


class MessageSizes(Histogram):
    """A histogram of body sizes, in bytes."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(LIMITS_BYTES)

    def observe_run(self, prefix: bytes, payloads: Sequence[bytes]) -> None:
        """Count the messages of a run, see `run`: 0.3 µs, if they have no common prefix 0.1 µs for each."""
        count = len(payloads)
        if prefix or count == 1:
            (size,) = _unpack_size(prefix or payloads[0])
            self.counts[bisect_left(LIMITS_BYTES, size)] += count
            self.total += size * count
            return
        sizes = sorted(read_body_sizes(payloads))
        self.total += sum(sizes)
        counted = 0
        while counted < count:
            bucket = bisect_left(LIMITS_BYTES, sizes[counted])
            limit = LIMITS_BYTES[bucket] if bucket < len(LIMITS_BYTES) else sizes[-1]
            end = bisect_right(sizes, limit)
            self.counts[bucket] += end - counted
            counted = end
