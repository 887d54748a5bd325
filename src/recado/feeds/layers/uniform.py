"""UNIFORM: delivers only what enough archives have on disk, so that what one subscriber got is not lost to
the others.

U1  A message passes when as many archives as its view demands have said, in views that we were in, that it is
    stable.
U2  Order stays: of each publisher, and of all if the stack has TOTAL; a view waits for all that is before it.
U3  What waits is bounded: without archives the feed fails, it does not grow.
"""

from collections import deque

from ..boundary import Failed
from ..layer import Accepted, Changed, Heard, Layer, Messages, Missing, Rising, Site
from ..packet import Stable
from ..vector import put_within
from ..views import View, ViewId

Waiting = Messages | Missing | Changed
MOST_VIEWS = 16
MOST_ARCHIVES = 64


class Uniform(Layer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        # By name: an archive that restarts has its one disk still, and is not a second copy.
        self._stable: dict[str, dict[bytes, int]] = {}
        self._ours: deque[ViewId] = deque(maxlen=MOST_VIEWS)
        self._agreed: deque[View] = deque()  # to be installed, or passed over
        self._waiting: deque[Waiting] = deque()
        self._size = 0
        self._view: View | None = None

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Messages(batch):
                self._size += 200 + len(batch.block.data)
                self._waiting.append(event)
                self._release(now)
                self._bound()
            case Missing() | Changed():
                self._waiting.append(event)
                self._release(now)
            case Accepted(record):
                self._ours.append(record.view.id)
                self._agreed.append(record.view)
                if len(self._agreed) > MOST_VIEWS:
                    del self._agreed[1]
                self._above(event, now)
            case Heard(_, sender, Stable(view, vector)):
                self._above(event, now)
                known = sender.name in self._stable or len(self._stable) < MOST_ARCHIVES
                if view in self._ours and known:
                    put_within(self._stable.setdefault(sender.name, {}), vector)
                    self._release(now)
            case _:
                self._above(event, now)

    def _copies(self) -> int:
        """As the view demands that is coming to its end. If archives were lost with it, those in the next one
        must do, though it was passed over; if those are lost too it waits until some are back, because less
        would not be uniform."""
        here = self.site.copies(self._view)
        if self._agreed and any(isinstance(event, Changed) for event in self._waiting):
            return min(here, self.site.copies(self._agreed[0]))
        return here

    def _enough(self, publisher: bytes, copies: int) -> int:
        """Up to where enough archives have this publisher's messages."""
        ranked = sorted((one.get(publisher, 0) for one in self._stable.values()), reverse=True)
        return ranked[copies - 1] if len(ranked) >= copies else 0

    def _release(self, now: float) -> None:
        """Pass what may; with TOTAL nothing passes another, otherwise publishers do not wait for each other."""
        total = "TOTAL" in self.site.names
        copies = self._copies()
        stuck: set[bytes] = set()
        halted = False  # a view waits, and everything behind it
        turned = False  # a view passes, and what is behind it is seen to by its own measure
        kept: deque[Waiting] = deque()
        ready: list[Waiting] = []
        enough: dict[bytes, int] = {}
        waiting, self._waiting = self._waiting, kept
        for event in waiting:
            behind = bool(kept) and (total or halted or isinstance(event, Changed))
            if turned or behind or self._publisher(event) in stuck:
                kept.append(event)
                halted = halted or isinstance(event, Changed)
                continue
            if not isinstance(event, Messages):
                ready.append(event)
                turned = isinstance(event, Changed)
                continue
            batch = event.batch
            publisher = batch.publisher
            if publisher not in enough:
                enough[publisher] = self._enough(publisher, copies)
            last = min(batch.last, enough[publisher])
            if last >= batch.first:
                ready.append(Messages(batch.part(batch.first, last)))
                self._size -= 200 + len(batch.block.data)
            if last < batch.last:
                rest = batch.part(max(last + 1, batch.first), batch.last)
                kept.append(Messages(rest))
                stuck.add(publisher)
                if last >= batch.first:
                    self._size += 200 + len(rest.block.data)
        for event in ready:
            if isinstance(event, Changed):
                self._turn(event.record.view)
            self._above(event, now)
        if turned:
            self._release(now)

    def _turn(self, view: View) -> None:
        self._view = view
        while self._agreed and self._agreed[0].id <= view.id:
            self._agreed.popleft()

    def _publisher(self, event: Waiting) -> bytes:
        match event:
            case Messages(batch):
                return batch.publisher
            case Missing(lost):
                return lost.publisher
            case _:
                return b""

    def _bound(self) -> None:
        if self._size > self.site.options.held and not self.site.failed:
            self.site.failed = True
            copies = self._copies()
            reason = f"too much waits for {copies} archives to have it: start archives, or leave UNIFORM out"
            self.site.effects.append(Failed(reason))
