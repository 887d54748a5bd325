"""DISPATCH: the top of a stack. What arrives here goes to the application, and archives are told how far that
is.

D1  The vector is what has been delivered, of each publisher from where it began. What was passed over is a
    hole in it, and in what is acknowledged.
D2  A view is acknowledged after everything before it was delivered, and never more than was delivered.
"""

from msgspec.structs import replace

from ..boundary import ARCHIVES, Acknowledge, Deliver, Gap, Installed, Left, Send
from ..layer import Began, Changed, Falling, Layer, Messages, Met, Missing, Rising, Site
from ..packet import Ack
from ..vector import Progress, Vector
from ..views import NO_VIEW, Role, ViewId
from ..wire import encode
from .reception import ORDERS

MOST_HOLES = 64  # in an acknowledgement by datagram


class Dispatch(Layer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._delivered = Progress(Vector())
        self._start: Progress | None = None
        self._view: ViewId = NO_VIEW
        self._news = False
        self._due: float | None = None

    def up(self, event: Rising, now: float) -> None:
        effects = self.site.effects
        match event:
            case Messages(batch):
                self._delivered.deliver(batch.publisher, batch.first, batch.last)
                self._news = True
                effects.append(Deliver(batch))
            case Missing(lost):
                self._delivered.skip(lost.publisher, lost.first, lost.last)
                self._news = True
                effects.append(Gap(lost))
            case Began(vector):
                self._start, self._delivered = Progress(vector), Progress(vector)
            case Met(publisher, last) if self._start is not None:
                self._start.begin(publisher, last)
                self._delivered.begin(publisher, last)
            case Changed(record):
                cut = Vector({p: s for p, s in record.cut.items() if not p.startswith(ORDERS)})
                if self._start is None:
                    self._start, self._delivered = Progress(cut), Progress(cut)
                self._view = record.view.id
                effects.append(Installed(record.view, cut))
                self._acknowledge(now)
            case _:
                pass

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Left) and self._start is not None and self._tells():
            ack = self._ack(self._start, self.vector if event.vector is None else event.vector)
            self.site.effects.append(Send(ARCHIVES, encode(replace(ack, final=True))))
        self._below(event, now)

    def _tells(self) -> bool:
        return self.site.role is Role.SUBSCRIBER

    def _acknowledge(self, now: float) -> None:
        self._news = False
        if self._tells() and self._start is not None:
            ack = self._ack(self._start, self.vector)
            self.site.effects.append(Acknowledge(encode(ack)))
            self._due = now + self.site.options.acknowledge

    def _ack(self, start: Progress, vector: Vector) -> Ack:
        """It has to fit in one packet."""
        begun = start.vector()
        if not self.site.options.ordered:
            begun, vector = begun.with_holes(MOST_HOLES), vector.with_holes(MOST_HOLES)
        return Ack(self._view, begun, vector, False)

    def tick(self, now: float) -> None:
        if self._due is not None and now >= self._due:
            self._due = now + self.site.options.acknowledge
            if self._news:
                self._acknowledge(now)

    def deadline(self) -> float | None:
        return self._due

    @property
    def vector(self) -> Vector:
        return self._delivered.vector()
