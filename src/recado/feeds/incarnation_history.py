"""The order of views, from which an archive infers what ended and unseen incarnations can have received.

A complete view with a known delivery bound limits the messages that every absent member can have received: the
absent members were silent when the view change began, and everything published until then is within the bound.
This holds only for members whose own views precede this view, because after a partition two groups may have
concurrent views that know nothing of each other.

IH1  A view follows another one if a chain of previous views leads from it back to the other one, or if it has a
     higher number and contains all archives of the other one.
IH2  An incarnation ends at a view with a known bound that contains a later incarnation of the name; or at one
     that is complete, does not contain it, and follows every view that it was in.
IH3  Between a view and the next one, incarnations that this archive has no record of may have joined and left:
     if no archive is in both views, if archives were excluded that may have stayed alive, or if the previous
     view is unknown. Everything that they can have received, up to the next complete view with a known bound,
     is uncertain; unless an archive was present all the time, or the excluded archives are back in that view
     and have sent their records.
"""

from bisect import bisect_left
from collections.abc import Mapping

from .vector import Vector
from .views import MemberId, ViewId, ViewRecord, ViewStability

Interval = tuple[Vector, Vector | None]
"""Messages after the first vector, up to the second; None if no upper bound is known."""


class IncarnationHistory:
    def __init__(
        self, views: Mapping[ViewId, ViewRecord], stability: Mapping[ViewId, ViewStability]
    ) -> None:
        known = [views[id_] for id_ in sorted(views)]
        provisional = [record for record in known if record.provisional]
        self._views = {record.view.id: record for record in known if not record.provisional}
        self._bounds = {
            id_: stability[id_].delivery_bound for id_ in self._views if id_ in stability
        }
        self._stable_views = list(self._bounds)  # in ascending order, like the views
        self._archives = {id_: set(r.view.archive_members()) for id_, r in self._views.items()}
        self._archive_names = {id_: {m.name for m in all_} for id_, all_ in self._archives.items()}
        self._view_bits = {id_: 1 << number for number, id_ in enumerate(self._views)}
        self._ancestors = self._compute_ancestors()
        self._views_by_incarnation: dict[str, dict[MemberId, list[ViewId]]] = {}
        for record in (*self._views.values(), *provisional):
            for member in record.view.members():
                incarnations = self._views_by_incarnation.setdefault(member.name, {})
                incarnations.setdefault(member, []).append(record.view.id)
        self._first_view_number = {  # number of the first view of each incarnation
            member: min(id_.number for id_ in view_ids)
            for incarnations in self._views_by_incarnation.values()
            for member, view_ids in incarnations.items()
        }
        self._unseen: list[Interval] | None = None

    def _compute_ancestors(self) -> dict[ViewId, int]:
        """Compute for each view, as a bit set, itself and all views from which a chain leads to it."""
        before: dict[ViewId, int] = {}
        for id_, record in self._views.items():
            before[id_] = self._view_bits[id_]
            for previous in record.previous_views:
                before[id_] |= before.get(previous, 0)
        return before

    def incarnations(self, name: str) -> Mapping[MemberId, list[ViewId]]:
        """Return each incarnation of a name with the views that it was in or invited to."""
        return self._views_by_incarnation.get(name, {})

    # --- ended incarnations ---

    def delivery_bound(self, incarnation: MemberId, min_view_number: int) -> Vector | None:
        """Return an upper bound of the messages that were delivered to an incarnation that was in a view of
        number `min_view_number` or later; None if it is not known (IH2)."""
        view_ids = self.incarnations(incarnation.name).get(incarnation, [])
        shared = [id_ for id_ in view_ids if id_ in self._views]
        min_view_number = max([min_view_number, *(id_.number for id_ in view_ids)])
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
        """Return whether the view `id_` follows the view `other` (IH1)."""
        if self._ancestors[id_] & self._view_bits[other]:
            return True
        return id_.number > other.number and self._archive_names[other] <= self._archive_names[id_]

    # --- unseen incarnations ---

    def unseen_intervals(self) -> list[Interval]:
        """Return the messages that incarnations without a record, of any name, may have received (IH3)."""
        if self._unseen is None:
            found = [hole for id_ in self._views for hole in self._unseen_before(id_)]
            # Of intervals that start at the empty vector only the longest matters.
            from_start = [end for begin, end in found if not begin]
            self._unseen = [hole for hole in found if hole[0]]
            if None in from_start:
                self._unseen = [(Vector(), None)]
            elif from_start:
                farthest = Vector()
                for end in from_start:
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
        """Return the intervals that arise between a view and the next one (IH3)."""
        is_continuous = not self._archives[old].isdisjoint(self._archives[new])
        excluded = self._archive_names[old] - self._archive_names[new]
        if is_continuous and (self._views[new].complete or not excluded):
            return []  # an archive saw the change, and no excluded one can have formed a group
        bound = self._next_bounding_view(new)
        if bound is not None:
            if is_continuous and excluded <= self._archive_names[bound]:
                return []  # the excluded archives are back, with their records
            if not is_continuous and not self._archives[old].isdisjoint(self._archives[bound]):
                return []  # an archive of the old view was alive all the time, and has its records
            # Incarnations up to the old view are recorded: only messages after its cut are uncertain.
            if is_continuous or self._archive_names[old] <= self._archive_names[bound]:
                return [(self._views[old].cut, self._bound_at(bound))]
        return [(Vector(), self._bound_at(bound))]

    def _next_bounding_view(self, id_: ViewId) -> ViewId | None:
        """Return the first complete view with a known bound: this one or one that follows it."""
        for each in self._stable_views[bisect_left(self._stable_views, id_) :]:
            if self._views[each].complete and self._follows(each, id_):
                return each
        return None

    def _bound_at(self, id_: ViewId | None) -> Vector | None:
        return None if id_ is None else self._bounds[id_]
