"""The segments of the store's journal: how many live messages each holds, and which can be dropped.

A checkpoint is written as soon as a segment begins, unless the last checkpoint was so large that this would be
too soon. Once it is durable, only the messages in older segments matter: all their other records are redundant.
"""

from collections import deque
from collections.abc import Sequence

from recado.journal.journal import Journal
from recado.journal.segment import Segment

CHECKPOINT_INTERVAL_FACTOR = 4  # write at least this many times its size before the next one
LIVE_RATIO_MAX = 0.3  # with a larger ratio of live messages a segment is not worth compacting
ROLL_GAIN_MIN_BYTES = 1 << 20  # less would not pay for a new segment with its checkpoint


class SegmentStats:
    """The number of messages in a segment, each counted once per queue; their sizes are not tracked."""

    __slots__ = ("base", "live_count", "stored_count")

    def __init__(self, base: int) -> None:
        self.base = base
        self.stored_count = 0
        self.live_count = 0

    @property
    def live_ratio(self) -> float:
        return self.live_count / self.stored_count if self.stored_count else 0.0


class StoreSegments:
    """Appends records to the journal, and tracks segments and checkpoints."""

    __slots__ = (
        "_checkpoint_base",
        "_checkpoint_bytes",
        "_checkpoint_end",
        "_checkpoints",
        "_current",
        "_droppable_when_full",
        "_journal",
        "_stats_by_base",
        "checkpoint_due",
    )

    def __init__(self, journal: Journal) -> None:
        self.checkpoint_due = False
        self._journal = journal
        self._stats_by_base: dict[int, SegmentStats] = {}
        self._current = SegmentStats(-1)  # of the segment that is appended to
        # Checkpoints that are not durable yet: (where it ends, base of the segment where it begins).
        self._checkpoints: deque[tuple[int, int]] = deque()
        self._checkpoint_base = 0  # base of the segment where the last durable checkpoint begins
        self._checkpoint_end = 0
        self._checkpoint_bytes = 0
        self._droppable_when_full: list[int] = []

    def append(self, record: bytes) -> tuple[SegmentStats, int]:
        """Append a record; return its segment, and its offset in the segment."""
        position_before = self._journal.position
        (position,) = self._journal.append(record)
        if position != position_before:
            self._switch_to(position)
        return self._current, position - self._current.base

    def append_group(self, records: Sequence[bytes]) -> list[tuple[SegmentStats, int]]:
        """Append records of which a crash leaves all or none."""
        position_before = self._journal.position
        positions = self._journal.append(*records)
        if positions[0] != position_before:
            self._switch_to(positions[0])
        return [(self._current, position - self._current.base) for position in positions]

    def append_checkpoint(self, record: bytes, since: int | None, size: int) -> None:
        """Append a checkpoint.

        `since` is the journal position of the first record that belongs to the checkpoint and was written
        before it (message ids), or None; `size` is the total size of these records.
        """
        self.append(record)
        self.checkpoint_due = False
        self._checkpoint_end = self._journal.position
        self._checkpoint_bytes = len(record) + size
        base = self._current.base if since is None else self._journal.segment_base(since)
        self._checkpoints.append((self._journal.position, base))

    def _switch_to(self, position: int) -> None:
        self._current = self.stats_of(self._journal.segment_base(position))
        # A checkpoint that fills a segment by itself must not cause the next one.
        written = position - self._checkpoint_end
        self.checkpoint_due = written >= CHECKPOINT_INTERVAL_FACTOR * self._checkpoint_bytes

    def stats_of(self, base: int) -> SegmentStats:
        stats = self._stats_by_base.get(base)
        if stats is None:
            stats = self._stats_by_base[base] = SegmentStats(base)
        return stats

    def all_stats(self) -> list[SegmentStats]:
        return list(self._stats_by_base.values())

    def resume(self, checkpoint_base: int) -> None:
        """After recovery: continue in the last segment.

        `checkpoint_base` is the base of the segment in which the last checkpoint begins.
        """
        self._checkpoint_base = checkpoint_base
        segments = self._journal.segments
        if segments:
            self._current = self.stats_of(segments[-1].base)

    def is_worth_rolling(self) -> bool:
        """Whether beginning a new segment would free most of the space of the last one."""
        live_ratio = self._current.live_ratio
        gain = self._journal.last_file_bytes() * (1 - live_ratio) - self._checkpoint_bytes
        return live_ratio <= LIVE_RATIO_MAX and gain >= ROLL_GAIN_MIN_BYTES

    def roll(self) -> None:
        """Begin a new segment and a checkpoint, so that the last segment can be dropped.

        That happens once the checkpoint is durable and the live messages are settled or moved.
        """
        self._journal.roll()
        self.checkpoint_due = True

    # ── dropping ──────────────────────────────────────────────────────────────────────────────────────

    def mark_durable(self) -> None:
        """After a sync: find the last durable checkpoint."""
        durable = self._journal.durable_position
        while self._checkpoints and self._checkpoints[0][0] <= durable:
            self._checkpoint_base = self._checkpoints.popleft()[1]

    def before_checkpoint(self) -> list[tuple[Segment, SegmentStats]]:
        """Return the segments before the last durable checkpoint, oldest first."""
        return [
            (segment, self.stats_of(segment.base))
            for segment in self._journal.segments
            if segment.base < self._checkpoint_base
        ]

    def find_empty(self) -> list[int]:
        """Return the bases of segments that can be dropped when everything written so far is durable."""
        return [segment.base for segment, stats in self.before_checkpoint() if not stats.live_count]

    def remember_droppable(self) -> None:
        """After a complete write: remember the segments that can be dropped even if the next write fails."""
        self._droppable_when_full = self.find_empty()

    def droppable_when_full(self) -> list[int]:
        """Return the bases of segments that can be dropped although some records cannot be written."""
        return [base for base in self._droppable_when_full if base in self._stats_by_base]

    def drop(self, bases: Sequence[int]) -> None:
        for base in bases:
            self._journal.drop(base)
            del self._stats_by_base[base]
