"""TOTAL: all members of a view deliver the messages of all publishers in one order.

The oldest member of the view says the order: it casts places, as a publisher of its own for this view
(`order_id`). So FIFO, NAK and PULL see to it that all have them, and the cut of the next view says how many
there were.

TO1  Two members that go from one view to the same next view pass the same messages in it, in the same order.
TO2  What is before a cut and has no place is passed at the cut, by publisher and sequence.
TO3  Nobody waits for a place longer than the view lasts.
TO4  A place shows that its messages exist. A member that lacks them has a gap, which NAK and PULL fill or FIFO
     closes, even if the publisher has failed and no other packet mentions them. Places of a publisher that the
     member has no room for (RE5) are ignored.
"""

from collections import deque
from struct import Struct as Layout

from ..block import BODY, Block
from ..boundary import Batch
from ..layer import Changed, Filled, Layer, Messages, Met, Missing, Rising, Say, Site
from ..packet import Data, Last
from ..vector import MAX_SEQUENCE
from ..views import NO_VIEW, Lost, View
from .reception import ORDERS, Reception, order_id

_PLACE = Layout("<16sQI")
MOST_AT_A_PLACE = 2**32 - 1
Ordered = Messages | Missing


class Total(Layer):
    def __init__(self, site: Site, reception: Reception) -> None:
        super().__init__(site)
        self.reception = reception
        self._pending: dict[bytes, deque[Ordered]] = {}
        self._places: deque[tuple[bytes, int, int]] = deque()  # publisher, first, last
        self._met: dict[bytes, int] = {}  # what is up to here does not come
        self._id = order_id(NO_VIEW)
        self._ours = False  # to say the order
        self._said = 0
        self._due: float | None = None

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Messages(batch) if batch.publisher.startswith(ORDERS):
                if batch.publisher == self._id:
                    self._learn(batch, now)
                    self._drain(now)
            case Missing(lost) if lost.publisher.startswith(ORDERS):
                pass
            case Messages(batch):
                self._pending.setdefault(batch.publisher, deque()).append(event)
                self._place(batch.publisher, batch.first, batch.count, now)
                self._drain(now)
            case Missing(lost):
                self._pending.setdefault(lost.publisher, deque()).append(event)
                self._place(lost.publisher, lost.first, lost.last - lost.first + 1, now)
                self._drain(now)
            case Met(publisher, last):
                self._met[publisher] = last
                self._above(event, now)
                self._drain(now)
            case Changed(record):
                self._turn(record.view, now)
                self._above(event, now)
            case _:
                self._above(event, now)

    # --- saying the order ---

    def _place(self, publisher: bytes, first: int, count: int, now: float) -> None:
        if not self._ours:
            return
        self._said += 1
        # A loss may be larger: what is beyond passes with what comes next of its publisher, or at the cut.
        block = Block.of([_PLACE.pack(publisher, first, min(count, MOST_AT_A_PLACE))])
        self._below(Say(Data(self._id, self._said, block)), now)
        # We have it though the network may lose what we cast.
        self._below(Filled(Batch(self._id, self._said, block)), now)

    def tick(self, now: float) -> None:
        if self._due is not None and now >= self._due:
            self._due = now + self.site.options.beat
            if self._said:
                self.say(Last(self._id, self._said, 0), None, now)

    def deadline(self) -> float | None:
        return self._due

    # --- following it ---

    def _learn(self, batch: Batch, now: float) -> None:
        for body in batch.block.values(BODY):
            place = _unpack(body)
            if place is None:
                self.site.refused += 1
                continue
            publisher, _, last = place
            if self.reception.mention(publisher, last, now):  # TO4
                self._places.append(place)

    def _drain(self, now: float) -> None:
        while self._places:
            publisher, _, last = self._places[0]
            if last <= self._met.get(publisher, 0):
                self._places.popleft()
                continue
            pending = self._pending.get(publisher)
            if not pending:
                return
            event = pending.popleft()
            start, end = _extent(event)
            if end > last:  # they were cut elsewhere into other batches
                pending.appendleft(_part(event, last + 1, end))
                event, end = _part(event, start, last), last
            if end == last:
                self._places.popleft()
            else:
                self._places[0] = (publisher, end + 1, last)
            self._above(event, now)

    def _turn(self, view: View, now: float) -> None:
        """Everything before the cut is here, and every place that was said: the rest passes by name."""
        for publisher in sorted(self._pending):
            for event in self._pending[publisher]:
                self._above(event, now)
        self._pending = {}
        self._places.clear()
        self._id = order_id(view.id)
        self._ours = view.seats[0].member == self.site.me
        self._said = 0
        self._due = now + self.site.options.beat if self._ours else None


def _unpack(body: bytes) -> tuple[bytes, int, int] | None:
    """The publisher, first and last sequence of a place; None if it is malformed."""
    if len(body) != _PLACE.size:
        return None
    publisher, first, count = _PLACE.unpack(body)
    last = first + count - 1
    valid = 1 <= first <= last <= MAX_SEQUENCE and not publisher.startswith(ORDERS)
    return (publisher, first, last) if valid else None


def _extent(event: Ordered) -> tuple[int, int]:
    if isinstance(event, Messages):
        return event.batch.first, event.batch.last
    return event.lost.first, event.lost.last


def _part(event: Ordered, first: int, last: int) -> Ordered:
    if isinstance(event, Messages):
        return Messages(event.batch.part(first, last))
    return Missing(Lost(event.lost.publisher, first, last))
