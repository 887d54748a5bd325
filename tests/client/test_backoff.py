"""Delays and patience, with time and chance made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.client.backoff import Backoff, Patience

BACKOFF = Backoff(first=1.0, most=8.0, give_up=100.0, steady=10.0)


def test_bounds_double_up_to_the_most() -> None:
    assert [BACKOFF.bound(attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 8, 8]
    assert BACKOFF.bound(100_000) == 8


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_delays_are_anything_up_to_the_bound_and_end_in_time(chances: list[float]) -> None:
    patience, now = Patience(BACKOFF), 5.0
    patience.lost(now)
    for attempt, chance in enumerate(chances, 1):
        delay = patience.delay(now, chance)
        if delay is None:
            assert now - 5.0 >= 100.0
            return
        assert 0 <= delay <= BACKOFF.bound(attempt)
        now += delay
        assert now - 5.0 <= 100.0 + 1e-9
    assert patience.attempts == len(chances)


def test_full_jitter_uses_the_whole_range() -> None:
    patience = Patience(BACKOFF)
    patience.lost(0)
    assert patience.delay(0, 0.0) == 0
    assert patience.delay(0, 1.0) == 2


def test_without_an_end_it_never_gives_up() -> None:
    patience = Patience(Backoff(give_up=None))
    patience.lost(0)
    assert patience.delay(1e9, 1.0) == pytest.approx(0.1)


def test_a_steady_connection_begins_a_new_count() -> None:
    patience = Patience(BACKOFF)
    patience.lost(0)
    patience.delay(0, 0.5)
    patience.restored(1)
    patience.lost(11)
    assert (patience.attempts, patience.since(12)) == (0, 1)


def test_one_that_breaks_at_once_does_not() -> None:
    patience = Patience(BACKOFF)
    patience.lost(0)
    for now in range(0, 100, 5):
        assert patience.delay(now, 0.5) is not None
        patience.restored(now)
        patience.lost(now + 5)
    assert patience.delay(100, 0.5) is None


def test_before_any_loss_no_time_has_passed() -> None:
    assert Patience(BACKOFF).since(7.0) == 0
