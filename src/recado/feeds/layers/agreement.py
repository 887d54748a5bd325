"""The view that a member has agreed to, and what is said of the next one as a difference from it.

The coordinator and most of those whom it asks are in one view, so they know its members and its cut: what they
say of the next view grows with what has changed, not with the group and its publishers. Whoever is in another
view, or in none, is told the whole.

AG1  A difference is applied to the view that it was made from, or not at all.
AG2  The whole that comes out of a difference is the one that it was made of, in the same order.
"""

from bisect import insort
from collections.abc import Iterable, Mapping

from ..packet import NewView, NextView, Prepare, Prepared
from ..vector import raise_to
from ..views import MemberId, Seat, View, ViewId


class Agreement:
    __slots__ = ("_ranks", "cut", "since", "view")

    def __init__(self, new: NewView) -> None:
        self.view = new.view
        self.since = new.since
        self.cut: Mapping[bytes, int] = new.cut
        self._ranks: dict[MemberId, int] | None = None

    @property
    def id(self) -> ViewId:
        return self.view.id

    @property
    def ranks(self) -> dict[MemberId, int]:
        """Each member's place by age. Made when it is first needed: most members never do."""
        if self._ranks is None:
            self._ranks = {seat.member: i for i, seat in enumerate(self.view.seats)}
        return self._ranks

    # --- PREPARE

    def prepare(self, round_: ViewId, invited: Iterable[MemberId]) -> Prepare:
        wanted = dict.fromkeys(invited)
        gone = [i for i, seat in enumerate(self.view.seats) if seat.member not in wanted]
        return Prepare(round_, [m for m in wanted if m not in self.ranks], self.id, gone)

    def invited(self, prepare: Prepare) -> list[MemberId]:
        gone = set(prepare.gone)
        kept = [seat.member for i, seat in enumerate(self.view.seats) if i not in gone]
        return [*kept, *prepare.more]

    # --- PREPARED

    def shorten(self, vector: Mapping[bytes, int]) -> dict[bytes, int]:
        """What differs from the cut; 0 for an entry that is not in the vector."""
        cut = self.cut
        differs = {p: s for p, s in vector.items() if cut.get(p, 0) != s}
        if len(vector) - len(differs) < len(cut):
            differs |= {p: 0 for p in cut if p not in vector}
        return differs

    def joined(self, answers: Iterable[Prepared]) -> dict[bytes, int]:
        """The largest of what is in any vector of these answers, which are differences from this view."""
        vectors = [answer.vector for answer in answers]
        cut = dict(self.cut)
        for publisher in dict.fromkeys(p for vector in vectors for p in vector):
            before = self.cut.get(publisher, 0)
            cut[publisher] = max(vector.get(publisher, before) for vector in vectors)
        return {p: s for p, s in cut.items() if s}

    # --- VIEW

    def difference(self, new: NewView) -> NextView:
        kept, more = set(), []
        for seat, since in zip(new.view.seats, new.since, strict=True):
            rank = self.ranks.get(seat.member)
            if rank is None or self.since[rank] != since or self.view.seats[rank] != seat:
                more.append((since, seat))
            else:
                kept.add(rank)
        gone = [i for i in range(len(self.view.seats)) if i not in kept]
        cut = self.shorten(new.cut)
        return NextView(new.view.id, self.id, gone, more, cut, new.previous, new.complete)

    def whole(self, next_: NextView) -> NewView:
        gone = set(next_.gone)
        aged = [
            (since, seat)
            for i, (since, seat) in enumerate(zip(self.since, self.view.seats, strict=True))
            if i not in gone
        ]
        for each in next_.more:
            if not aged or _age(aged[-1]) <= _age(each):
                aged.append(each)
            else:
                insort(aged, each, key=_age)
        cut = {p: s for p, s in {**self.cut, **next_.cut}.items() if s}
        view = View(next_.id, tuple(seat for _, seat in aged))
        since = [since for since, _ in aged]
        return NewView(view, since, cut, next_.previous, next_.complete)


def joined_whole(answers: Iterable[Prepared]) -> dict[bytes, int]:
    """The largest of what is in any vector of these answers, which are whole."""
    cut: dict[bytes, int] = {}
    for answer in answers:
        raise_to(cut, answer.vector)
    return cut


def _age(aged: tuple[int, Seat]) -> tuple[int, MemberId]:
    """Smaller for an older member."""
    since, seat = aged
    return since, seat.member
