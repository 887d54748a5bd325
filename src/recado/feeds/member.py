"""A member of a feed, or a publisher, as computation: events in, effects out.

    member.handle(event, now) → effects        member.deadline() → when it wants the next Ticked

M1  The same events at the same times give the same effects: there is no clock, chance or order of hashing in
    it.
M2  Nothing that arrives raises: what is malformed is counted in `refused`.
"""

from .boundary import (
    ArchiveState,
    Arrived,
    Effect,
    Event,
    Left,
    Options,
    Ticked,
)
from .layer import Layer, Site
from .layers.dispatch import Dispatch
from .layers.fifo import Numbering
from .layers.reception import Reception, room_for
from .layers.transport import Transport
from .stack import Parts, Stack
from .vector import Vector
from .views import MemberId, Role, View


class Member:
    def __init__(
        self,
        me: MemberId,
        role: Role,
        stack: Stack,
        options: Options,
        stored: ArchiveState | None = None,
    ) -> None:
        self.site = Site(me, role, options, frozenset(stack.names))
        self._reception = Reception(
            options.held, room_for(options), ordered=options.ordered, beat=options.beat
        )
        self._layers = stack.build(Parts(self.site, self._reception, stored))
        top, bottom = self._layers[0], self._layers[-1]
        assert isinstance(top, Dispatch)
        assert isinstance(bottom, Transport)
        # Many layers have nothing to do with time, and a deadline is asked for after every event.
        layers = self._layers
        self._ticks = [one.tick for one in layers if type(one).tick is not Layer.tick]
        self._deadlines = [
            one.deadline for one in layers if type(one).deadline is not Layer.deadline
        ]
        self._top = top
        self._bottom = bottom
        self._begun = False
        self._left = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        if self._left or self.site.failed:
            return []
        if not self._begun:
            self._begun = True
            for layer in self._layers:
                layer.start(now)
        match event:
            case Arrived():
                self._bottom.arrived(event, now)
            case Ticked():
                for tick in self._ticks:
                    tick(now)
            case _:
                self._left = isinstance(event, Left)
                self._top.down(event, now)
        effects, self.site.effects = self.site.effects, []
        return effects

    def stall(self, seconds: float) -> None:
        """The process did not run for so long, and `now` leaves that out."""
        for layer in self._layers:
            layer.stall(seconds)

    def deadline(self) -> float | None:
        """When it wants the next Ticked; None: nothing is to be done until something comes."""
        if self._left or self.site.failed:
            return None
        if not self._begun:
            return 0.0
        earliest = None
        for deadline in self._deadlines:
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
        return self.site.view

    @property
    def published(self) -> int:
        """The last sequence that was given to a message; of a publisher."""
        numbering = next((one for one in self._layers if isinstance(one, Numbering)), None)
        return numbering.published if numbering is not None else 0

    @property
    def refused(self) -> int:
        return self.site.refused

    def follows(self, publisher: bytes) -> bool:
        """Whether it is one of those whose messages pass here."""
        return publisher in self._reception.tracks

    @property
    def publishers(self) -> tuple[int, int]:
        """How many it follows, and how many it can."""
        return len(self._reception.tracks), self._reception.most

    @property
    def turned_away(self) -> int:
        """How often something came of a publisher for which there is no room."""
        return self._reception.turned_away
