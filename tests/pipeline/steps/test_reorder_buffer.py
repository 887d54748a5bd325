"""The reorder buffer: ROB1 to ROB3, for any order and grouping of arrivals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recado.pipeline.steps.reorder_buffer import ReorderBuffer


@given(st.lists(st.integers(-2, 12), max_size=30), st.sets(st.integers(0, 30)), st.integers(0, 3))
def test_in_order_each_once(numbers: list[int], gives_up_at: set[int], start: int) -> None:
    waiting = ReorderBuffer[int](start)
    given_out: list[int] = []
    refused: list[int] = []
    for at, number in enumerate(numbers):
        given, again = waiting.add_rows([(number, number)])
        given_out += [row for _, row in given]
        refused += [row for _, row in again]
        if at in gives_up_at:
            given_out += [row for _, row in waiting.skip_gap()]
        assert all(number > waiting.expected for number in waiting.held)  # ROB2
    assert given_out == sorted(set(given_out))  # ROB1
    assert sorted([*given_out, *refused, *waiting.held]) == sorted(numbers)  # ROB3: nothing is lost
    while waiting.held:
        assert waiting.skip_gap()


@given(st.permutations(range(1, 15)))
def test_all_that_come_are_given_out(numbers: list[int]) -> None:
    waiting = ReorderBuffer[str](1)
    given_out = []
    for number in numbers:
        given_out += waiting.add_rows([(number, str(number))])[0]
    assert given_out == [(number, str(number)) for number in range(1, 15)]
    assert not waiting.held
