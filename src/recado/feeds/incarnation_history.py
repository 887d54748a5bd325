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
from .views import MemberId, ViewId, ViewRecord, ViewStability

Interval = tuple[Vector, Vector | None]
"""What lies behind the first, up to the second; None: there is no end that is known."""


class IncarnationHistory:
    def __init__(
        self, views: Mapping[ViewId, ViewRecord], settled: Mapping[ViewId, ViewStability]
    ) -> None:
        known = [views[id_] for id_ in sorted(views)]
        asked = [record for record in known if record.provisional]
        self._views = {record.view.id: record for record in known if not record.provisional}
        self._bounds = {id_: settled[id_].delivery_bound for id_ in self._views if id_ in settled}
        self._stable_views = list(self._bounds)  # in order, as the views are
        self._archives = {id_: set(r.view.archive_members()) for id_, r in self._views.items()}
        self._archive_names = {id_: {m.name for m in all_} for id_, all_ in self._archives.items()}
        self._view_bits = {id_: 1 << number for number, id_ in enumerate(self._views)}
        self._ancestors = self._compute_ancestors()
        self._views_by_incarnation: dict[str, dict[MemberId, list[ViewId]]] = {}
        for record in (*self._views.values(), *asked):
            for member in record.view.members():
                incarnations = self._views_by_incarnation.setdefault(member.name, {})
                incarnations.setdefault(member, []).append(record.view.id)
        self._first_view_number = {  # the number of the first view of each life
            member: min(id_.number for id_ in places)
            for incarnations in self._views_by_incarnation.values()
            for member, places in incarnations.items()
        }
        self._unseen: list[Interval] | None = None

    def _compute_ancestors(self) -> dict[ViewId, int]:
        """Of each view, as bits, itself and all from which a line leads to it."""
        before: dict[ViewId, int] = {}
        for id_, record in self._views.items():
            before[id_] = self._view_bits[id_]
            for previous in record.previous_views:
                before[id_] |= before.get(previous, 0)
        return before

    def incarnations(self, name: str) -> Mapping[MemberId, list[ViewId]]:
        """Each with the views that it was in, or was asked to be in."""
        return self._views_by_incarnation.get(name, {})

    # --- lives that are over ---

    def delivery_bound(self, incarnation: MemberId, min_view_number: int) -> Vector | None:
        """Beyond this, nothing was delivered to this life, which was in a view of number `last` at least; None:
        not known (LI2)."""
        places = self.incarnations(incarnation.name).get(incarnation, [])
        shared = [id_ for id_ in places if id_ in self._views]
        min_view_number = max([min_view_number, *(id_.number for id_ in places)])
        for id_ in self._stable_views[
            bisect_left(self._stable_views, ViewId(min_view_number + 1, b"")) :
        ]:
            record = self._views[id_]
            members = record.view.members()
            if any(
                m.name == incarnation.name and self._first_view_number[m] > min_view_number
                for m in members
            ):
                return self._bounds[id_]
            silent = record.complete and incarnation not in members
            if silent and shared and all(self._follows(id_, each) for each in shared):
                return self._bounds[id_]
        return None

    def _follows(self, id_: ViewId, other: ViewId) -> bool:
        """LI1."""
        if self._ancestors[id_] & self._view_bits[other]:
            return True
        return id_.number > other.number and self._archive_names[other] <= self._archive_names[id_]

    # --- lives that were not seen ---

    def unseen_intervals(self) -> list[Interval]:
        """What may have been given to lives of any name that are not known here (LI3)."""
        if self._unseen is None:
            found = [hole for id_ in self._views for hole in self._unseen_before(id_)]
            # Of those from the very beginning the farthest says it all.
            whole = [end for begin, end in found if not begin]
            self._unseen = [hole for hole in found if hole[0]]
            if None in whole:
                self._unseen = [(Vector(), None)]
            elif whole:
                farthest = Vector()
                for end in whole:
                    farthest = farthest.merge(end or Vector())
                self._unseen.append((Vector(), farthest))
        return self._unseen

    def _unseen_before(self, id_: ViewId) -> list[Interval]:
        record = self._views[id_]
        known = [each for each in record.previous_views if each in self._views]
        if len(known) < len(record.previous_views):
            return [(Vector(), self._bound_at(self._next_bounding_view(id_)))]
        return [hole for each in known for hole in self._unseen_between(each, id_)]

    def _unseen_between(self, old: ViewId, new: ViewId) -> list[Interval]:
        """From a view to the next."""
        led = not self._archives[old].isdisjoint(self._archives[new])
        left_out = self._archive_names[old] - self._archive_names[new]
        if led and (self._views[new].complete or not left_out):
            return []
        bound = self._next_bounding_view(new)
        if bound is not None:
            if led and left_out <= self._archive_names[bound]:
                return []
            if not led and not self._archives[old].isdisjoint(self._archives[bound]):
                return []
            if led or self._archive_names[old] <= self._archive_names[bound]:
                return [(self._views[old].cut, self._bound_at(bound))]
        return [(Vector(), self._bound_at(bound))]

    def _next_bounding_view(self, id_: ViewId) -> ViewId | None:
        """The first view that is complete and settled, this one or one that follows it."""
        for each in self._stable_views[bisect_left(self._stable_views, id_) :]:
            if self._views[each].complete and self._follows(each, id_):
                return each
        return None

    def _bound_at(self, id_: ViewId | None) -> Vector | None:
        return None if id_ is None else self._bounds[id_]
