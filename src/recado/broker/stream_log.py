"""The log of a stream: messages by offset, in segments that are removed as a whole.

SL1  Offsets count messages from 0; none is assigned twice, and none changes its message.
SL2  Times never decrease along the log, whatever the clock does.
SL3  Only whole segments are removed, from the front, and never the last durable message.

The log in this module is in memory. `recado.server.store` has one on disk, and both pass the same tests.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from .run import Run

SEGMENT_BYTES = 32 << 20  # default
READ_BYTES = 256 * 1024  # approximate size of a read
CACHED_BLOCKS_MAX = 8
_SEGMENT_BYTES_MIN = 4096
_SEGMENT_BYTES_MAX = 128 << 20


def clamp_segment_bytes(requested: int | None) -> int:
    """Return the size of a segment for the size that a client requests, at least 4 KiB and at most 128 MiB."""
    if requested is None:
        return SEGMENT_BYTES
    return min(max(requested, _SEGMENT_BYTES_MIN), _SEGMENT_BYTES_MAX)


class StreamLog(Protocol):
    first_offset: int
    """The oldest available offset."""
    next_offset: int
    """The offset of the next message."""

    def append(self, run: Run, now: int) -> None:
        """Append messages and assign their offsets: `run.first_position` and following."""

    def read(self, offset: int, end: int) -> list[Run]:
        """Return some messages from `offset` (or the oldest available) up to `end`, in order.

        At least one if there are any. The runs belong to the caller.
        """

    def offset_at(self, time: int) -> int:
        """Return the offset of the first message at this time or later, or `next_offset`."""

    def trim(
        self, bytes_max: int | None, oldest_time: int | None, durable_offset: int
    ) -> int | None:
        """Remove segments beyond the retention limits.

        That is while there are more than `bytes_max` bytes, or all messages of a segment are older than
        `oldest_time`. Messages from `durable_offset` on may still be lost, so one before it is retained.
        Returns the time of the newest message in the segment to be removed next, or None.
        """


def take_portion(runs: Iterable[Run], offset: int, end: int) -> list[Run]:
    """Return a portion of the messages from `offset` up to `end`; the first run contains `offset`."""
    found: list[Run] = []
    size = 0
    for run in runs:
        if run.first_position >= end or size >= READ_BYTES:
            break
        part = run.slice(
            max(offset - run.first_position, 0), min(end - run.first_position, len(run))
        )
        found.append(part)
        size += part.memory_bytes()
    return found


class StreamReadCache:
    """Recently read blocks, shared by all consumers of a stream: many of them are often at the same offset."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: deque[list[Run]] = deque(maxlen=CACHED_BLOCKS_MAX)

    def read(self, log: StreamLog, offset: int, end: int) -> tuple[Run, int]:
        """Return the run that contains an offset, and about how many bytes were read for it.

        If the offset is no longer available, it is the oldest run. There must be a message before `end`.
        The caller must not change the run.
        """
        offset = max(offset, log.first_offset)
        for block in self._blocks:
            last = block[-1]
            if block[0].first_position <= offset < last.first_position + len(last):
                return block[bisect_right(block, offset, key=_first_position) - 1], 0
        block = log.read(offset, end)
        self._blocks.append(block)
        return block[0], READ_BYTES


class _MemorySegment:
    __slots__ = ("first_position", "runs", "times", "total_bytes")

    def __init__(self, first: int) -> None:
        self.first_position = first
        self.total_bytes = 0
        self.runs: list[Run] = []
        self.times: list[int] = []  # one per run


class MemoryStreamLog:
    """A log in memory."""

    def __init__(self, segment_bytes: int) -> None:
        """`segment_bytes` is the maximum size of a segment."""
        self._segment_bytes = segment_bytes
        self._segments = [_MemorySegment(0)]
        self._total_bytes = 0
        self.first_offset = 0
        self.next_offset = 0

    def append(self, run: Run, now: int) -> None:
        run.first_position = self.next_offset
        self.next_offset += len(run)
        weight = run.memory_bytes()
        segment = self._segments[-1]
        if segment.times:
            now = max(now, segment.times[-1])
            if segment.total_bytes + weight > self._segment_bytes:
                segment = _MemorySegment(run.first_position)
                self._segments.append(segment)
        segment.total_bytes += weight
        self._total_bytes += weight
        if segment.times and segment.times[-1] == now and run.can_follow(segment.runs[-1]):
            segment.runs[-1].extend(run)
        else:
            segment.runs.append(run)
            segment.times.append(now)

    def read(self, offset: int, end: int) -> list[Run]:
        offset = max(offset, self.first_offset)
        if offset >= end:
            return []
        at = bisect_right(self._segments, offset, key=_first_position) - 1
        runs = self._segments[at].runs
        return take_portion(
            runs[bisect_right(runs, offset, key=_first_position) - 1 :], offset, end
        )

    def offset_at(self, time: int) -> int:
        for segment in self._segments:
            if segment.times and segment.times[-1] >= time:
                return segment.runs[bisect_left(segment.times, time)].first_position
        return self.next_offset

    def trim(
        self, bytes_max: int | None, oldest_time: int | None, durable_offset: int
    ) -> int | None:
        segments = self._segments
        while len(segments) > 1 and segments[1].first_position < durable_offset:
            newest = segments[0].times[-1]
            too_old = oldest_time is not None and newest < oldest_time
            if not too_old and (bytes_max is None or self._total_bytes <= bytes_max):
                return newest
            self._total_bytes -= segments.pop(0).total_bytes
            self.first_offset = segments[0].first_position
        return None


def _first_position(part: Run | _MemorySegment) -> int:
    return part.first_position
