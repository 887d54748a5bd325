"""Histograms: which bucket a value belongs to."""

import pytest

from recado.broker.histogram import Histogram


@pytest.mark.parametrize(("value", "bucket"), [(0, 0), (1, 0), (1.5, 1), (10, 1), (10.1, 2)])
def test_a_limit_belongs_to_its_bucket(value: float, bucket: int) -> None:
    histogram = Histogram((1, 10))
    histogram.observe(value)
    assert histogram.counts == [int(i == bucket) for i in range(3)]
    assert (histogram.count, histogram.total) == (1, value)


def test_equal_values_are_counted_together() -> None:
    histogram = Histogram((1, 10))
    histogram.observe(5, 3)
    histogram.observe(20)
    assert (histogram.counts, histogram.count, histogram.total) == ([0, 3, 1], 4, 35)
