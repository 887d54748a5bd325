"""How far those can have been who failed before a view; without one order for all, where publishers tell."""

from recado.feeds.delivery_records import DeliveryRecords
from recado.feeds.layer import MemberContext
from recado.feeds.layers.receive_buffer import ORDER_PREFIX, ReceiveBuffer
from recado.feeds.layers.stability import StabilityTracker
from recado.feeds.options import FeedOptions
from recado.feeds.vector import Vector
from recado.feeds.views import UNBOUNDED, MemberId, Role, View, ViewId, ViewRecord, ViewStability

P, Q = b"p" * 16, b"q" * 16
OLD, NEW = ViewId(1, bytes(16)), ViewId(2, bytes(16))
KNOWN = ViewRecord(View(OLD, ()), Vector(), ())


class Scene:
    """An archive that was there before, with a view that it agrees to at 10 s; `failure_timeout` is 2 s."""

    def __init__(self, *settled: ViewStability, ordered: bool = False) -> None:
        context = MemberContext(
            MemberId("a", b"a" * 16),
            Role.ARCHIVE,
            FeedOptions(has_total_order=ordered),
            frozenset(),
        )
        self.receive_buffer = ReceiveBuffer(1_000_000)
        self.receive_buffer.start({}, 0.0)
        self.table = DeliveryRecords([KNOWN, *settled])
        self.tracker = StabilityTracker(context, self.receive_buffer, self.table)

    def tell(self, publisher: bytes, last: int, age: float, now: float) -> None:
        self.receive_buffer.note_status(publisher, last, age, now)

    def tick(self, now: float) -> None:
        for record in self.tracker.tick(now):
            assert self.table.add(record)

    def reach(self, view: ViewId = NEW) -> dict[bytes, int] | None:
        return (
            dict(self.table.stability[view].delivery_bound)
            if view in self.table.stability
            else None
        )


def test_it_waits_until_a_publisher_has_told_its_last_after_the_view() -> None:
    """SB1."""
    scene = Scene()
    scene.tell(P, 5, 100.0, 9.9)
    assert scene.tracker.note_view(NEW, 10.0) == []
    scene.tell(P, 6, 101.0, 11.9)
    scene.tick(12.0)
    assert scene.reach() is None, "what it told may have been under way when the view was made"
    scene.tell(P, 8, 102.0, 12.1)
    scene.tick(12.2)
    assert scene.reach() == {P: 8}


def test_what_others_give_is_not_told_by_the_publisher() -> None:
    """SB1."""
    scene = Scene()
    scene.receive_buffer.note_known(P, 5, 9.0)
    scene.tracker.note_view(NEW, 10.0)
    scene.receive_buffer.note_known(P, 6, 12.5)
    scene.tick(12.5)
    assert scene.reach() == {P: UNBOUNDED}


def test_of_a_silent_publisher_nothing_is_known_until_it_is_heard_again() -> None:
    """SB2."""
    scene = Scene()
    scene.tell(P, 5, 100.0, 9.9)
    scene.tell(Q, 3, 100.0, 9.9)
    scene.tracker.note_view(NEW, 10.0)
    scene.tell(Q, 4, 103.0, 13.0)
    scene.tick(13.1)
    assert scene.reach() is None
    scene.tick(14.0)
    assert scene.reach() == {P: UNBOUNDED, Q: 4}
    scene.tell(Q, 7, 105.0, 15.0)
    scene.tell(P, 9, 110.0, 20.0)
    scene.tick(20.1)
    assert scene.reach() == {P: 9, Q: 4}


def test_also_by_an_archive_that_restarts_meanwhile() -> None:
    """SB2."""
    scene = Scene(ViewStability(OLD, Vector({P: UNBOUNDED, Q: 4})))
    scene.tell(Q, 7, 100.0, 20.0)
    scene.tell(P, 9, 100.0, 20.0)
    scene.tick(20.1)
    assert scene.reach(OLD) == {P: 9, Q: 4}


def test_one_that_is_heard_later_raises_the_reach_if_it_began_before() -> None:
    """SB3."""
    scene = Scene()
    scene.tracker.note_view(NEW, 10.0)
    scene.tick(12.0)
    assert scene.reach() == {}
    scene.tell(P, 6, 20.0, 15.0)
    scene.tell(Q, 3, 2.0, 15.0)
    scene.tell(Q, 3, 2.5, 15.5)
    scene.tick(15.6)
    assert scene.reach() == {P: 6}


def test_one_that_may_have_begun_before_raises_the_reach_too() -> None:
    """SB3: its reports came together, so they were delayed, and it is silent since."""
    scene = Scene()
    scene.tracker.note_view(NEW, 10.0)
    scene.tick(12.0)
    scene.tell(P, 5, 2.0, 15.0)
    scene.tell(P, 6, 2.5, 15.0)
    scene.tick(15.1)
    assert scene.reach() == {P: 6}


def test_of_one_that_has_not_told_when_it_began_nothing_is_known() -> None:
    """SB3: others brought its messages."""
    scene = Scene()
    scene.tracker.note_view(NEW, 10.0)
    scene.tick(12.0)
    scene.receive_buffer.note_known(P, 6, 13.0)
    scene.tick(13.1)
    assert scene.reach() == {P: UNBOUNDED}
    scene.tell(P, 8, 20.0, 15.0)
    scene.tick(15.1)
    assert scene.reach() == {P: 8}


def test_it_is_known_before_something_of_a_publisher_is_stored() -> None:
    """SB3."""
    scene = Scene()
    scene.tracker.note_view(NEW, 10.0)
    scene.tick(12.0)
    scene.tell(P, 6, 20.0, 15.0)
    assert scene.tracker.note_stored(P, 15.0) == [ViewStability(NEW, Vector({P: 6}))]
    assert scene.tracker.note_stored(P, 15.0) == []


def test_reaches_speak_of_those_who_have_told_their_age() -> None:
    """SB4."""
    scene = Scene()
    scene.tell(P, 0, 1.0, 15.0)
    scene.tell(ORDER_PREFIX.ljust(16, b"x"), 5, 0.0, 15.0)
    scene.receive_buffer.note_known(Q, 6, 15.0)
    assert scene.tracker.publishers_with_known_age() == [P]


def test_with_one_order_the_place_of_prepare_says_it_all() -> None:
    scene = Scene(ordered=True)
    scene.tell(P, 5, 100.0, 9.0)
    scene.tell(ORDER_PREFIX.ljust(16, b"x"), 5, 0.0, 9.0)
    scene.tracker.note_prepare_marker(NEW)
    scene.tell(P, 6, 100.0, 9.5)
    assert scene.tracker.note_view(NEW, 10.0) == [ViewStability(NEW, Vector({P: 5}))]
    later = ViewId(3, bytes(16))
    assert scene.tracker.note_view(later, 11.0) == []
    assert scene.tracker.note_prepare_marker(later) == [ViewStability(later, Vector({P: 6}))]
    assert scene.tracker.tick(100.0) == []


def test_an_archive_that_is_new_has_not_seen_what_came_before() -> None:
    context = MemberContext(MemberId("a", b"a" * 16), Role.ARCHIVE, FeedOptions(), frozenset())
    settling = StabilityTracker(context, ReceiveBuffer(1000), DeliveryRecords())
    settling.note_prepare_marker(NEW)
    assert settling.note_view(NEW, 10.0) == []
    assert settling.note_prepare_marker(ViewId(3, bytes(16))) == []
