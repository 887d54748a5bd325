"""Compaction: copy the live messages of a mostly dead segment to the end of the journal, and drop the segment.

Without it, one message that is never consumed would retain a whole segment for ever. Compaction works in slices
of some milliseconds. After each slice everything is consistent: the index has each message in its old segment
or in its new one. A moved message keeps its position in the queue. If the process crashes, recovery may find
both copies, and the later one counts (RV2).

Compaction starts when there is as much garbage as live data, and at least four segments of garbage in addition.
It then takes the segment with the smallest ratio of live messages, below `LIVE_RATIO_MAX`. When disk space is
low, the amount of garbage does not matter, but only segments with little live data are taken.
"""

from collections.abc import Iterator

from recado.journal.record import CorruptJournalError

from .journal_store import JournalStore
from .queue_index import QueueIndex
from .records import (
    MOVED_RUN,
    SPILLED_FLAG,
    Destination,
    RunRecord,
    decode_destinations,
    decode_run,
    encode_run,
)
from .segments import LIVE_RATIO_MAX, SegmentStats

_GARBAGE_SEGMENTS_MIN = 4  # less garbage is not worth the work
_LOW_DISK_MOVE_MAX_BYTES = 4 << 20  # moving messages takes space before it frees some
_SLICE_BYTES = 1 << 20  # read and written at a time: about 5 ms


class Compactor:
    """Chooses segments and moves their live messages, one slice per call."""

    def __init__(
        self,
        store: JournalStore,
        *,
        slice_bytes: int = _SLICE_BYTES,
        garbage_segments_min: int = _GARBAGE_SEGMENTS_MIN,
    ) -> None:
        self._store = store
        self._garbage_segments_min = garbage_segments_min
        self._slice_bytes = slice_bytes
        # The rest of the segment that is being compacted.
        self._records: Iterator[tuple[int, bytes]] | None = None
        self._source = SegmentStats(0)

    def compact(self, *, low_on_disk: bool = False) -> bool:
        """Do a slice of the work; return whether to continue soon. Raises `CorruptJournalError`, `OSError`.

        With `low_on_disk`, it compacts even if there is little garbage in total.
        """
        if self._records is None:
            base = self._choose_segment(low_on_disk)
            if base is None:
                return False
            segments = self._store.journal.segments
            end = next(segment.end for segment in segments if segment.base == base)
            self._records = self._store.journal.scan(base, end)
            self._source = self._store.segments.stats_of(base)
        self._store.flush()  # settlements must precede moved messages in the journal
        if not self._compact_slice(self._source, self._records):
            self._records = None
        self._store.flush()  # a checkpoint may be due
        return True

    def _compact_slice(self, source: SegmentStats, records: Iterator[tuple[int, bytes]]) -> bool:
        """Move messages of a slice; return whether live messages are left in the segment."""
        done = 0
        while source.live_count:
            if done >= self._slice_bytes:
                return True
            _, record = next(records, (0, b""))
            if not record:
                reason = f"{source.live_count} messages are not in their segment"
                raise CorruptJournalError("the journal", source.base, reason)
            done += len(record)
            if record[0] <= MOVED_RUN:
                done += self._move_live(record, source)
        return False

    def _choose_segment(self, low_on_disk: bool) -> int | None:
        """Return the base of the segment with the smallest ratio of live messages, if it is worth the work."""
        # Bytes. `live` and `garbage` are estimates, from the ratio of message counts: sizes are not tracked.
        garbage = live = largest = 0.0
        best: tuple[float, int] | None = None
        for segment, stats in self._store.segments.before_checkpoint():
            size = segment.end - segment.base
            ratio = stats.live_ratio
            live += size * ratio
            garbage += size * (1 - ratio)
            largest = max(largest, size)
            if low_on_disk and size * ratio > _LOW_DISK_MOVE_MAX_BYTES:
                continue
            if stats.live_count and ratio < LIVE_RATIO_MAX and (best is None or ratio < best[0]):
                best = ratio, segment.base
        if best is None or (
            not low_on_disk and garbage < live + self._garbage_segments_min * largest
        ):
            return None
        return best[1]

    def _move_live(self, record: bytes, source: SegmentStats) -> int:
        """Append the messages of a run that are live in this segment; return the bytes written."""
        run = decode_run(record)
        count = len(run.payloads)
        # Queues in which the same messages are live share a record.
        shared: dict[tuple[tuple[int, int], ...], list[tuple[QueueIndex, Destination]]] = {}
        for destination in decode_destinations(record):
            index = self._store.queue_indexes.get(destination[0] & ~SPILLED_FLAG)
            if index is not None:
                parts = _live_parts(index, destination[1], count, source)
                if parts:
                    # The flag of an old record is wrong if the queue was altered since.
                    flag = SPILLED_FLAG if index.is_spilled(run.traits) else 0
                    destination = (index.queue_id | flag, *destination[1:])
                    shared.setdefault(parts, []).append((index, destination))
        size = 0
        for parts, receivers in shared.items():
            for low, high in parts:
                size += self._append(run, low, high, receivers)
        return size

    def _append(
        self, run: RunRecord, low: int, high: int, receivers: list[tuple[QueueIndex, Destination]]
    ) -> int:
        record = encode_run(
            [(queue_id, first + low, expires_at) for _, (queue_id, first, expires_at) in receivers],
            run.traits,
            run.origin_bytes,
            run.channel,
            run.frame_max,
            run.prefix,
            run.payloads[low:high],
            kind=MOVED_RUN,
        )
        stats, offset = self._store.segments.append(record)
        for index, (_, first, _) in receivers:
            index.add_moved(first + low, first + high, offset, len(record), stats)
        return len(record)


def _live_parts(
    index: QueueIndex, first: int, count: int, source: SegmentStats
) -> tuple[tuple[int, int], ...]:
    """Return which messages of a run are live and stored in this segment, as ranges within the run."""
    end = first + count
    parts: list[tuple[int, int]] = []
    for extents in index.segment_extents[index.find_extents(first) :]:
        if extents.first >= end:
            break
        if extents.stats is source:
            low, high = max(first, extents.first), min(end, extents.end)
            parts += index.settled.missing(low, high)
    return tuple((low - first, high - first) for low, high in parts)
