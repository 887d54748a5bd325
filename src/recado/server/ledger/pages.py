"""The journal as the ledger sees it: segments that hold messages, checkpoints, and what may be dropped.

A checkpoint is made as soon as a segment begins, unless the last one was so large that it would be too early.
Once it is durable, of all the segments before it only the messages are still of interest.
"""

from collections import deque
from collections.abc import Sequence

from recado.journal.journal import Journal
from recado.journal.segment import Segment

CHECKPOINT_SHARE = 4  # so many times as much is written between two checkpoints, at least
LIVE_SHARE_MAX = 0.3  # of the messages in a segment: with more live ones it is not worth freeing
ROLL_GAIN_MIN_BYTES = 1 << 20  # a new segment and its checkpoint have to be worth writing


class Page:
    """What a segment holds: messages, counted once for each queue they are in."""

    __slots__ = ("base", "live", "stored")

    def __init__(self, base: int) -> None:
        self.base = base
        self.stored = 0
        self.live = 0

    @property
    def live_share(self) -> float:
        return self.live / self.stored if self.stored else 0.0


class Pages:
    __slots__ = (
        "_by_base",
        "_checkpoint_end",
        "_checkpoint_size",
        "_checkpointed",
        "_checkpoints",
        "_current",
        "_journal",
        "_spare",
        "checkpoint_due",
    )

    def __init__(self, journal: Journal) -> None:
        self.checkpoint_due = False
        self._journal = journal
        self._by_base: dict[int, Page] = {}
        self._current = Page(-1)  # of the segment that is appended to
        self._checkpoints: deque[tuple[int, int]] = deque()  # (where it ends, base of its segment)
        self._checkpointed = 0  # the segment of the last durable one
        self._checkpoint_end = 0
        self._checkpoint_size = 0
        self._spare: list[int] = []

    def append(self, record: bytes) -> tuple[Page, int]:
        """Gives the segment and the offset where the record is."""
        before = self._journal.position
        (position,) = self._journal.append(record)
        if position != before:
            self._turn_to(position)
        return self._current, position - self._current.base

    def append_group(self, records: Sequence[bytes]) -> list[tuple[Page, int]]:
        before = self._journal.position
        positions = self._journal.append(*records)
        if positions[0] != before:
            self._turn_to(positions[0])
        return [(self._current, position - self._current.base) for position in positions]

    def append_checkpoint(self, record: bytes, since: int | None, size: int) -> None:
        """Records that belong to it, `size` bytes, were appended from position `since` on, if any were."""
        self.append(record)
        self.checkpoint_due = False
        self._checkpoint_end = self._journal.position
        self._checkpoint_size = len(record) + size
        base = self._current.base if since is None else self._journal.segment_of(since)
        self._checkpoints.append((self._journal.position, base))

    def _turn_to(self, position: int) -> None:
        self._current = self.page(self._journal.segment_of(position))
        # One that fills a segment by itself must not be the reason for the next.
        since = position - self._checkpoint_end
        self.checkpoint_due = since >= CHECKPOINT_SHARE * self._checkpoint_size

    def page(self, base: int) -> Page:
        found = self._by_base.get(base)
        if found is None:
            found = self._by_base[base] = Page(base)
        return found

    def all(self) -> list[Page]:
        return list(self._by_base.values())

    def resume(self, checkpointed: int) -> None:
        """After recovery: go on in the last segment. The last checkpoint is in the segment `checkpointed`."""
        self._checkpointed = checkpointed
        segments = self._journal.segments
        if segments:
            self._current = self.page(segments[-1].base)

    def is_worth_rolling(self) -> bool:
        """Whether most of the room of the last segment could be given back."""
        share = self._current.live_share
        gain = self._journal.last_file_size() * (1 - share) - self._checkpoint_size
        return share <= LIVE_SHARE_MAX and gain >= ROLL_GAIN_MIN_BYTES

    def roll(self) -> None:
        """Turn to a new segment, so that the last one can be dropped.

        That happens once the checkpoint that is due now is durable, and live messages are settled or moved.
        """
        self._journal.roll()
        self.checkpoint_due = True

    # ── dropping ──────────────────────────────────────────────────────────────────────────────────────

    def note_durable(self) -> None:
        durable = self._journal.durable
        while self._checkpoints and self._checkpoints[0][0] <= durable:
            self._checkpointed = self._checkpoints.popleft()[1]

    def closed(self) -> list[tuple[Segment, Page]]:
        """Segments before the last durable checkpoint, oldest first."""
        return [
            (segment, self.page(segment.base))
            for segment in self._journal.segments
            if segment.base < self._checkpointed
        ]

    def empty(self) -> list[int]:
        """Segments that can be dropped when all that was written up to now is durable."""
        return [segment.base for segment, page in self.closed() if not page.live]

    def note_spare(self) -> None:
        """Right after all was written: what can be dropped even if there is no room for what comes next."""
        self._spare = self.empty()

    def spare(self) -> list[int]:
        """Segments that can be dropped when what was written is durable, though there is more to write."""
        return [base for base in self._spare if base in self._by_base]

    def drop(self, bases: Sequence[int]) -> None:
        for base in bases:
            self._journal.drop(base)
            del self._by_base[base]
