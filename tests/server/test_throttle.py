"""Login throttling: guesses wait, honest users do not, whatever their address is used for."""

import pytest

from recado.server.throttle import (
    ADDRESS_FAILURES_PER_S,
    ADDRESS_FREE_FAILURES_COUNT,
    ENTRIES_MAX_COUNT,
    FREE_FAILURES_COUNT,
    KNOWN_PAIR_S,
    KNOWN_WAIT_MAX_S,
    LEAK_INTERVAL_S,
    WAIT_MAX_S,
    LoginThrottle,
    LoginThrottledError,
)


def fail(
    throttle: LoginThrottle, times: int, *, address: str = "a", user: str = "u", now: float = 0.0
) -> None:
    for _ in range(times):
        throttle.record_failure(address, user, now)


def fill_address(throttle: LoginThrottle, now: float = 0.0) -> None:
    """Fail for so many users that the limit of the address is reached."""
    for number in range(ADDRESS_FREE_FAILURES_COUNT * 3):
        throttle.record_failure("a", f"u{number}", now)


def test_some_failures_are_free_and_the_rest_waits_ever_longer() -> None:
    throttle = LoginThrottle()
    fail(throttle, FREE_FAILURES_COUNT - 1)
    throttle.check("a", "u", 0.0)
    waits = []
    for _ in range(12):
        fail(throttle, 1)
        waits.append(throttle.delay("a", "u", 0.0))
    assert waits[0] > 0
    assert waits == sorted(waits)
    assert waits[-1] == WAIT_MAX_S
    with pytest.raises(LoginThrottledError, match="try again in 60"):
        throttle.check("a", "u", 0.0)


@pytest.mark.parametrize("users", [1, 1000])
def test_a_guesser_gets_few_attempts(users: int) -> None:
    throttle, now, attempts = LoginThrottle(), 0.0, 0
    while now < 600:
        user = f"u{attempts % users}"
        now += throttle.delay("a", user, now)
        throttle.record_failure("a", user, now)
        attempts += 1
        now += 0.001
    allowed = 60 if users == 1 else ADDRESS_FREE_FAILURES_COUNT + 601 * ADDRESS_FAILURES_PER_S
    assert attempts <= allowed


def test_another_address_does_not_wait() -> None:
    throttle = LoginThrottle()
    fail(throttle, FREE_FAILURES_COUNT * 2)
    fill_address(throttle)
    assert throttle.delay("b", "u", 0.0) == 0.0


def test_another_user_of_a_busy_address_waits_for_a_moment_only() -> None:
    throttle = LoginThrottle()
    fill_address(throttle)
    wait = throttle.delay("a", "another", 0.0)
    assert 0 < wait <= 1 / ADDRESS_FAILURES_PER_S
    assert throttle.delay("a", "another", wait) == 0.0


def test_a_user_that_logged_in_recently_is_exempt_from_the_limit_of_the_address() -> None:
    throttle = LoginThrottle()
    throttle.record_success("a", "ana", 0.0)
    fill_address(throttle, KNOWN_PAIR_S - 1)
    assert throttle.delay("a", "ana", KNOWN_PAIR_S - 1) == 0.0
    fill_address(throttle, KNOWN_PAIR_S)
    assert throttle.delay("a", "ana", KNOWN_PAIR_S) > 0


def test_guesses_for_a_known_user_delay_it_for_seconds_only() -> None:
    throttle = LoginThrottle()
    throttle.record_success("a", "u", 0.0)
    fail(throttle, 100)
    assert throttle.delay("a", "u", 0.0) == KNOWN_WAIT_MAX_S
    assert throttle.delay("a", "u", KNOWN_WAIT_MAX_S) == 0.0


def test_a_login_gives_no_free_guesses() -> None:
    throttle = LoginThrottle()
    fail(throttle, 100)
    throttle.record_success("a", "u", WAIT_MAX_S)
    assert throttle.delay("a", "u", WAIT_MAX_S) == 0.0
    fail(throttle, 1, now=WAIT_MAX_S)
    assert throttle.delay("a", "u", WAIT_MAX_S) == KNOWN_WAIT_MAX_S


def test_failures_are_forgiven_with_time() -> None:
    throttle = LoginThrottle()
    fail(throttle, 1000)
    later = LEAK_INTERVAL_S * 20
    assert throttle.delay("a", "u", later) == 0.0
    fail(throttle, FREE_FAILURES_COUNT - 1, now=later)
    assert throttle.delay("a", "u", later) == 0.0


def test_memory_is_bounded() -> None:
    throttle = LoginThrottle()
    for number in range(ENTRIES_MAX_COUNT + 100):
        throttle.record_failure(f"address {number}", "u", 0.0)
        throttle.record_success(f"address {number}", "u", 0.0)
    assert throttle.size == 3 * ENTRIES_MAX_COUNT


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2", True),
        ("not:an:address", "not:one", False),
    ],
)
def test_an_ipv6_client_has_a_network_of_addresses(one: str, other: str, same: bool) -> None:
    throttle = LoginThrottle()
    fail(throttle, FREE_FAILURES_COUNT, address=one)
    assert (throttle.delay(other, "u", 0.0) > 0) is same
