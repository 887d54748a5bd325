"""Rates and time series from samples."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from recado.console.history import (
    SERIES_SAMPLES_MAX_COUNT,
    CounterHistory,
    SeriesRequest,
    read_series_request,
)


def sample(
    history: CounterHistory, objects: Iterable[tuple[str, tuple[int, ...]]], at_ms: int
) -> None:
    for _ in history.sample(objects, at_ms):
        pass


def test_a_rate_is_the_change_between_the_two_newest_samples() -> None:
    history = CounterHistory(("publish", "ack"))
    sample(history, [("q", (10, 0))], 1_000)
    sample(history, [("q", (30, 5))], 6_000)
    assert history.rate("q", "publish") == 4.0
    assert history.rate("q", "ack") == 1.0
    assert history.rate("other", "publish") == 0.0


def test_a_new_object_counts_from_zero_and_a_replaced_one_has_no_negative_rate() -> None:
    history = CounterHistory(("publish",))
    sample(history, [("q", (10,))], 1_000)
    assert history.rate("q", "publish") == 2.0
    sample(history, [("q", (3,))], 6_000)
    assert history.rate("q", "publish") == 0.0


def test_a_deleted_object_is_forgotten() -> None:
    history = CounterHistory(("publish",))
    sample(history, [(f"q{number}", (number,)) for number in range(2_000)], 1_000)
    for at_ms in (6_000, 11_000):
        sample(history, [], at_ms)
    assert history.size == 0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_a_series_has_the_last_value_at_each_time(changes: list[int]) -> None:
    history, total, values = CounterHistory(("n",)), 0, []
    for number, change in enumerate(changes):
        total += change
        values.append(total)
        sample(history, [("q", (total,))], (number + 1) * 5_000)
    details = history.details("q", "n", SeriesRequest((len(values) - 1) * 5_000, 5_000))
    assert [each["sample"] for each in details["samples"]] == values[::-1]
    assert details["avg"] == sum(values) / len(values)
    stamps = [each["timestamp"] for each in details["samples"]]
    assert stamps == sorted(stamps, reverse=True)


def test_series_are_kept_for_a_bounded_number_of_objects_and_samples() -> None:
    history = CounterHistory(("n",), series_count=3)
    for number in range(SERIES_SAMPLES_MAX_COUNT * 2):
        sample(history, [(f"q{each}", (number,)) for each in range(10)], number * 5_000)
    assert history.series_size <= 3 * SERIES_SAMPLES_MAX_COUNT


def test_only_valid_requests_ask_for_a_series() -> None:
    assert read_series_request("60", "5") == SeriesRequest(60_000, 5_000)
    for age, step in ((None, "5"), ("60", None), ("x", "5"), ("60", "0"), ("-1", "5"), ("", "")):
        assert read_series_request(age, step) is None
