"""What a stream keeps: a log of messages by offset, of which the oldest are let go by whole segments.

LO1  Offsets count messages from 0; none is given twice, and none changes its meaning.
LO2  Times never decrease along the log, whatever the clock does.
LO3  Only whole segments are let go, from the front, and never the last message that is safe.

The log here is in memory. `server/ledger` has one on disk, and both pass the same tests.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from .run import Run

SEGMENT_BYTES = 32 << 20  # unless the stream was declared with another size
READ_BYTES = 256 * 1024  # about as much is read at a time
BLOCKS = 8  # of them are kept
_SMALLEST_SEGMENT = 4096
_LARGEST_SEGMENT = 128 << 20


def segment_size(asked: int | None) -> int:
    """How long a segment may get; what a client asks for is the most it wants, so less will do."""
    if asked is None:
        return SEGMENT_BYTES
    return min(max(asked, _SMALLEST_SEGMENT), _LARGEST_SEGMENT)


class StreamLog(Protocol):
    first: int
    """The oldest offset there is."""
    next: int
    """What the next message gets."""

    def append(self, run: Run, now: int) -> None:
        """Add messages, which get their offsets: `run.first` and those that follow."""

    def read(self, offset: int, end: int) -> list[Run]:
        """Messages from `offset` on, or from the first there is, and before `end`: some of them, in order.

        At least one if there are any. The runs are the reader's own.
        """

    def offset_at(self, time: int) -> int:
        """The first message that came at this time or later; `next` if none did."""

    def trim(self, most: int | None, oldest: int | None, safe: int) -> int | None:
        """Let go of segments while there are more than `most` bytes, or all in one came before `oldest`.

        Messages from offset `safe` on may yet be lost, so one before it has to stay. Gives the time of the
        newest message that would be let go next, if there is a next.
        """


def portion(runs: Iterable[Run], offset: int, end: int) -> list[Run]:
    """As much as is read at a time of messages from `offset` on and before `end`; the first run has it."""
    found: list[Run] = []
    size = 0
    for run in runs:
        if run.first >= end or size >= READ_BYTES:
            break
        part = run.slice(max(offset - run.first, 0), min(end - run.first, len(run)))
        found.append(part)
        size += part.weight()
    return found


class Blocks:
    """What was read last, for all consumers of a stream: many of them are often at the same place."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: deque[list[Run]] = deque(maxlen=BLOCKS)

    def find(self, log: StreamLog, offset: int, end: int) -> tuple[Run, int]:
        """The run that has an offset, or the oldest there is, and the bytes that had to be read for it.

        There must be a message before `end`. The run is not the caller's to change.
        """
        offset = max(offset, log.first)
        for block in self._blocks:
            last = block[-1]
            if block[0].first <= offset < last.first + len(last):
                return block[bisect_right(block, offset, key=_first) - 1], 0
        block = log.read(offset, end)
        self._blocks.append(block)
        return block[0], READ_BYTES


class _Segment:
    __slots__ = ("first", "runs", "size", "times")

    def __init__(self, first: int) -> None:
        self.first = first
        self.size = 0
        self.runs: list[Run] = []
        self.times: list[int] = []  # of each run


class MemoryLog:
    """A log that lasts as long as the process."""

    def __init__(self, size: int) -> None:
        """`size` is how many bytes a segment may have."""
        self._size = size
        self._segments = [_Segment(0)]
        self._bytes = 0
        self.first = 0
        self.next = 0

    def append(self, run: Run, now: int) -> None:
        run.first = self.next
        self.next += len(run)
        weight = run.weight()
        segment = self._segments[-1]
        if segment.times:
            now = max(now, segment.times[-1])
            if segment.size + weight > self._size:
                segment = _Segment(run.first)
                self._segments.append(segment)
        segment.size += weight
        self._bytes += weight
        if segment.times and segment.times[-1] == now and run.follows(segment.runs[-1]):
            segment.runs[-1].tails += run.tails
        else:
            segment.runs.append(run)
            segment.times.append(now)

    def read(self, offset: int, end: int) -> list[Run]:
        offset = max(offset, self.first)
        if offset >= end:
            return []
        at = bisect_right(self._segments, offset, key=_first) - 1
        runs = self._segments[at].runs
        return portion(runs[bisect_right(runs, offset, key=_first) - 1 :], offset, end)

    def offset_at(self, time: int) -> int:
        for segment in self._segments:
            if segment.times and segment.times[-1] >= time:
                return segment.runs[bisect_left(segment.times, time)].first
        return self.next

    def trim(self, most: int | None, oldest: int | None, safe: int) -> int | None:
        segments = self._segments
        while len(segments) > 1 and segments[1].first < safe:
            newest = segments[0].times[-1]
            too_old = oldest is not None and newest < oldest
            if not too_old and (most is None or self._bytes <= most):
                return newest
            self._bytes -= segments.pop(0).size
            self.first = segments[0].first
        return None


def _first(part: Run | _Segment) -> int:
    return part.first
