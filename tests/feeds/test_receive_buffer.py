"""The receive buffer against a model that is a set of sequences: RB1–RB3 whatever comes, in whatever order."""

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
    receive_buffer = ReceiveBuffer(1 << 20)
    receive_buffer.start({P: begun}, 0.0)
    receive_buffer.release_limit = None
    passed: list[MessageBatch | FragmentReleased] = []
    for now, item in enumerate(coming):
        passed += receive_buffer.receive(item, now)
        receive_buffer.check()
    got = sequences(passed)
    assert got == list(range(begun + 1, begun + 1 + len(got)))
    assert receive_buffer.publishers[P].next == begun + 1 + len(got)


@given(st.lists(items, max_size=40))
@settings(max_examples=300)
def test_what_is_missing_is_what_completes_it(
    coming: list[MessageBatch | FragmentReleased],
) -> None:
    receive_buffer = ReceiveBuffer(1 << 20)
    receive_buffer.start({P: 0}, 0.0)
    receive_buffer.release_limit = None
    for item in coming:
        receive_buffer.receive(item, 1.0)
    known = receive_buffer.highest_known_sequences().get(P, 0)
    for missing in receive_buffer.missing_ranges(P, 100):
        receive_buffer.receive(batch(missing.first, missing.last - missing.first + 1), 2.0)
        receive_buffer.check()
    assert receive_buffer.released_sequences().get(P, 0) == known
    assert not receive_buffer.gaps


@given(st.lists(items, max_size=30), st.integers(0, 25), st.integers(300, 3000))
@settings(max_examples=300)
def test_nothing_passes_the_limit_and_nothing_is_held_beyond_the_bound(
    coming: list[MessageBatch | FragmentReleased], cut: int, bound: int
) -> None:
    receive_buffer = ReceiveBuffer(bound)
    receive_buffer.start({}, 0.0)
    receive_buffer.release_limit = {P: cut}
    passed: list[MessageBatch | FragmentReleased] = []
    for item in coming:
        passed += receive_buffer.receive(item, 1.0)
        receive_buffer.check()
        got = sequences(passed)
        assert got == list(range(1, len(got) + 1))
        assert len(got) <= cut
    receive_buffer.release_limit = None
    if P in receive_buffer.publishers:
        got += sequences(receive_buffer.release(P, 2.0))
        assert got == list(range(1, len(got) + 1))


@given(st.lists(items, min_size=1, max_size=30))
def test_before_it_has_begun_nothing_is_missing_and_nothing_passes(
    coming: list[MessageBatch | FragmentReleased],
) -> None:
    receive_buffer = ReceiveBuffer(1 << 20)
    for item in coming:
        assert receive_buffer.receive(item, 1.0) == []
        receive_buffer.check()
    assert not receive_buffer.gaps
    received = receive_buffer.received_sequences()
    receive_buffer.start(received, 2.0)
    receive_buffer.release_limit = None
    assert receive_buffer.released_sequences() == received


def test_a_closed_gap_is_passed_over() -> None:
    receive_buffer = ReceiveBuffer(1 << 20)
    receive_buffer.start({}, 0.0)
    receive_buffer.release_limit = {P: 2}
    receive_buffer.receive(batch(5, 1), 1.0)
    lost = receive_buffer.close_gap(P, 4, 2.0)
    assert lost is not None
    assert (lost.first, lost.last) == (1, 2), "not beyond the limit"
    receive_buffer.release_limit = None
    lost = receive_buffer.close_gap(P, 4, 2.0)
    assert lost is not None
    assert (lost.first, lost.last) == (3, 4)
    assert sequences(receive_buffer.release(P, 3.0)) == [5]
    assert receive_buffer.close_gap(P, 4, 2.0) is None


def test_before_it_has_begun_it_says_what_was_published_since_it_heard() -> None:
    """RB4: of a publisher that has told its last, and of no other where messages are cast again."""
    for ordered in (True, False):
        receive_buffer = ReceiveBuffer(1 << 20, has_total_order=ordered)
        receive_buffer.started_at = 0.0
        receive_buffer.receive(batch(4, 1), 1.0)
        receive_buffer.freeze()
        assert receive_buffer.heard_before_view == ({P} if ordered else set())
        receive_buffer.note_status(P, 5, 9.0, 1.0)
        receive_buffer.receive(batch(6, 2), 1.5)
        receive_buffer.note_status(P, 7, 9.5, 1.5)
        receive_buffer.freeze()
        assert receive_buffer.heard_before_view == {P}
        assert receive_buffer.received_sequences() == {P: 4 if ordered else 7}
        receive_buffer.check()


def test_a_unsynced_publisher_begins_behind_what_it_had_published_when_we_began() -> None:
    """RB4: as far as it tells; never before what others have."""
    told = [(8.5, 11), (9.5, 12), (10.1, 13), (11.1, 14)]
    for since, cut, begins in (
        (9.0, 10, 12),
        (9.4, 10, 13),
        (12.0, 10, 15),
        (2.0, 10, 11),
        (9.0, 14, 14),
    ):
        receive_buffer = ReceiveBuffer(1 << 20, heartbeat_interval=1.0)
        receive_buffer.started_at = since
        receive_buffer.start({P: cut}, 12.0)
        receive_buffer.mark_unsynced(P, cut, 12.0)
        receive_buffer.note_status(P, 15, 12.0, 12.1, told)
        assert receive_buffer.choose_start(P) == begins
        receive_buffer.check()


def test_a_unsynced_publisher_is_younger_only_if_its_reports_come_at_its_pace() -> None:
    """RB4: reports as (age, arrival), and behind which message it begins."""
    for reports, begins in (
        (((0.1, 50.0),), 10),  # its first
        (((20.0, 50.0),), 15),
        (((20.0, 50.0), (20.0, 51.0)), 15),  # the same one twice
        (((20.0, 50.0), (21.0, 50.1), (22.0, 50.2)), 15),  # all were delayed
        (((20.0, 50.0), (22.0, 50.2), (23.0, 51.2)), 10),  # the last two were not
        (((20.0, 50.0), (21.0, 51.1)), 10),
    ):
        receive_buffer = ReceiveBuffer(1 << 20, heartbeat_interval=1.0)
        receive_buffer.started_at = 5.0
        receive_buffer.start({P: 10}, 10.0)
        receive_buffer.mark_unsynced(P, 10, 10.0)
        for age, now in reports:
            receive_buffer.note_status(P, 15, age, now)
        assert receive_buffer.can_start_with(P) == (begins == 10)
        assert receive_buffer.choose_start(P) == begins
        receive_buffer.check()


def test_orders_of_other_views_are_forgotten() -> None:
    own, other = order_publisher_id(ViewId(3, bytes(16))), order_publisher_id(ViewId(2, bytes(16)))
    receive_buffer = ReceiveBuffer(1 << 20)
    receive_buffer.start({}, 0.0)
    for publisher in (own, other):
        receive_buffer.note_known(publisher, 5, 1.0)
    receive_buffer.skip_foreign_orders({own: 5, other: 5}, own, 2.0)
    assert list(receive_buffer.gaps) == [own]
    assert receive_buffer.has_reached({other: 5})


def gap_ages(receive_buffer: ReceiveBuffer, now: float) -> list[tuple[int, float]]:
    """The first message of each gap, and since when it has been known; each gap is closed in turn."""
    found = []
    while P in receive_buffer.gaps:
        gap = receive_buffer.gaps[P]
        found.append((gap.first_missing, gap.known_at))
        _, last = next(receive_buffer.publishers[P].missing_ranges())
        assert receive_buffer.close_gap(P, last, now) is not None
        receive_buffer.release(P, now)
    return found


def test_a_gap_is_as_old_as_the_knowledge_of_its_first_message() -> None:
    """RB7."""
    receive_buffer = ReceiveBuffer(1 << 20)
    receive_buffer.start({P: 0}, 0.0)
    receive_buffer.release_limit = None
    for now, item in ((1.0, batch(3, 1)), (2.0, batch(6, 1)), (3.0, batch(4, 1))):
        receive_buffer.receive(item, now)
    receive_buffer.note_known(P, 8, 4.0)
    assert gap_ages(receive_buffer, 9.0) == [(1, 1.0), (5, 2.0), (7, 4.0)]
    receive_buffer.note_known(P, 9, 10.0)
    assert gap_ages(receive_buffer, 11.0) == [(9, 10.0)]


def test_ages_of_many_gaps_are_bounded_in_number_and_never_too_old() -> None:
    """RB7."""
    receive_buffer = ReceiveBuffer(1 << 20)
    receive_buffer.start({P: 0}, 0.0)
    receive_buffer.release_limit = None
    for sequence in range(2, 2_001, 2):
        receive_buffer.receive(batch(sequence, 1), float(sequence))
        assert len(receive_buffer.publishers[P].reports) <= MAX_REPORTS
    ages = gap_ages(receive_buffer, 2_000.0)
    assert [at for at, _ in ages] == list(range(1, 2_000, 2))
    assert all(at + 1 <= since <= 2_000.0 for at, since in ages)
    assert len({since for _, since in ages}) > MAX_REPORTS / 4
