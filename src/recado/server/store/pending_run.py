"""Messages that are not in the journal yet (`PendingRun`), and the messages of a queue that are only on disk
(`PagedOutBucket`)."""

from typing import TYPE_CHECKING

import msgspec

from recado.amqp.traits import MessageTraits
from recado.broker.run import Origin, Run

from .ranges import RangeSet
from .records import NO_EXPIRY_CODE

if TYPE_CHECKING:
    from .queue_index import QueueIndex, SegmentExtents


_JOINED_MESSAGES_MAX = 1024  # in one record, of messages that were published one by one


class QueueEntry(msgspec.Struct):
    """The positions of a pending run in one of its queues."""

    index: "QueueIndex"
    first_position: int
    expires_at: int
    spilled: bool
    """Whether these are transient messages that were only paged out: a restart forgets them."""


class PendingRun(msgspec.Struct):
    """Messages to be written, once for all their queues.

    A priority bucket may append to the same list of payloads: only the first `count` belong to this run.
    """

    origin: Origin
    traits: MessageTraits
    channel: int
    frame_max: int
    prefix: bytes
    payloads: list[bytes]
    count: int
    entries: list[QueueEntry]
    owns_payloads: bool = False
    """Whether the list of payloads is not shared with a queue."""
    is_paged_out: bool = False
    """Whether a `PagedOutBucket` refers to it, so that no messages may be added."""

    def can_absorb(self, index: "QueueIndex", run: Run) -> bool:
        """Whether a run can be written in the same record: alike, and next in the same queue."""
        if self.origin is not run.origin or len(self.entries) != 1 or self.is_paged_out:
            return False
        (entry,) = self.entries
        expires_at = NO_EXPIRY_CODE if run.expires_at is None else run.expires_at
        return (
            entry.index is index
            and not entry.spilled
            and entry.first_position + self.count == run.first_position
            and entry.expires_at == expires_at
            and self.traits is run.traits
            and self.channel == run.channel
            and self.frame_max == run.frame_max
            and self.prefix == run.prefix
            and self.count < _JOINED_MESSAGES_MAX
        )

    def absorb(self, payloads: list[bytes]) -> None:
        """Add the payloads of a run that `can_absorb` accepted."""
        if not self.owns_payloads:
            self.payloads = self.payloads[: self.count]
            self.owns_payloads = True
        self.payloads += payloads
        self.count += len(payloads)

    def to_run(self, entry: QueueEntry) -> Run:
        """Return the run as it is in one of its queues."""
        return Run(
            *(self.origin, self.traits, self.channel, self.frame_max, self.prefix),
            payloads=self.payloads[: self.count],
            owns_payloads=True,
            first_position=entry.first_position,
            expires_at=None if entry.expires_at == NO_EXPIRY_CODE else entry.expires_at,
            stored=True,
        )


class PagedOutBucket:
    """The messages of one priority that are only on disk: all live ones from `next_position` on."""

    __slots__ = (
        "extents",
        "journal_position",
        "next_position",
        "read_bytes",
        "stored_count",
        "taken",
        "unwritten",
    )

    def __init__(self, first: int) -> None:
        self.next_position = first
        # Where the last read stopped: which extents, and how far in the journal.
        self.extents: SegmentExtents | None = None
        self.journal_position = 0
        self.stored_count = 0
        """Messages that can be read from the journal."""
        self.taken = RangeSet()
        """Positions from `next_position` on that are not paged out any more, but may not be settled yet."""
        self.unwritten: list[tuple[PendingRun, QueueEntry]] = []
        """Messages after those, paged out in this turn and not written yet."""
        self.read_bytes = 0
        """Size of the last read; each further one reads more."""

    def take(self, run: Run) -> None:
        """Remove stored messages."""
        self.taken.add(run.first_position, run.end_position)
        self.stored_count -= len(run)
