"""The samples taken so far, and the reasons of failed scenarios.

BK1  A scenario has samples, or a reason why it has none.
BK2  Samples are never removed: a scenario that failed halfway stays failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from bench.scenario import Sample, Side


class NotMeasuredError(RuntimeError):
    """A sample could not be taken; the text is for the report."""


class Book:
    """The record of one run of a benchmark."""

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
        """Record NotMeasuredError as the failure of these scenarios, so that the other scenarios still run."""
        try:
            yield
        except NotMeasuredError as error:
            for scenario in scenarios:
                self._failures.setdefault(scenario, str(error))
