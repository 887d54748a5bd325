"""A member of a feed, or a publisher, as computation: events in, effects out.

    member.handle(event, now) → effects        member.deadline() → when it wants the next Ticked

M1  The same events at the same times give the same effects: there is no clock, chance or order of hashing in
    it.
M2  Nothing that arrives raises: what is malformed is counted in `refused`.
"""

from .boundary import (
    ArchiveState,
    Effect,
    Event,
    FeedOptions,
    LeaveRequested,
    PacketArrived,
    TimerFired,
)
from .layer import Layer, MemberContext
from .layers.dispatch import DispatchLayer
from .layers.fifo import SequencerLayer
from .layers.receive_buffer import ReceiveBuffer, max_publishers
from .layers.transport import TransportLayer
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
        # Many layers have nothing to do with time, and a deadline is asked for after every event.
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
        """The process did not run for so long, and `now` leaves that out."""
        for layer in self._layers:
            layer.adjust_for_stall(seconds)

    def deadline(self) -> float | None:
        """When it wants the next Ticked; None: nothing is to be done until something comes."""
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
        """What has been delivered."""
        return self._top.vector

    @property
    def view(self) -> View | None:
        return self.context.agreed_view

    @property
    def last_sequence(self) -> int:
        """The last sequence that was given to a message; of a publisher."""
        numbering = next((one for one in self._layers if isinstance(one, SequencerLayer)), None)
        return numbering.last_sequence if numbering is not None else 0

    @property
    def malformed_count(self) -> int:
        return self.context.malformed_count

    def is_tracking(self, publisher: bytes) -> bool:
        """Whether it is one of those whose messages pass here."""
        return publisher in self._receive_buffer.publishers

    @property
    def publisher_counts(self) -> tuple[int, int]:
        """How many it follows, and how many it can."""
        return len(self._receive_buffer.publishers), self._receive_buffer.max_publishers

    @property
    def rejected_count(self) -> int:
        """How often something came of a publisher for which there is no room."""
        return self._receive_buffer.rejected_count
