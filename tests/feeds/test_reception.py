"""Reception against a model that is a set of sequences: RE1–RE3 whatever comes, in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recado.feeds.block import Block
from recado.feeds.boundary import Batch
from recado.feeds.layer import Part
from recado.feeds.layers.reception import Reception, order_id
from recado.feeds.layers.track import MAX_REPORTS
from recado.feeds.views import ViewId

P = b"p" * 16
FRAGMENTED = 7  # this message comes in three fragments, or whole


def batch(first: int, count: int) -> Batch:
    return Batch(P, first, Block.of([b"%d" % i for i in range(first, first + count)]))


items = st.one_of(
    st.builds(batch, st.integers(1, 20), st.integers(1, 6)),
    st.builds(lambda i: Part(P, FRAGMENTED, i, 3, b"x"), st.integers(0, 2)),
)


def sequences(passed: list[Batch | Part]) -> list[int]:
    """What passed; a message in fragments counts with its last."""
    found: list[int] = []
    pieces = 0
    for item in passed:
        if isinstance(item, Batch):
            pieces = 0
            found += range(item.first, item.last + 1)
        else:
            assert item.index == pieces, "fragments pass in order"
            pieces += 1
            if pieces == item.total:
                pieces = 0
                found.append(item.sequence)
    return found


@given(st.lists(items, max_size=40), st.integers(0, 5))
@settings(max_examples=300)
def test_everything_passes_once_and_in_order(coming: list[Batch | Part], begun: int) -> None:
    reception = Reception(1 << 20)
    reception.begin({P: begun}, 0.0)
    reception.limit = None
    passed: list[Batch | Part] = []
    for now, item in enumerate(coming):
        passed += reception.take(item, now)
        reception.check()
    got = sequences(passed)
    assert got == list(range(begun + 1, begun + 1 + len(got)))
    assert reception.tracks[P].next == begun + 1 + len(got)


@given(st.lists(items, max_size=40))
@settings(max_examples=300)
def test_what_is_missing_is_what_completes_it(coming: list[Batch | Part]) -> None:
    reception = Reception(1 << 20)
    reception.begin({P: 0}, 0.0)
    reception.limit = None
    for item in coming:
        reception.take(item, 1.0)
    known = reception.known().get(P, 0)
    for missing in reception.missing(P, 100):
        reception.take(batch(missing.first, missing.last - missing.first + 1), 2.0)
        reception.check()
    assert reception.passed().get(P, 0) == known
    assert not reception.gaps


@given(st.lists(items, max_size=30), st.integers(0, 25), st.integers(300, 3000))
@settings(max_examples=300)
def test_nothing_passes_the_limit_and_nothing_is_held_beyond_the_bound(
    coming: list[Batch | Part], cut: int, bound: int
) -> None:
    reception = Reception(bound)
    reception.begin({}, 0.0)
    reception.limit = {P: cut}
    passed: list[Batch | Part] = []
    for item in coming:
        passed += reception.take(item, 1.0)
        reception.check()
        got = sequences(passed)
        assert got == list(range(1, len(got) + 1))
        assert len(got) <= cut
    reception.limit = None
    if P in reception.tracks:
        got += sequences(reception.release(P, 2.0))
        assert got == list(range(1, len(got) + 1))


@given(st.lists(items, min_size=1, max_size=30))
def test_before_it_has_begun_nothing_is_missing_and_nothing_passes(
    coming: list[Batch | Part],
) -> None:
    reception = Reception(1 << 20)
    for item in coming:
        assert reception.take(item, 1.0) == []
        reception.check()
    assert not reception.gaps
    received = reception.received()
    reception.begin(received, 2.0)
    reception.limit = None
    assert reception.passed() == received


def test_a_closed_gap_is_passed_over() -> None:
    reception = Reception(1 << 20)
    reception.begin({}, 0.0)
    reception.limit = {P: 2}
    reception.take(batch(5, 1), 1.0)
    lost = reception.close(P, 4, 2.0)
    assert lost is not None
    assert (lost.first, lost.last) == (1, 2), "not beyond the limit"
    reception.limit = None
    lost = reception.close(P, 4, 2.0)
    assert lost is not None
    assert (lost.first, lost.last) == (3, 4)
    assert sequences(reception.release(P, 3.0)) == [5]
    assert reception.close(P, 4, 2.0) is None


def test_before_it_has_begun_it_says_what_was_published_since_it_heard() -> None:
    """RE4: of a publisher that has told its last, and of no other where messages are cast again."""
    for ordered in (True, False):
        reception = Reception(1 << 20, ordered=ordered)
        reception.since = 0.0
        reception.take(batch(4, 1), 1.0)
        reception.freeze()
        assert reception.sworn == ({P} if ordered else set())
        reception.tell(P, 5, 9.0, 1.0)
        reception.take(batch(6, 2), 1.5)
        reception.tell(P, 7, 9.5, 1.5)
        reception.freeze()
        assert reception.sworn == {P}
        assert reception.received() == {P: 4 if ordered else 7}
        reception.check()


def test_a_stranger_begins_behind_what_it_had_published_when_we_began() -> None:
    """RE4: as far as it tells; never before what others have."""
    told = [(8.5, 11), (9.5, 12), (10.1, 13), (11.1, 14)]
    for since, cut, begins in (
        (9.0, 10, 12),
        (9.4, 10, 13),
        (12.0, 10, 15),
        (2.0, 10, 11),
        (9.0, 14, 14),
    ):
        reception = Reception(1 << 20, beat=1.0)
        reception.since = since
        reception.begin({P: cut}, 12.0)
        reception.estrange(P, cut, 12.0)
        reception.tell(P, 15, 12.0, 12.1, told)
        assert reception.beginning(P) == begins
        reception.check()


def test_a_stranger_is_younger_only_if_its_reports_come_at_its_pace() -> None:
    """RE4: reports as (age, arrival), and behind which message it begins."""
    for reports, begins in (
        (((0.1, 50.0),), 10),  # its first
        (((20.0, 50.0),), 15),
        (((20.0, 50.0), (20.0, 51.0)), 15),  # the same one twice
        (((20.0, 50.0), (21.0, 50.1), (22.0, 50.2)), 15),  # all were delayed
        (((20.0, 50.0), (22.0, 50.2), (23.0, 51.2)), 10),  # the last two were not
        (((20.0, 50.0), (21.0, 51.1)), 10),
    ):
        reception = Reception(1 << 20, beat=1.0)
        reception.since = 5.0
        reception.begin({P: 10}, 10.0)
        reception.estrange(P, 10, 10.0)
        for age, now in reports:
            reception.tell(P, 15, age, now)
        assert reception.can_begin_with(P) == (begins == 10)
        assert reception.beginning(P) == begins
        reception.check()


def test_orders_of_other_views_are_forgotten() -> None:
    own, other = order_id(ViewId(3, bytes(16))), order_id(ViewId(2, bytes(16)))
    reception = Reception(1 << 20)
    reception.begin({}, 0.0)
    for publisher in (own, other):
        reception.learn(publisher, 5, 1.0)
    reception.skip_orders({own: 5, other: 5}, own, 2.0)
    assert list(reception.gaps) == [own]
    assert reception.reaches({other: 5})


def gap_ages(reception: Reception, now: float) -> list[tuple[int, float]]:
    """The first message of each gap, and since when it has been known; each gap is closed in turn."""
    found = []
    while P in reception.gaps:
        gap = reception.gaps[P]
        found.append((gap.at, gap.since))
        _, last = next(reception.tracks[P].missing())
        assert reception.close(P, last, now) is not None
        reception.release(P, now)
    return found


def test_a_gap_is_as_old_as_the_knowledge_of_its_first_message() -> None:
    """RE7."""
    reception = Reception(1 << 20)
    reception.begin({P: 0}, 0.0)
    reception.limit = None
    for now, item in ((1.0, batch(3, 1)), (2.0, batch(6, 1)), (3.0, batch(4, 1))):
        reception.take(item, now)
    reception.learn(P, 8, 4.0)
    assert gap_ages(reception, 9.0) == [(1, 1.0), (5, 2.0), (7, 4.0)]
    reception.learn(P, 9, 10.0)
    assert gap_ages(reception, 11.0) == [(9, 10.0)]


def test_ages_of_many_gaps_are_bounded_in_number_and_never_too_old() -> None:
    """RE7."""
    reception = Reception(1 << 20)
    reception.begin({P: 0}, 0.0)
    reception.limit = None
    for sequence in range(2, 2_001, 2):
        reception.take(batch(sequence, 1), float(sequence))
        assert len(reception.tracks[P].reports) <= MAX_REPORTS
    ages = gap_ages(reception, 2_000.0)
    assert [at for at, _ in ages] == list(range(1, 2_000, 2))
    assert all(at + 1 <= since <= 2_000.0 for at, since in ages)
    assert len({since for _, since in ages}) > MAX_REPORTS / 4
