"""A histogram of latencies in bounded memory: its buckets grow by one percent each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

GROWTH_RATIO: Final = 1.01
PERCENTILES: Final = (50, 95, 99)
NS_PER_MS: Final = 1e6


class LatencyHistogram:
    """Counts latencies in nanoseconds; percentiles are at most one percent too high, the maximum is exact."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.max_ns = 0

    def add(self, latency_ns: int, count: int = 1) -> None:
        self._counts[math.ceil(math.log(max(latency_ns, 1), GROWTH_RATIO))] += count
        self.count += count
        self.max_ns = max(self.max_ns, latency_ns)

    def add_all(self, stamps: Mapping[int, int], now_ns: int) -> None:
        """Add latencies up to now; `stamps` has the number of messages by the time they were sent."""
        for stamp, count in stamps.items():
            self.add(now_ns - stamp, count)

    def merge(self, other: LatencyHistogram) -> None:
        self._counts.update(other._counts)
        self.count += other.count
        self.max_ns = max(self.max_ns, other.max_ns)

    def percentile_ns(self, percent: float) -> float:
        """Return the latency that this share of the messages does not exceed; 0 without messages."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(GROWTH_RATIO**bucket, self.max_ns)
        return 0.0

    def to_json(self) -> dict[str, float]:
        """Return percentiles and maximum in milliseconds; empty without messages."""
        if not self.count:
            return {}
        values = {f"p{percent}": self.percentile_ns(percent) for percent in PERCENTILES}
        values["max"] = self.max_ns
        return {name: round(value / NS_PER_MS, 3) for name, value in values.items()}
