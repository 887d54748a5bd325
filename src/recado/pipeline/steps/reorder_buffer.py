"""What a resequencer remembers of one key: pure, so that any order of arrivals can be tried.

W1  Numbers are given out in order, each once.
W2  A number is held only while one before it may still come.
W3  One that was given out, or given up, is refused when it comes again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class ReorderBuffer(Generic[T]):
    """`expected` is the number whose turn it is; `held` are those that came too early."""

    expected: int
    held: dict[int, T] = field(default_factory=dict)

    def add_rows(
        self, rows: Iterable[tuple[int, T]]
    ) -> tuple[list[tuple[int, T]], list[tuple[int, T]]]:
        """Rows with their numbers: those whose turn it is now, in order, and those that are refused."""
        refused = []
        for number, row in rows:
            if number < self.expected or number in self.held:
                refused.append((int(number), row))
            else:
                self.held[int(number)] = row
        return self._take_consecutive(), refused

    def skip_gap(self) -> list[tuple[int, T]]:
        """What is missing first will not come: go on with what there is behind it, up to the next gap."""
        if self.held:
            self.expected = min(self.held)
        return self._take_consecutive()

    def _take_consecutive(self) -> list[tuple[int, T]]:
        given = []
        while self.expected in self.held:
            given.append((self.expected, self.held.pop(self.expected)))
            self.expected += 1
        return given
