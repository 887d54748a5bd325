"""Messages that entered queues and are not in the journal yet, and messages that are nowhere else."""

from typing import TYPE_CHECKING

import msgspec

from recado.amqp.traits import MessageTraits
from recado.broker.run import Origin, Run

from .records import NO_EXPIRY_CODE

if TYPE_CHECKING:
    from .queue_index import QueueIndex, SegmentExtents


_JOINED_MESSAGES_MAX = 1024  # messages that came one by one are told together


class QueueEntry(msgspec.Struct):
    """The messages in one of their queues."""

    index: "QueueIndex"
    first_position: int
    expires_at: int
    spilled: bool


class PendingRun(msgspec.Struct):
    """Messages, once for all their queues.

    A lane may append to the list of tails: only the first `count` are these.
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
    """The list of tails is nobody else's."""
    is_paged_out: bool = False
    """A shelf has them by themselves, so no others may join them."""

    def can_absorb(self, account: "QueueIndex", run: Run) -> bool:
        """Whether other messages can be told together with these: alike, and behind them in the same queue."""
        if self.origin is not run.origin or len(self.entries) != 1 or self.is_paged_out:
            return False
        (here,) = self.entries
        expires = NO_EXPIRY_CODE if run.expires_at is None else run.expires_at
        return (
            here.index is account
            and not here.spilled
            and here.first_position + self.count == run.first_position
            and here.expires_at == expires
            and self.traits is run.traits
            and self.channel == run.channel
            and self.frame_max == run.frame_max
            and self.prefix == run.prefix
            and self.count < _JOINED_MESSAGES_MAX
        )

    def absorb(self, payloads: list[bytes]) -> None:
        """Add those that follow; the list is ours from now on."""
        if not self.owns_payloads:
            self.payloads = self.payloads[: self.count]
            self.owns_payloads = True
        self.payloads += payloads
        self.count += len(payloads)

    def to_run(self, entry: QueueEntry) -> Run:
        """As it entered one of the queues."""
        return Run(
            *(self.origin, self.traits, self.channel, self.frame_max, self.prefix),
            payloads=self.payloads[: self.count],
            owns_payloads=True,
            first_position=entry.first_position,
            expires_at=None if entry.expires_at == NO_EXPIRY_CODE else entry.expires_at,
            stored=True,
        )


class PagedOutBucket:
    """What of a lane is on disk only: all that is live from the place `next` on."""

    __slots__ = (
        "extents",
        "journal_position",
        "next_position",
        "read_bytes",
        "stored_count",
        "unwritten",
    )

    def __init__(self, first: int) -> None:
        self.next_position = first
        self.extents: SegmentExtents | None = None
        self.journal_position = 0
        """The stretch that was read last, and how far it was."""
        self.stored_count = 0
        """Messages that can be read from the journal."""
        self.unwritten: list[tuple[PendingRun, QueueEntry]] = []
        """Behind those: not rendered yet."""
        self.read_bytes = 0
        """Bytes that were fetched last; who fetches again gets more at a time."""
