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
    Acknowledged,
    Certainty,
    Id,
    Lost,
    MemberId,
    Record,
    Sequence,
    Settled,
    View,
    ViewId,
    ViewRecord,
)

ARCHIVES: Final = "archives"
MEMBERS: Final = "members"
COORDINATORS: Final = "coordinators"
"""Members that coordinate a view or may have to, as far as they have asked for it by `Listen`."""
MOST_RECALLED: Final = 2_048
"""Batches in an answer of an archive's store: half of what a packet has room for, as some are split there."""
Target = MemberId | Literal["archives", "members", "coordinators"]


class Channel(Enum):
    P = "P"
    A = "A"


class Range(Struct, frozen=True, array_like=True):
    """Messages first..last of a publisher."""

    publisher: Id
    first: Sequence
    last: Sequence


class Batch(Struct, frozen=True):
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

    def part(self, first: int, last: int) -> "Batch":
        """Only messages first..last of it."""
        low, high = max(first, self.first) - self.first, min(last, self.last) - self.first + 1
        if low == 0 and high == self.block.count:
            return self
        block = self.block.slice(low, high)
        return Batch(self.publisher, self.first + low, block, self.view, self.certainty)


Entry = Batch | Record
"""What an archive stores, in the order of its offsets. Only batches have offsets: one per message."""


class Query(Struct, frozen=True):
    """What is to be read from an archive's store: batches from `offset` on, in order of offset, trimmed to
    messages behind `after`, or to `ranges` if there are any; stop behind about `limit` bytes, or about
    MOST_RECALLED batches."""

    after: Vector
    ranges: tuple[Range, ...] = ()
    offset: int = 0
    limit: int = 4 * 1024 * 1024


class ArchiveState(Struct, frozen=True):
    """What an archive's store has when it begins."""

    vector: Vector
    views: tuple[ViewRecord, ...] = ()
    settled: tuple[Settled, ...] = ()
    acknowledged: tuple[Acknowledged, ...] = ()
    offset: int = 0
    """The next one."""
    lost: tuple[Lost, ...] = ()
    """What was recorded as lost, and not found since."""


# --- what happened ---------------------------------------------------------------------------------


class Publish(Struct, frozen=True):
    """The application publishes these messages. They get the next sequences."""

    columns: Block


class Arrived(Struct, frozen=True):
    channel: Channel
    sender: MemberId
    packet: bytes


class Ticked(Struct, frozen=True):
    """Time has passed: at the latest when `deadline` says so."""


class Stored(Struct, frozen=True):
    """The archive's store: everything up to this vector, and all entries given before, are durable."""

    vector: Vector
    offset: int


class Recalled(Struct, frozen=True):
    """An answer to Recall `number`. With `more`, ask on at `offset`; `reached` is the store's vector at
    `offset`."""

    number: int
    batches: list[Batch]
    more: bool
    reached: Vector
    offset: int = 0


class Damaged(Struct, frozen=True):
    """The archive's store cannot read these messages any more."""

    lost: tuple[Lost, ...]


class Confirmed(Struct, frozen=True):
    """The transport has taken all casts with numbers up to this one, for good."""

    upto: int


class Left(Struct, frozen=True):
    """The application leaves the feed. `vector` is what it has taken, if that is less than what was
    delivered."""

    vector: Vector | None = None


Event = Publish | Arrived | Ticked | Stored | Recalled | Damaged | Confirmed | Left

# --- what is to be done ----------------------------------------------------------------------------


class Cast(Struct, frozen=True):
    """Tell everybody, on P. `number` is the last sequence in the packet if it has messages, which must last
    and be confirmed; with number 0 it is transient."""

    packet: bytes
    key: str = ""
    number: int = 0


class Listen(Struct, frozen=True):
    """Whether packets to `COORDINATORS` are to be brought here from now on. At the start they are not."""

    to_coordinators: bool


class Send(Struct, frozen=True):
    """Tell one member, all archives, all members or coordinators, on A; transient."""

    to: Target
    packet: bytes


class Acknowledge(Struct, frozen=True):
    """Send this to all archives on A, once the application has taken everything that was delivered before it.
    A newer one replaces one that still waits."""

    packet: bytes


class Deliver(Struct, frozen=True):
    batch: Batch


class Gap(Struct, frozen=True):
    """To the application: these messages are lost, and what is behind them follows."""

    lost: Lost


class Installed(Struct, frozen=True):
    """To the application: who takes part now; everything up to `cut` has been delivered before."""

    view: View
    cut: Vector


class Recovered(Struct, frozen=True):
    """To the application: what was missed has been delivered; from here on the flow is live."""

    vector: Vector


class Store(Struct, frozen=True):
    """Append these in this order and make them durable, then tell `Stored`."""

    entries: list[Entry]


class Recall(Struct, frozen=True):
    number: int
    query: Query


class Failed(Struct, frozen=True):
    """The feed cannot do what was asked, and why; the member is of no more use."""

    reason: str
    recovery: bool = False
    """Messages that were missed cannot be had."""


Effect = (
    Cast
    | Listen
    | Send
    | Acknowledge
    | Deliver
    | Gap
    | Installed
    | Recovered
    | Store
    | Recall
    | Failed
)


# --- how it is set up ------------------------------------------------------------------------------


class Policy(Enum):
    """What a subscriber that returns is given."""

    NONE = "none"
    """Nothing: it begins with what is published from now on. So does `optimistic`, by another name."""
    VECTOR = "vector"
    PESSIMISTIC = "pessimistic"
    ARCHIVE = "archive"
    """The archive begins by itself when it sees the name return; else as pessimistic."""


class Options(Struct, frozen=True, kw_only=True):
    """Times are in seconds, sizes in bytes."""

    ordered: bool = True
    """The transport has one order for all on P, and publishers do not hear it (AMQP). Else as UDP."""
    packet: int = 1024 * 1024
    """The largest packet that the transport takes."""
    beat: float = 0.5
    suspect: float = 2.0
    """A member that is silent for so long is taken for failed."""
    full_rate_members: int = 100
    """In a group of up to so many, subscribers send a heartbeat every `beat`; in one that is n times as large
    every n beats, and it takes n times `suspect` until one is taken for failed. Archives and the oldest members
    always keep the full rate."""
    flush: float = 1.0
    """How long a change of view waits for answers."""
    again: float = 0.2
    """How soon a question without an answer is asked again."""
    patience: float = 10.0
    """After so long a gap that nobody present can fill is closed and told as lost."""
    window: int = 16 * 1024 * 1024
    """What is kept of recent messages for those who missed them."""
    held: int = 64 * 1024 * 1024
    """What may wait for its turn. What comes beyond it is dropped and asked for later."""
    recovery: Policy = Policy.NONE
    vector: Vector = field(default_factory=Vector)
    """With Policy.VECTOR: what the application has."""
    recovery_timeout: float = 10.0
    """How long to wait for an archive to answer."""
    live_without_archive: bool = False
    """If none answers: go live with a gap instead of failing."""
    gap_timeout: float | None = None
    """Of a subscriber with recovery: how long it waits for a message that nobody present has, and that an
    absent archive may have, before it fails. None waits until an archive is back."""
    acknowledge: float = 5.0
    """How often, between views, a member tells the archives what it has delivered."""
    archives: int = 0
    """How many archives the feed has; 0: as many as are in the view."""
    resumed: int = 0
    """Of a publisher that goes on as an earlier life of its own: the sequence behind which it does."""
    copies: int = 0
    """UNIFORM: so many archives must have a message; 0: a majority of them."""
