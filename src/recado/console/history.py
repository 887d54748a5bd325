"""Rates and time series of counters and queue lengths, from samples that are taken every few seconds.

The hot path only adds to counters. Every `SAMPLE_INTERVAL_S` the sampler reads them, in bounded steps, into a
*generation*: one dictionary with the values of every object that exists at the time. A rate is the
difference between the two newest generations. Because each generation is built anew, the memory for an
object that is gone is freed two samples later, however many objects come and go.

Time series need more than two samples. A sample is added to the series of an object only if its values have
changed; between two samples the earlier value applies. One `CounterHistory` has series for at most
`SERIES_MAX_COUNT` objects: the series that has not changed for longest is evicted first.

HI1  A rate is never negative: it is 0 for a value that has become smaller. That is the length of a queue that shrinks,
     or the counter of a new object with the key of an old one, such as a vhost.
HI2  Memory is in proportion to the objects that exist, plus a constant for the series.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Generator, Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec

SAMPLE_INTERVAL_S: Final = 5.0  # as collect_statistics_interval of RabbitMQ
SERIES_SAMPLES_MAX_COUNT: Final = 120  # ten minutes
SERIES_MAX_COUNT: Final = 500  # with all their samples about 10 MB
SAMPLED_PORTION_COUNT: Final = 500  # objects between two yields: about 1 ms
REQUESTED_SAMPLES_MAX_COUNT: Final = 2_000  # of one series in one answer

Values = tuple[int, ...]


class SeriesRequest(msgspec.Struct, frozen=True):
    """Which samples to return: one every `step_ms`, back to `age_ms` before now."""

    age_ms: int
    step_ms: int


class Generation(msgspec.Struct):
    """The values of all objects at one time, and that time in milliseconds."""

    at_ms: int = 0
    values: dict[Hashable, Values] = {}
    changed: list[Hashable] = []
    """The objects that are new or have other values than in the generation before."""
    removed: list[Hashable] = []
    """The objects of the generation before that are gone."""


class CounterHistory:
    """Samples of one kind of object; every object has the same values, named by `fields`."""

    def __init__(self, fields: Sequence[str], *, series_count: int = SERIES_MAX_COUNT) -> None:
        self.fields = tuple(fields)
        self._index = {name: index for index, name in enumerate(fields)}
        self._newest = Generation()
        self._previous = Generation()
        self._series_count = series_count
        self._series: OrderedDict[Hashable, deque[tuple[int, Values]]] = OrderedDict()

    def sample(
        self, objects: Iterable[tuple[Hashable, Values]], now_ms: int
    ) -> Generator[None, None, None]:
        """Read all objects, in bounded steps; the new generation counts when the last step is done."""
        values: dict[Hashable, Values] = {}
        changed: list[Hashable] = []
        before = self._newest.values
        for number, (key, current) in enumerate(objects, 1):
            values[key] = current
            if before.get(key) != current:
                changed.append(key)
                self._record(key, now_ms, current, before.get(key))
            if number % SAMPLED_PORTION_COUNT == 0:
                yield
        removed = [key for key in before if key not in values]
        generation = Generation(now_ms, values, changed, removed)
        self._previous, self._newest = self._newest, generation
        for key in [key for key in self._series if key not in values]:
            del self._series[key]

    def _record(self, key: Hashable, now_ms: int, current: Values, before: Values | None) -> None:
        series = self._series.get(key)
        if series is None:
            series = deque(maxlen=SERIES_SAMPLES_MAX_COUNT)
            if before is not None:
                series.append((self._newest.at_ms, before))
            self._series[key] = series
            if len(self._series) > self._series_count:
                self._series.popitem(last=False)
        else:
            self._series.move_to_end(key)
        series.append((now_ms, current))

    def clear(self) -> None:
        """Forget the time series; rates continue."""
        self._series.clear()

    @property
    def size(self) -> int:
        """The number of objects in the two newest generations."""
        return len(self._newest.values) + len(self._previous.values)

    @property
    def series_size(self) -> int:
        """The number of samples in all series."""
        return sum(map(len, self._series.values()))

    def latest(self, key: Hashable) -> Values | None:
        """Return the newest sample of an object."""
        return self._newest.values.get(key)

    @property
    def newest(self) -> Generation:
        """The newest sample of all objects."""
        return self._newest

    @property
    def previous_at_ms(self) -> int:
        """The time of the sample before the newest one."""
        return self._previous.at_ms

    def rate(self, key: Hashable, field: str) -> float:
        """Return the change per second between the two newest samples (HI1)."""
        index = self._index[field]
        newest, previous = self._newest.values.get(key), self._previous.values.get(key)
        if newest is None:
            return 0.0
        if previous is None:
            elapsed_ms, change = SAMPLE_INTERVAL_S * 1_000, newest[index]
        else:
            elapsed_ms = self._newest.at_ms - self._previous.at_ms
            change = newest[index] - previous[index]
        return max(0.0, change * 1_000 / elapsed_ms) if elapsed_ms > 0 else 0.0

    def details(self, key: Hashable, field: str, request: SeriesRequest | None) -> dict[str, Any]:
        """Return the `…_details` of a counter: its rate and, if requested, its samples, newest first."""
        rate = self.rate(key, field)
        if request is None:
            return {"rate": rate}
        samples = self._samples(key, self._index[field], request)
        values = [sample["sample"] for sample in samples]
        span_s = (len(samples) - 1) * request.step_ms / 1_000
        return {
            "rate": rate,
            "samples": samples,
            "avg_rate": (values[0] - values[-1]) / span_s if span_s else 0.0,
            "avg": sum(values) / len(values),
        }

    def _samples(self, key: Hashable, index: int, request: SeriesRequest) -> list[dict[str, int]]:
        """Return the samples, newest first; a sample of time t is the value at the end of the step that begins at t."""
        series = self._series.get(key) or ()
        times = [at_ms for at_ms, _ in series]
        newest = self._newest.values.get(key)
        count = min(request.age_ms // request.step_ms + 1, REQUESTED_SAMPLES_MAX_COUNT)
        last_ms = self._newest.at_ms // request.step_ms * request.step_ms
        samples = []
        for number in range(count):
            at_ms = last_ms - number * request.step_ms
            position = bisect_right(times, at_ms + request.step_ms - 1)
            if position:
                value = series[position - 1][1][index]
            elif not series and newest is not None:
                value = newest[index]  # it has not changed since its series was evicted or cleared
            else:
                value = 0
            samples.append({"sample": value, "timestamp": at_ms})
        return samples


class SummedHistory:
    """The statistics of several objects together, which were sampled at the same times."""

    def __init__(self, history: CounterHistory) -> None:
        self._history = history

    def details(
        self, keys: Iterable[Hashable], field: str, request: SeriesRequest | None
    ) -> dict[str, Any]:
        """Return the `…_details` of a counter, as `CounterHistory.details` does for one object."""
        summed: dict[str, Any] = {"rate": 0.0}
        for key in keys:
            details = self._history.details(key, field, request)
            for name in ("rate", "avg_rate", "avg"):
                if name in details:
                    summed[name] = summed.get(name, 0.0) + details[name]
            if "samples" in details:
                before = summed.setdefault("samples", [])
                summed["samples"] = _add_samples(before, details["samples"])
        return summed


def _add_samples(
    before: list[dict[str, int]], further: list[dict[str, int]]
) -> list[dict[str, int]]:
    if not before:
        return further
    return [
        {"sample": one["sample"] + other["sample"], "timestamp": one["timestamp"]}
        for one, other in zip(before, further, strict=True)
    ]


def read_series_request(age: str | None, step: str | None) -> SeriesRequest | None:
    """Parse `…_age` and `…_incr`, which are seconds; None unless both are given and positive."""
    if not age or not step or not (age + step).isascii():
        return None
    if not age.isdigit() or not step.isdigit():
        return None
    age_s, step_s = int(age[:9]), int(step[:9])  # nine digits, 31 years, are more than any history
    return SeriesRequest(age_s * 1_000, step_s * 1_000) if age_s > 0 and step_s > 0 else None
