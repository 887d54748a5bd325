"""Reading the messages of a queue in the order of delivery, a portion at a time, without removing them.

RM1  Messages that are ready during the whole reading are read once, in the order of delivery. Messages that
     enter or return to the queue meanwhile are not read, except for some that return to it early.

Between two portions the queue is used as always. What was read may then have left it, so a caller that
removes messages does that before the next turn.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from .checks import StreamOffset
from .run import Run
from .steps import STEP_UNITS_MAX
from .stream import BYTES_PER_UNIT, Stream
from .stream_log import READ_BYTES
from .work_queue import WorkQueue

_RUNS_PER_PORTION: Final = STEP_UNITS_MAX // 4
_MESSAGES_PER_UNIT: Final = 512  # to copy the references to their payloads


class Portion(msgspec.Struct, frozen=True):
    """Some messages, in order; perhaps none, if others had to be skipped."""

    runs: Sequence[Run]
    cost: int
    priority: int = 0
    is_paged_out: bool = False


class MessageReader(Protocol):
    """Reads the messages of a queue or a stream."""

    def read(self) -> Portion | None:
        """Return the next messages, None at the end."""


class ReadyMessages:
    """The ready messages of a classic or quorum queue."""

    def __init__(self, queue: WorkQueue, runs_per_portion: int = _RUNS_PER_PORTION) -> None:
        self.queue = queue
        self._runs_per_portion = runs_per_portion
        self._end = queue.next_position
        self._priority = len(queue.buckets) - 1
        self._position = 0
        self._paged_out: Iterator[tuple[list[Run], int]] | None = None

    def read(self) -> Portion | None:
        """Return the next messages, None at the end or if the queue was deleted."""
        queue = self.queue
        while self._priority >= 0 and not queue.deleted:
            bucket = queue.buckets[self._priority]
            runs, is_paged_out = bucket.read(self._position, self._runs_per_portion), False
            if runs is not None:
                cost = 1 + len(runs) + sum(map(len, runs)) // _MESSAGES_PER_UNIT
            else:
                if self._paged_out is None:
                    self._paged_out = queue.read_paged_out(self._priority)
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
