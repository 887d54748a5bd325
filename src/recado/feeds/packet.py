"""What travels: the packets of a feed; `wire` writes and reads them.

    packet   = | magic u8 0xFD | version u8 1 | kind u8 | … |                          little-endian
    DATA     = | head | publisher 16 | first u64 | count u32 | block |
    FRAGMENT = | head | publisher 16 | sequence u64 | index u16 | total u16 | piece |   on P
    PIECE    = | head | number u64 | index u16 | total u16 | piece |                    on A
    others   = | head | the fields of the struct below, as a MessagePack array |

Numbers and sizes have bounds here, and `wire` refuses what is beyond them.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from .block import MAX_BLOCK_BYTES, MAX_MESSAGE_COUNT, Block
from .boundary import MessageRange
from .vector import MAX_HOLES, MAX_VECTOR_ENTRIES, Vector
from .views import (
    MAX_MEMBERS,
    NO_VIEW,
    ArchiveRecord,
    Certainty,
    Count,
    IncarnationId,
    MemberId,
    Role,
    SequenceNumber,
    View,
    ViewEntry,
    ViewId,
)

MAGIC_CODE: Final = 0xFD
VERSION: Final = 1
HEADER_BYTES: Final = 3
DATA_HEADER_BYTES: Final = HEADER_BYTES + 28
FRAGMENT_HEADER_BYTES: Final = HEADER_BYTES + 28
CONTROL_FRAGMENT_HEADER_BYTES: Final = HEADER_BYTES + 12
MAX_PACKET_BYTES: Final = MAX_BLOCK_BYTES + 64
MAX_FRAGMENTS: Final = 65_535
MAX_BATCHES: Final = 4_096
MAX_RANGES: Final = 4_096
MAX_RECORDS: Final = 16_384
MAX_EARLIER_REPORTS: Final = 8

SequenceByPublisher = Annotated[dict[IncarnationId, Count], Meta(max_length=MAX_VECTOR_ENTRIES)]
SequenceWithHoles = Annotated[list[Count], Meta(min_length=3, max_length=1 + 2 * MAX_HOLES)]
EncodedVector = Annotated[
    dict[IncarnationId, Count | SequenceWithHoles], Meta(max_length=MAX_VECTOR_ENTRIES)
]
"""A `Vector`. Where a publisher has holes: its sequence, then the first and the last of each hole."""


class PacketKind(IntEnum):
    DATA = 1
    FRAGMENT = 3
    CONTROL_FRAGMENT = 4
    PUBLISHER_STATUS = 5
    NAK = 6
    UNAVAILABLE = 7
    HEARTBEAT = 8
    PREPARE = 9
    PREPARED = 10
    VIEW = 11
    ACK = 12
    RECOVERY_REQUEST = 13
    RECOVERY_REPLY = 14
    RECOVERY_OFFER = 15
    DURABLE_REPORT = 16
    PULL_REQUEST = 17
    PULL_REPLY = 18
    RECORDS_SUMMARY = 19
    RECORDS_REPLY = 20
    DELIVERY_BOUND_REQUEST = 21
    DELIVERY_BOUND = 22
    VIEW_DELTA = 23
    MEMBERS_REQUEST = 24


# --- of publishers, on P ---------------------------------------------------------------------------


class Data(Struct, frozen=True):
    publisher: bytes
    first: int
    block: Block

    @property
    def last(self) -> int:
        return self.first + self.block.count - 1


class Fragment(Struct, frozen=True):
    """Piece `index` of `total` of the block of one message, which is too large for one packet."""

    publisher: bytes
    sequence: int
    index: int
    count: int
    data: bytes


class PublisherStatus(Struct, frozen=True, array_like=True):
    """A publisher lives, this is the last it has published, and it began so many milliseconds ago. It says so
    at its beginning too, before its first message."""

    publisher: IncarnationId
    last_sequence: Count
    age_ms: Count
    earlier_reports: Annotated[
        tuple[tuple[Count, Count], ...], Meta(max_length=MAX_EARLIER_REPORTS)
    ] = ()
    """Where it casts again what others lack: how many milliseconds ago it told of what else, longest ago
    first."""


class Nak(Struct, frozen=True, array_like=True):
    """To a publisher: cast these again."""

    ranges: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)]


class Unavailable(Struct, frozen=True, array_like=True):
    """From a publisher: it does not keep these any more."""

    publisher: IncarnationId
    first: SequenceNumber
    last: SequenceNumber


# --- of members: views -----------------------------------------------------------------------------


class Heartbeat(Struct, frozen=True, array_like=True):
    """Heartbeat of a member. `since` is the number of the first view of its present stay, 0 if it is in none
    yet."""

    role: Role
    view_id: ViewId
    since_view: Count
    is_leaving: bool = False
    is_coordinator: bool = False
    """It coordinates its view."""
    hears_outsiders: bool = False
    """It hears a member that is not in its view."""


class Prepare(Struct, frozen=True, array_like=True):
    """Stop delivering, and say what you have: a view is to be made. Invited are the members of the view `base`
    without the seats `gone`, and `more`. On P it names nobody: there an archive sees its place among the
    messages."""

    round_id: ViewId
    added: Annotated[list[MemberId], Meta(max_length=MAX_MEMBERS)]
    base_view: ViewId = NO_VIEW
    removed: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)] = []


class OutsiderReport(IntEnum):
    """What a member hears of others than those who are asked to the same view."""

    HEARD = 0
    """Somebody lives who was not asked."""
    UNSURE = 1
    """It hears nobody else, but has not listened for long."""
    NONE = 2
    """It has listened for as long as it takes to be taken for failed, and hears nobody else."""


class Prepared(Struct, frozen=True, array_like=True):
    round_id: ViewId
    role: Role
    view_id: ViewId
    since_view: Count
    received: SequenceByPublisher
    outsiders: OutsiderReport
    base_view: ViewId = NO_VIEW
    """`vector` has only what differs from the cut of this view; 0: it is not in the vector."""


class NewView(Struct, frozen=True, array_like=True):
    """The whole of a view."""

    view: View
    since_views: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)]
    cut: SequenceByPublisher
    previous_views: Annotated[list[ViewId], Meta(max_length=MAX_MEMBERS)]
    is_complete: bool


class ViewDelta(Struct, frozen=True, array_like=True):
    """A view as what differs from the view `base`: its seats without `gone`, and `more`, each with its `since`,
    ordered by age; of the cut only entries that differ, with 0 for those that are not in it."""

    id: ViewId
    base_view: ViewId
    removed: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)]
    added: Annotated[list[tuple[Count, ViewEntry]], Meta(max_length=MAX_MEMBERS)]
    cut: SequenceByPublisher
    previous_views: Annotated[list[ViewId], Meta(max_length=MAX_MEMBERS)]
    is_complete: bool


class MembersRequest(Struct, frozen=True, array_like=True):
    """To coordinators, from a program that is no member: who is in your view? Answered by NewView without a
    cut."""


class Acknowledgement(Struct, frozen=True, array_like=True):
    """To archives: all behind `start` up to `vector` has been delivered here, in this view or before, but for
    the holes of `vector`; and the holes of `start` that `vector` does not have."""

    view_id: ViewId
    start: Vector
    vector: Vector
    is_final: bool


# --- of members: what is missing -------------------------------------------------------------------


class EncodedBatch(Struct, frozen=True, array_like=True):
    """A batch within a packet."""

    publisher: IncarnationId
    first: SequenceNumber
    count: Annotated[int, Meta(ge=1, le=MAX_MESSAGE_COUNT)]
    view: ViewId
    certainty: Certainty
    block: Annotated[bytes, Meta(max_length=MAX_BLOCK_BYTES)]


class PullRequest(Struct, frozen=True, array_like=True):
    """To a member: give me these."""

    request_number: Count
    ranges: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)]


class PullReply(Struct, frozen=True, array_like=True):
    """What it has of them, and what it surely does not have."""

    request_number: Count
    batches: Annotated[list[EncodedBatch], Meta(max_length=MAX_BATCHES)]
    missing: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)]
    lost: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)] = []
    """Of an archive: those of `lacking` that its log is past. It has recorded them as lost, or let them go."""


class RecoveryRequest(Struct, frozen=True, array_like=True):
    """To an archive: what comes behind `after`, from your `offset` on. Without `after`, from where you think
    it should be."""

    request_number: Count
    after: Vector | None
    offset: Count


class RecoveryReply(Struct, frozen=True, array_like=True):
    """From an archive, in its order. `start` is where it begins, `reached` what the archive had read at
    `offset`."""

    request_number: Count
    start: Vector | None
    batches: Annotated[list[EncodedBatch], Meta(max_length=MAX_BATCHES)]
    offset: Count
    has_more: bool
    reached: SequenceByPublisher


class RecoveryOffer(Struct, frozen=True, array_like=True):
    """From an archive to a subscriber whose name it has seen return."""

    start: Vector


class DeliveryBoundRequest(Struct, frozen=True, array_like=True):
    """To an archive: how far can earlier lives of me have come?"""


class DeliveryBound(Struct, frozen=True, array_like=True):
    """From an archive that knows: no earlier life was given anything behind this. Who is named with 0 was heard
    by the archive, and not by them; of whom is not named it may not have heard."""

    last_sequences: SequenceByPublisher


# --- of archives -----------------------------------------------------------------------------------


class DurableReport(Struct, frozen=True, array_like=True):
    """These are on the disk of the sender; it was in this view then."""

    view_id: ViewId
    vector: SequenceByPublisher


class RecordsSummary(Struct, frozen=True, array_like=True):
    """To other archives: the records I have. Who has others sends them."""

    view_ids: Annotated[list[ViewId], Meta(max_length=MAX_RECORDS)]
    stability_checksums: Annotated[list[tuple[ViewId, Count]], Meta(max_length=MAX_RECORDS)]
    """With a checksum of the reach."""
    acknowledgement_weights: Annotated[list[tuple[MemberId, Count]], Meta(max_length=MAX_RECORDS)]
    """Whose newest acknowledgement, and how much it covers in all."""


class RecordsReply(Struct, frozen=True, array_like=True):
    records: Annotated[list[ArchiveRecord], Meta(max_length=MAX_RECORDS)]


class ControlFragment(Struct, frozen=True):
    packet_number: int
    index: int
    count: int
    data: bytes


Packet = (
    Data
    | Fragment
    | PublisherStatus
    | Nak
    | Unavailable
    | Heartbeat
    | Prepare
    | Prepared
    | NewView
    | ViewDelta
    | MembersRequest
    | Acknowledgement
    | PullRequest
    | PullReply
    | RecoveryRequest
    | RecoveryReply
    | RecoveryOffer
    | DeliveryBoundRequest
    | DeliveryBound
    | DurableReport
    | RecordsSummary
    | RecordsReply
    | ControlFragment
)
