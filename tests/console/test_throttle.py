"""Login throttling: guesses wait, honest users do not."""

from recado.console.throttle import (
    ADDRESS_FACTOR,
    BUCKETS_MAX_COUNT,
    FREE_FAILURES_COUNT,
    LEAK_INTERVAL_S,
    WAIT_MAX_S,
    LoginThrottle,
)


def fail(throttle: LoginThrottle, times: int, *, address: str = "a", user: str = "u") -> None:
    for _ in range(times):
        throttle.record_failure(address, user, 0.0)


def test_some_failures_are_free_and_the_rest_waits_ever_longer() -> None:
    throttle = LoginThrottle()
    fail(throttle, FREE_FAILURES_COUNT - 1)
    assert throttle.delay("a", "u", 0.0) == 0.0
    waits = []
    for _ in range(12):
        fail(throttle, 1)
        waits.append(throttle.delay("a", "u", 0.0))
    assert waits[0] > 0
    assert waits == sorted(waits)
    assert waits[-1] == WAIT_MAX_S


def test_a_guesser_gets_few_attempts_per_minute() -> None:
    throttle, now, attempts = LoginThrottle(), 0.0, 0
    while now < 600:
        wait = throttle.delay("a", "u", now)
        now += wait
        throttle.record_failure("a", "u", now)
        attempts += 1
        now += 0.001
    assert attempts < 60


def test_another_address_and_a_right_password_do_not_wait() -> None:
    throttle = LoginThrottle()
    fail(throttle, FREE_FAILURES_COUNT * 2)
    assert throttle.delay("b", "u", 0.0) == 0.0
    throttle.record_success("a", "u")
    assert throttle.delay("a", "u", 0.0) == 0.0


def test_an_address_that_tries_many_users_waits() -> None:
    throttle = LoginThrottle()
    for number in range(FREE_FAILURES_COUNT * ADDRESS_FACTOR + 3):
        throttle.record_failure("a", f"u{number}", 0.0)
    assert throttle.delay("a", "another", 0.0) > 0


def test_failures_are_forgiven_with_time_and_memory_is_bounded() -> None:
    throttle = LoginThrottle()
    fail(throttle, FREE_FAILURES_COUNT + 2)
    assert throttle.delay("a", "u", LEAK_INTERVAL_S * 5) == 0.0
    for number in range(BUCKETS_MAX_COUNT):
        throttle.record_failure(f"address {number}", "u", 0.0)
    assert throttle.size <= BUCKETS_MAX_COUNT
