"""The view that a member has agreed to, and the encoding of the next view as a difference from it.

The coordinator and most of the invited members are in one view, so they know its members and its cut. The
packets about the next view therefore grow with the changes, not with the number of members and publishers. A
member of another view, or of none, is sent complete packets.

AG1  A difference is applied to the view from which it was made, or not at all.
AG2  Applying a difference restores the complete packet, in the same order.
"""

from bisect import insort
from collections.abc import Iterable, Mapping

from ..packet import NewView, Prepare, Prepared, ViewDelta
from ..vector import raise_entries
from ..views import MemberId, View, ViewEntry, ViewId


class AgreedView:
    __slots__ = ("_rank_by_member", "cut", "since_views", "view")

    def __init__(self, new: NewView) -> None:
        self.view = new.view
        self.since_views = new.since_views
        self.cut: Mapping[bytes, int] = new.cut
        self._rank_by_member: dict[MemberId, int] | None = None

    @property
    def id(self) -> ViewId:
        return self.view.id

    @property
    def rank_by_member(self) -> dict[MemberId, int]:
        """Each member's rank by age. Built on first use: most members never need it."""
        if self._rank_by_member is None:
            self._rank_by_member = {entry.member: i for i, entry in enumerate(self.view.entries)}
        return self._rank_by_member

    # --- PREPARE

    def build_prepare(self, round_id: ViewId, invited: Iterable[MemberId]) -> Prepare:
        """Return the PREPARE of a round, with the invited members as a difference from this view."""
        wanted = dict.fromkeys(invited)
        removed = [i for i, entry in enumerate(self.view.entries) if entry.member not in wanted]
        return Prepare(
            round_id, [m for m in wanted if m not in self.rank_by_member], self.id, removed
        )

    def resolve_invited(self, prepare: Prepare) -> list[MemberId]:
        """Return the invited members of a PREPARE that is a difference from this view."""
        removed = set(prepare.removed)
        remaining = [entry.member for i, entry in enumerate(self.view.entries) if i not in removed]
        return [*remaining, *prepare.added]

    # --- PREPARED

    def subtract_cut(self, vector: Mapping[bytes, int]) -> dict[bytes, int]:
        """Return the entries that differ from the cut; 0 for an entry that is not in the vector."""
        cut = self.cut
        differences = {p: s for p, s in vector.items() if cut.get(p, 0) != s}
        # Skip the search if all entries of the cut are in the vector unchanged.
        if len(vector) - len(differences) < len(cut):
            differences |= {p: 0 for p in cut if p not in vector}
        return differences

    def merge_received(self, replies: Iterable[Prepared]) -> dict[bytes, int]:
        """Return the maximum per publisher of replies that are differences from this view."""
        vectors = [reply.received for reply in replies]
        cut = dict(self.cut)
        for publisher in dict.fromkeys(p for vector in vectors for p in vector):
            before = self.cut.get(publisher, 0)
            cut[publisher] = max(vector.get(publisher, before) for vector in vectors)
        return {p: s for p, s in cut.items() if s}

    # --- VIEW

    def build_delta(self, new: NewView) -> ViewDelta:
        """Return the next view as a difference from this one."""
        unchanged_ranks, added = set(), []
        for entry, since in zip(new.view.entries, new.since_views, strict=True):
            rank = self.rank_by_member.get(entry.member)
            if rank is None or self.since_views[rank] != since or self.view.entries[rank] != entry:
                added.append((since, entry))
            else:
                unchanged_ranks.add(rank)
        removed = [i for i in range(len(self.view.entries)) if i not in unchanged_ranks]
        cut = self.subtract_cut(new.cut)
        return ViewDelta(
            new.view.id, self.id, removed, added, cut, new.previous_views, new.is_complete
        )

    def apply_delta(self, delta: ViewDelta) -> NewView:
        """Return the next view, of which `delta` is the difference from this one (AG2)."""
        removed = set(delta.removed)
        aged = [
            (since, entry)
            for i, (since, entry) in enumerate(
                zip(self.since_views, self.view.entries, strict=True)
            )
            if i not in removed
        ]
        for each in delta.added:
            if not aged or _seniority(aged[-1]) <= _seniority(each):
                aged.append(each)
            else:
                insort(aged, each, key=_seniority)
        cut = {p: s for p, s in {**self.cut, **delta.cut}.items() if s}
        view = View(delta.id, tuple(entry for _, entry in aged))
        since = [since for since, _ in aged]
        return NewView(view, since, cut, delta.previous_views, delta.is_complete)


def merge_full_vectors(replies: Iterable[Prepared]) -> dict[bytes, int]:
    """Return the maximum per publisher of replies that are complete."""
    cut: dict[bytes, int] = {}
    for reply in replies:
        raise_entries(cut, reply.received)
    return cut


def _seniority(aged: tuple[int, ViewEntry]) -> tuple[int, MemberId]:
    """Sort key: lower for an older member."""
    since, entry = aged
    return since, entry.member
