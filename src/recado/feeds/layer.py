"""A layer: one quality of a feed, between the layer above it and the one below.

Events go up from the transport to the application, and down from the application to the transport. A layer
takes those that are its own and passes on the others, so that layers can be put together in many ways; what
they tell each other is in the small values below. `tick` comes at the latest when `deadline` has asked for it.
"""

from collections.abc import Callable
from math import inf

from msgspec import Struct

from .boundary import (
    Batch,
    Channel,
    Confirmed,
    Damaged,
    Effect,
    Left,
    Options,
    Publish,
    Recalled,
    Stored,
    Target,
)
from .packet import Packet
from .vector import Vector
from .views import NO_VIEW, Lost, MemberId, Role, View, ViewId, ViewRecord

# --- what goes up ----------------------------------------------------------------------------------


class Heard(Struct, frozen=True):
    """A packet, until a layer takes it."""

    channel: Channel
    sender: MemberId
    packet: Packet


class Messages(Struct, frozen=True):
    """Above FIFO: each publisher's in order, without gap or double."""

    batch: Batch


class Part(Struct, frozen=True):
    """Above FIFO: the next piece of a message that FRAG puts together."""

    publisher: bytes
    sequence: int
    index: int
    total: int
    piece: bytes


class Missing(Struct, frozen=True):
    """Above FIFO: in the place of messages that nobody has."""

    lost: Lost


class Accepted(Struct, frozen=True):
    """REACH has agreed to a view; it is not yet its turn among the messages."""

    record: ViewRecord


class Thawed(Struct, frozen=True):
    """A change of view came to nothing: go on in the present one."""


class Changed(Struct, frozen=True):
    """Above FIFO: everything before the cut has passed, and the view begins here."""

    record: ViewRecord


class Met(Struct, frozen=True):
    """Above FIFO: a publisher that was there before us; what is behind `last` follows, and nothing before."""

    publisher: bytes
    last: int


class Began(Struct, frozen=True):
    """Above SYNC: what follows is delivered without gap from here."""

    vector: Vector


Rising = Heard | Messages | Part | Missing | Accepted | Thawed | Changed | Met | Began

# --- what goes down --------------------------------------------------------------------------------


class Say(Struct, frozen=True):
    """Send this: to one or some on A; to nobody in particular: cast on P."""

    packet: Packet
    to: Target | None = None
    key: str = ""
    number: int = 0


class Pieces(Struct, frozen=True):
    """FRAG gives FIFO one message that needs several packets."""

    pieces: tuple[bytes, ...]


class Filled(Struct, frozen=True):
    """Somebody gave us this batch: FIFO takes it as if it had just arrived."""

    batch: Batch


Falling = Publish | Stored | Recalled | Damaged | Confirmed | Left | Say | Pieces | Filled


class Site:
    """What the layers of one member share."""

    def __init__(self, me: MemberId, role: Role, options: Options, names: frozenset[str]) -> None:
        self.me = me
        self.role = role
        self.options = options
        self.names = names
        """The layers of its stack."""
        self.effects: list[Effect] = []
        self.view: View | None = None
        """Agreed to by REACH; above FIFO it begins with Changed."""
        self.current: ViewId = NO_VIEW
        """Which view the messages that pass FIFO now belong to."""
        self.outsider = -inf
        """When somebody was last heard who lives and is not in our view."""
        self.scale = 1.0
        """How many times as rare as in a small group heartbeats are, and what else goes to all members."""
        self.refused = 0
        """Packets that were malformed."""
        self.failed = False
        self.crowded = False
        """Whether the application has so much to take that it should not be given more of what it missed."""

    def copies(self, view: View | None) -> int:
        """How many archives must have a message of this view before it counts as safe."""
        if self.options.copies:
            return self.options.copies
        present = len(view.archives()) if view is not None else 0
        return (self.options.archives or present) // 2 + 1

    def others(self) -> list[MemberId]:
        """The other members of the view, archives first."""
        if self.view is None:
            return []
        seats = sorted(self.view.seats, key=lambda seat: seat.role is not Role.ARCHIVE)
        return [seat.member for seat in seats if seat.member != self.me]


class Layer:
    """Passes everything on; a quality is a subclass that does not."""

    _above: Callable[[Rising, float], None]
    _below: Callable[[Falling, float], None]

    def __init__(self, site: Site) -> None:
        self.site = site

    def link(
        self, above: Callable[[Rising, float], None], below: Callable[[Falling, float], None]
    ) -> None:
        self._above = above
        self._below = below

    def start(self, now: float) -> None:
        """Before the first event."""

    def up(self, event: Rising, now: float) -> None:
        self._above(event, now)

    def down(self, event: Falling, now: float) -> None:
        self._below(event, now)

    def tick(self, now: float) -> None:
        """Time has passed."""

    def stall(self, seconds: float) -> None:
        """The process did not run for so long, which `now` leaves out. Instants whose age counts move back."""

    def deadline(self) -> float | None:
        """When it has something to do even if nothing comes."""
        return None

    def say(self, packet: Packet, to: Target | None, now: float) -> None:
        self._below(Say(packet, to), now)
