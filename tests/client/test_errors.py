"""The texts of errors: what happened and what to do about it."""

import pytest

from recado.client import errors


@pytest.mark.parametrize(
    ("code", "text", "hint"),
    [
        (404, "NOT_FOUND - no queue 'q'", "Declare it before use"),
        (403, "ACCESS_REFUSED", "configure, write and read permissions"),
        (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", "still considers open"),
        (405, "RESOURCE_LOCKED", "Another connection uses the queue exclusively"),
        (406, "PRECONDITION_FAILED - inequivalent arg 'durable'", "with other properties"),
        (406, "PRECONDITION_FAILED - unknown delivery tag 1", "settled twice"),
        (406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out", "timeout"),
    ],
)
def test_a_refusal_has_a_hint(code: int, text: str, hint: str) -> None:
    error = errors.ChannelClosedByBrokerError(code, text)
    assert str(error).startswith(f"the broker closed the channel: {code} {text}. ")
    assert hint in error.hint
    assert errors.ConnectionClosedByBrokerError(code, text).hint == error.hint


@pytest.mark.parametrize(
    ("code", "text", "held"),
    [
        (405, "RESOURCE_LOCKED", True),
        (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", True),
        (403, "ACCESS_REFUSED - read access to queue 'q' refused for user 'u'", False),
        (404, "NOT_FOUND - no queue 'exclusive use'", False),
    ],
)
def test_a_queue_that_is_held_is_no_lack_of_rights(code: int, text: str, held: bool) -> None:
    assert errors.ChannelClosedByBrokerError(code, text).is_exclusively_locked is held


@pytest.mark.parametrize(("code", "text"), [(406, "PRECONDITION_FAILED"), (541, "INTERNAL_ERROR")])
def test_where_nothing_is_known_nothing_is_said(code: int, text: str) -> None:
    assert str(errors.ConnectionClosedByBrokerError(code, text)).endswith(text)


def test_numbers_are_told_as_ranges_and_not_all() -> None:
    few = errors.PublishNackedError([range(1, 4), range(7, 8)])
    assert "4 published messages: 1–3, 7. " in str(few)
    assert few.sequence_numbers == [range(1, 4), range(7, 8)]
    many = errors.PublishNackedError([range(n, n + 1) for n in range(1, 100, 2)])
    assert "50 published messages: 1, 3, 5, 7, 9, …" in str(many)


def test_giving_up_tells_of_the_last_attempt() -> None:
    error = errors.ReconnectTimeoutError(
        300.0, 12, errors.CannotConnectError("nobody listens", "Start it.")
    )
    assert "within 300 s (12 attempts, setting reconnect_timeout)" in str(error)
    assert "nobody listens" in str(error)
