"""The ages of unacknowledged deliveries, estimated without a record for each of them.

Every sample marks the next delivery tag of each channel: deliveries with lower tags were made before, those with
higher ones after. Marks that no unacknowledged delivery needs are dropped, so a channel that acknowledges soon
has one. For a channel that does not, old marks are thinned out: the older a delivery, the coarser its age.

DA1  An age is wrong by at most half the time between two samples, as long as no marks were thinned out; for deliveries
     before the first sample of their channel, by at most the whole time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from recado.broker.channel import Channel

    from .query import Steps

MARKS_MAX: Final = 64  # of a channel, for the last five minutes and, coarser, all the time before


class _Mark(msgspec.Struct):
    """A time at which `next_tag` was the next delivery tag, and the last such time."""

    next_tag: int
    first_ms: int
    last_ms: int


class DeliveryAges:
    """The marks of all channels that may have unacknowledged deliveries."""

    def __init__(self) -> None:
        self._marks: dict[Channel, list[_Mark]] = {}

    def sample(self, channels: Iterable[Channel], now_ms: int) -> Steps[None]:
        """Mark the current tags of these channels, and forget all others."""
        marks: dict[Channel, list[_Mark]] = {}
        for channel in channels:
            marks[channel] = _mark(self._marks.get(channel, []), channel, now_ms)
            yield
        self._marks = marks

    def age_ms(self, channel: Channel, delivery_tag: int, now_ms: int) -> int:
        """Return how long ago a delivery was made, in milliseconds (DA1)."""
        marks = self._marks.get(channel, [])
        index = bisect_right(marks, delivery_tag, key=_next_tag)
        latest = marks[index].first_ms if index < len(marks) else now_ms
        earliest = marks[index - 1].last_ms if index else latest
        return now_ms - (earliest + latest) // 2


def _next_tag(mark: _Mark) -> int:
    return mark.next_tag


def _relative_gap(marks: list[_Mark], index: int, now_ms: int) -> float:
    """Return the gap that a mark would leave, as a fraction of its age."""
    gap_ms = marks[index + 1].first_ms - marks[index - 1].last_ms
    return gap_ms / (now_ms - marks[index].first_ms + 1)


def _mark(marks: list[_Mark], channel: Channel, now_ms: int) -> list[_Mark]:
    entry, next_tag = channel.unacked.oldest(), channel.next_tag
    oldest_tag = next_tag if entry is None else entry.oldest_tag
    if marks and marks[-1].next_tag == next_tag:
        marks[-1].last_ms = now_ms
    else:
        marks.append(_Mark(next_tag, now_ms, now_ms))
    # Of the marks before the oldest delivery, the last one bounds its age.
    del marks[: max(bisect_right(marks, oldest_tag, key=_next_tag) - 1, 0)]
    if len(marks) > MARKS_MAX:
        # The gap that is smallest in relation to its age: 10 µs, for such channels only.
        del marks[min(range(1, MARKS_MAX), key=lambda i: _relative_gap(marks, i, now_ms))]
    return marks
