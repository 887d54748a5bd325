"""The deliveries of a queue that clients have not acknowledged: list them, and requeue some of them.

A requeued message returns to its position and is marked as redelivered, as if the client had refused it, and
may be delivered to the same consumer again. The client still has its copy; its ack comes too late and is
ignored (CH6).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from recado.amqp.frames import read_body_size

from .channel import Channel, Settlement, return_runs
from .consumer import Consumer
from .run import Run
from .steps import STEP_UNITS_MAX, Steps

if TYPE_CHECKING:
    from .queue import Queue
    from .work_queue import WorkQueue

_ENTRIES_PER_STEP: Final = 8  # of up to 64 single messages, or one run
_MESSAGES_PER_UNIT: Final = 4  # to describe: about 1 µs each
REQUEUED_MESSAGES_MAX: Final = STEP_UNITS_MAX // 2
"""Messages that one step requeues, before any of them is delivered again."""


class UnackedMessage(msgspec.Struct, frozen=True):
    """A delivery that is neither acknowledged nor returned."""

    channel: Channel
    delivery_tag: int
    consumer_tag: str
    """Empty for basic.get."""
    position: int
    """In the queue."""
    redelivered: bool
    delivery_count: int
    body_bytes: int


class ChosenDelivery(NamedTuple):
    """A delivery to requeue, and the position of its message, by which a reused tag is noticed."""

    channel: Channel
    delivery_tag: int
    position: int


class RequeueProgress(msgspec.Struct):
    """How many messages were requeued so far."""

    requeued: int = 0


def list_unacked(queue: "Queue", channel: Channel, count: int) -> Steps[list[UnackedMessage]]:
    """Return the first `count` unacknowledged deliveries of a queue on a channel, the oldest first.

    Deliveries that are added or settled between two steps may be in the list or not.
    """
    found: list[UnackedMessage] = []
    first, last = 0, channel.next_tag - 1
    while first <= last and len(found) < count:
        before = len(found)
        end = channel.unacked.last_tag_within(first, last, _ENTRIES_PER_STEP)
        scanned = 0
        for entry, low, high in channel.unacked.spans(first, end):
            scanned += 1
            if entry.holder.queue is not queue:
                continue
            tag = entry.holder.tag if isinstance(entry.holder, Consumer) else ""
            for index in range(low, high):
                if entry.has(entry.first_tag + index):
                    found.append(_describe(channel, entry.first_tag + index, tag, entry.run, index))
                    if len(found) == count:
                        return found
        yield 1 + scanned // _MESSAGES_PER_UNIT + (len(found) - before) // _MESSAGES_PER_UNIT
        first = end + 1
    return found


def _describe(
    channel: Channel, tag: int, consumer_tag: str, run: Run, index: int
) -> UnackedMessage:
    return UnackedMessage(
        channel,
        tag,
        consumer_tag,
        run.first_position + index * run.stride,
        run.redelivered,
        run.delivery_count,
        read_body_size(run.prefix or run.payloads[index]),
    )


def requeue_deliveries(
    queue: "WorkQueue", chosen: Sequence[ChosenDelivery], progress: RequeueProgress
) -> Steps[None]:
    """Requeue deliveries, in the order of the queue; those that were settled meanwhile are left out.

    The caller sets `now` of the vhost's background work before each step.
    """
    ordered = sorted(chosen, key=lambda each: each.position)
    for start in range(0, len(ordered), REQUEUED_MESSAGES_MAX):
        runs: list[Run] = []
        consumers: dict[Consumer, None] = {}
        limited: dict[Channel, None] = {}
        for channel, tag, position in ordered[start : start + REQUEUED_MESSAGES_MAX]:
            was_at_limit = 0 < channel.global_prefetch <= channel.in_flight
            withdrawn = channel.withdraw(queue, tag, position)
            if withdrawn is None:
                continue
            run, holder = withdrawn
            runs.append(run)
            if was_at_limit:
                limited[channel] = None
            if isinstance(holder, Consumer):
                consumers[holder] = None
        now = queue.vhost.background.now
        for consumer in consumers:
            queue.wake(consumer)
        return_runs(Settlement.REQUEUE, {queue: runs}, now)
        for channel in limited:
            channel.resume(now)
        progress.requeued += len(runs)
        yield 1 + 2 * len(runs) + len(consumers)
