"""Operations on queues that RabbitMQ does not have: peek."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from recado.amqp.properties import decode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT, Int64
from recado.broker import checks
from recado.broker.errors import InvalidValueError
from recado.broker.peek import PeekedMessage, PeekSettings, peek
from recado.broker.queue import Queue
from recado.broker.ready_messages import MessageReader, ReadyMessages, StreamMessages
from recado.broker.stream import Stream
from recado.broker.work_queue import WorkQueue

from ..access import Access
from ..body import Integer, read_body
from ..broker_steps import run_broker_steps
from ..query import Listing
from ..request import Answer, ApiRequest, bad_request
from ..routes import API, Content
from .messages import GET_MAX_BYTES, GET_MAX_COUNT, encode_payload, properties_object
from .topology import access_to, find_queue

if TYPE_CHECKING:
    from recado.broker.message_filter import MessageFilter

Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Selector = Annotated[
    str, msgspec.Meta(description="A filter expression; only matching messages are concerned.")
]


def _find_readable_queue(request: ApiRequest) -> Queue:
    """Return the queue of the path, which the user may read. Raises `ApiError` or `AmqpError`."""
    vhost, name = request.vhost(), request.parameters["queue"]
    access_to(request, vhost).permissions.check_read("queue", name)
    find_queue(request)
    return vhost.find_accessible_queue(None, name)


def _parse_selector(text: str) -> MessageFilter | None:
    """Return the filter of a selector, None for an empty one. Raises `ApiError`."""
    if not text:
        return None
    from recado.broker.message_filter import MessageFilter
    from recado.selector import SelectorError

    try:
        return MessageFilter(text)
    except SelectorError as error:
        raise bad_request(f"selector: {error.summary}") from error


# ── peek ────────────────────────────────────────────────────────────────────────────────────────────


class MessagesToPeek(msgspec.Struct):
    """Which messages to return, and how their payloads are written."""

    count: Count = 10
    skip: Annotated[
        int,
        msgspec.Meta(ge=0, le=2**63 - 1, description="The number of messages to leave out first."),
    ] = 0
    selector: Selector = ""
    offset: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | str | msgspec.UnsetType,
        msgspec.Meta(
            description="Where to begin in a stream: an offset, `first`, `last`, or an age such as `1h`."
        ),
    ] = msgspec.UNSET
    encoding: Literal["auto", "base64"] = "auto"
    truncate: Annotated[
        Integer, msgspec.Meta(description="Bytes of a payload to return; all if negative.")
    ] = -1


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/peek",
    Access.VHOST,
    content=Content.LIST,
    body=MessagesToPeek,
)
def peek_messages(request: ApiRequest) -> Answer:
    """Return messages of a queue or stream without removing or changing them."""
    queue, body = _find_readable_queue(request), read_body(request, MessagesToPeek)
    settings = PeekSettings(
        count=min(body.count, GET_MAX_COUNT),
        bytes_max=GET_MAX_BYTES,
        skip=body.skip,
        body_bytes_max=None if body.truncate < 0 else body.truncate,
        message_filter=_parse_selector(body.selector),
    )
    reader = _open_reader(queue, body.offset, request.now_ms)

    async def wait() -> Answer:
        messages = await run_broker_steps(request, peek(reader, settings, request.now_ms))
        return Answer(
            listing=Listing(
                messages,
                lambda message: _peeked_object(message, body.encoding),
                lambda message: message.routing_key,
            )
        )

    return Answer(wait=wait)


def _open_reader(queue: Queue, offset: int | str | msgspec.UnsetType, now: int) -> MessageReader:
    if isinstance(queue, Stream):
        return StreamMessages(queue, _parse_offset(offset), now)
    if offset is not msgspec.UNSET:
        raise bad_request("offset: only a stream is read from an offset; use skip for a queue")
    assert isinstance(queue, WorkQueue)
    return ReadyMessages(queue)


def _parse_offset(offset: int | str | msgspec.UnsetType) -> checks.StreamOffset:
    if offset is msgspec.UNSET:
        return checks.StreamOffset("first")
    try:
        return checks.stream_offset(Int64(offset) if isinstance(offset, int) else offset)
    except InvalidValueError as error:
        raise bad_request(
            "offset: expected a number, first, last, next, or an age such as 1h"
        ) from error


def _peeked_object(message: PeekedMessage, encoding: str) -> dict[str, Any]:
    properties = decode_properties(message.properties, max_entries=STORED_MAX_ENTRY_COUNT)
    payload, payload_encoding = encode_payload(message.body, encoding)
    return {
        "offset": message.offset,
        "payload_bytes": message.body_bytes,
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "properties": properties_object(properties),
        "payload": payload,
        "payload_encoding": payload_encoding,
    }
