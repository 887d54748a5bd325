"""Which view follows which, and what that says of lives that are over and of lives that no archive saw.

A view that is complete and settled bounds what all can have been given who are not in it: they were silent when
it was begun, and everything published until then is before its reach. It does so only for those who came
before it, because two groups may have views at the same time which know nothing of each other.

LI1  A view follows another if a line of views leads there, or if it is later and has all its archives again.
LI2  A life is over at a settled view with a later life of its name; or at one that is complete, is without it,
     and follows every view that it was in.
LI3  Lives may have come and gone unseen where no archive leads from a view to the next one, where archives were
     left out that may have lived on, and where an unknown view came before. All that they can have been given,
     up to the next view that is complete and settled, is in doubt; unless an archive was there all the time, or
     those who were left out are back and have told.
"""

from bisect import bisect_left
from collections.abc import Mapping

from .vector import Vector
from .views import MemberId, Settled, ViewId, ViewRecord

Interval = tuple[Vector, Vector | None]
"""What lies behind the first, up to the second; None: there is no end that is known."""


class Lineage:
    def __init__(
        self, views: Mapping[ViewId, ViewRecord], settled: Mapping[ViewId, Settled]
    ) -> None:
        known = [views[id_] for id_ in sorted(views)]
        asked = [record for record in known if record.provisional]
        self._views = {record.view.id: record for record in known if not record.provisional}
        self._reaches = {id_: settled[id_].reach for id_ in self._views if id_ in settled}
        self._settled = list(self._reaches)  # in order, as the views are
        self._archives = {id_: set(r.view.archives()) for id_, r in self._views.items()}
        self._keepers = {id_: {m.name for m in all_} for id_, all_ in self._archives.items()}
        self._bits = {id_: 1 << number for number, id_ in enumerate(self._views)}
        self._before = self._ancestors()
        self._seen: dict[str, dict[MemberId, list[ViewId]]] = {}
        for record in (*self._views.values(), *asked):
            for member in record.view.members():
                lives = self._seen.setdefault(member.name, {})
                lives.setdefault(member, []).append(record.view.id)
        self._first = {  # the number of the first view of each life
            member: min(id_.number for id_ in places)
            for lives in self._seen.values()
            for member, places in lives.items()
        }
        self._holes: list[Interval] | None = None

    def _ancestors(self) -> dict[ViewId, int]:
        """Of each view, as bits, itself and all from which a line leads to it."""
        before: dict[ViewId, int] = {}
        for id_, record in self._views.items():
            before[id_] = self._bits[id_]
            for previous in record.previous:
                before[id_] |= before.get(previous, 0)
        return before

    def lives(self, name: str) -> Mapping[MemberId, list[ViewId]]:
        """Each with the views that it was in, or was asked to be in."""
        return self._seen.get(name, {})

    # --- lives that are over ---

    def end(self, life: MemberId, last: int) -> Vector | None:
        """Beyond this, nothing was delivered to this life, which was in a view of number `last` at least; None:
        not known (LI2)."""
        places = self.lives(life.name).get(life, [])
        shared = [id_ for id_ in places if id_ in self._views]
        last = max([last, *(id_.number for id_ in places)])
        for id_ in self._settled[bisect_left(self._settled, ViewId(last + 1, b"")) :]:
            record = self._views[id_]
            members = record.view.members()
            if any(m.name == life.name and self._first[m] > last for m in members):
                return self._reaches[id_]
            silent = record.complete and life not in members
            if silent and shared and all(self._follows(id_, each) for each in shared):
                return self._reaches[id_]
        return None

    def _follows(self, id_: ViewId, other: ViewId) -> bool:
        """LI1."""
        if self._before[id_] & self._bits[other]:
            return True
        return id_.number > other.number and self._keepers[other] <= self._keepers[id_]

    # --- lives that were not seen ---

    def holes(self) -> list[Interval]:
        """What may have been given to lives of any name that are not known here (LI3)."""
        if self._holes is None:
            found = [hole for id_ in self._views for hole in self._before_view(id_)]
            # Of those from the very beginning the farthest says it all.
            whole = [end for begin, end in found if not begin]
            self._holes = [hole for hole in found if hole[0]]
            if None in whole:
                self._holes = [(Vector(), None)]
            elif whole:
                farthest = Vector()
                for end in whole:
                    farthest = farthest.joined(end or Vector())
                self._holes.append((Vector(), farthest))
        return self._holes

    def _before_view(self, id_: ViewId) -> list[Interval]:
        record = self._views[id_]
        known = [each for each in record.previous if each in self._views]
        if len(known) < len(record.previous):
            return [(Vector(), self._reach(self._bound(id_)))]
        return [hole for each in known for hole in self._between(each, id_)]

    def _between(self, old: ViewId, new: ViewId) -> list[Interval]:
        """From a view to the next."""
        led = not self._archives[old].isdisjoint(self._archives[new])
        left_out = self._keepers[old] - self._keepers[new]
        if led and (self._views[new].complete or not left_out):
            return []
        bound = self._bound(new)
        if bound is not None:
            if led and left_out <= self._keepers[bound]:
                return []
            if not led and not self._archives[old].isdisjoint(self._archives[bound]):
                return []
            if led or self._keepers[old] <= self._keepers[bound]:
                return [(self._views[old].cut, self._reach(bound))]
        return [(Vector(), self._reach(bound))]

    def _bound(self, id_: ViewId) -> ViewId | None:
        """The first view that is complete and settled, this one or one that follows it."""
        for each in self._settled[bisect_left(self._settled, id_) :]:
            if self._views[each].complete and self._follows(each, id_):
                return each
        return None

    def _reach(self, id_: ViewId | None) -> Vector | None:
        return None if id_ is None else self._reaches[id_]
