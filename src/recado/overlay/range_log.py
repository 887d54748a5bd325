"""The newest entries of the log of a range, in memory.

first                 applied           committed             end
  | executed, kept for  | stored by a      | stored here,       |
  | members that lag    | majority         | may be lost yet    |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .range_state import CommandEntry, Entry

KEPT_ENTRIES_MAX: Final = 1_000
"""Executed entries that are kept for members that lag; one that lags more gets the state instead."""
KEPT_BYTES_MAX: Final = 8 << 20
ENTRY_BYTES: Final = 256
"""The estimate for an entry that is no command."""


class RangeLog:
    def __init__(self, first: int) -> None:
        self.first = first
        self._entries: list[Entry] = []
        self._size_bytes = 0

    @property
    def end(self) -> int:
        """The position after the last entry."""
        return self.first + len(self._entries)

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._size_bytes += _size_bytes(entry)

    def extend(self, first: int, entries: Sequence[Entry]) -> bool:
        """Add those of the entries that are new; return False if some before them are missing."""
        end = self.end
        if first > end:
            return False
        for entry in entries[end - first :]:
            self.append(entry)
        return True

    def entries(self, start: int, count: int | None = None) -> tuple[Entry, ...]:
        """Return entries from a position, which must not be before `first`."""
        at = start - self.first
        assert at >= 0, "the entries were trimmed"
        return tuple(self._entries[at:] if count is None else self._entries[at : at + count])

    def get(self, position: int) -> Entry:
        return self._entries[position - self.first]

    def truncate(self, end: int) -> None:
        """Remove the entries from a position on."""
        for entry in self._entries[end - self.first :]:
            self._size_bytes -= _size_bytes(entry)
        del self._entries[end - self.first :]

    def trim(self, applied: int) -> None:
        """Remove executed entries beyond the bounds, half of them at a time."""
        kept = applied - self.first
        if kept > KEPT_ENTRIES_MAX or (self._size_bytes > KEPT_BYTES_MAX and kept > 1):
            removed = kept // 2
            for entry in self._entries[:removed]:
                self._size_bytes -= _size_bytes(entry)
            del self._entries[:removed]
            self.first += removed


def _size_bytes(entry: Entry) -> int:
    return entry.command.size_bytes if isinstance(entry, CommandEntry) else ENTRY_BYTES
