"""Ranges of numbers, against a model that is a set."""

from hypothesis import given
from hypothesis import strategies as st

from recado.actors.durable.settled import Settled


@given(st.lists(st.integers(1, 60), max_size=120))
def test_settled_numbers_are_those_that_were_added(numbers: list[int]) -> None:
    settled, model = Settled(), set[int]()
    for number in numbers:
        settled.add(number)
        model.add(number)
    assert [n in settled for n in range(1, 70)] == [n in model for n in range(1, 70)]
    gaps = sum(1 for n in model if n + 1 not in model)
    assert settled.ranges <= gaps  # neighbours are one range
    again = Settled.of(*settled.state())
    assert [n in again for n in range(1, 70)] == [n in model for n in range(1, 70)]


@given(st.lists(st.integers(1, 500), unique=True, max_size=200))
def test_gaps_are_bounded_and_what_was_settled_stays_so(numbers: list[int]) -> None:
    settled = Settled(gaps=4)
    for number in numbers:
        settled.add(number)
        assert settled.ranges <= 4
    assert all(number in settled for number in numbers)


def test_in_order_it_is_one_number() -> None:
    settled = Settled()
    for number in range(1, 1000):
        settled.add(number)
    assert (settled.floor, settled.ranges) == (999, 0)
