"""Delays and timeouts of reconnecting, with artificial time and random numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.client.retry import ReconnectSchedule, RetryPolicy

BACKOFF = RetryPolicy(retry_initial=1.0, retry_max=8.0, reconnect_timeout=100.0, stable_after=10.0)


def test_bounds_double_up_to_the_most() -> None:
    assert [BACKOFF.delay_limit(attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 8, 8]
    assert BACKOFF.delay_limit(100_000) == 8


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_delays_are_anything_up_to_the_bound_and_end_in_time(chances: list[float]) -> None:
    patience, now = ReconnectSchedule(BACKOFF), 5.0
    patience.record_loss(now)
    for attempt, chance in enumerate(chances, 1):
        delay = patience.next_delay(now, chance)
        if delay is None:
            assert now - 5.0 >= 100.0
            return
        assert 0 <= delay <= BACKOFF.delay_limit(attempt)
        now += delay
        assert now - 5.0 <= 100.0 + 1e-9
    assert patience.attempt_count == len(chances)


def test_full_jitter_uses_the_whole_range() -> None:
    patience = ReconnectSchedule(BACKOFF)
    patience.record_loss(0)
    assert patience.next_delay(0, 0.0) == 0
    assert patience.next_delay(0, 1.0) == 2


def test_without_an_end_it_never_gives_up() -> None:
    patience = ReconnectSchedule(RetryPolicy(reconnect_timeout=None))
    patience.record_loss(0)
    assert patience.next_delay(1e9, 1.0) == pytest.approx(0.1)


def test_a_steady_connection_begins_a_new_count() -> None:
    patience = ReconnectSchedule(BACKOFF)
    patience.record_loss(0)
    patience.next_delay(0, 0.5)
    patience.record_recovery(1)
    patience.record_loss(11)
    assert (patience.attempt_count, patience.seconds_since_loss(12)) == (0, 1)


def test_one_that_breaks_at_once_does_not() -> None:
    patience = ReconnectSchedule(BACKOFF)
    patience.record_loss(0)
    for now in range(0, 100, 5):
        assert patience.next_delay(now, 0.5) is not None
        patience.record_recovery(now)
        patience.record_loss(now + 5)
    assert patience.next_delay(100, 0.5) is None


def test_before_any_loss_no_time_has_passed() -> None:
    assert ReconnectSchedule(BACKOFF).seconds_since_loss(7.0) == 0
