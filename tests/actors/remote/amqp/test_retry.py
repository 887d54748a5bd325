"""When to try again: at once, then after growing delays, and no more when the window is over."""

from __future__ import annotations

from recado.actors.remote.amqp import AmqpSettings
from recado.actors.remote.amqp.retry import BridgeRetries
from recado.actors.remote.amqp.settings import ABSENCE_MAX_S
from recado.client.retry import RetryPolicy

BACKOFF = RetryPolicy(retry_initial=0.1, retry_max=0.4, reconnect_timeout=10.0, stable_after=5.0)


def test_the_first_is_made_at_once_and_the_others_ever_later() -> None:
    attempts = BridgeRetries(BACKOFF)
    assert [attempts.next_delay(100.0, 1.0) for _ in range(5)] == [0.0, 0.1, 0.2, 0.4, 0.4]


def test_the_window_is_open_from_the_beginning() -> None:
    attempts = BridgeRetries(BACKOFF)
    attempts.next_delay(100.0, 1.0)
    assert attempts.next_delay(109.9, 1.0) is not None
    assert attempts.next_delay(110.0, 1.0) is None
    assert attempts.elapsed(110.0) == 10.0


def test_by_default_the_window_never_closes() -> None:
    attempts = BridgeRetries(AmqpSettings().retry_policy)
    attempts.next_delay(0.0, 1.0)
    assert attempts.next_delay(1e9, 1.0) is not None
    assert (
        BridgeRetries(AmqpSettings(reconnect_timeout=5.0).retry_policy).next_delay(0.0, 1.0) == 0.0
    )


def test_a_node_that_is_not_on_the_broker_is_not_looked_for_without_end() -> None:
    for settings, seconds in (
        (AmqpSettings(), ABSENCE_MAX_S),
        (AmqpSettings(reconnect_timeout=5.0), 5.0),
        (AmqpSettings(reconnect_timeout=1e6), ABSENCE_MAX_S),
    ):
        attempts = BridgeRetries(settings.search_policy)
        attempts.next_delay(0.0, 1.0)
        assert attempts.next_delay(seconds - 1, 1.0) is not None
        assert attempts.next_delay(seconds, 1.0) is None


def test_a_success_that_lasts_begins_a_new_window() -> None:
    attempts = BridgeRetries(BACKOFF)
    attempts.next_delay(100.0, 1.0)
    attempts.mark_succeeded(101.0)
    assert attempts.next_delay(200.0, 1.0) == 0.1
    assert attempts.next_delay(209.0, 1.0) is not None
    assert attempts.attempt_count == 2


def test_one_that_does_not_last_is_none() -> None:
    """Otherwise a broker that always accepts and closes the connection would be retried forever."""
    attempts = BridgeRetries(BACKOFF)
    attempts.next_delay(100.0, 1.0)
    for second in range(101, 110):
        attempts.mark_succeeded(float(second))
        assert attempts.next_delay(second + 0.5, 1.0) is not None
    attempts.mark_succeeded(110.0)
    assert attempts.next_delay(110.5, 1.0) is None
