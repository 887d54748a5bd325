"""A layer: one quality of a feed, between the layer above it and the one below.

Events go up from the transport to the application, and down from the application to the transport. A layer
takes those that are its own and passes on the others, so that layers can be put together in many ways; what
they tell each other is in the small values below. `tick` comes at the latest when `deadline` has asked for it.
"""

from collections.abc import Callable
from math import inf

from msgspec import Struct

from .boundary import (
    ArchiveDamaged,
    ArchiveRead,
    BroadcastsConfirmed,
    Effect,
    EntriesStored,
    FeedOptions,
    LeaveRequested,
    MessageBatch,
    PacketRoute,
    PublishRequested,
    Target,
)
from .packet import Packet
from .vector import Vector
from .views import NO_VIEW, LostRange, MemberId, Role, View, ViewId, ViewRecord

# --- what goes up ----------------------------------------------------------------------------------


class PacketReceived(Struct, frozen=True):
    """A packet, until a layer takes it."""

    route: PacketRoute
    sender: MemberId
    packet: Packet


class BatchReleased(Struct, frozen=True):
    """Above FIFO: each publisher's in order, without gap or double."""

    batch: MessageBatch


class FragmentReleased(Struct, frozen=True):
    """Above FIFO: the next piece of a message that FRAG puts together."""

    publisher: bytes
    sequence: int
    index: int
    count: int
    data: bytes


class MessagesLost(Struct, frozen=True):
    """Above FIFO: in the place of messages that nobody has."""

    lost: LostRange


class ViewAgreed(Struct, frozen=True):
    """REACH has agreed to a view; it is not yet its turn among the messages."""

    record: ViewRecord


class ViewChangeAbandoned(Struct, frozen=True):
    """A change of view came to nothing: go on in the present one."""


class ViewInstalled(Struct, frozen=True):
    """Above FIFO: everything before the cut has passed, and the view begins here."""

    record: ViewRecord


class PublisherStartSet(Struct, frozen=True):
    """Above FIFO: a publisher that was there before us; what is behind `last` follows, and nothing before."""

    publisher: bytes
    after_sequence: int


class DeliveryStarted(Struct, frozen=True):
    """Above SYNC: what follows is delivered without gap from here."""

    vector: Vector


UpEvent = (
    PacketReceived
    | BatchReleased
    | FragmentReleased
    | MessagesLost
    | ViewAgreed
    | ViewChangeAbandoned
    | ViewInstalled
    | PublisherStartSet
    | DeliveryStarted
)

# --- what goes down --------------------------------------------------------------------------------


class SendPacket(Struct, frozen=True):
    """Send this: to one or some on A; to nobody in particular: cast on P."""

    packet: Packet
    to: Target | None = None
    key: str = ""
    last_sequence: int = 0


class PublishFragmented(Struct, frozen=True):
    """FRAG gives FIFO one message that needs several packets."""

    fragments: tuple[bytes, ...]


class GapFilled(Struct, frozen=True):
    """Somebody gave us this batch: FIFO takes it as if it had just arrived."""

    batch: MessageBatch


DownEvent = (
    PublishRequested
    | EntriesStored
    | ArchiveRead
    | ArchiveDamaged
    | BroadcastsConfirmed
    | LeaveRequested
    | SendPacket
    | PublishFragmented
    | GapFilled
)


class MemberContext:
    """What the layers of one member share."""

    def __init__(
        self, member_id: MemberId, role: Role, options: FeedOptions, names: frozenset[str]
    ) -> None:
        self.member_id = member_id
        self.role = role
        self.options = options
        self.layer_names = names
        """The layers of its stack."""
        self.effects: list[Effect] = []
        self.agreed_view: View | None = None
        """Agreed to by REACH; above FIFO it begins with Changed."""
        self.installed_view_id: ViewId = NO_VIEW
        """Which view the messages that pass FIFO now belong to."""
        self.outsider_heard_at = -inf
        """When somebody was last heard who lives and is not in our view."""
        self.interval_factor = 1.0
        """How many times as rare as in a small group heartbeats are, and what else goes to all members."""
        self.malformed_count = 0
        """Packets that were malformed."""
        self.has_failed = False
        self.is_inbox_full = False
        """Whether the application has so much to take that it should not be given more of what it missed."""

    def required_copies(self, view: View | None) -> int:
        """How many archives must have a message of this view before it counts as safe."""
        if self.options.uniform_copies:
            return self.options.uniform_copies
        present = len(view.archive_members()) if view is not None else 0
        return (self.options.archive_count or present) // 2 + 1

    def other_members(self) -> list[MemberId]:
        """The other members of the view, archives first."""
        if self.agreed_view is None:
            return []
        entries = sorted(self.agreed_view.entries, key=lambda seat: seat.role is not Role.ARCHIVE)
        return [entry.member for entry in entries if entry.member != self.member_id]


class Layer:
    """Passes everything on; a quality is a subclass that does not."""

    _pass_up: Callable[[UpEvent, float], None]
    _pass_down: Callable[[DownEvent, float], None]

    def __init__(self, context: MemberContext) -> None:
        self.context = context

    def link(
        self, above: Callable[[UpEvent, float], None], below: Callable[[DownEvent, float], None]
    ) -> None:
        self._pass_up = above
        self._pass_down = below

    def start(self, now: float) -> None:
        """Before the first event."""

    def up(self, event: UpEvent, now: float) -> None:
        self._pass_up(event, now)

    def down(self, event: DownEvent, now: float) -> None:
        self._pass_down(event, now)

    def tick(self, now: float) -> None:
        """Time has passed."""

    def adjust_for_stall(self, seconds: float) -> None:
        """The process did not run for so long, which `now` leaves out. Instants whose age counts move back."""

    def deadline(self) -> float | None:
        """When it has something to do even if nothing comes."""
        return None

    def send(self, packet: Packet, to: Target | None, now: float) -> None:
        self._pass_down(SendPacket(packet, to), now)
