"""A message that is not like the others: with copies (CC, BCC), or with an address for a direct reply.

Its properties are read when it is published, and changed where its receivers must not see them as they came.
"""

from collections.abc import Callable

from recado.amqp.errors import PreconditionFailed
from recado.amqp.facts import REPLY_HERE
from recado.amqp.frames import properties_of
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import Table

from .dead_letter import receivers_in, rewritten
from .run import Run


def read_single(one: Run) -> tuple[Properties, list[str], int]:
    """The properties of a message, the routing keys of its copies, and the bytes read; bad ones are refused."""
    encoded = properties_of(one.contents()[0])
    properties = decode_properties(encoded)
    headers = properties.headers or {}
    more_keys = [*_checked_keys(headers, "CC"), *_checked_keys(headers, "BCC")]
    return properties, more_keys, len(encoded)


def delivered_form(one: Run, properties: Properties, reply_queue: str | None) -> Run:
    """The message without its blind copies, and with the address that a direct reply goes to."""
    if "BCC" not in (properties.headers or {}) and properties.reply_to != REPLY_HERE:
        return one
    for _, changed in rewritten(one, _change(reply_queue), one.origin, one.facts):
        return changed
    raise PreconditionFailed("the message's header would not fit into a frame")


def _change(reply_queue: str | None) -> Callable[[Properties], Properties]:
    def change(properties: Properties) -> Properties:
        if properties.headers:
            properties.headers.pop("BCC", None)
        if properties.reply_to == REPLY_HERE:
            properties.reply_to = reply_queue
        return properties

    return change


def _checked_keys(headers: Table, name: str) -> list[str]:
    if name not in headers:
        return []
    keys = headers[name]
    if not isinstance(keys, list) or not all(
        isinstance(key, str) and len(key.encode()) <= 255 for key in keys
    ):
        raise PreconditionFailed(f"header '{name}' must be an array of strings of up to 255 bytes")
    return receivers_in(headers, name)
