"""A sparse index: where to begin to look for a key, when keys grow with positions.

Whoever has a log tells it of a record now and then; the rest is found by scanning from there. Keys are
offsets or times; several records may have the same one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left


class SparseIndex:
    def __init__(self) -> None:
        self._start = 0
        self._keys = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, position: int) -> None:
        self._keys.append(key)
        self._positions.append(position)

    def find(self, key: int) -> int:
        """A position behind which every record with this key or a greater one lies."""
        index = bisect_left(self._keys, key)
        return self._positions[index - 1] if index else self._start

    def drop_before(self, position: int) -> None:
        """Forget what is before a position: the records there are gone."""
        index = bisect_left(self._positions, position)
        del self._keys[:index], self._positions[:index]
        self._start = max(self._start, position)
