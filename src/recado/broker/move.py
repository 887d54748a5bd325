"""Move: ready messages leave one queue and enter another, in the order of delivery.

MV1  A message is in the source or in the destination, also after a crash. Only if the destination is a
     stream, a crash may leave a message in both: a stream has a journal of its own, so the message leaves
     the source when it is durable in the stream.
MV2  No message is rejected or dropped by the destination: before it would exceed a limit, the move stops.

A moved message enters the destination as if it were published to it now: a time to live begins anew, the
redelivered flag and the delivery count are gone. Its properties, body, exchange and routing key stay. It is
not deduplicated (DD4).

Each step moves a batch, in one atomic group of the store. The move can be stopped between two steps.
Messages that enter the source after the beginning are not moved, so that it ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from recado.amqp.frames import extract_properties
from recado.amqp.traits import MessageTraits, read_traits

from .message_observer import MOVED
from .priority_bucket import ReadLimits
from .queue import Queue
from .ready_messages import Portion, ReadyMessages, Selection, select
from .routing import publish_to_all
from .run import Run
from .steps import Steps
from .work_queue import WorkQueue

BATCH_LIMITS: Final = ReadLimits(message_count=128, byte_count=256 << 10, run_count=128)
"""Of one step, which then takes up to 3 ms."""
DESTINATION_FULL: Final = (
    "the destination is full: its limit of messages or bytes (max-length, max-length-bytes) is"
    " reached"
)
DESTINATION_DELETED: Final = "the destination was deleted"


class MoveProgress(msgspec.Struct):
    """How far a move is, and why it has stopped before all messages were moved."""

    moved: int = 0
    stop_reason: str | None = None


def move(
    source: WorkQueue,
    destination: Queue,
    progress: MoveProgress,
    count_max: int | None = None,
    message_filter: Selection | None = None,
) -> Steps[None]:
    """Move matching messages, up to `count_max`; count them in `progress`.

    The caller sets `now` of the vhost's background work before each step, and may set `progress.stop_reason`
    between two steps.
    """
    reader = ReadyMessages(source, BATCH_LIMITS)
    while progress.stop_reason is None and progress.moved != count_max:
        if destination.deleted:
            progress.stop_reason = DESTINATION_DELETED
            return
        portion = reader.read()
        if portion is None:
            progress.stop_reason = reader.stop_reason
            return
        count_left = None if count_max is None else count_max - progress.moved
        now = source.vhost.background.now
        chosen = choose(portion, message_filter, now, count_left)
        fitting = _take_fitting(chosen, destination)
        forward(source, portion, [(run, as_published(run), destination) for run in fitting], now)
        progress.moved += sum(map(len, fitting))
        if sum(map(len, fitting)) < sum(map(len, chosen)):
            progress.stop_reason = DESTINATION_FULL
        yield portion.cost + sum(1 + len(run) for run in chosen)


def choose(
    portion: Portion, message_filter: Selection | None, now: int, count_max: int | None
) -> list[Run]:
    """Return the messages of the portion that match and have not expired, up to `count_max`."""
    chosen: list[Run] = []
    # The portion was read with these limits, or with the lower ones of `replay`.
    count_left = BATCH_LIMITS.message_count if count_max is None else count_max
    for run in portion.runs:
        if run.expires_at is not None and run.expires_at <= now:
            continue
        low = 0
        while low < len(run) and count_left > 0:
            indexes, low, _ = select(message_filter, run, low, count_left)
            count_left -= len(indexes)
            chosen += _slices(run, indexes)
    return chosen


def _slices(run: Run, indexes: Sequence[int]) -> Iterator[Run]:
    """Return the messages at these indexes as runs without gaps."""
    start = 0
    for i in range(1, len(indexes) + 1):
        if i == len(indexes) or indexes[i] != indexes[i - 1] + 1:
            yield run.slice(indexes[start], indexes[i - 1] + 1)
            start = i


def _take_fitting(runs: list[Run], destination: Queue) -> list[Run]:
    """Return the first messages, as many as fit into the destination."""
    left = destination.count_fitting([size for run in runs for size in run.body_sizes()])
    fitting = []
    for run in runs:
        if left > 0:
            fitting.append(run.slice(0, min(left, len(run))))
            left -= len(run)
    return fitting


Forwarding = tuple[Run, Iterable[Run], Queue]
"""Messages of a queue, the same messages as they enter another queue, and that queue."""


def forward(
    source: WorkQueue, portion: Portion, forwardings: Sequence[Forwarding], now: int
) -> None:
    """Remove messages that were just read, and publish them to other queues, all in one atomic group."""
    if not forwardings:
        return
    removed = [run for run, _, _ in forwardings]
    store = source.vhost.store
    store.begin_atomic_group()
    try:
        source.remove_ready(removed, portion.priority, paged_out=portion.is_paged_out)
        for run, entering, destination in forwardings:
            position = run.first_position
            for each in entering:
                each.first_position, each.stride = position, run.stride
                position += len(each) * run.stride
                for observer in source.observers:
                    observer.forwarded(source, each, MOVED, None)
                publish_to_all(each, (destination,), now)
            source.settle_forwarded(run, (destination,))
    finally:
        store.end_atomic_group()


def as_published(run: Run) -> Iterator[Run]:
    """Return the messages as they were published, with the traits of their properties."""
    if run.prefix:
        yield _published_run(run, read_traits(extract_properties(run.prefix)), run.payloads)
        return
    for traits, payloads in groupby(run.payloads, _read_traits):
        yield _published_run(run, traits, list(payloads))


def _read_traits(content: bytes) -> MessageTraits:
    return read_traits(extract_properties(content))


def _published_run(run: Run, traits: MessageTraits, payloads: list[bytes]) -> Run:
    return Run(
        run.origin,
        traits,
        run.channel,
        run.frame_max,
        run.prefix,
        payloads,
        owns_payloads=True,
        is_forwarded=True,
    )
