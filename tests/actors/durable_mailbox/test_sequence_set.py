"""Sequence sets, against a model that is a set."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.durable_mailbox.sequence_set import SequenceRanges, SequenceSet


@given(st.lists(st.integers(1, 60), max_size=120))
def test_settled_numbers_are_those_that_were_added(numbers: list[int]) -> None:
    settled, model = SequenceSet(), set[int]()
    for number in numbers:
        assert not settled.add(number)
        settled.check()
        model.add(number)
    assert [n in settled for n in range(1, 70)] == [n in model for n in range(1, 70)]
    gaps = sum(1 for n in model if n + 1 not in model)
    assert settled.range_count <= gaps  # neighbours are one range
    again = SequenceSet.from_ranges(settled.to_ranges())
    assert [n in again for n in range(1, 70)] == [n in model for n in range(1, 70)]


GAPS = 4
steps = st.lists(
    st.tuples(
        st.sampled_from(["added", "added", "elsewhere", "pending", "skipped"]), st.integers(0, 9)
    ),
    max_size=150,
)


@given(steps)
def test_gaps_are_bounded_what_was_added_is_known_and_what_is_unsettled_is_not(
    steps: list[tuple[str, int]],
) -> None:
    """SQ1 to SQ3. A sender counts; what it sends is added here, or elsewhere, or settled later, or gone."""
    settled, elsewhere = SequenceSet(GAPS), SequenceSet()
    added, pending = set[int](), set[int]()
    for number, (what, which) in enumerate(steps, 1):
        chosen = number
        if pending and which < 3:  # one that was left
            chosen = sorted(pending)[which % len(pending)]
        match what:
            case "added":
                pending.discard(chosen)
                added.add(chosen)
                if settled.add(chosen):
                    settled.compact(number, elsewhere.settled_ranges(), pending)
            case "elsewhere":
                pending.discard(chosen)
                elsewhere.add(chosen)
            case "pending":
                pending.add(chosen)
            case _:
                pass
        settled.check()
        assert settled.range_count <= GAPS
        assert len(settled.excluded) <= len(pending) + GAPS
        assert all(number in settled for number in added)
        assert not any(number in settled for number in pending)
        again = SequenceSet.from_ranges(settled.to_ranges(), GAPS)
        assert [n in again for n in range(number)] == [n in settled for n in range(number)]


def test_what_others_have_settled_fills_the_gaps() -> None:
    """Then nothing has to be taken for settled: not even what has never come."""
    settled, elsewhere = SequenceSet(GAPS), SequenceSet()
    for number in range(2, 1000):
        if number % 2:
            elsewhere.add(number)
        elif settled.add(number):
            settled.compact(number, elsewhere.settled_ranges())
    assert 1 not in settled
    assert settled.floor == 0


def test_what_was_held_and_is_settled_elsewhere_is_known() -> None:
    settled = SequenceSet(GAPS)
    for number in (2, 4, 6, 8, 10):
        settled.add(number)
    settled.compact(10, unsettled=[1, 3])
    assert settled.excluded == {1, 3}
    settled.compact(10, [(1, 1)], [3])
    assert settled.excluded == {3}
    settled.compact(12, [(1, 12)], [3])
    assert (settled.floor, settled.excluded) == (12, {3})
    settled.compact(12, [(3, 3)])
    assert not settled.excluded


def test_what_is_above_all_that_came_is_not_taken_for_settled() -> None:
    settled = SequenceSet.from_ranges(SequenceRanges(0, [4, 6, 8, 10], [4, 6, 8, 10]), GAPS)
    assert settled.add(2)
    settled.compact(2)
    assert (settled.floor, settled.range_count) == (2, 4)
    assert not settled.add(20)  # it does not have to be narrowed at once again
    assert not settled.add(22)
    assert settled.add(24)
    settled.compact(24)
    assert (settled.floor, settled.range_count) == (20, 2)


def test_what_is_held_for_nobody_any_more_is_bounded() -> None:
    settled = SequenceSet(GAPS)
    for number in range(1, 200, 2):
        if settled.add(number):
            settled.compact(number, unsettled=[settled.floor + 1])
    assert len(settled.excluded) == GAPS + 1
    assert min(settled.excluded) > 100  # the highest of them


def test_in_order_it_is_one_number() -> None:
    settled = SequenceSet()
    for number in range(1, 1000):
        settled.add(number)
    assert (settled.floor, settled.range_count) == (999, 0)


def test_what_was_written_down_before_anything_was_held_can_be_read() -> None:
    said = msgspec.msgpack.encode((7, [9, 20], [10, 20]))
    settled = SequenceSet.from_ranges(msgspec.msgpack.decode(said, type=SequenceRanges))
    assert [n for n in range(1, 30) if n in settled] == [*range(1, 8), 9, 10, 20]
