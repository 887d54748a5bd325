"""A message that is not like the others: with copies (CC, BCC), or with an address for a direct reply.

Its properties are read when it is published, and changed where its receivers must not see them as they came.
"""

from collections.abc import Callable

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.frames import extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.amqp.values import FieldTable

from .dead_letter import read_routing_keys, rewrite_properties
from .run import Run


def read_single(message: Run) -> tuple[Properties, list[str], int]:
    """The properties of a message, the routing keys of its copies, and the bytes read; bad ones are refused."""
    encoded = extract_properties(message.contents()[0])
    properties = decode_properties(encoded)
    headers = properties.headers or {}
    more_keys = [*_read_routing_keys(headers, "CC"), *_read_routing_keys(headers, "BCC")]
    return properties, more_keys, len(encoded)


def prepare_for_delivery(message: Run, properties: Properties, reply_queue: str | None) -> Run:
    """The message without its blind copies, and with the address that a direct reply goes to."""
    if "BCC" not in (properties.headers or {}) and properties.reply_to != DIRECT_REPLY_TO:
        return message
    for _, changed in rewrite_properties(
        message, _redact(reply_queue), message.origin, message.traits
    ):
        return changed
    raise PreconditionFailedError("the message's header would not fit into a frame")


def _redact(reply_queue: str | None) -> Callable[[Properties], Properties]:
    def change(properties: Properties) -> Properties:
        if properties.headers:
            properties.headers.pop("BCC", None)
        if properties.reply_to == DIRECT_REPLY_TO:
            properties.reply_to = reply_queue
        return properties

    return change


def _read_routing_keys(headers: FieldTable, name: str) -> list[str]:
    if name not in headers:
        return []
    keys = headers[name]
    if not isinstance(keys, list) or not all(
        isinstance(key, str) and len(key.encode()) <= 255 for key in keys
    ):
        raise PreconditionFailedError(
            f"header '{name}' must be an array of strings of up to 255 bytes"
        )
    return read_routing_keys(headers, name)
