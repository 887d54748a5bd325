"""The unacknowledged deliveries of a queue, with their holders; an operator can requeue some of them."""

from __future__ import annotations

import heapq
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from recado.broker.channel import Channel
from recado.broker.queue import Queue
from recado.broker.steps import Steps
from recado.broker.stream import Stream
from recado.broker.unacked_messages import (
    ChosenDelivery,
    RequeueProgress,
    UnackedMessage,
    list_unacked,
    requeue_deliveries,
)
from recado.broker.work_queue import WorkQueue
from recado.server.connection import Connection, now_ms

from ..access import Access, is_administrator, is_monitor
from ..body import read_body
from ..broker_steps import run_broker_steps
from ..query import COUNT, Listing, parse_count
from ..request import NAME_MAX_BYTES, Answer, ApiRequest, bad_request, not_authorised
from ..routes import API, Content
from .connections import channel_details, connection_name
from .topology import access_to, find_queue

REQUEUED_MAX_COUNT: Final = 1_000
AUDITED_CHANNELS_MAX: Final = 20  # whose names are in the audit log
_CHANNELS_PER_UNIT: Final = 4  # whose names are formed

_Held = tuple[int, UnackedMessage]
"""A delivery and its age in milliseconds."""


@API.add(
    "GET",
    "/api/queues/{vhost}/{queue}/unacked",
    Access.VHOST,
    content=Content.LIST,
    query=(COUNT,),
)
def list_unacked_messages(request: ApiRequest) -> Answer:
    """List deliveries that clients have not acknowledged, the oldest first; for a monitor those of all users.

    Deliveries of a stream are not listed, because the stream keeps its messages.
    """
    queue, count = find_queue(request), parse_count(request.query)
    if isinstance(queue, Stream):
        return Answer(body=[])
    user = None if is_monitor(request.user) else request.user.name

    async def wait() -> Answer:
        found = await run_broker_steps(request, _collect(request, queue, user, count))
        return Answer(
            listing=Listing(
                found, partial(_unacked_object, request), lambda each: each[1].consumer_tag
            )
        )

    return Answer(wait=wait)


def _collect(request: ApiRequest, queue: Queue, user: str | None, count: int) -> Steps[list[_Held]]:
    """Return the oldest deliveries of a queue, with their ages; of one user, or of all if None."""
    ages, now = request.console.sampler.delivery_ages, now_ms()
    found: list[_Held] = []
    for channel in request.broker.consumer_timeouts.channels:
        if user is not None and channel.access.user.name != user:
            continue
        listed = yield from list_unacked(queue, channel, count)
        found += [(ages.age_ms(channel, each.delivery_tag, now), each) for each in listed]
        if len(found) > 4 * count:
            found = heapq.nsmallest(count, found, key=_oldest_first)
        yield 1
    return heapq.nsmallest(count, found, key=_oldest_first)


def _oldest_first(held: _Held) -> tuple[int, int]:
    age_ms, message = held
    return -age_ms, message.position


def _unacked_object(request: ApiRequest, held: _Held) -> dict[str, Any]:
    age_ms, message = held
    return {
        "delivery_tag": message.delivery_tag,
        "offset": message.position,
        "unacked_for_seconds": round(age_ms / 1_000),
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "payload_bytes": message.body_bytes,
        "consumer_tag": message.consumer_tag,
        "channel_details": channel_details(request, message.channel),
    }


# ── requeue ─────────────────────────────────────────────────────────────────────────────────────────


class DeliveryToRequeue(msgspec.Struct):
    """A delivery as the list of unacknowledged messages names it."""

    channel: Annotated[
        str,
        msgspec.Meta(max_length=4 * NAME_MAX_BYTES, description="The name of the channel."),
    ]
    delivery_tag: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    offset: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=2**63 - 1,
            description="The `offset` of the message; if the tag is of another one by now, that stays.",
        ),
    ]


class DeliveriesToRequeue(msgspec.Struct):
    """The deliveries whose messages return to the queue."""

    deliveries: Annotated[
        list[DeliveryToRequeue], msgspec.Meta(min_length=1, max_length=REQUEUED_MAX_COUNT)
    ]


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/requeue",
    Access.VHOST,
    body=DeliveriesToRequeue,
)
def requeue_messages(request: ApiRequest) -> Answer:
    """Return unacknowledged messages to the queue, as if their clients had refused them.

    `requeued` counts them; `settled` counts deliveries that were acknowledged or returned meanwhile.
    """
    queue = find_queue(request)
    if not isinstance(queue, WorkQueue):
        raise bad_request("a stream keeps its messages: none can be requeued")
    if not is_administrator(request.user):
        access_to(request, queue.vhost).permissions.check_read("queue", queue.name)
    wanted = read_body(request, DeliveriesToRequeue).deliveries
    progress = RequeueProgress()
    channels = sorted({each.channel for each in wanted})[:AUDITED_CHANNELS_MAX]

    async def wait() -> Answer:
        await run_broker_steps(request, _requeue(request, queue, wanted, progress))
        body = {"requeued": progress.requeued, "settled": len(wanted) - progress.requeued}
        return Answer(body=body, durable=True)

    return Answer(
        wait=wait,
        outcome=lambda: {"requeued": progress.requeued, "channels": channels},
    )


def _requeue(
    request: ApiRequest,
    queue: WorkQueue,
    wanted: list[DeliveryToRequeue],
    progress: RequeueProgress,
) -> Steps[None]:
    channels = yield from _find_channels(request, {each.channel for each in wanted})
    may_take_all = is_administrator(request.user)
    chosen: list[ChosenDelivery] = []
    for each in wanted:
        channel = channels.get(each.channel)
        if channel is None:
            continue
        if not may_take_all and channel.access.user.name != request.user.name:
            raise not_authorised("only an administrator may requeue messages of other users")
        chosen.append(ChosenDelivery(channel, each.delivery_tag, each.offset))
    yield from requeue_deliveries(queue, chosen, progress)


def _find_channels(request: ApiRequest, names: set[str]) -> Steps[dict[str, Channel]]:
    found: dict[str, Channel] = {}
    connections: list[Connection] = list(request.console.server.connections)
    for connection in connections:
        prefix = connection_name(connection)
        for number, channel in list(connection.session.channels.items()):
            name = f"{prefix} ({number})"
            if name in names:
                found[name] = channel
        yield 1 + len(connection.session.channels) // _CHANNELS_PER_UNIT
    return found
