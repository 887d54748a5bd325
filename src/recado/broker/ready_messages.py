"""Reading the messages of a queue in the order of delivery, a portion at a time, without removing them.

RM1  Messages that are ready during the whole reading are read once, in the order of delivery. Messages that
     enter the queue meanwhile are not read. A message that returns to it is read if its position has not been
     passed yet.

Between two portions the queue is used as always. What was read may then have left it, so a caller that
removes messages does that before the next turn.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from .checks import StreamOffset
from .priority_bucket import ReadLimits
from .run import Run
from .steps import STEP_UNITS_MAX
from .stream import BYTES_PER_UNIT, Stream
from .stream_log import READ_BYTES
from .work_queue import WorkQueue

if TYPE_CHECKING:
    from .message_filter import FilterResult

PORTION_LIMITS: Final = ReadLimits(
    message_count=16_384, byte_count=16 << 20, run_count=STEP_UNITS_MAX // 4
)
EVALUATED_MAX_COUNT: Final = STEP_UNITS_MAX // 2
"""Messages for which a selector is evaluated in a step: 10 µs each if it decodes JSON."""
QUEUE_DELETED: Final = "the queue was deleted"
PRIORITIES_ALTERED: Final = "the priorities of the queue were altered"
_MESSAGES_PER_UNIT: Final = 512  # to copy the references to their payloads


class Portion(msgspec.Struct, frozen=True):
    """Some messages, in order; perhaps none, if others had to be skipped."""

    runs: Sequence[Run]
    cost: int
    priority: int = 0
    is_paged_out: bool = False


class Selection(Protocol):
    """Chooses messages of runs: a `MessageFilter`, or one by position."""

    def select(self, run: Run, low: int, high: int, count_max: int) -> "FilterResult":
        """Evaluate messages low..high-1 of a run, or the first of them, until `count_max` match."""


class MessageReader(Protocol):
    """Reads the messages of a queue or a stream."""

    def read(self) -> Portion | None:
        """Return the next messages, None at the end."""


class ReadyMessages:
    """The ready messages of a classic or quorum queue."""

    def __init__(self, queue: WorkQueue, limits: ReadLimits = PORTION_LIMITS) -> None:
        """Read a queue in portions of limited size."""
        self.queue = queue
        self._limits = limits
        self._end = queue.next_position
        self._buckets = queue.buckets
        self._priority = len(queue.buckets) - 1
        self._position = 0
        self._paged_out: Iterator[tuple[list[Run], int]] | None = None

    @property
    def stop_reason(self) -> str | None:
        """Why no more messages are read, although there may be some; None otherwise."""
        if self.queue.deleted:
            return QUEUE_DELETED
        if self.queue.buckets is not self._buckets:  # it is unknown which messages were read
            return PRIORITIES_ALTERED
        return None

    def passed_bytes(self, run: Run, priority: int) -> int:
        """Return the size of those messages that were read, or that entered after the beginning."""
        sizes = run.body_sizes()
        if priority > self._priority:
            return sum(sizes)
        passed = self._position if priority == self._priority else 0
        read = count_before(run, passed)
        return sum(sizes[:read]) + sum(sizes[max(count_before(run, self._end), read) :])

    def read(self) -> Portion | None:
        """Return the next messages, None at the end, or if the queue was deleted or got other priorities."""
        queue = self.queue
        while self._priority >= 0 and self.stop_reason is None:
            bucket = queue.buckets[self._priority]
            runs, is_paged_out = bucket.read(self._position, self._limits), False
            if runs is not None:
                cost = 1 + len(runs) + sum(map(len, runs)) // _MESSAGES_PER_UNIT
            else:
                if self._paged_out is None:
                    self._paged_out = queue.read_paged_out(self._priority, self._limits)
                runs, cost = next(self._paged_out, (None, 0))
                is_paged_out = True
            if runs is not None and not (runs and runs[0].first_position >= self._end):
                return Portion(self._up_to_end(runs), cost, self._priority, is_paged_out)
            self._priority -= 1
            self._position, self._paged_out = 0, None
        return None

    def _up_to_end(self, runs: list[Run]) -> list[Run]:
        """Return the messages that were in the queue at the beginning."""
        if runs:
            self._position = runs[-1].end_position
        if self._position > self._end:
            return [
                run.copy_range(run.first_position, min(run.end_position, self._end))
                for run in runs
                if run.first_position < self._end
            ]
        return runs


def count_before(run: Run, position: int) -> int:
    """Return how many messages of a run are before a position."""
    return min(max(-(-(position - run.first_position) // run.stride), 0), len(run))


class StreamMessages:
    """The durable messages of a stream from an offset on."""

    def __init__(self, stream: Stream, start: StreamOffset, now: int) -> None:
        self._stream = stream
        self._offset = stream.resolve_offset(start, now)
        self._end = stream.durable_offset

    def read(self) -> Portion | None:
        if self._stream.deleted:
            return None
        runs = self._stream.read(self._offset, self._end)
        if not runs:
            return None
        self._offset = runs[-1].end_position
        return Portion(runs, READ_BYTES // BYTES_PER_UNIT)


def select(
    selection: Selection | None, run: Run, low: int, count_max: int
) -> tuple[Sequence[int], int, int]:
    """Return up to `count_max` matching messages of a run, as indexes from `low` on.

    Also returns the index after the last message that was evaluated, and the cost in bytes.
    """
    if selection is None:
        end = min(len(run), low + count_max)
        return range(low, end), end, 0
    return selection.select(run, low, min(len(run), low + EVALUATED_MAX_COUNT), count_max)
