"""Messages that are routed individually: with CC or BCC keys, or with the address of a direct reply.

Their properties are read when they are published, and changed where receivers must not see them.
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
    """Return the properties of a message, its CC and BCC keys, and the number of bytes read.

    Raises `PreconditionFailedError` if CC or BCC is invalid.
    """
    encoded = extract_properties(message.contents()[0])
    properties = decode_properties(encoded)
    return properties, read_copy_keys(properties.headers or {}), len(encoded)


def read_copy_keys(headers: FieldTable) -> list[str]:
    """Return the CC and BCC keys of a message. Raises `PreconditionFailedError` if CC or BCC is invalid."""
    return [*_read_routing_keys(headers, "CC"), *_read_routing_keys(headers, "BCC")]


def prepare_for_delivery(message: Run, properties: Properties, reply_queue: str | None) -> Run:
    """Return the message without its BCC keys, and with the actual address for a direct reply.

    Raises `PreconditionFailedError` if the changed header does not fit into a frame.
    """
    if "BCC" not in (properties.headers or {}) and properties.reply_to != DIRECT_REPLY_TO:
        return message
    rewritten = rewrite_properties(message, _redact(reply_queue), message.origin, message.traits)
    _, changed = next(rewritten, (None, None))  # messages whose header does not fit are left out
    if changed is None:
        raise PreconditionFailedError("the message header does not fit into a frame")
    return changed


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
