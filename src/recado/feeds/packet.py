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

from .block import MAX_BLOCK, MAX_COUNT, Block
from .boundary import Range
from .vector import MAX_HOLES, MAX_VECTOR, Vector
from .views import (
    MAX_MEMBERS,
    NO_VIEW,
    Certainty,
    Count,
    Id,
    MemberId,
    Record,
    Role,
    Seat,
    Sequence,
    View,
    ViewId,
)

MAGIC: Final = 0xFD
VERSION: Final = 1
HEAD: Final = 3
DATA_HEAD: Final = HEAD + 28
FRAGMENT_HEAD: Final = HEAD + 28
PIECE_HEAD: Final = HEAD + 12
MAX_PACKET: Final = MAX_BLOCK + 64
MAX_PIECES: Final = 65_535
MAX_BATCHES: Final = 4_096
MAX_RANGES: Final = 4_096
MAX_RECORDS: Final = 16_384
MAX_EARLIER: Final = 8

Entries = Annotated[dict[Id, Count], Meta(max_length=MAX_VECTOR)]
Holed = Annotated[list[Count], Meta(min_length=3, max_length=1 + 2 * MAX_HOLES)]
VectorEntries = Annotated[dict[Id, Count | Holed], Meta(max_length=MAX_VECTOR)]
"""A `Vector`. Where a publisher has holes: its sequence, then the first and the last of each hole."""


class Kind(IntEnum):
    DATA = 1
    FRAGMENT = 3
    PIECE = 4
    LAST = 5
    NAK = 6
    LACK = 7
    BEAT = 8
    PREPARE = 9
    PREPARED = 10
    VIEW = 11
    ACK = 12
    RECOVER = 13
    ANSWER = 14
    OFFER = 15
    STABLE = 16
    PULL = 17
    PULLED = 18
    KNOWN = 19
    RECORDS = 20
    DOUBT = 21
    BOUND = 22
    NEXT_VIEW = 23
    ROLL = 24


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
    total: int
    piece: bytes


class Last(Struct, frozen=True, array_like=True):
    """A publisher lives, this is the last it has published, and it began so many milliseconds ago. It says so
    at its beginning too, before its first message."""

    publisher: Id
    last: Count
    age: Count
    earlier: Annotated[tuple[tuple[Count, Count], ...], Meta(max_length=MAX_EARLIER)] = ()
    """Where it casts again what others lack: how many milliseconds ago it told of what else, longest ago
    first."""


class Nak(Struct, frozen=True, array_like=True):
    """To a publisher: cast these again."""

    ranges: Annotated[list[Range], Meta(max_length=MAX_RANGES)]


class Lack(Struct, frozen=True, array_like=True):
    """From a publisher: it does not keep these any more."""

    publisher: Id
    first: Sequence
    last: Sequence


# --- of members: views -----------------------------------------------------------------------------


class Beat(Struct, frozen=True, array_like=True):
    """Heartbeat of a member. `since` is the number of the first view of its present stay, 0 if it is in none
    yet."""

    role: Role
    view: ViewId
    since: Count
    leaving: bool = False
    leads: bool = False
    """It coordinates its view."""
    hears_others: bool = False
    """It hears a member that is not in its view."""


class Prepare(Struct, frozen=True, array_like=True):
    """Stop delivering, and say what you have: a view is to be made. Invited are the members of the view `base`
    without the seats `gone`, and `more`. On P it names nobody: there an archive sees its place among the
    messages."""

    round: ViewId
    more: Annotated[list[MemberId], Meta(max_length=MAX_MEMBERS)]
    base: ViewId = NO_VIEW
    gone: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)] = []


class Outlook(IntEnum):
    """What a member hears of others than those who are asked to the same view."""

    OTHERS = 0
    """Somebody lives who was not asked."""
    SHORT = 1
    """It hears nobody else, but has not listened for long."""
    CLEAR = 2
    """It has listened for as long as it takes to be taken for failed, and hears nobody else."""


class Prepared(Struct, frozen=True, array_like=True):
    round: ViewId
    role: Role
    view: ViewId
    since: Count
    vector: Entries
    outlook: Outlook
    base: ViewId = NO_VIEW
    """`vector` has only what differs from the cut of this view; 0: it is not in the vector."""


class NewView(Struct, frozen=True, array_like=True):
    """The whole of a view."""

    view: View
    since: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)]
    cut: Entries
    previous: Annotated[list[ViewId], Meta(max_length=MAX_MEMBERS)]
    complete: bool


class NextView(Struct, frozen=True, array_like=True):
    """A view as what differs from the view `base`: its seats without `gone`, and `more`, each with its `since`,
    ordered by age; of the cut only entries that differ, with 0 for those that are not in it."""

    id: ViewId
    base: ViewId
    gone: Annotated[list[Count], Meta(max_length=MAX_MEMBERS)]
    more: Annotated[list[tuple[Count, Seat]], Meta(max_length=MAX_MEMBERS)]
    cut: Entries
    previous: Annotated[list[ViewId], Meta(max_length=MAX_MEMBERS)]
    complete: bool


class Roll(Struct, frozen=True, array_like=True):
    """To coordinators, from a program that is no member: who is in your view? Answered by NewView without a
    cut."""


class Ack(Struct, frozen=True, array_like=True):
    """To archives: all behind `start` up to `vector` has been delivered here, in this view or before, but for
    the holes of `vector`; and the holes of `start` that `vector` does not have."""

    view: ViewId
    start: Vector
    vector: Vector
    final: bool


# --- of members: what is missing -------------------------------------------------------------------


class Carried(Struct, frozen=True, array_like=True):
    """A batch within a packet."""

    publisher: Id
    first: Sequence
    count: Annotated[int, Meta(ge=1, le=MAX_COUNT)]
    view: ViewId
    certainty: Certainty
    block: Annotated[bytes, Meta(max_length=MAX_BLOCK)]


class Pull(Struct, frozen=True, array_like=True):
    """To a member: give me these."""

    number: Count
    ranges: Annotated[list[Range], Meta(max_length=MAX_RANGES)]


class Pulled(Struct, frozen=True, array_like=True):
    """What it has of them, and what it surely does not have."""

    number: Count
    batches: Annotated[list[Carried], Meta(max_length=MAX_BATCHES)]
    lacking: Annotated[list[Range], Meta(max_length=MAX_RANGES)]
    lost: Annotated[list[Range], Meta(max_length=MAX_RANGES)] = []
    """Of an archive: those of `lacking` that its log is past. It has recorded them as lost, or let them go."""


class Recover(Struct, frozen=True, array_like=True):
    """To an archive: what comes behind `after`, from your `offset` on. Without `after`, from where you think
    it should be."""

    number: Count
    after: Vector | None
    offset: Count


class Answer(Struct, frozen=True, array_like=True):
    """From an archive, in its order. `start` is where it begins, `reached` what the archive had read at
    `offset`."""

    number: Count
    start: Vector | None
    batches: Annotated[list[Carried], Meta(max_length=MAX_BATCHES)]
    offset: Count
    more: bool
    reached: Entries


class Offer(Struct, frozen=True, array_like=True):
    """From an archive to a subscriber whose name it has seen return."""

    start: Vector


class Doubt(Struct, frozen=True, array_like=True):
    """To an archive: how far can earlier lives of me have come?"""


class Bound(Struct, frozen=True, array_like=True):
    """From an archive that knows: no earlier life was given anything behind this. Who is named with 0 was heard
    by the archive, and not by them; of whom is not named it may not have heard."""

    vector: Entries


# --- of archives -----------------------------------------------------------------------------------


class Stable(Struct, frozen=True, array_like=True):
    """These are on the disk of the sender; it was in this view then."""

    view: ViewId
    vector: Entries


class Known(Struct, frozen=True, array_like=True):
    """To other archives: the records I have. Who has others sends them."""

    views: Annotated[list[ViewId], Meta(max_length=MAX_RECORDS)]
    settled: Annotated[list[tuple[ViewId, Count]], Meta(max_length=MAX_RECORDS)]
    """With a checksum of the reach."""
    acknowledged: Annotated[list[tuple[MemberId, Count]], Meta(max_length=MAX_RECORDS)]
    """Whose newest acknowledgement, and how much it covers in all."""


class Records(Struct, frozen=True, array_like=True):
    records: Annotated[list[Record], Meta(max_length=MAX_RECORDS)]


class Piece(Struct, frozen=True):
    number: int
    index: int
    total: int
    piece: bytes


Packet = (
    Data | Fragment | Last | Nak | Lack | Beat | Prepare | Prepared | NewView | NextView | Roll | Ack
    | Pull | Pulled | Recover | Answer | Offer | Doubt | Bound | Stable | Known | Records | Piece
)  # fmt: skip
