"""All that crosses between the core of feeds and the world: events in, effects out.

`Member.handle(event, now)` takes one event and gives the effects in the order in which they must happen.

Channel P is the feed itself: everybody hears what is cast there, the sender included, and on an ordered
transport all hear it in one order. Channel A is for members: addressed to one of them, to all archives, to
all members, or to those that coordinate; the sender may hear itself or not. Both may lose, double and reorder;
on AMQP they rarely do.
"""

from enum import Enum
from typing import Final, Literal

from msgspec import Struct, field

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
"""Members that coordinate a view or may have to, as far as they have asked for it by `ListenToCoordinators`."""
MAX_READ_BATCHES: Final = 2_048
"""Batches in an answer of an archive's store: half of what a packet has room for, as some are split there."""
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
        """Only messages first..last of it."""
        low, high = max(first, self.first) - self.first, min(last, self.last) - self.first + 1
        if low == 0 and high == self.block.count:
            return self
        block = self.block.slice(low, high)
        return MessageBatch(self.publisher, self.first + low, block, self.view, self.certainty)


ArchiveEntry = MessageBatch | ArchiveRecord
"""What an archive stores, in the order of its offsets. Only batches have offsets: one per message."""


class ArchiveQuery(Struct, frozen=True):
    """What is to be read from an archive's store: batches from `offset` on, in order of offset, trimmed to
    messages behind `after`, or to `ranges` if there are any; stop behind about `limit` bytes, or about
    MOST_RECALLED batches."""

    after: Vector
    ranges: tuple[MessageRange, ...] = ()
    offset: int = 0
    limit_bytes: int = 4 * 1024 * 1024


class ArchiveState(Struct, frozen=True):
    """What an archive's store has when it begins."""

    vector: Vector
    views: tuple[ViewRecord, ...] = ()
    stability: tuple[ViewStability, ...] = ()
    acknowledgements: tuple[AcknowledgementRecord, ...] = ()
    next_offset: int = 0
    """The next one."""
    lost: tuple[LostRange, ...] = ()
    """What was recorded as lost, and not found since."""


# --- what happened ---------------------------------------------------------------------------------


class PublishRequested(Struct, frozen=True):
    """The application publishes these messages. They get the next sequences."""

    block: Block


class PacketArrived(Struct, frozen=True):
    route: PacketRoute
    sender: MemberId
    packet: bytes


class TimerFired(Struct, frozen=True):
    """Time has passed: at the latest when `deadline` says so."""


class EntriesStored(Struct, frozen=True):
    """The archive's store: everything up to this vector, and all entries given before, are durable."""

    vector: Vector
    offset: int


class ArchiveRead(Struct, frozen=True):
    """An answer to Recall `number`. With `more`, ask on at `offset`; `reached` is the store's vector at
    `offset`."""

    query_number: int
    batches: list[MessageBatch]
    has_more: bool
    reached: Vector
    offset: int = 0


class ArchiveDamaged(Struct, frozen=True):
    """The archive's store cannot read these messages any more."""

    lost: tuple[LostRange, ...]


class BroadcastsConfirmed(Struct, frozen=True):
    """The transport has taken all casts with numbers up to this one, for good."""

    last_sequence: int


class LeaveRequested(Struct, frozen=True):
    """The application leaves the feed. `vector` is what it has taken, if that is less than what was
    delivered."""

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

# --- what is to be done ----------------------------------------------------------------------------


class Broadcast(Struct, frozen=True):
    """Tell everybody, on P. `number` is the last sequence in the packet if it has messages, which must last
    and be confirmed; with number 0 it is transient."""

    packet: bytes
    key: str = ""
    last_sequence: int = 0


class ListenToCoordinators(Struct, frozen=True):
    """Whether packets to `COORDINATORS` are to be brought here from now on. At the start they are not."""

    enabled: bool


class SendAddressed(Struct, frozen=True):
    """Tell one member, all archives, all members or coordinators, on A; transient."""

    to: Target
    packet: bytes


class SendAcknowledgement(Struct, frozen=True):
    """Send this to all archives on A, once the application has taken everything that was delivered before it.
    A newer one replaces one that still waits."""

    packet: bytes


class DeliverBatch(Struct, frozen=True):
    batch: MessageBatch


class ReportLoss(Struct, frozen=True):
    """To the application: these messages are lost, and what is behind them follows."""

    lost: LostRange


class ReportView(Struct, frozen=True):
    """To the application: who takes part now; everything up to `cut` has been delivered before."""

    view: View
    cut: Vector


class ReportRecovered(Struct, frozen=True):
    """To the application: what was missed has been delivered; from here on the flow is live."""

    vector: Vector


class StoreEntries(Struct, frozen=True):
    """Append these in this order and make them durable, then tell `Stored`."""

    entries: list[ArchiveEntry]


class ReadArchive(Struct, frozen=True):
    query_number: int
    query: ArchiveQuery


class ReportFailure(Struct, frozen=True):
    """The feed cannot do what was asked, and why; the member is of no more use."""

    reason: str
    is_recovery: bool = False
    """Messages that were missed cannot be had."""


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


# --- how it is set up ------------------------------------------------------------------------------


class RecoveryPolicy(Enum):
    """What a subscriber that returns is given."""

    NONE = "none"
    """Nothing: it begins with what is published from now on. So does `optimistic`, by another name."""
    VECTOR = "vector"
    PESSIMISTIC = "pessimistic"
    ARCHIVE = "archive"
    """The archive begins by itself when it sees the name return; else as pessimistic."""


class FeedOptions(Struct, frozen=True, kw_only=True):
    """Times are in seconds, sizes in bytes."""

    has_total_order: bool = True
    """The transport has one order for all on P, and publishers do not hear it (AMQP). Else as UDP."""
    max_packet_bytes: int = 1024 * 1024
    """The largest packet that the transport takes."""
    heartbeat_interval: float = 0.5
    failure_timeout: float = 2.0
    """A member that is silent for so long is taken for failed."""
    full_rate_members: int = 100
    """In a group of up to so many, subscribers send a heartbeat every `beat`; in one that is n times as large
    every n beats, and it takes n times `failure_timeout` until one is taken for failed. Archives and the oldest members
    always keep the full rate."""
    view_change_timeout: float = 1.0
    """How long a change of view waits for answers."""
    retry_interval: float = 0.2
    """How soon a question without an answer is asked again."""
    loss_timeout: float = 10.0
    """After so long a gap that nobody present can fill is closed and told as lost."""
    retransmit_bytes: int = 16 * 1024 * 1024
    """What is kept of recent messages for those who missed them."""
    buffer_bytes: int = 64 * 1024 * 1024
    """What may wait for its turn. What comes beyond it is dropped and asked for later."""
    recovery: RecoveryPolicy = RecoveryPolicy.NONE
    start_vector: Vector = field(default_factory=Vector)
    """With Policy.VECTOR: what the application has."""
    recovery_timeout: float = 10.0
    """How long to wait for an archive to answer."""
    live_without_archive: bool = False
    """If none answers: go live with a gap instead of failing."""
    gap_timeout: float | None = None
    """Of a subscriber with recovery: how long it waits for a message that nobody present has, and that an
    absent archive may have, before it fails. None waits until an archive is back."""
    acknowledge_interval: float = 5.0
    """How often, between views, a member tells the archives what it has delivered."""
    archive_count: int = 0
    """How many archives the feed has; 0: as many as are in the view."""
    resume_after: int = 0
    """Of a publisher that goes on as an earlier life of its own: the sequence behind which it does."""
    uniform_copies: int = 0
    """UNIFORM: so many archives must have a message; 0: a majority of them."""
