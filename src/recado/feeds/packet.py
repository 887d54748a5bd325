"""The packets of a feed; `wire` encodes and decodes them.

    packet           = | magic u8 0xFD | version u8 1 | kind u8 | … |                          little-endian
    DATA             = | header | publisher 16 | first u64 | count u32 | block |
    FRAGMENT         = | header | publisher 16 | sequence u64 | index u16 | count u16 | data |   broadcast
    CONTROL_FRAGMENT = | header | number u64 | index u16 | count u16 | data |                    addressed
    other kinds      = | header | the fields of the struct below, as a MessagePack array |

The types contain limits for numbers and sizes; `wire` rejects packets beyond them.
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
# Twice SENT_REPORT_COUNT of `publisher_heartbeat`, so that it can grow.
ACCEPTED_REPORT_COUNT: Final = 8

SequenceByPublisher = Annotated[dict[IncarnationId, Count], Meta(max_length=MAX_VECTOR_ENTRIES)]
SequenceWithHoles = Annotated[list[Count], Meta(min_length=3, max_length=1 + 2 * MAX_HOLES)]
EncodedVector = Annotated[
    dict[IncarnationId, Count | SequenceWithHoles], Meta(max_length=MAX_VECTOR_ENTRIES)
]
"""A `Vector`. For a publisher with holes: its last sequence, then the first and last sequence of each hole."""


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


# --- from publishers, broadcast ------------------------------------------------------------------


class Data(Struct, frozen=True):
    publisher: bytes
    first: int
    block: Block

    @property
    def last(self) -> int:
        return self.first + self.block.count - 1


class Fragment(Struct, frozen=True):
    """Fragment `index` of `count` of the block of one message that is too large for one packet."""

    publisher: bytes
    sequence: int
    index: int
    count: int
    data: bytes


class PublisherStatus(Struct, frozen=True, array_like=True):
    """Heartbeat of a publisher: its last sequence, and how long ago it started. It is sent before the first
    message, too."""

    publisher: IncarnationId
    last_sequence: Count
    age_ms: Count
    earlier_reports: Annotated[
        tuple[tuple[Count, Count], ...], Meta(max_length=ACCEPTED_REPORT_COUNT)
    ] = ()
    """On transports where publishers resend messages: its earlier reports as (milliseconds ago, last sequence),
    oldest first."""


class Nak(Struct, frozen=True, array_like=True):
    """To a publisher: send these messages again."""

    ranges: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)]


class Unavailable(Struct, frozen=True, array_like=True):
    """From a publisher: these messages are no longer in its retransmit buffer."""

    publisher: IncarnationId
    first: SequenceNumber
    last: SequenceNumber


# --- from members: views -------------------------------------------------------------------------


class Heartbeat(Struct, frozen=True, array_like=True):
    """Heartbeat of a member. `since_view` is the number of the first view of its present stay, 0 for a
    newcomer."""

    role: Role
    view_id: ViewId
    since_view: Count
    is_leaving: bool = False
    is_coordinator: bool = False
    """It coordinates its view, or offers to coordinate the first one."""
    hears_outsiders: bool = False
    """It hears a member that is not in its view."""


class Prepare(Struct, frozen=True, array_like=True):
    """First step of a view change: stop delivering and report what you have received. Invited are the members
    of the view `base_view` without the entries at the indices `removed`, plus `added`. As a broadcast it names
    no members: archives use its position among the messages."""

    round_id: ViewId
    added: Annotated[list[MemberId], Meta(max_length=MAX_MEMBERS)]
    base_view: ViewId = NO_VIEW
    removed: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)] = []


class OutsiderReport(IntEnum):
    """Whether a member hears other members than those invited to the view."""

    HEARD = 0
    """A member that was not invited is alive."""
    UNSURE = 1
    """It hears no other member, but has not listened for long enough to be sure."""
    NONE = 2
    """It has listened for the failure timeout and hears no other member."""


class Prepared(Struct, frozen=True, array_like=True):
    """Second step of a view change: the reply of an invited member, with the messages that it has received."""

    round_id: ViewId
    role: Role
    view_id: ViewId
    since_view: Count
    received: SequenceByPublisher
    outsiders: OutsiderReport
    base_view: ViewId = NO_VIEW
    """If set, `received` contains only the entries that differ from the cut of this view; 0 means absent."""


class NewView(Struct, frozen=True, array_like=True):
    """A complete description of a view."""

    view: View
    since_views: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)]
    cut: SequenceByPublisher
    previous_views: Annotated[list[ViewId], Meta(max_length=MAX_MEMBERS)]
    is_complete: bool


class ViewDelta(Struct, frozen=True, array_like=True):
    """A view as the difference from `base_view`: its entries without those at the indices `removed`, plus
    `added` with their `since_view`, ordered by age. The cut contains only entries that differ, with 0 for
    absent ones."""

    id: ViewId
    base_view: ViewId
    removed: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)]
    added: Annotated[list[tuple[Count, ViewEntry]], Meta(max_length=MAX_MEMBERS)]
    cut: SequenceByPublisher
    previous_views: Annotated[list[ViewId], Meta(max_length=MAX_MEMBERS)]
    is_complete: bool


class MembersRequest(Struct, frozen=True, array_like=True):
    """From a program that is no member to coordinators: requests the members of the view. The reply is a
    NewView without a cut."""


class Acknowledgement(Struct, frozen=True, array_like=True):
    """To archives: messages after `start` up to `vector` have been delivered, in this view or before, except
    for the holes of `vector`. Holes of `start` that `vector` lacks were delivered, too."""

    view_id: ViewId
    start: Vector
    vector: Vector
    is_final: bool


# --- from members: missing messages --------------------------------------------------------------


class EncodedBatch(Struct, frozen=True, array_like=True):
    """A batch inside another packet."""

    publisher: IncarnationId
    first: SequenceNumber
    count: Annotated[int, Meta(ge=1, le=MAX_MESSAGE_COUNT)]
    view: ViewId
    certainty: Certainty
    block: Annotated[bytes, Meta(max_length=MAX_BLOCK_BYTES)]


class PullRequest(Struct, frozen=True, array_like=True):
    """Requests messages from a member."""

    request_number: Count
    ranges: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)]


class PullReply(Struct, frozen=True, array_like=True):
    """The requested messages that the member has, and those that it certainly does not have."""

    request_number: Count
    batches: Annotated[list[EncodedBatch], Meta(max_length=MAX_BATCHES)]
    missing: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)]
    lost: Annotated[list[MessageRange], Meta(max_length=MAX_RANGES)] = []
    """From an archive: the part of `missing` that its log has passed. They are recorded as lost, or were
    deleted."""


class RecoveryRequest(Struct, frozen=True, array_like=True):
    """To an archive: requests messages after `after`, from its `offset` on. Without `after` the archive chooses
    the start."""

    request_number: Count
    after: Vector | None
    offset: Count


class RecoveryReply(Struct, frozen=True, array_like=True):
    """From an archive, in order of its offsets. `start` is where recovery begins, `reached` the archive's
    vector at `offset`."""

    request_number: Count
    start: Vector | None
    batches: Annotated[list[EncodedBatch], Meta(max_length=MAX_BATCHES)]
    offset: Count
    has_more: bool
    reached: SequenceByPublisher


class RecoveryOffer(Struct, frozen=True, array_like=True):
    """From an archive to a subscriber that has returned: recovery can begin after `start`, the vector that its
    name has acknowledged last."""

    start: Vector


class DeliveryBoundRequest(Struct, frozen=True, array_like=True):
    """To an archive: requests an upper bound of what earlier incarnations of the sender can have received."""


class DeliveryBound(Struct, frozen=True, array_like=True):
    """From an archive: no earlier incarnation received anything beyond these sequences. With 0, none received
    any message of that publisher; a publisher that is not listed may be unknown to the archive."""

    last_sequences: SequenceByPublisher


# --- from archives -------------------------------------------------------------------------------


class DurableReport(Struct, frozen=True, array_like=True):
    """Messages that are durable on the sender's disk; it was in this view when it sent the report."""

    view_id: ViewId
    vector: SequenceByPublisher


class RecordsSummary(Struct, frozen=True, array_like=True):
    """To other archives: a summary of the sender's records. Archives with other records send them."""

    view_ids: Annotated[list[ViewId], Meta(max_length=MAX_RECORDS)]
    stability_checksums: Annotated[list[tuple[ViewId, Count]], Meta(max_length=MAX_RECORDS)]
    """For each view with a known delivery bound: a checksum of the bound."""
    acknowledgement_weights: Annotated[list[tuple[MemberId, Count]], Meta(max_length=MAX_RECORDS)]
    """For each member: the `acknowledgement_weight` of its newest acknowledgement."""


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
