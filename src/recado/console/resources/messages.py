"""Publish and get messages over HTTP: for tests and repairs, not for traffic."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from recado.amqp.errors import AmqpError
from recado.amqp.properties import Properties
from recado.broker.channel import Settlement
from recado.definitions.exporter import to_json_object

from ..access import Access
from ..local_channel import GotMessage
from ..query import Listing
from ..request import Answer, ApiError, ApiRequest, bad_request, check_name, read_field
from ..routes import API
from .topology import permissions_of, to_field_table

FIELD_MAX_BYTES: Final = 256 * 1024  # of a field other than the payload
GET_MAX_COUNT: Final = 1_000
GET_MAX_BYTES: Final = 64 << 20  # of bodies in one answer

ACK_MODES: Final = {
    "ack_requeue_true": Settlement.REQUEUE,
    "reject_requeue_true": Settlement.REQUEUE,
    "ack_requeue_false": Settlement.ACK,
    "reject_requeue_false": Settlement.REJECT,
}


@API.add("POST", "/api/exchanges/{vhost}/{exchange}/publish", Access.VHOST)
def publish(request: ApiRequest) -> Answer:
    """Publish a message: `properties`, `routing_key`, `payload` and `payload_encoding` (string or base64)."""
    body = _read_message(request)
    vhost, alarm = request.vhost(), request.console.server.alarm
    if alarm is not None:  # AMQP publishers are blocked as well
        raise ApiError(503, "alarm", f"publishers are blocked: {alarm}")
    payload = _decode_payload(body)
    properties = _read_properties(read_field(body, "properties", dict, {}))
    routing_key = check_name("routing_key", read_field(body, "routing_key", str, ""))
    channel = request.console.open_channel(request, vhost.name)
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


def _read_message(request: ApiRequest) -> dict[str, Any]:
    """Decode a request to publish. Raises `ApiError`.

    Only the payload may be long, and only a string: decoding 20 MB of small arrays would take three seconds.
    """
    try:
        encoded = msgspec.json.decode(request.content or b"{}", type=_EncodedMessage)
        fields = {name: getattr(encoded, name) for name in encoded.__struct_fields__}
        missing = [name for name, value in fields.items() if not bytes(value)]
        if missing:
            raise bad_request(f"[{','.join(f'{{key_missing,{name}}}' for name in missing)}]")
        payload = msgspec.json.decode(fields.pop("payload"), type=str)
        for name, value in fields.items():
            if len(bytes(value)) > FIELD_MAX_BYTES:
                raise bad_request(f"{name}: longer than {FIELD_MAX_BYTES} bytes")
        decoded = {name: msgspec.json.decode(value) for name, value in fields.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the request body is not a message in JSON: {error}") from error
    return {**decoded, "payload": payload}


def _decode_payload(body: dict[str, Any]) -> bytes:
    payload, encoding = read_field(body, "payload", str, ""), body["payload_encoding"]
    if encoding == "string":
        return payload.encode(errors="surrogatepass")
    if encoding == "base64":
        try:
            return base64.b64decode(payload, validate=True)
        except binascii.Error as error:
            raise bad_request(f"payload: not base64: {error}") from error
    raise bad_request(f"payload_encoding: expected string or base64, got {encoding!r}")


def _read_properties(values: dict[str, Any]) -> Properties:
    names = set(Properties.__struct_fields__)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in names:
            raise bad_request(f"properties: unknown property {name!r}")
        if name == "headers":
            if not isinstance(value, dict):
                raise bad_request("properties.headers: expected an object")
            checked[name] = to_field_table(value, "properties.headers")
        elif name == "timestamp":
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
                raise bad_request("properties.timestamp: expected seconds since 1970")
            checked[name] = value
        elif name in ("delivery_mode", "priority"):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
                raise bad_request(f"properties.{name}: expected a number from 0 to 255")
            checked[name] = value
        else:
            text = str(value) if isinstance(value, int) and name == "expiration" else value
            if not isinstance(text, str) or len(text.encode()) > 255:
                raise bad_request(f"properties.{name}: expected a string of at most 255 bytes")
            checked[name] = text
    return Properties(**checked)


@API.add("POST", "/api/queues/{vhost}/{queue}/get", Access.VHOST)
def get_messages(request: ApiRequest) -> Answer:
    """Get messages: `count`, `ackmode`, `encoding` (auto or base64) and optionally `truncate`, in bytes.

    Requeued messages are marked as redelivered.
    """
    vhost = request.vhost()
    name = request.parameters["queue"]
    permissions_of(request, vhost).check_read("queue", name)
    queue = vhost.find_accessible_queue(None, name)
    body = request.require("ackmode", "encoding", "count")
    mode, encoding = read_field(body, "ackmode", str, ""), read_field(body, "encoding", str, "")
    if mode not in ACK_MODES:
        raise bad_request(f"ackmode: expected one of {', '.join(ACK_MODES)}, got {mode!r}")
    if encoding not in ("auto", "base64"):
        raise bad_request(f"encoding: expected auto or base64, got {encoding!r}")
    count = _read_count(body["count"])
    truncate = read_field(body, "truncate", int, -1)
    settlement = ACK_MODES[mode]
    channel = request.console.open_channel(request, vhost.name)
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
            lambda message: _message_object(message, encoding, truncate),
            lambda message: message.method.routing_key,
        ),
        durable=settlement is not Settlement.REQUEUE,
    )


def _read_count(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise bad_request("count: expected a number of at least 1")
    return min(value, GET_MAX_COUNT)


def _message_object(message: GotMessage, encoding: str, truncate: int) -> dict[str, Any]:
    method, body = message.method, message.body
    shown = body if truncate < 0 else body[:truncate]
    payload, payload_encoding = _encode_payload(shown, encoding)
    return {
        "payload_bytes": len(body),
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        "properties": properties_object(message.properties),
        "payload": payload,
        "payload_encoding": payload_encoding,
    }


def _encode_payload(body: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), "base64"


def properties_object(properties: Properties) -> dict[str, Any]:
    """Return the properties that are set as a JSON object."""
    described: dict[str, Any] = {}
    for name in Properties.__struct_fields__:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "headers":
            described[name] = to_json_object(value)
        else:
            described[name] = msgspec.to_builtins(value)
    return described
