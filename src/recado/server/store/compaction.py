"""Making room: what is live in segments that are mostly garbage is stored again, and the segments are dropped.

Without it one message that nobody consumes would hold a whole segment for ever. It goes in slices, each some
milliseconds long, and each leaves everything consistent: a message is in the one segment or in the other.

A message that is stored again keeps its place. After a crash both may be found, and the later one counts.
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

_GARBAGE_SEGMENTS_MIN = 4  # of garbage, before it is worth the work
_LOW_DISK_MOVE_MAX_BYTES = 4 << 20  # to move messages takes room before it frees some
_SLICE_BYTES = 1 << 20  # bytes that are read or written at a time: about 5 ms


class Compactor:
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
        self._records: Iterator[tuple[int, bytes]] | None = None  # what is left of a segment
        self._source = SegmentStats(0)

    def compact(self, *, low_on_disk: bool = False) -> bool:
        """Do a slice of the work; whether there is more to do at once. Raises Corrupt, OSError.

        On a disk that is `short` of room every segment with much garbage is worth the work.
        """
        if self._records is None:
            base = self._choose_segment(low_on_disk)
            if base is None:
                return False
            segments = self._store.journal.segments
            end = next(segment.end for segment in segments if segment.base == base)
            self._records = self._store.journal.scan(base, end)
            self._source = self._store.segments.stats_of(base)
        self._store.flush()  # what was settled must be in the journal before what is moved
        if not self._compact_slice(self._source, self._records):
            self._records = None
        self._store.flush()  # a checkpoint may be due
        return True

    def _compact_slice(self, source: SegmentStats, records: Iterator[tuple[int, bytes]]) -> bool:
        """Whether something is left in the segment."""
        done = 0
        while source.live_count:
            if done >= self._slice_bytes:
                return True
            _, record = next(records, (0, b""))
            if not record:
                what = f"{source.live_count} messages are not in their segment"
                raise CorruptJournalError("the journal", source.base, what)
            done += len(record)
            if record[0] <= MOVED_RUN:
                done += self._move_live(record, source)
        return False

    def _choose_segment(self, low_on_disk: bool) -> int | None:
        """The segment with the smallest part that is live, if it is worth it."""
        pages = self._store.segments
        garbage = live = largest = 0.0
        best: tuple[float, int] | None = None
        for segment, page in pages.before_checkpoint():
            size = segment.end - segment.base
            share = page.live_ratio
            live += size * share
            garbage += size * (1 - share)
            largest = max(largest, size)
            if low_on_disk and size * share > _LOW_DISK_MOVE_MAX_BYTES:
                continue
            if page.live_count and share < LIVE_RATIO_MAX and (best is None or share < best[0]):
                best = share, segment.base
        if best is None or (
            not low_on_disk and garbage < live + self._garbage_segments_min * largest
        ):
            return None
        return best[1]

    def _move_live(self, record: bytes, source: SegmentStats) -> int:
        """Append what of a run is live in this segment; gives the bytes."""
        run = decode_run(record)
        count = len(run.payloads)
        # Queues in which the same messages are live share a record again.
        shared: dict[tuple[tuple[int, int], ...], list[tuple[QueueIndex, Destination]]] = {}
        for destination in decode_destinations(record):
            account = self._store.queue_indexes.get(destination[0] & ~SPILLED_FLAG)
            if account is not None:
                parts = _live_parts(account, destination[1], count, source)
                if parts:
                    shared.setdefault(parts, []).append((account, destination))
        size = 0
        for parts, receivers in shared.items():
            for low, high in parts:
                size += self._append(run, low, high, receivers)
        return size

    def _append(
        self, run: RunRecord, low: int, high: int, receivers: list[tuple[QueueIndex, Destination]]
    ) -> int:
        record = encode_run(
            [(queue, first + low, expires) for _, (queue, first, expires) in receivers],
            run.traits,
            run.origin_bytes,
            run.channel,
            run.frame_max,
            run.prefix,
            run.payloads[low:high],
            kind=MOVED_RUN,
        )
        page, at = self._store.segments.append(record)
        for account, (_, first, _) in receivers:
            account.add_moved(first + low, first + high, at, len(record), page)
        return len(record)


def _live_parts(
    account: QueueIndex, first: int, count: int, source: SegmentStats
) -> tuple[tuple[int, int], ...]:
    """Which messages of a run are live and to be found here, counted within the run."""
    end = first + count
    parts: list[tuple[int, int]] = []
    for stretch in account.extents[account.find_extents(first) :]:
        if stretch.first >= end:
            break
        if stretch.stats is source:
            low, high = max(first, stretch.first), min(end, stretch.end)
            parts += account.settled.missing(low, high)
    return tuple((low - first, high - first) for low, high in parts)
