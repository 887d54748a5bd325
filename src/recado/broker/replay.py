"""Replay: dead letters return to the queue where they died.

The header `x-death` of a dead letter names that queue, and the exchange and routing key with which the message
had entered it; it is delivered with these again. `x-death` stays, so that the deaths go on being counted. The
header `x-replay-count` counts the replays of a message.

A replay moves messages (see `move`: MV1 and the paragraph after it apply), but it has many destinations and does
not stop when one is full: messages that would exceed a limit of their queue stay, and are counted as `QUEUE_FULL`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from recado.amqp.frames import encode_content, extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.traits import read_traits
from recado.amqp.values import STORED_MAX_ENTRY_COUNT, FieldTable, FieldValue, Int64

from .dead_letter import HEADER_OVERHEAD_BYTES
from .move import Forwarding, MoveProgress, choose, forward
from .priority_bucket import ReadLimits
from .queue import Queue
from .ready_messages import ReadyMessages, Selection
from .run import Origin, Run
from .steps import Steps
from .work_queue import WorkQueue

REPLAY_COUNT_HEADER: Final = "x-replay-count"
BATCH_LIMITS: Final = ReadLimits(message_count=64, byte_count=256 << 10, run_count=64)
"""Of one step; half as many messages as a move takes, because each is decoded and encoded."""
_UNITS_PER_MESSAGE: Final = 5  # to decode and encode its properties, in addition to publishing
_NAME_MAX_BYTES: Final = 255

# The reasons for which messages stay; `ReplayProgress.kept` counts by them, and the HTTP API reports them.
NO_DEATH: Final = "no_x_death"
QUEUE_GONE: Final = "queue_gone"  # or exclusive
NOT_PERMITTED: Final = "not_permitted"
REPLAYED_TOO_OFTEN: Final = "replayed_too_often"
HEADER_TOO_LARGE: Final = "header_too_large"
QUEUE_FULL: Final = "queue_full"


class ReplayProgress(MoveProgress):
    """How far a replay is; `kept` counts the matching messages that it has read and that stay, by reason."""

    kept: Counter[str] = msgspec.field(default_factory=Counter)


class _Death(NamedTuple):
    """The queue where a message died, and the exchange and routing key with which it had entered the queue."""

    queue: str
    exchange: str
    routing_key: str


class _Candidate(NamedTuple):
    """Consecutive messages with equal properties, as they are and as they would be replayed."""

    run: Run
    replayed: Run
    destination: Queue


def replay(
    source: WorkQueue,
    progress: ReplayProgress,
    may_write: Callable[[str], bool],
    *,
    count_max: int | None = None,
    replays_max: int | None = None,
    message_filter: Selection | None = None,
) -> Steps[None]:
    """Replay matching dead letters of a queue, up to `count_max`.

    Messages that were replayed `replays_max` times stay, and so do those whose queue the caller may not write
    to. The caller sets `now` of the vhost's background work before each step, and may set
    `progress.stop_reason` between two steps.
    """
    reader = ReadyMessages(source, BATCH_LIMITS)
    while progress.stop_reason is None and progress.moved != count_max:
        portion = reader.read()
        if portion is None:
            progress.stop_reason = reader.stop_reason
            return
        now = source.vhost.background.now
        chosen = choose(portion, message_filter, now, None)
        candidates: list[_Candidate] = []
        for run in chosen:
            for part in _split_by_properties(run):
                found = _prepare(source, part, may_write, replays_max)
                if isinstance(found, str):
                    progress.kept[found] += len(part)
                else:
                    candidates.append(found)
        count_left = None if count_max is None else count_max - progress.moved
        forwardings = _limit(candidates, count_left, progress.kept)
        forward(source, portion, forwardings, now)
        progress.moved += sum(len(run) for run, _, _ in forwardings)
        yield portion.cost + _UNITS_PER_MESSAGE * sum(map(len, chosen))


def _split_by_properties(run: Run) -> Iterator[Run]:
    start = 0
    for _, contents in groupby(run.contents(), extract_properties):
        end = start + sum(1 for _ in contents)
        yield run.slice(start, end)
        start = end


def _prepare(
    source: WorkQueue, run: Run, may_write: Callable[[str], bool], replays_max: int | None
) -> "_Candidate | str":
    """Return messages as they would be replayed, or why they cannot be."""
    properties = decode_properties(
        extract_properties(run.contents()[0]), max_entries=STORED_MAX_ENTRY_COUNT
    )
    headers = properties.headers or {}
    death = _find_death(headers, source.name)
    if death is None:
        return NO_DEATH
    # First, so that the reason does not reveal whether the queue exists.
    if not may_write(death.queue):
        return NOT_PERMITTED
    destination = source.vhost.queues.get(death.queue)
    if destination is None or destination.owner is not None:
        return QUEUE_GONE
    count = _read_replay_count(headers)
    if replays_max is not None and count >= replays_max:
        return REPLAYED_TOO_OFTEN
    counted: FieldTable = {**headers, REPLAY_COUNT_HEADER: Int64(count + 1)}
    replayed = _rewrite(run, msgspec.structs.replace(properties, headers=counted), death)
    return HEADER_TOO_LARGE if replayed is None else _Candidate(run, replayed, destination)


def _find_death(headers: FieldTable, source: str) -> _Death | None:
    """Return the last death in another queue than the one where the dead letter is now.

    `x-death` has the newest death first.
    """
    deaths = headers.get("x-death")
    for entry in deaths if isinstance(deaths, list) else ():
        if not isinstance(entry, dict):
            continue
        queue, exchange = entry.get("queue"), entry.get("exchange")
        keys = entry.get("routing-keys")
        key = keys[0] if isinstance(keys, list) and keys else ""
        if _is_name(queue) and queue != source:
            return _Death(
                str(queue),
                str(exchange) if _is_name(exchange) else "",
                str(key) if _is_name(key) else "",
            )
    return None


def _is_name(value: FieldValue) -> bool:
    """Whether a client's value is a name that AMQP can carry."""
    return isinstance(value, str) and len(value.encode()) <= _NAME_MAX_BYTES


def _read_replay_count(headers: FieldTable) -> int:
    """Return how often a message was replayed. A client may have set the header to any value."""
    count = headers.get(REPLAY_COUNT_HEADER)
    return count if isinstance(count, int) and 0 < count < 1 << 62 else 0


def _rewrite(run: Run, properties: Properties, death: _Death) -> Run | None:
    """Return the messages with other properties; None if these do not fit into a frame."""
    encoded = encode_properties(properties)
    if len(encoded) + HEADER_OVERHEAD_BYTES > run.frame_max:
        return None
    payloads = [
        encode_content(run.channel, encoded, extract_body(content), run.frame_max)
        for content in run.contents()
    ]
    return Run(
        _origin_of(death.exchange, death.routing_key),
        read_traits(encoded),
        run.channel,
        run.frame_max,
        b"",
        payloads,
        owns_payloads=True,
        is_forwarded=True,
    )


# Cached so that equal origins are one object: runs are joined only if they have the same origin object.
_origin_of = lru_cache(256)(Origin)


def _limit(
    candidates: list[_Candidate], count_left: int | None, kept: Counter[str]
) -> list[Forwarding]:
    """Return the messages that fit into their queues, in order, up to `count_left`; count the others in `kept`."""
    sizes: dict[Queue, list[int]] = {}
    for each in candidates:
        sizes.setdefault(each.destination, []).extend(each.run.body_sizes())
    fitting = {queue: queue.count_fitting(of_queue) for queue, of_queue in sizes.items()}
    limited: list[Forwarding] = []
    for run, replayed, destination in candidates:
        count = min(len(run), fitting[destination])
        fitting[destination] -= count
        if count < len(run):
            kept[QUEUE_FULL] += len(run) - count
        if count_left is not None:
            count = min(count, count_left)
            count_left -= count
        if count:
            limited.append((run.slice(0, count), (replayed.slice(0, count),), destination))
    return limited
