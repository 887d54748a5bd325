"""A layer: one protocol of a feed, between the layer above and the layer below, as in JGroups.

Events travel up from the transport to the application and down from the application to the transport. A layer
handles the events that concern it and passes on all others, so layers can be combined in many ways. The event
types below are all that layers exchange. `tick` is called no later than the time that `deadline` returns.
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
    LeaveRequested,
    MessageBatch,
    PacketRoute,
    PublishRequested,
    Target,
)
from .options import FeedOptions
from .packet import Packet
from .vector import Vector
from .views import NO_VIEW, LostRange, MemberId, Role, View, ViewId, ViewRecord

# --- events that travel up -----------------------------------------------------------------------


class PacketReceived(Struct, frozen=True):
    """A received packet that no layer has consumed yet."""

    route: PacketRoute
    sender: MemberId
    packet: Packet


class BatchReleased(Struct, frozen=True):
    """Above FIFO: messages of a publisher, in order, without gaps or duplicates."""

    batch: MessageBatch


class FragmentReleased(Struct, frozen=True):
    """Above FIFO: the next fragment of a message that FRAG reassembles."""

    publisher: bytes
    sequence: int
    index: int
    count: int
    data: bytes


class MessagesLost(Struct, frozen=True):
    """Above FIFO: stands in for messages that no reachable member has."""

    lost: LostRange


class ViewAgreed(Struct, frozen=True):
    """MEMBERSHIP has agreed to a view; it is installed after the messages before its cut."""

    record: ViewRecord


class ViewChangeAbandoned(Struct, frozen=True):
    """A view change was abandoned: continue in the present view."""


class ViewInstalled(Struct, frozen=True):
    """Above FIFO: everything before the cut has passed; the view begins here."""

    record: ViewRecord


class PublisherStartSet(Struct, frozen=True):
    """Above FIFO: the start position of a publisher that is older than this member; messages after
    `after_sequence` follow."""

    publisher: bytes
    after_sequence: int


class DeliveryStarted(Struct, frozen=True):
    """Above SYNC: from this vector on, messages are delivered without gaps."""

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

# --- events that travel down ---------------------------------------------------------------------


class SendPacket(Struct, frozen=True):
    """Send a packet to a target, or to all members if `to` is None. `key` and `last_sequence` are those of
    `Broadcast`."""

    packet: Packet
    to: Target | None = None
    key: str = ""
    last_sequence: int = 0


class PublishFragmented(Struct, frozen=True):
    """From FRAG to FIFO: one message that needs several packets."""

    fragments: tuple[bytes, ...]


class GapFilled(Struct, frozen=True):
    """A member or archive has sent this batch: FIFO handles it like one that has just arrived."""

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
    """State that the layers of one member share."""

    def __init__(
        self, member_id: MemberId, role: Role, options: FeedOptions, names: frozenset[str]
    ) -> None:
        self.member_id = member_id
        self.role = role
        self.options = options
        self.layer_names = names
        """The layers of the member's stack."""
        self.effects: list[Effect] = []
        self.agreed_view: View | None = None
        """The view that MEMBERSHIP has agreed to; above FIFO it begins with ViewInstalled."""
        self.installed_view_id: ViewId = NO_VIEW
        """The view to which messages that pass FIFO now belong."""
        self.outsider_heard_at = -inf
        """When a living member outside our view was last heard."""
        self.interval_factor = 1.0
        """By how much heartbeats and other messages to all members are less frequent than in a small group."""
        self.malformed_count = 0
        """Number of malformed packets that were dropped."""
        self.has_failed = False
        self.is_inbox_full = False
        """Backpressure: the application has so many undelivered bytes that no more should be requested for it.
        """

    def required_copies(self, view: View | None) -> int:
        """Return how many archives must have a message of this view before UNIFORM delivers it."""
        if self.options.uniform_copies:
            return self.options.uniform_copies
        present = len(view.archive_members()) if view is not None else 0
        return (self.options.archive_count or present) // 2 + 1

    def archive_members(self) -> list[MemberId]:
        """Return the archives of the view, including ourselves if we are one."""
        return [] if self.agreed_view is None else self.agreed_view.archive_members()

    def other_members(self) -> list[MemberId]:
        """Return the other members of the view, archives first."""
        if self.agreed_view is None:
            return []
        entries = sorted(self.agreed_view.entries, key=lambda entry: entry.role is not Role.ARCHIVE)
        return [entry.member for entry in entries if entry.member != self.member_id]


class Layer:
    """Base class of layers: passes every event on."""

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
        """Called before the first event."""

    def up(self, event: UpEvent, now: float) -> None:
        self._pass_up(event, now)

    def down(self, event: DownEvent, now: float) -> None:
        self._pass_down(event, now)

    def tick(self, now: float) -> None:
        """Called when time has passed."""

    def adjust_for_stall(self, seconds: float) -> None:
        """Account for a stall of the process, which `now` leaves out.

        Instants whose real age matters are moved back by `seconds`. The instant since which a member has
        listened is moved forward instead, because packets may have been lost meanwhile (FM7).
        """

    def deadline(self) -> float | None:
        """Return when `tick` must be called at the latest; None if there is no timeout."""
        return None

    def send(self, packet: Packet, to: Target | None, now: float) -> None:
        self._pass_down(SendPacket(packet, to), now)
