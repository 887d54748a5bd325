"""Archives that compare their records come to have the same, whichever of them knew more."""

import pytest

from recado.feeds.boundary import ArchiveState, PacketRoute
from recado.feeds.layer import DownEvent, MemberContext, PacketReceived, SendPacket, ViewAgreed
from recado.feeds.layers.archiver import ArchiverLayer
from recado.feeds.layers.receive_buffer import ReceiveBuffer
from recado.feeds.options import FeedOptions
from recado.feeds.packet import Packet
from recado.feeds.vector import Vector
from recado.feeds.views import (
    UNBOUNDED,
    AcknowledgementRecord,
    ArchiveRecord,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
)

P, Q = b"p" * 16, b"q" * 16
ONE, OTHER = MemberId("one", b"1" * 16), MemberId("other", b"2" * 16)
X = MemberId("x", b"x" * 16)
OLD, NEW = ViewId(1, bytes(16)), ViewId(2, bytes(16))
TOGETHER = View(NEW, (ViewEntry(ONE, Role.ARCHIVE), ViewEntry(OTHER, Role.ARCHIVE)))


class Archive:
    """In a view with another one; its packets wait in `said`."""

    def __init__(self, me: MemberId, *records: ArchiveRecord, ordered: bool = True) -> None:
        context = MemberContext(me, Role.ARCHIVE, FeedOptions(has_total_order=ordered), frozenset())
        context.agreed_view = TOGETHER
        views = tuple(record for record in records if isinstance(record, ViewRecord))
        self.receive_buffer = ReceiveBuffer(1_000_000)
        self.receive_buffer.start({}, 0.0)
        self.layer = ArchiverLayer(context, self.receive_buffer, ArchiveState(Vector(), views))
        self.said: list[Packet] = []
        self.layer.link(lambda event, now: None, self._fall)
        for record in records:
            self.layer.records.add(record)

    def _fall(self, event: DownEvent, now: float) -> None:
        if isinstance(event, SendPacket):
            self.said.append(event.packet)

    def tell(self, other: "Archive") -> None:
        said, self.said = self.said, []
        for packet in said:
            other.layer.up(
                PacketReceived(PacketRoute.ADDRESSED, self.layer.context.member_id, packet), 0.0
            )


def compared(one: Archive, other: Archive) -> bool:
    """Each says once what it knows, and answers the other."""
    for archive in (one, other):
        archive.layer._send_summary(0.0)
    for _ in range(2):
        one.tell(other)
        other.tell(one)
    here, there = one.layer.records, other.layer.records
    return (here.view_records, here.stability, here.acknowledgements) == (
        there.view_records,
        there.stability,
        there.acknowledgements,
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        ({P: 5}, {}, {P: 5}),
        ({P: UNBOUNDED}, {}, {P: UNBOUNDED}),
        ({P: UNBOUNDED}, {P: 5}, {P: 5}),
        ({P: 5, Q: 3}, {P: 3, Q: 5}, {P: 5, Q: 5}),
        ({P: UNBOUNDED, Q: 3}, {P: 3, Q: UNBOUNDED}, {P: 3, Q: 3}),
    ],
)
def test_of_two_reaches_both_have_the_safer(
    ours: dict[bytes, int], theirs: dict[bytes, int], both: dict[bytes, int]
) -> None:
    for first, second in ((ours, theirs), (theirs, ours)):
        one = Archive(ONE, ViewStability(OLD, Vector(first)))
        other = Archive(OTHER, ViewStability(OLD, Vector(second)))
        assert compared(one, other)
        assert one.layer.records.stability[OLD].delivery_bound == both


def test_views_and_acknowledgements_that_one_missed() -> None:
    view = ViewRecord(View(OLD, ()), Vector({P: 1}), ())
    older = AcknowledgementRecord(X, OLD, Vector(), Vector({P: 1}))
    newer = AcknowledgementRecord(X, OLD, Vector(), Vector({P: 2}))
    one, other = Archive(ONE, view, older), Archive(OTHER, newer)
    assert compared(one, other)
    assert one.layer.records.acknowledgements == {X: newer}
    assert other.layer.records.view_records == {OLD: view}


def test_what_is_the_same_is_not_sent() -> None:
    records: list[ArchiveRecord] = [
        ViewRecord(View(OLD, ()), Vector(), ()),
        ViewStability(OLD, Vector({P: 5})),
    ]
    one, other = Archive(ONE, *records), Archive(OTHER, *records)
    one.layer._send_summary(0.0)
    one.tell(other)
    assert other.said == []


def test_a_reach_that_is_raised_is_told_to_other_archives_at_once() -> None:
    """SB3: the other archive has the old reach, and has not agreed to the view itself; it may hear the
    publisher and store its messages before the next comparison."""
    old = ViewRecord(View(OLD, ()), Vector(), ())
    one, other = Archive(ONE, old, ordered=False), Archive(OTHER, old, ordered=False)
    one.layer.up(ViewAgreed(ViewRecord(TOGETHER, Vector(), (OLD,))), 10.0)
    one.layer.tick(12.0)
    assert compared(one, other)
    assert other.layer.records.stability[NEW].delivery_bound == {}
    one.receive_buffer.note_status(P, 6, 20.0, 15.0)
    one.receive_buffer.note_status(Q, 2, 1.4, 14.4)
    one.receive_buffer.note_status(Q, 3, 2.0, 15.0)
    one.layer.tick(15.1)
    one.tell(other)
    assert other.layer.records.stability[NEW].delivery_bound == {P: 6}
    one.layer.tick(16.1)
    assert one.said == []
