"""Limits the messages that an observer of queues examines, so that it delays messages little.

In each `WINDOW_MS`, messages are examined up to a cost, and chosen up to a number. The others are only counted, which
costs the same for one message and for a run of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from recado.broker.message_filter import MessageFilter
    from recado.broker.run import Run

WINDOW_MS: Final = 100
EXAMINED_MAX_BYTES: Final = 1 << 20
"""Of a window, as `MessageFilter` counts costs: about 5 ms."""
_BYTES_PER_ID: Final = 64  # to search an id in properties: 0.3 µs


class MessageBudget:
    """Chooses matching messages of runs, within the budget of the current window."""

    def __init__(
        self,
        message_filter: MessageFilter | None,
        chosen_max_count: int,
        accepts: Callable[[bytes], bool] | None = None,
    ) -> None:
        """`accepts` is a cheap test of a message's header, before the filter."""
        self.skipped_count = 0
        """The messages that were not examined, or that matched beyond the number."""
        self._message_filter = message_filter
        self._accepts = accepts
        self._chosen_max_count = chosen_max_count
        self._window = 0
        self._examined_bytes = 0
        self._chosen_count = 0

    def choose(self, run: Run, now: int, count_max: int) -> Iterator[int]:
        """Return the indexes of up to `count_max` messages; `now` is in milliseconds."""
        if not 0 <= now - self._window < WINDOW_MS:
            self._window, self._examined_bytes, self._chosen_count = now, 0, 0
        low, count = 0, len(run)
        accepts = self._accepts
        if accepts is not None and run.prefix:
            self._examined_bytes += _BYTES_PER_ID
            if not accepts(run.prefix):
                return
            accepts = None
        count_left = min(count_max, self._chosen_max_count - self._chosen_count)
        while low < count:
            if count_left <= 0 or self._examined_bytes >= EXAMINED_MAX_BYTES:
                self.skipped_count += count - low
                return
            end = count
            if accepts is not None:
                self._examined_bytes += _BYTES_PER_ID
                if not accepts(run.payloads[low]):
                    low += 1
                    continue
                end = low + 1
            indexes: Sequence[int] = range(low, min(end, low + count_left))
            next_low = indexes[-1] + 1
            if self._message_filter is not None:
                indexes, next_low, cost = self._message_filter.select(run, low, end, count_left)
                self._examined_bytes += cost
            self._chosen_count += len(indexes)
            count_left -= len(indexes)
            yield from indexes
            low = next_low
