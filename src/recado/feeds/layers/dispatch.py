"""DISPATCH: the top of a stack. What arrives here goes to the application, and archives are told how far that
is.

D1  The vector is what has been delivered, of each publisher without gap from where it began.
D2  A view is acknowledged after everything before it was delivered, and never more than was delivered.
"""

from ..boundary import ARCHIVES, Acknowledge, Deliver, Gap, Installed, Left, Send
from ..layer import Began, Changed, Falling, Layer, Messages, Met, Missing, Rising, Site
from ..packet import Ack
from ..vector import Vector
from ..views import NO_VIEW, Role, ViewId
from ..wire import encode
from .reception import ORDERS


class Dispatch(Layer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.delivered: dict[bytes, int] = {}
        self._start: dict[bytes, int] | None = None
        self._view: ViewId = NO_VIEW
        self._news = False
        self._due: float | None = None

    def up(self, event: Rising, now: float) -> None:
        effects = self.site.effects
        match event:
            case Messages(batch):
                self.delivered[batch.publisher] = batch.last
                self._news = True
                effects.append(Deliver(batch))
            case Missing(lost):
                self.delivered[lost.publisher] = lost.last
                effects.append(Gap(lost))
            case Began(vector):
                self._start = dict(vector)
                self.delivered = dict(vector)
            case Met(publisher, last) if self._start is not None:
                self._start[publisher] = self.delivered[publisher] = last
            case Changed(record):
                cut = Vector({p: s for p, s in record.cut.items() if not p.startswith(ORDERS)})
                if self._start is None:
                    self._start = dict(cut)
                    self.delivered = dict(cut)
                self._view = record.view.id
                effects.append(Installed(record.view, cut))
                self._acknowledge(now)
            case _:
                pass

    def down(self, event: Falling, now: float) -> None:
        if isinstance(event, Left) and self._start is not None and self._tells():
            vector = self.delivered if event.vector is None else dict(event.vector)
            ack = Ack(self._view, self._start, vector, True)
            self.site.effects.append(Send(ARCHIVES, encode(ack)))
        self._below(event, now)

    def _tells(self) -> bool:
        return self.site.role is Role.SUBSCRIBER

    def _acknowledge(self, now: float) -> None:
        self._news = False
        if self._tells() and self._start is not None:
            ack = Ack(self._view, self._start, dict(self.delivered), False)
            self.site.effects.append(Acknowledge(encode(ack)))
            self._due = now + self.site.options.acknowledge

    def tick(self, now: float) -> None:
        if self._due is not None and now >= self._due:
            self._due = now + self.site.options.acknowledge
            if self._news:
                self._acknowledge(now)

    def deadline(self) -> float | None:
        return self._due

    @property
    def vector(self) -> Vector:
        return Vector(self.delivered)
