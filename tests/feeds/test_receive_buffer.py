"""Reception against a model that is a set of sequences: RB1–RB3 whatever comes, in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.layer import FragmentReleased
from recado.feeds.layers.publisher_state import MAX_REPORTS
from recado.feeds.layers.receive_buffer import ReceiveBuffer, order_publisher_id
from recado.feeds.views import ViewId

P = b"p" * 16
FRAGMENTED = 7  # this message comes in three fragments, or whole


def batch(first: int, count: int) -> MessageBatch:
    return MessageBatch(P, first, Block.build([b"%d" % i for i in range(first, first + count)]))


items = st.one_of(
    st.builds(batch, st.integers(1, 20), st.integers(1, 6)),
    st.builds(lambda i: FragmentReleased(P, FRAGMENTED, i, 3, b"x"), st.integers(0, 2)),
)


def sequences(passed: list[MessageBatch | FragmentReleased]) -> list[int]:
    """What passed; a message in fragments counts with its last."""
    found: list[int] = []
    pieces = 0
    for item in passed:
        if isinstance(item, MessageBatch):
            pieces = 0
            found += range(item.first, item.last + 1)
        else:
            assert item.index == pieces, "fragments pass in order"
            pieces += 1
            if pieces == item.count:
                pieces = 0
                found.append(item.sequence)
    return found


@given(st.lists(items, max_size=40), st.integers(0, 5))
@settings(max_examples=300)
def test_everything_passes_once_and_in_order(
    coming: list[MessageBatch | FragmentReleased], begun: int
) -> None:
    reception = ReceiveBuffer(1 << 20)
    reception.start({P: begun}, 0.0)
    reception.release_limit = None
    passed: list[MessageBatch | FragmentReleased] = []
    for now, item in enumerate(coming):
        passed += reception.receive(item, now)
        reception.check()
    got = sequences(passed)
    assert got == list(range(begun + 1, begun + 1 + len(got)))
    assert reception.publishers[P].next == begun + 1 + len(got)


@given(st.lists(items, max_size=40))
@settings(max_examples=300)
def test_what_is_missing_is_what_completes_it(
    coming: list[MessageBatch | FragmentReleased],
) -> None:
    reception = ReceiveBuffer(1 << 20)
    reception.start({P: 0}, 0.0)
    reception.release_limit = None
    for item in coming:
        reception.receive(item, 1.0)
    known = reception.highest_known_sequences().get(P, 0)
    for missing in reception.missing_ranges(P, 100):
        reception.receive(batch(missing.first, missing.last - missing.first + 1), 2.0)
        reception.check()
    assert reception.released_sequences().get(P, 0) == known
    assert not reception.gaps


@given(st.lists(items, max_size=30), st.integers(0, 25), st.integers(300, 3000))
@settings(max_examples=300)
def test_nothing_passes_the_limit_and_nothing_is_held_beyond_the_bound(
    coming: list[MessageBatch | FragmentReleased], cut: int, bound: int
) -> None:
    reception = ReceiveBuffer(bound)
    reception.start({}, 0.0)
    reception.release_limit = {P: cut}
    passed: list[MessageBatch | FragmentReleased] = []
    for item in coming:
        passed += reception.receive(item, 1.0)
        reception.check()
        got = sequences(passed)
        assert got == list(range(1, len(got) + 1))
        assert len(got) <= cut
    reception.release_limit = None
    if P in reception.publishers:
        got += sequences(reception.release(P, 2.0))
        assert got == list(range(1, len(got) + 1))


@given(st.lists(items, min_size=1, max_size=30))
def test_before_it_has_begun_nothing_is_missing_and_nothing_passes(
    coming: list[MessageBatch | FragmentReleased],
) -> None:
    reception = ReceiveBuffer(1 << 20)
    for item in coming:
        assert reception.receive(item, 1.0) == []
        reception.check()
    assert not reception.gaps
    received = reception.received_sequences()
    reception.start(received, 2.0)
    reception.release_limit = None
    assert reception.released_sequences() == received


def test_a_closed_gap_is_passed_over() -> None:
    reception = ReceiveBuffer(1 << 20)
    reception.start({}, 0.0)
    reception.release_limit = {P: 2}
    reception.receive(batch(5, 1), 1.0)
    lost = reception.close_gap(P, 4, 2.0)
    assert lost is not None
    assert (lost.first, lost.last) == (1, 2), "not beyond the limit"
    reception.release_limit = None
    lost = reception.close_gap(P, 4, 2.0)
    assert lost is not None
    assert (lost.first, lost.last) == (3, 4)
    assert sequences(reception.release(P, 3.0)) == [5]
    assert reception.close_gap(P, 4, 2.0) is None


def test_before_it_has_begun_it_says_what_was_published_since_it_heard() -> None:
    """RB4: of a publisher that has told its last, and of no other where messages are cast again."""
    for ordered in (True, False):
        reception = ReceiveBuffer(1 << 20, has_total_order=ordered)
        reception.started_at = 0.0
        reception.receive(batch(4, 1), 1.0)
        reception.freeze()
        assert reception.heard_before_view == ({P} if ordered else set())
        reception.note_status(P, 5, 9.0, 1.0)
        reception.receive(batch(6, 2), 1.5)
        reception.note_status(P, 7, 9.5, 1.5)
        reception.freeze()
        assert reception.heard_before_view == {P}
        assert reception.received_sequences() == {P: 4 if ordered else 7}
        reception.check()


def test_a_stranger_begins_behind_what_it_had_published_when_we_began() -> None:
    """RB4: as far as it tells; never before what others have."""
    told = [(8.5, 11), (9.5, 12), (10.1, 13), (11.1, 14)]
    for since, cut, begins in (
        (9.0, 10, 12),
        (9.4, 10, 13),
        (12.0, 10, 15),
        (2.0, 10, 11),
        (9.0, 14, 14),
    ):
        reception = ReceiveBuffer(1 << 20, heartbeat_interval=1.0)
        reception.started_at = since
        reception.start({P: cut}, 12.0)
        reception.mark_unsynced(P, cut, 12.0)
        reception.note_status(P, 15, 12.0, 12.1, told)
        assert reception.choose_start(P) == begins
        reception.check()


def test_a_stranger_is_younger_only_if_its_reports_come_at_its_pace() -> None:
    """RB4: reports as (age, arrival), and behind which message it begins."""
    for reports, begins in (
        (((0.1, 50.0),), 10),  # its first
        (((20.0, 50.0),), 15),
        (((20.0, 50.0), (20.0, 51.0)), 15),  # the same one twice
        (((20.0, 50.0), (21.0, 50.1), (22.0, 50.2)), 15),  # all were delayed
        (((20.0, 50.0), (22.0, 50.2), (23.0, 51.2)), 10),  # the last two were not
        (((20.0, 50.0), (21.0, 51.1)), 10),
    ):
        reception = ReceiveBuffer(1 << 20, heartbeat_interval=1.0)
        reception.started_at = 5.0
        reception.start({P: 10}, 10.0)
        reception.mark_unsynced(P, 10, 10.0)
        for age, now in reports:
            reception.note_status(P, 15, age, now)
        assert reception.can_start_with(P) == (begins == 10)
        assert reception.choose_start(P) == begins
        reception.check()


def test_orders_of_other_views_are_forgotten() -> None:
    own, other = order_publisher_id(ViewId(3, bytes(16))), order_publisher_id(ViewId(2, bytes(16)))
    reception = ReceiveBuffer(1 << 20)
    reception.start({}, 0.0)
    for publisher in (own, other):
        reception.note_known(publisher, 5, 1.0)
    reception.skip_foreign_orders({own: 5, other: 5}, own, 2.0)
    assert list(reception.gaps) == [own]
    assert reception.has_reached({other: 5})


def gap_ages(reception: ReceiveBuffer, now: float) -> list[tuple[int, float]]:
    """The first message of each gap, and since when it has been known; each gap is closed in turn."""
    found = []
    while P in reception.gaps:
        gap = reception.gaps[P]
        found.append((gap.first_missing, gap.known_at))
        _, last = next(reception.publishers[P].missing_ranges())
        assert reception.close_gap(P, last, now) is not None
        reception.release(P, now)
    return found


def test_a_gap_is_as_old_as_the_knowledge_of_its_first_message() -> None:
    """RB7."""
    reception = ReceiveBuffer(1 << 20)
    reception.start({P: 0}, 0.0)
    reception.release_limit = None
    for now, item in ((1.0, batch(3, 1)), (2.0, batch(6, 1)), (3.0, batch(4, 1))):
        reception.receive(item, now)
    reception.note_known(P, 8, 4.0)
    assert gap_ages(reception, 9.0) == [(1, 1.0), (5, 2.0), (7, 4.0)]
    reception.note_known(P, 9, 10.0)
    assert gap_ages(reception, 11.0) == [(9, 10.0)]


def test_ages_of_many_gaps_are_bounded_in_number_and_never_too_old() -> None:
    """RB7."""
    reception = ReceiveBuffer(1 << 20)
    reception.start({P: 0}, 0.0)
    reception.release_limit = None
    for sequence in range(2, 2_001, 2):
        reception.receive(batch(sequence, 1), float(sequence))
        assert len(reception.publishers[P].reports) <= MAX_REPORTS
    ages = gap_ages(reception, 2_000.0)
    assert [at for at, _ in ages] == list(range(1, 2_000, 2))
    assert all(at + 1 <= since <= 2_000.0 for at, since in ages)
    assert len({since for _, since in ages}) > MAX_REPORTS / 4
