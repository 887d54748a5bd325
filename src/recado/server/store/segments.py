"""The journal as the ledger sees it: segments that hold messages, checkpoints, and what may be dropped.

A checkpoint is made as soon as a segment begins, unless the last one was so large that it would be too early.
Once it is durable, of all the segments before it only the messages are still of interest.
"""

from collections import deque
from collections.abc import Sequence

from recado.journal.journal import Journal
from recado.journal.segment import Segment

CHECKPOINT_INTERVAL_FACTOR = 4  # so many times as much is written between two checkpoints, at least
LIVE_RATIO_MAX = 0.3  # of the messages in a segment: with more live ones it is not worth freeing
ROLL_GAIN_MIN_BYTES = 1 << 20  # a new segment and its checkpoint have to be worth writing


class SegmentStats:
    """What a segment holds: messages, counted once for each queue they are in."""

    __slots__ = ("base", "live_count", "stored_count")

    def __init__(self, base: int) -> None:
        self.base = base
        self.stored_count = 0
        self.live_count = 0

    @property
    def live_ratio(self) -> float:
        return self.live_count / self.stored_count if self.stored_count else 0.0


class StoreSegments:
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
        self._checkpoints: deque[tuple[int, int]] = deque()  # (where it ends, base of its segment)
        self._checkpoint_base = 0  # the segment of the last durable one
        self._checkpoint_end = 0
        self._checkpoint_bytes = 0
        self._droppable_when_full: list[int] = []

    def append(self, record: bytes) -> tuple[SegmentStats, int]:
        """Gives the segment and the offset where the record is."""
        before = self._journal.position
        (position,) = self._journal.append(record)
        if position != before:
            self._switch_to(position)
        return self._current, position - self._current.base

    def append_group(self, records: Sequence[bytes]) -> list[tuple[SegmentStats, int]]:
        before = self._journal.position
        positions = self._journal.append(*records)
        if positions[0] != before:
            self._switch_to(positions[0])
        return [(self._current, position - self._current.base) for position in positions]

    def append_checkpoint(self, record: bytes, since: int | None, size: int) -> None:
        """Records that belong to it, `size` bytes, were appended from position `since` on, if any were."""
        self.append(record)
        self.checkpoint_due = False
        self._checkpoint_end = self._journal.position
        self._checkpoint_bytes = len(record) + size
        base = self._current.base if since is None else self._journal.segment_base(since)
        self._checkpoints.append((self._journal.position, base))

    def _switch_to(self, position: int) -> None:
        self._current = self.stats_of(self._journal.segment_base(position))
        # One that fills a segment by itself must not be the reason for the next.
        since = position - self._checkpoint_end
        self.checkpoint_due = since >= CHECKPOINT_INTERVAL_FACTOR * self._checkpoint_bytes

    def stats_of(self, base: int) -> SegmentStats:
        found = self._stats_by_base.get(base)
        if found is None:
            found = self._stats_by_base[base] = SegmentStats(base)
        return found

    def all_stats(self) -> list[SegmentStats]:
        return list(self._stats_by_base.values())

    def resume(self, checkpoint_base: int) -> None:
        """After recovery: go on in the last segment. The last checkpoint is in the segment `checkpointed`."""
        self._checkpoint_base = checkpoint_base
        segments = self._journal.segments
        if segments:
            self._current = self.stats_of(segments[-1].base)

    def is_worth_rolling(self) -> bool:
        """Whether most of the room of the last segment could be given back."""
        share = self._current.live_ratio
        gain = self._journal.last_file_bytes() * (1 - share) - self._checkpoint_bytes
        return share <= LIVE_RATIO_MAX and gain >= ROLL_GAIN_MIN_BYTES

    def roll(self) -> None:
        """Turn to a new segment, so that the last one can be dropped.

        That happens once the checkpoint that is due now is durable, and live messages are settled or moved.
        """
        self._journal.roll()
        self.checkpoint_due = True

    # ── dropping ──────────────────────────────────────────────────────────────────────────────────────

    def mark_durable(self) -> None:
        durable = self._journal.durable_position
        while self._checkpoints and self._checkpoints[0][0] <= durable:
            self._checkpoint_base = self._checkpoints.popleft()[1]

    def before_checkpoint(self) -> list[tuple[Segment, SegmentStats]]:
        """Segments before the last durable checkpoint, oldest first."""
        return [
            (segment, self.stats_of(segment.base))
            for segment in self._journal.segments
            if segment.base < self._checkpoint_base
        ]

    def find_empty(self) -> list[int]:
        """Segments that can be dropped when all that was written up to now is durable."""
        return [segment.base for segment, page in self.before_checkpoint() if not page.live_count]

    def remember_droppable(self) -> None:
        """Right after all was written: what can be dropped even if there is no room for what comes next."""
        self._droppable_when_full = self.find_empty()

    def droppable_when_full(self) -> list[int]:
        """Segments that can be dropped when what was written is durable, though there is more to write."""
        return [base for base in self._droppable_when_full if base in self._stats_by_base]

    def drop(self, bases: Sequence[int]) -> None:
        for base in bases:
            self._journal.drop(base)
            del self._stats_by_base[base]
