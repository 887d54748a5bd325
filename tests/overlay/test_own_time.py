"""Stalls and jumps of the clock do not make deadlines pass."""

from hypothesis import given
from hypothesis import strategies as st

from recado.overlay.own_time import STEP_MAX_S, OwnTime


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_own_time_never_goes_back_and_never_jumps(steps: list[float]) -> None:
    now = 0.0
    own = OwnTime(now)
    for step in steps:
        before = own.time
        now += step
        own.advance(now)
        assert 0.0 <= own.time - before <= STEP_MAX_S + 1e-9


def test_own_time_passes_with_the_clock_of_a_loop_that_runs() -> None:
    own = OwnTime(100.0)
    for tick in range(1, 101):
        assert not own.advance(100.0 + tick * 0.05)
    assert abs(own.time - 5.0) < 1e-6


def test_a_stall_and_a_jump_back_are_reported() -> None:
    own = OwnTime(0.0)
    assert own.advance(3.0)
    assert own.time == STEP_MAX_S
    assert own.advance(-3600.0)
    assert own.time == STEP_MAX_S
    assert not own.advance(-3599.9)
