"""Histograms: how many observed values are up to each of some limits, and their sum."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts values in buckets.

    Bucket i has the values above `limits[i - 1]` and up to `limits[i]`, the last one those above all limits.
    """

    __slots__ = ("counts", "limits", "total")

    def __init__(self, limits: Sequence[float]) -> None:
        self.limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.total: float = 0
        """The sum of all values."""

    @property
    def count(self) -> int:
        """The number of all values."""
        return sum(self.counts)

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value, or `count` equal values."""
        self.counts[bisect_left(self.limits, value)] += count
        self.total += value * count
