"""A queue index during recovery: moved messages, and messages of dropped segments."""

from __future__ import annotations

from recado.server.store.queue_index import QueueIndex
from recado.server.store.ranges import RangeSet
from recado.server.store.segments import SegmentStats


def found() -> QueueIndex:
    return QueueIndex(1, None, durable=True)


def live(index: QueueIndex) -> list[int]:
    """Return the live positions after recovery."""
    index.finish_recovery()
    index.check()
    missing = index.settled.missing(0, index.stored_end)
    return [position for start, end in missing for position in range(start, end)]


def move(index: QueueIndex, position: int, at: int, stats: SegmentStats) -> None:
    """As recovery does it."""
    index.settled.remove(position, position + 1)
    index.stored_end = max(index.stored_end, position + 1)
    index.add_moved(position, position + 1, at, 50, stats)


def test_moving_messages_out_of_a_gap_moves_nothing_else() -> None:
    """7, 8 and 26 were moved to one segment while those between were elsewhere, in one that has been dropped
    since. Before that, they were moved too."""
    index = found()
    old, middle, last = SegmentStats(0), SegmentStats(10_000), SegmentStats(20_000)
    index.add_stored(27, 3, 100, 50, old)
    for at, position in enumerate((7, 8, 26)):
        move(index, position, 100 + 50 * at, middle)
    index.settled = RangeSet([(0, 23)])  # a checkpoint says so
    for at, position in enumerate((23, 24, 25)):
        move(index, position, 100 + 50 * at, last)
    assert live(index) == [23, 24, 25, 26, 27, 28, 29]


def test_new_messages_do_not_replace_the_last_extents() -> None:
    index = found()
    middle, last = SegmentStats(10_000), SegmentStats(20_000)
    for at, position in enumerate((7, 10)):
        move(index, position, 100 + 50 * at, middle)
    index.settled = RangeSet([(0, 8)])
    for at, position in enumerate((8, 9)):
        move(index, position, 100 + 50 * at, last)
    index.add_stored(11, 2, 300, 50, last)
    assert live(index) == [8, 9, 10, 11, 12]
