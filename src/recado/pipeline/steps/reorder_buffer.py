"""The state of a resequencer for one key: pure, so that tests can try any order of arrivals.

ROB1  Numbers are emitted in order, each once.
ROB2  A row is held only while a row with a lower number is missing.
ROB3  A row whose number was emitted, was skipped or is held already is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class ReorderBuffer(Generic[T]):
    """`expected` is the next number to emit; `held` has the rows that arrived early."""

    expected: int
    held: dict[int, T] = field(default_factory=dict)

    def add_rows(
        self, rows: Iterable[tuple[int, T]]
    ) -> tuple[list[tuple[int, T]], list[tuple[int, T]]]:
        """Add numbered rows; return those that can be emitted now, in order, and those that are refused."""
        refused = []
        for number, row in rows:
            if number < self.expected or number in self.held:
                refused.append((int(number), row))
            else:
                self.held[int(number)] = row
        return self._take_consecutive(), refused

    def skip_gap(self) -> list[tuple[int, T]]:
        """Skip the missing numbers; return the held rows up to the next gap."""
        if self.held:
            self.expected = min(self.held)
        return self._take_consecutive()

    def _take_consecutive(self) -> list[tuple[int, T]]:
        ready = []
        while self.expected in self.held:
            ready.append((self.expected, self.held.pop(self.expected)))
            self.expected += 1
        return ready
