"""When an archive knows how far those can have been who failed before a view.

The cut is what the living have received. One who failed may have been ahead of them, so an archive must see
everything that was published before the view was begun. Where P has one order for all, that is everything
before PREPARE in its own queue. Elsewhere it waits until each publisher that lives has told its last, some
time after the view.

SE1  Nothing beyond `reach` was delivered by anybody who had failed when PREPARE was cast.
"""

from ..layer import Site
from ..vector import Vector
from ..views import Record, Settled, Table, ViewId
from .reception import ORDERS, Reception

MOST_MARKS = 64


class Settling:
    def __init__(self, site: Site, reception: Reception, table: Table) -> None:
        self.site = site
        self.reception = reception
        self.table = table
        self._marks: dict[ViewId, Vector] = {}
        self._open: dict[ViewId, float] = {}  # and when it was agreed to
        # A queue on P that has just been made has not seen what came before.
        self._seasoned = bool(table.views)

    def marked(self, round_: ViewId) -> list[Record]:
        """PREPARE was seen on P, in its place."""
        if not self.site.options.ordered:
            return []
        reach = self._reach()
        self._marks[round_] = reach
        if len(self._marks) > MOST_MARKS:
            del self._marks[min(self._marks)]
        ready = [id_ for id_ in self._open if id_.number <= round_.number]
        return [self._settle(id_, reach) for id_ in ready]

    def accepted(self, view: ViewId, now: float) -> list[Record]:
        seasoned, self._seasoned = self._seasoned, True
        if not seasoned:
            return []
        mark = self._marks.get(view)
        if mark is not None:
            return [Settled(view, mark)]
        self._open[view] = now
        return []

    def tick(self, now: float) -> list[Record]:
        """Without one order: see whether all publishers have been heard, or are silent."""
        if self.site.options.ordered:
            return []
        suspect = self.site.options.suspect
        heard = [track.heard for track in self.reception.tracks.values()]
        ready = [
            id_
            for id_, since in self._open.items()
            if now >= since + suspect
            and all(at >= since + suspect or now - at >= 2 * suspect for at in heard)
        ]
        return [self._settle(id_, self._reach()) for id_ in ready]

    def _settle(self, view: ViewId, reach: Vector) -> Record:
        del self._open[view]
        return Settled(view, reach)

    def _reach(self) -> Vector:
        known = self.reception.known()
        return Vector({p: s for p, s in known.items() if not p.startswith(ORDERS)})
