"""The samples taken so far.

B1  A scenario has samples, or a reason why it has not; never neither.
B2  Samples are never taken out again: a scenario that failed halfway stays failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from bench.scenario import Sample, Side


class NotMeasured(RuntimeError):
    """A sample could not be taken; the text says why, in a form fit for the report."""


class Book:
    def __init__(self) -> None:
        self._samples: dict[str, dict[Side, list[Sample]]] = defaultdict(
            lambda: {side: [] for side in Side}
        )
        self._failures: dict[str, str] = {}
        self.peer = "none"

    def enter(self, scenario: str, side: Side, sample: Sample) -> None:
        self._samples[scenario][side].append(sample)

    def samples(self, scenario: str, side: Side) -> list[Sample]:
        return list(self._samples[scenario][side])

    def failure(self, scenario: str) -> str | None:
        return self._failures.get(scenario)

    @contextmanager
    def measuring(self, *scenarios: str) -> Iterator[None]:
        """Turns a failure to measure into an entry, so that the other scenarios still run."""
        try:
            yield
        except NotMeasured as error:
            for scenario in scenarios:
                self._failures.setdefault(scenario, str(error))
