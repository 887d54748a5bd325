"""Refused logins in the log: the first one of a kind and address at once, then counts."""

import pytest

from recado.server import refusal_log
from recado.server.refusal_log import INTERVAL_S, RefusalLog

from .harness import Guest, in_the_loop, new_server, skip


def test_the_first_one_is_logged_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = RefusalLog()
    assert [refusals.admit("k", "a", 0.0) for _ in range(1_000)] == [True, *[False] * 999]
    refusals.flush(INTERVAL_S - 1)
    assert caplog.messages == []
    refusals.flush(INTERVAL_S)
    assert caplog.messages == ["k: further attempts (count=999 peer=a)"]


def test_a_flood_is_one_line_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()
    admitted = 0
    for second in range(100):
        admitted += sum(refusals.admit("k", "a", float(second)) for _ in range(50))
        refusals.flush(float(second))
    assert admitted == 1
    assert caplog.messages == [
        "k: further attempts (count=549 peer=a)",
        *["k: further attempts (count=500 peer=a)"] * 8,
    ]


def test_after_an_interval_without_any_the_next_one_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = RefusalLog()
    assert refusals.admit("k", "a", 0.0)
    refusals.flush(INTERVAL_S)
    assert caplog.messages == []
    assert refusals.admit("k", "a", INTERVAL_S)


def test_kinds_and_addresses_count_for_themselves(caplog: pytest.LogCaptureFixture) -> None:
    """An IPv6 address stands for its network, as for the throttle."""
    refusals = RefusalLog()
    assert refusals.admit("k", "a", 0.0)
    assert refusals.admit("k", "b", 1.0)
    assert refusals.admit("other", "a", 1.0)
    assert refusals.admit("k", "2001:db8::1", 1.0)
    assert not refusals.admit("k", "2001:db8::2", 1.0)
    assert not refusals.admit("k", "b", 1.0)
    refusals.flush(INTERVAL_S)
    assert caplog.messages == []
    refusals.flush(INTERVAL_S + 1)
    assert caplog.messages == [
        "k: further attempts (count=1 peer=b)",
        "k: further attempts (count=1 peer=2001:db8::/64)",
    ]


def test_memory_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_log, "ENTRIES_MAX_COUNT", 2)
    refusals = RefusalLog()
    for address in ("a", "b", "a", "c"):
        refusals.admit("k", address, 0.0)
    assert caplog.messages == ["k: further attempts (count=1 peer=a)"]
    assert refusals.admit("k", "a", 0.0)


@in_the_loop
async def test_the_server_logs_the_counts(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()
    for _ in range(40):
        await Guest(server).greet(password=b"wrong")
    throttled = [line for line in caplog.messages if line.startswith("login throttled")]
    assert len(throttled) == 1
    for _ in range(12):
        await skip(1)
    assert caplog.messages[-1] == "login throttled: further attempts (count=29 peer=127.0.0.1)"
