"""Publish and get messages over HTTP: for tests and repairs, not for traffic."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Literal

import msgspec

from recado.amqp.errors import AmqpError
from recado.amqp.properties import Properties
from recado.broker.channel import Settlement

from ..access import Access
from ..body import Integer, read_body, read_fields
from ..local_channel import GotMessage
from ..message_access import MessageAccess
from ..query import Listing
from ..request import NAME_MAX_BYTES, Answer, ApiError, ApiRequest, bad_request, check_name
from ..routes import API, Content
from .topology import access_to, to_field_table

FIELD_MAX_BYTES: Final = 256 * 1024  # of a field other than the payload
GET_MAX_COUNT: Final = 1_000
GET_MAX_BYTES: Final = 64 << 20  # of bodies in one answer

ShortText = Annotated[str, msgspec.Meta(max_length=NAME_MAX_BYTES)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Octet = Annotated[int, msgspec.Meta(ge=0, le=255)]

ACK_MODES: Final = {
    "ack_requeue_true": Settlement.REQUEUE,
    "reject_requeue_true": Settlement.REQUEUE,
    "ack_requeue_false": Settlement.ACK,
    "reject_requeue_false": Settlement.REJECT,
}


class MessageProperties(msgspec.Struct, forbid_unknown_fields=True):
    """AMQP's properties of a message."""

    content_type: ShortText | msgspec.UnsetType = msgspec.UNSET
    content_encoding: ShortText | msgspec.UnsetType = msgspec.UNSET
    headers: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    delivery_mode: Octet | msgspec.UnsetType = msgspec.UNSET
    priority: Octet | msgspec.UnsetType = msgspec.UNSET
    correlation_id: ShortText | msgspec.UnsetType = msgspec.UNSET
    reply_to: ShortText | msgspec.UnsetType = msgspec.UNSET
    expiration: ShortText | Integer | msgspec.UnsetType = msgspec.UNSET
    message_id: ShortText | msgspec.UnsetType = msgspec.UNSET
    timestamp: Seconds | msgspec.UnsetType = msgspec.UNSET
    type: ShortText | msgspec.UnsetType = msgspec.UNSET
    user_id: ShortText | msgspec.UnsetType = msgspec.UNSET
    app_id: ShortText | msgspec.UnsetType = msgspec.UNSET
    cluster_id: ShortText | msgspec.UnsetType = msgspec.UNSET


class MessageToPublish(msgspec.Struct):
    """A message, and how its payload is written."""

    properties: MessageProperties
    routing_key: ShortText
    payload: str
    payload_encoding: Literal["string", "base64"]


class MessagesToGet(msgspec.Struct):
    """How many messages to get, what becomes of them, and how their payloads are written."""

    count: Annotated[int, msgspec.Meta(ge=1)] | Annotated[str, msgspec.Meta(pattern="^[0-9]{1,9}$")]
    ackmode: Literal[
        "ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false"
    ]
    encoding: Literal["auto", "base64"]
    truncate: Annotated[
        Integer, msgspec.Meta(description="Bytes of a payload to return; all if negative.")
    ] = -1


@API.add(
    "POST",
    "/api/exchanges/{vhost}/{exchange}/publish",
    Access.VHOST,
    answers=(200, 503),
    body=MessageToPublish,
)
def publish(request: ApiRequest) -> Answer:
    """Publish a message; the answer tells whether it was routed to a queue."""
    body = _read_message(request)
    vhost, alarm = request.vhost(), request.console.server.alarm
    if alarm is not None:  # AMQP publishers are blocked as well
        raise ApiError(503, "alarm", f"publishers are blocked: {alarm}")
    payload = _decode_payload(body)
    properties = read_properties(body.properties)
    routing_key = check_name("routing_key", body.routing_key)
    channel = request.console.open_channel(request, access_to(request, vhost))
    try:
        routed = channel.publish(
            request.parameters["exchange"],
            routing_key,
            properties,
            payload,
        )
    except AmqpError as error:
        raise bad_request(f"{error.code} {error.reply_text}") from error
    finally:
        channel.close()
    return Answer(body={"routed": routed}, durable=True)


class _EncodedMessage(msgspec.Struct):
    """The fields of a message, each still encoded; other fields are skipped."""

    routing_key: msgspec.Raw = msgspec.Raw()
    properties: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()
    payload_encoding: msgspec.Raw = msgspec.Raw()


def _read_message(request: ApiRequest) -> MessageToPublish:
    """Decode a request to publish. Raises `ApiError`.

    Only the payload may be long, and only a string: decoding 20 MB of small arrays would take three seconds.
    """
    name, decoded = "the request body", {}
    try:
        encoded = msgspec.json.decode(request.content or b"{}", type=_EncodedMessage)
        for name in encoded.__struct_fields__:
            value = bytes(getattr(encoded, name))
            if not value:
                continue
            if name == "payload":
                decoded[name] = msgspec.json.decode(value, type=str)
            elif len(value) <= FIELD_MAX_BYTES:
                decoded[name] = msgspec.json.decode(value)
            else:
                raise bad_request(f"{name}: longer than {FIELD_MAX_BYTES} bytes")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"{name}: {error}") from error
    return read_fields(decoded, MessageToPublish)


def _decode_payload(body: MessageToPublish) -> bytes:
    if body.payload_encoding == "string":
        return body.payload.encode()
    try:
        return base64.b64decode(body.payload, validate=True)
    except ValueError as error:
        raise bad_request(f"payload: not base64: {error}") from error


def read_properties(values: MessageProperties) -> Properties:
    """Return properties as AMQP has them. Raises `ApiError`."""
    checked: dict[str, Any] = {}
    for name in Properties.__struct_fields__:
        value = getattr(values, name)
        if value is msgspec.UNSET:
            continue
        if isinstance(value, dict):
            value = to_field_table(value, "properties.headers")
        elif name == "expiration":
            value = str(value)
        if isinstance(value, str):
            check_name(f"properties.{name}", value)
        checked[name] = value
    return Properties(**checked)


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/get",
    Access.VHOST,
    content=Content.LIST,
    body=MessagesToGet,
)
def get_messages(request: ApiRequest) -> Answer:
    """Get messages; those that are requeued are marked as redelivered."""
    vhost = request.vhost()
    name = request.parameters["queue"]
    access = access_to(request, vhost)
    access.permissions.check_read("queue", name)
    queue = vhost.find_accessible_queue(None, name)
    body = read_body(request, MessagesToGet)
    count = min(int(body.count), GET_MAX_COUNT)
    settlement = ACK_MODES[body.ackmode]
    channel = request.console.open_channel(request, access)
    shown = request.message_access
    messages: list[GotMessage] = []
    size = 0
    try:
        while len(messages) < count and size < GET_MAX_BYTES:
            message = channel.get(queue)
            if message is None:
                break
            size += len(message.body)
            messages.append(message)
        channel.settle(settlement)
    finally:
        channel.close()
    return Answer(
        listing=Listing(
            messages,
            lambda message: _message_object(message, shown, body.encoding, body.truncate),
            lambda message: message.method.routing_key,
        ),
        durable=settlement is not Settlement.REQUEUE,
    )


def _message_object(
    message: GotMessage, shown: MessageAccess, encoding: str, truncate: int
) -> dict[str, Any]:
    method = message.method
    return {
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        **shown.describe(message.properties, message.body, encoding=encoding, truncate=truncate),
    }
