"""Fields that selectors can use on messages of a feed; the columns of an archive have the same names and
values."""

from __future__ import annotations

from collections.abc import Callable

from recado.selector import SelectorError, compile_predicate, parse
from recado.selector.tree import MessageField, iterate_fields

from .message import Message
from .naming import broadcast_exchange

PROPERTY_FIELDS = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


def compile_selector(selector: str, feed: str) -> Callable[[Message], bool]:
    """Compile a selector to a predicate. Raises `SelectorError`, which shows the position."""
    parsed = parse(selector)
    for field in iterate_fields(parsed.condition):
        if isinstance(field, MessageField) and field.name == "offset":
            reason = "messages of a feed have no offset, only rows of an archive; use sequence"
            raise SelectorError(selector, field.offset, reason)
    return compile_predicate(parsed, field_readers(feed))


def field_readers(feed: str) -> dict[str, str | Callable[[Message], object]]:
    """Return how to read each field of a message: an attribute name or a function."""
    exchange = broadcast_exchange(feed)
    return {
        **{name: property_reader(name) for name in PROPERTY_FIELDS},
        "message_id": lambda message: message.message_id or None,
        "timestamp": lambda message: message.timestamp / 1e6,
        "exchange": lambda message: exchange,
        "routing_key": "key",
        "publisher": lambda message: message.publisher.hex(),
    }


def property_reader(name: str) -> Callable[[Message], object]:
    def read(message: Message) -> object:
        return None if message.properties is None else getattr(message.properties, name)

    return read
