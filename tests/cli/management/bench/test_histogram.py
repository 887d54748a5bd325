"""The histogram of latencies, compared with sorted values."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recado.cli.management.bench.histogram import LatencyHistogram


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(1, 10**11), min_size=1, max_size=30),
    st.lists(st.integers(1, 10**11), max_size=30),
    st.sampled_from([50, 95, 99]),
)
def test_percentiles_have_an_error_of_one_percent(
    first: list[int], second: list[int], percent: int
) -> None:
    both = LatencyHistogram()
    for latencies in (first, second):
        histogram = LatencyHistogram()
        for latency in latencies:
            histogram.add(latency)
        both.merge(histogram)
    ordered = sorted([*first, *second])
    exact = ordered[math.ceil(len(ordered) * percent / 100) - 1]
    assert exact * 0.9999 <= both.percentile_ns(percent) <= exact * 1.0101
    assert (both.count, both.max_ns) == (len(ordered), ordered[-1])


def test_json_has_milliseconds() -> None:
    histogram = LatencyHistogram()
    assert histogram.to_json() == {}
    histogram.add_all({1_000_000: 99, 3_000_000: 1}, 5_000_000)
    found = histogram.to_json()
    assert list(found) == ["p50", "p95", "p99", "max"]
    assert found["max"] == 4
    assert 4 <= found["p50"] <= 4.04
