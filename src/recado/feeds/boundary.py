"""The interface between the pure core of feeds and the I/O layer: events in, effects out.

`FeedMember.handle(event, now)` takes one event and returns the effects in the order in which they must be
performed.

Packets take one of two routes. *Broadcast* packets reach every member of the feed including the sender; a
transport with total order delivers them to all members in the same order. *Addressed* packets go to one member,
all archives, all members or all coordinators; the sender may receive its own. Both routes may lose, duplicate
and reorder packets; on AMQP they rarely do.
"""

from enum import Enum
from typing import Final, Literal

from msgspec import Struct

from .block import Block
from .vector import Vector
from .views import (
    NO_VIEW,
    AcknowledgementRecord,
    ArchiveRecord,
    Certainty,
    IncarnationId,
    LostRange,
    MemberId,
    SequenceNumber,
    View,
    ViewId,
    ViewRecord,
    ViewStability,
)

ARCHIVES: Final = "archives"
MEMBERS: Final = "members"
COORDINATORS: Final = "coordinators"
"""The members that have enabled `ListenToCoordinators`: they coordinate a view, or may have to."""
MAX_READ_BATCHES: Final = 2_048
"""Limit of batches that the archive store returns at once: half of the limit of a packet, as some are split."""
Target = MemberId | Literal["archives", "members", "coordinators"]


class PacketRoute(Enum):
    BROADCAST = "P"
    ADDRESSED = "A"


class MessageRange(Struct, frozen=True, array_like=True):
    """Messages first..last of a publisher."""

    publisher: IncarnationId
    first: SequenceNumber
    last: SequenceNumber


class MessageBatch(Struct, frozen=True):
    """Consecutive messages of one publisher: message i has sequence first + i."""

    publisher: bytes
    first: int
    block: Block
    view: ViewId = NO_VIEW
    certainty: Certainty = Certainty.LIVE

    @property
    def count(self) -> int:
        return self.block.count

    @property
    def last(self) -> int:
        return self.first + self.block.count - 1

    def clip(self, first: int, last: int) -> "MessageBatch":
        """Return only the messages first..last of the batch."""
        low, high = max(first, self.first) - self.first, min(last, self.last) - self.first + 1
        if low == 0 and high == self.block.count:
            return self
        block = self.block.slice(low, high)
        return MessageBatch(self.publisher, self.first + low, block, self.view, self.certainty)


ArchiveEntry = MessageBatch | ArchiveRecord
"""An entry of an archive, in order of offsets. Only batches have offsets: one per message."""


class ArchiveQuery(Struct, frozen=True):
    """A read from an archive's store: batches from `offset` on, in order of offset, clipped to messages after
    `after`, or to `ranges` if there are any. The result ends after about `limit_bytes` bytes or
    MAX_READ_BATCHES batches."""

    after: Vector
    ranges: tuple[MessageRange, ...] = ()
    offset: int = 0
    limit_bytes: int = 4 * 1024 * 1024


class ArchiveState(Struct, frozen=True):
    """The contents of an archive's store when the member starts."""

    vector: Vector
    views: tuple[ViewRecord, ...] = ()
    stability: tuple[ViewStability, ...] = ()
    acknowledgements: tuple[AcknowledgementRecord, ...] = ()
    next_offset: int = 0
    """The offset of the next message to be stored."""
    lost: tuple[LostRange, ...] = ()
    """Ranges that were recorded as lost and not found since."""


# --- events --------------------------------------------------------------------------------------


class PublishRequested(Struct, frozen=True):
    """The application publishes these messages; they get the next sequences."""

    block: Block


class PacketArrived(Struct, frozen=True):
    route: PacketRoute
    sender: MemberId
    packet: bytes


class TimerFired(Struct, frozen=True):
    """The deadline of the member has passed."""


class EntriesStored(Struct, frozen=True):
    """The archive's store has synced all entries up to this vector."""

    vector: Vector
    offset: int


class ArchiveRead(Struct, frozen=True):
    """Result of ReadArchive `query_number`. If `has_more`, continue at `offset`; `reached` is the store's
    vector there."""

    query_number: int
    batches: list[MessageBatch]
    has_more: bool
    reached: Vector
    offset: int = 0


class ArchiveDamaged(Struct, frozen=True):
    """The archive's store cannot read these messages any more."""

    lost: tuple[LostRange, ...]


class BroadcastsConfirmed(Struct, frozen=True):
    """The transport has confirmed all broadcasts up to this sequence."""

    last_sequence: int


class LeaveRequested(Struct, frozen=True):
    """The application leaves the feed. `vector` is the part that it has processed, if that is not all."""

    vector: Vector | None = None


Event = (
    PublishRequested
    | PacketArrived
    | TimerFired
    | EntriesStored
    | ArchiveRead
    | ArchiveDamaged
    | BroadcastsConfirmed
    | LeaveRequested
)

# --- effects -------------------------------------------------------------------------------------


class Broadcast(Struct, frozen=True):
    """Send a packet to all members. If it contains messages, `last_sequence` is the last of them, and the
    transport must persist and confirm it; packets with 0 are transient. `key` is the routing key (AMQP)."""

    packet: bytes
    key: str = ""
    last_sequence: int = 0


class ListenToCoordinators(Struct, frozen=True):
    """Whether to receive packets addressed to `COORDINATORS` from now on; initially off."""

    enabled: bool


class SendAddressed(Struct, frozen=True):
    """Send a transient packet to one member, all archives, all members or all coordinators."""

    to: Target
    packet: bytes


class SendAcknowledgement(Struct, frozen=True):
    """Send this packet to all archives once the application has processed everything delivered before. A newer
    one may replace one that still waits."""

    packet: bytes


class DeliverBatch(Struct, frozen=True):
    batch: MessageBatch


class ReportLoss(Struct, frozen=True):
    """Tell the application that these messages are lost; later ones follow."""

    lost: LostRange


class ReportView(Struct, frozen=True):
    """Tell the application about a new view; everything up to `cut` has been delivered before."""

    view: View
    cut: Vector


class ReportRecovered(Struct, frozen=True):
    """Tell the application that recovery is finished: live messages follow."""

    vector: Vector


class StoreEntries(Struct, frozen=True):
    """Append the entries in this order and make them durable, then report `EntriesStored`."""

    entries: list[ArchiveEntry]


class ReadArchive(Struct, frozen=True):
    query_number: int
    query: ArchiveQuery


class ReportFailure(Struct, frozen=True):
    """Tell the application that the member cannot continue, and why."""

    reason: str
    is_recovery: bool = False
    """True if missed messages cannot be recovered."""


Effect = (
    Broadcast
    | ListenToCoordinators
    | SendAddressed
    | SendAcknowledgement
    | DeliverBatch
    | ReportLoss
    | ReportView
    | ReportRecovered
    | StoreEntries
    | ReadArchive
    | ReportFailure
)
