"""A member of a feed, or a publisher, as a pure state machine: events in, effects out.

    member.handle(event, now) → effects        member.deadline() → when it needs the next TimerFired

ME1  The same events at the same times produce the same effects: there is no clock, randomness or hash order.
ME2  No packet raises an exception: malformed ones are dropped and counted in `malformed_count`.
"""

from .boundary import (
    ArchiveState,
    Effect,
    Event,
    LeaveRequested,
    PacketArrived,
    TimerFired,
)
from .layer import Layer, MemberContext
from .layers.dispatch import DispatchLayer
from .layers.fifo import SequencerLayer
from .layers.receive_buffer import ReceiveBuffer, max_publishers
from .layers.transport import TransportLayer
from .options import FeedOptions
from .stack import LayerParts, Stack
from .vector import Vector
from .views import MemberId, Role, View


class FeedMember:
    def __init__(
        self,
        member_id: MemberId,
        role: Role,
        stack: Stack,
        options: FeedOptions,
        archive_state: ArchiveState | None = None,
    ) -> None:
        self.context = MemberContext(member_id, role, options, frozenset(stack.names))
        self._receive_buffer = ReceiveBuffer(
            options.buffer_bytes,
            max_publishers(options),
            has_total_order=options.has_total_order,
            heartbeat_interval=options.heartbeat_interval,
        )
        self._layers = stack.build(LayerParts(self.context, self._receive_buffer, archive_state))
        top, bottom = self._layers[0], self._layers[-1]
        assert isinstance(top, DispatchLayer)
        assert isinstance(bottom, TransportLayer)
        # The deadline is computed after every event; most layers have none.
        layers = self._layers
        self._tick_methods = [one.tick for one in layers if type(one).tick is not Layer.tick]
        self._deadline_methods = [
            one.deadline for one in layers if type(one).deadline is not Layer.deadline
        ]
        self._top = top
        self._bottom = bottom
        self._has_started = False
        self._has_left = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        if self._has_left or self.context.has_failed:
            return []
        if not self._has_started:
            self._has_started = True
            for layer in self._layers:
                layer.start(now)
        match event:
            case PacketArrived():
                self._bottom.receive(event, now)
            case TimerFired():
                for tick in self._tick_methods:
                    tick(now)
            case _:
                self._has_left = isinstance(event, LeaveRequested)
                self._top.down(event, now)
        effects, self.context.effects = self.context.effects, []
        return effects

    def adjust_for_stall(self, seconds: float) -> None:
        """Account for a stall of the process, which `now` leaves out."""
        for layer in self._layers:
            layer.adjust_for_stall(seconds)

    def deadline(self) -> float | None:
        """Return when the member needs the next TimerFired; None if it only waits for packets."""
        if self._has_left or self.context.has_failed:
            return None
        if not self._has_started:
            return 0.0
        earliest = None
        for deadline in self._deadline_methods:
            due = deadline()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest

    @property
    def vector(self) -> Vector:
        """The messages delivered so far."""
        return self._top.vector

    @property
    def view(self) -> View | None:
        return self.context.agreed_view

    @property
    def last_sequence(self) -> int:
        """The last sequence that a publisher has assigned."""
        numbering = next((one for one in self._layers if isinstance(one, SequencerLayer)), None)
        return numbering.last_sequence if numbering is not None else 0

    @property
    def malformed_count(self) -> int:
        return self.context.malformed_count

    def is_tracking(self, publisher: bytes) -> bool:
        """Return whether messages of this publisher are accepted."""
        return self._receive_buffer.is_tracked(publisher)

    @property
    def publisher_counts(self) -> tuple[int, int]:
        """Number of publishers that are tracked, and the limit."""
        return len(self._receive_buffer.publishers), self._receive_buffer.max_publishers

    @property
    def rejected_count(self) -> int:
        """Number of packets dropped because the limit of publishers is reached."""
        return self._receive_buffer.rejected_count
