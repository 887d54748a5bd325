"""When an archive knows how far those can have been who failed before a view.

The cut is what the living have received. One who failed may have been ahead of them, so an archive must see
everything that was published before the view was begun. Where P has one order for all, that is everything
before PREPARE in its own queue. Elsewhere it waits until each publisher has told its last, some time after
the view.

SE1  Nothing beyond `reach` was delivered by anybody who had failed when PREPARE was cast.
SE2  A publisher that is silent may be heard by others: the reach is OPEN for it, until it is heard again.
SE3  One that is heard for the first time after that, and may have begun before the view, raises the reach to
     its last; while it has not told when it began the reach is OPEN for it. Nothing of it is stored before that
     is.
     A reach that another archive has found is raised by that archive, which tells the others at once.
SE4  So where a reach does not name a publisher, nothing of it was delivered if it has told its age here; of
     others nothing is known.
"""

from math import inf

from ..layer import Site
from ..table import Table
from ..vector import Vector
from ..views import OPEN, Record, Settled, ViewId
from .reception import ORDERS, Reception
from .track import Track

MOST = 64  # views that are kept in mind
LONG = 10  # times `suspect`: who was not heard for so long is not waited for


class Settling:
    def __init__(self, site: Site, reception: Reception, table: Table) -> None:
        self.site = site
        self.reception = reception
        self._marks: dict[ViewId, Vector] = {}
        self._open: dict[ViewId, float] = {}  # and when it was agreed to
        self._watched: dict[ViewId, Watch] = {}
        self._met: set[bytes] = set()  # publishers of whom something was stored
        # A queue on P that has just been made has not seen what came before.
        self._seasoned = bool(table.views)
        if not site.options.ordered:
            for id_, settled in table.settled.items():
                open_ = {p for p, s in settled.reach.items() if s == OPEN}
                if open_:
                    self._watch(id_, Watch(-inf, open_))

    def marked(self, round_: ViewId) -> list[Record]:
        """PREPARE was seen on P, in its place."""
        if not self.site.options.ordered:
            return []
        reach = Vector({p: _known(track) for p, track in self._publishers()})
        self._marks[round_] = reach
        if len(self._marks) > MOST:
            del self._marks[min(self._marks)]
        ready = [id_ for id_ in self._open if id_.number <= round_.number]
        for id_ in ready:
            del self._open[id_]
        return [Settled(id_, reach) for id_ in ready]

    def accepted(self, view: ViewId, now: float) -> list[Record]:
        seasoned, self._seasoned = self._seasoned, True
        if not seasoned:
            return []
        mark = self._marks.get(view)
        if mark is not None:
            return [Settled(view, mark)]
        self._open[view] = now
        return []

    def met(self, publisher: bytes, now: float) -> list[Record]:
        """Something of this publisher is about to be stored (SE3)."""
        if publisher in self._met:
            return []
        self._met.add(publisher)
        return self.tick(now)

    def tick(self, now: float) -> list[Record]:
        """Without one order: see whether all publishers have told their last, or are silent."""
        if self.site.options.ordered:
            return []
        records: list[Record] = []
        for id_, since in list(self._open.items()):
            reach = self._reach(since, now)
            if reach is not None:
                del self._open[id_]
                records.append(Settled(id_, reach))
                self._watch(id_, Watch(since, {p for p, s in reach.items() if s == OPEN}))
        for id_, watch in list(self._watched.items()):
            raised = self._raised(watch)
            if raised:
                records.append(Settled(id_, raised))
            if not watch.open and now >= watch.since + LONG * self.site.options.suspect:
                del self._watched[id_]
        return records

    def acquainted(self) -> list[bytes]:
        """Those of whom every reach speaks, also where it does not name them (SE4)."""
        return [publisher for publisher, track in self._publishers() if track.told > -inf]

    def _publishers(self) -> list[tuple[bytes, Track]]:
        return [(p, t) for p, t in self.reception.tracks.items() if not p.startswith(ORDERS)]

    def _reach(self, since: float, now: float) -> Vector | None:
        """None if it is too early."""
        suspect = self.site.options.suspect
        if now < since + suspect:
            return None
        reach = {}
        for publisher, track in self._publishers():
            if self._began_after(publisher, since):
                continue
            if track.told >= since + suspect:
                reach[publisher] = _known(track)
            elif now - track.told >= 2 * suspect:
                reach[publisher] = OPEN
            else:
                return None
        return Vector(reach)

    def _watch(self, id_: ViewId, watch: "Watch") -> None:
        watch.seen.update(p for p, _ in self._publishers())
        self._watched[id_] = watch
        if len(self._watched) > MOST:
            del self._watched[next(iter(self._watched))]

    def _raised(self, watch: "Watch") -> Vector:
        """SE2, SE3: what is known now of those who were silent, or not known, when the view was settled."""
        raised = {}
        suspect = self.site.options.suspect
        for publisher, track in self._publishers():
            if publisher in watch.open:
                if track.told >= watch.since + suspect:
                    watch.open.discard(publisher)
                    raised[publisher] = _known(track)
            elif publisher not in watch.seen:
                watch.seen.add(publisher)
                if track.told == -inf:
                    watch.open.add(publisher)
                    raised[publisher] = OPEN
                elif watch.since > -inf and not self._began_after(publisher, watch.since):
                    raised[publisher] = _known(track)
        return Vector(raised)

    def _began_after(self, publisher: bytes, since: float) -> bool:
        """Whether this is certain: a report that was delayed makes a publisher look younger than it is."""
        born = self.reception.tracks[publisher].born
        return born > since and self.reception.is_dated(publisher)


class Watch:
    """A view that is settled, but for some publishers."""

    __slots__ = ("open", "seen", "since")

    def __init__(self, since: float, open_: set[bytes]) -> None:
        self.since = since
        self.open = open_
        self.seen: set[bytes] = set()


def _known(track: Track) -> int:
    return max(track.known, track.next - 1)
