"""Messages of a queue that were chosen once, by their positions, to be deleted, moved or replayed later.

A position is never used again in its queue, so a chosen message that has left the queue meanwhile is not mistaken for
another one. One that was requeued has returned to its position.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .message_filter import FilterResult
from .move import BATCH_LIMITS, MoveProgress, choose
from .ready_messages import MessageReader, ReadyMessages, Selection, select
from .steps import Steps
from .stream import BYTES_PER_UNIT

if TYPE_CHECKING:
    from .run import Run
    from .work_queue import WorkQueue

DELETED: Final = "deleted"
"""Why observers of messages see them dropped."""
_BYTES_PER_POSITION: Final = 64  # of deliveries that could be encoded in the same time


class ChosenPositions:
    """Selects the messages at certain positions, which are in ascending order."""

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = positions

    def select(self, run: "Run", low: int, high: int, count_max: int) -> FilterResult:
        first, stride, positions = run.first_position, run.stride, self.positions
        at = bisect_left(positions, first + low * stride)
        indexes: list[int] = []
        while at < len(positions) and len(indexes) < count_max:
            index, rest = divmod(positions[at] - first, stride)
            if index >= high:
                break
            if rest == 0:
                indexes.append(index)
            at += 1
        end = indexes[-1] + 1 if len(indexes) == count_max else high
        return FilterResult(indexes, end, _BYTES_PER_POSITION * (1 + len(indexes)))


def find_positions(
    reader: MessageReader, selection: "Selection | None", count_max: int, now: int
) -> Steps["array[int]"]:
    """Return the positions of matching messages that are ready, in ascending order, up to `count_max`."""
    found: array[int] = array("q")
    is_ascending = True
    while len(found) < count_max and (portion := reader.read()) is not None:
        yield portion.cost
        for run in portion.runs:
            if run.expires_at is not None and run.expires_at <= now:
                continue
            low = 0
            while low < len(run) and len(found) < count_max:
                indexes, low, cost = select(selection, run, low, count_max - len(found))
                if indexes:
                    is_ascending &= not found or found[-1] < run.first_position + indexes[0]
                    found.extend(run.first_position + index * run.stride for index in indexes)
                yield (cost + _BYTES_PER_POSITION * len(indexes)) // BYTES_PER_UNIT
    # A queue with priorities is read in ascending order for each of them, which is quick to sort.
    return found if is_ascending else array("q", sorted(found))


def delete_messages(
    source: "WorkQueue",
    progress: MoveProgress,
    count_max: int | None = None,
    selection: "Selection | None" = None,
) -> Steps[None]:
    """Delete matching ready messages, up to `count_max`; `progress.moved` counts them.

    The caller sets `now` of the vhost's background work before each step.
    """
    reader = ReadyMessages(source, BATCH_LIMITS)
    while progress.moved != count_max:
        portion = reader.read()
        if portion is None:
            progress.stop_reason = reader.stop_reason
            return
        count_left = None if count_max is None else count_max - progress.moved
        chosen = choose(portion, selection, source.vhost.background.now, count_left)
        if chosen:
            source.remove_ready(chosen, portion.priority, paged_out=portion.is_paged_out)
            for run in chosen:
                for observer in source.observers:
                    observer.dropped(source, run, DELETED)
                source.settle(run)
            progress.moved += sum(map(len, chosen))
        yield portion.cost + sum(1 + len(run) for run in chosen)
