"""Archives that compare their records come to have the same, whichever of them knew more."""

import pytest

from recado.feeds.boundary import ArchiveState, Channel, Options
from recado.feeds.layer import Accepted, Falling, Heard, Say, Site
from recado.feeds.layers.archiver import Archiver
from recado.feeds.layers.reception import Reception
from recado.feeds.packet import Packet
from recado.feeds.vector import Vector
from recado.feeds.views import (
    OPEN,
    Acknowledged,
    MemberId,
    Record,
    Role,
    Seat,
    Settled,
    View,
    ViewId,
    ViewRecord,
)

P, Q = b"p" * 16, b"q" * 16
ONE, OTHER = MemberId("one", b"1" * 16), MemberId("other", b"2" * 16)
X = MemberId("x", b"x" * 16)
OLD, NEW = ViewId(1, bytes(16)), ViewId(2, bytes(16))
TOGETHER = View(NEW, (Seat(ONE, Role.ARCHIVE), Seat(OTHER, Role.ARCHIVE)))


class Archive:
    """In a view with another one; its packets wait in `said`."""

    def __init__(self, me: MemberId, *records: Record, ordered: bool = True) -> None:
        site = Site(me, Role.ARCHIVE, Options(ordered=ordered), frozenset())
        site.view = TOGETHER
        views = tuple(record for record in records if isinstance(record, ViewRecord))
        self.reception = Reception(1_000_000)
        self.reception.begin({}, 0.0)
        self.layer = Archiver(site, self.reception, ArchiveState(Vector(), views))
        self.said: list[Packet] = []
        self.layer.link(lambda event, now: None, self._fall)
        for record in records:
            self.layer.table.add(record)

    def _fall(self, event: Falling, now: float) -> None:
        if isinstance(event, Say):
            self.said.append(event.packet)

    def tell(self, other: "Archive") -> None:
        said, self.said = self.said, []
        for packet in said:
            other.layer.up(Heard(Channel.A, self.layer.site.me, packet), 0.0)


def compared(one: Archive, other: Archive) -> bool:
    """Each says once what it knows, and answers the other."""
    for archive in (one, other):
        archive.layer._compare(0.0)
    for _ in range(2):
        one.tell(other)
        other.tell(one)
    here, there = one.layer.table, other.layer.table
    return (here.views, here.settled, here.acknowledged) == (
        there.views,
        there.settled,
        there.acknowledged,
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        ({P: 5}, {}, {P: 5}),
        ({P: OPEN}, {}, {P: OPEN}),
        ({P: OPEN}, {P: 5}, {P: 5}),
        ({P: 5, Q: 3}, {P: 3, Q: 5}, {P: 5, Q: 5}),
        ({P: OPEN, Q: 3}, {P: 3, Q: OPEN}, {P: 3, Q: 3}),
    ],
)
def test_of_two_reaches_both_have_the_safer(
    ours: dict[bytes, int], theirs: dict[bytes, int], both: dict[bytes, int]
) -> None:
    for first, second in ((ours, theirs), (theirs, ours)):
        one = Archive(ONE, Settled(OLD, Vector(first)))
        other = Archive(OTHER, Settled(OLD, Vector(second)))
        assert compared(one, other)
        assert one.layer.table.settled[OLD].reach == both


def test_views_and_acknowledgements_that_one_missed() -> None:
    view = ViewRecord(View(OLD, ()), Vector({P: 1}), ())
    older = Acknowledged(X, OLD, Vector(), Vector({P: 1}))
    newer = Acknowledged(X, OLD, Vector(), Vector({P: 2}))
    one, other = Archive(ONE, view, older), Archive(OTHER, newer)
    assert compared(one, other)
    assert one.layer.table.acknowledged == {X: newer}
    assert other.layer.table.views == {OLD: view}


def test_what_is_the_same_is_not_sent() -> None:
    records: list[Record] = [ViewRecord(View(OLD, ()), Vector(), ()), Settled(OLD, Vector({P: 5}))]
    one, other = Archive(ONE, *records), Archive(OTHER, *records)
    one.layer._compare(0.0)
    one.tell(other)
    assert other.said == []


def test_a_reach_that_is_raised_is_told_to_other_archives_at_once() -> None:
    """SE3: the other archive has the old reach, and has not agreed to the view itself; it may hear the
    publisher and store its messages before the next comparison."""
    old = ViewRecord(View(OLD, ()), Vector(), ())
    one, other = Archive(ONE, old, ordered=False), Archive(OTHER, old, ordered=False)
    one.layer.up(Accepted(ViewRecord(TOGETHER, Vector(), (OLD,))), 10.0)
    one.layer.tick(12.0)
    assert compared(one, other)
    assert other.layer.table.settled[NEW].reach == {}
    one.reception.tell(P, 6, 20.0, 15.0)
    one.reception.tell(Q, 2, 1.4, 14.4)
    one.reception.tell(Q, 3, 2.0, 15.0)
    one.layer.tick(15.1)
    one.tell(other)
    assert other.layer.table.settled[NEW].reach == {P: 6}
    one.layer.tick(16.1)
    assert one.said == []
