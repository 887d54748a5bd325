"""Live views of queues: copies of messages as they enter a queue."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from recado.amqp.properties import decode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT

from ..access import Access
from ..body import read_body
from ..query import QueryParameter
from ..queue_tap import QueueTap, TappedMessage
from ..request import Answer, ApiRequest, bad_request, not_found
from ..routes import API
from .queue_operations import Selector, find_readable_queue
from .topology import access_to

AFTER: Final = QueryParameter(
    "after",
    "Return only messages with a higher `number`; those before are forgotten.",
    Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)],
)


class TapToOpen(msgspec.Struct):
    """Which messages of the queue to show."""

    selector: Selector = ""


@API.add(
    "POST", "/api/queues/{vhost}/{queue}/tap", Access.VHOST, answers=(201, 429), body=TapToOpen
)
def open_tap(request: ApiRequest) -> Answer:
    """Show messages live as they enter a queue or stream, without taking any; the answer has an `id` to read from.

    A live view that is not read for 15 seconds ends.
    """
    queue, body = find_readable_queue(request), read_body(request, TapToOpen)
    message_filter = request.message_access.parse_selector(body.selector)
    tap = request.console.taps.open(queue, message_filter, request.user.name)
    return Answer(201, body={"id": tap.id})


@API.add("GET", "/api/taps/{tap}", Access.MANAGEMENT, query=(AFTER,))
def read_tap(request: ApiRequest) -> Answer:
    """Return the messages that have entered the queue since; `skipped` counts those that were not kept.

    At most 100 messages are kept between two requests, each with the first 16 KiB of its body.
    """
    tap = _find_tap(request)
    access_to(request, tap.queue.vhost).permissions.check_read("queue", tap.queue.name)
    text = request.query.get(AFTER.name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise bad_request("after: expected a number")
    return Answer(
        body={
            "vhost": tap.queue.vhost.name,
            "queue": tap.queue.name,
            "entered": tap.entered_count,
            "skipped": tap.skipped_count,
            "queue_deleted": tap.queue.deleted,
            "messages": [_message_object(request, each) for each in tap.read(int(text))],
        }
    )


@API.add("DELETE", "/api/taps/{tap}", Access.MANAGEMENT)
def close_tap(request: ApiRequest) -> Answer:
    """End a live view."""
    request.console.taps.close_tap(_find_tap(request))
    return Answer(204, is_change=False)


def _find_tap(request: ApiRequest) -> QueueTap:
    tap = request.console.taps.find(request.parameters["tap"], request.user.name)
    if tap is None:
        raise not_found()
    return tap


def _message_object(request: ApiRequest, message: TappedMessage) -> dict[str, Any]:
    properties = decode_properties(message.properties, max_entries=STORED_MAX_ENTRY_COUNT)
    return {
        "number": message.number,
        "at": message.at,
        "offset": message.offset,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        **request.message_access.describe(properties, message.body, body_bytes=message.body_bytes),
    }
