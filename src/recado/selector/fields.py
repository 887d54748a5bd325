"""The message fields that a selector can name, and their types."""

from difflib import get_close_matches
from typing import Final

from .tree import ValueType

HEADERS_FIELD: Final = "headers"
JSON_FIELD: Final = "json"
BODY_FIELD: Final = "body"

FIELD_TYPES: Final[dict[str, ValueType]] = {
    # AMQP properties
    "content_type": ValueType.TEXT,
    "content_encoding": ValueType.TEXT,
    "delivery_mode": ValueType.NUMBER,
    "priority": ValueType.NUMBER,
    "correlation_id": ValueType.TEXT,
    "reply_to": ValueType.TEXT,
    "expiration": ValueType.TEXT,
    "message_id": ValueType.TEXT,
    "timestamp": ValueType.NUMBER,
    "type": ValueType.TEXT,
    "user_id": ValueType.TEXT,
    "app_id": ValueType.TEXT,
    "cluster_id": ValueType.TEXT,
    # origin of the message
    "exchange": ValueType.TEXT,
    "routing_key": ValueType.TEXT,
    "publisher": ValueType.TEXT,
    "sequence": ValueType.NUMBER,
    "offset": ValueType.NUMBER,
    BODY_FIELD: ValueType.TEXT,
}

ALIASES: Final = {"key": "routing_key"}

# Fields of one octet, which are int in a message. Comparing the int gives the same result as comparing the
# double, so a comparison needs no conversion.
OCTET_FIELDS: Final = frozenset(("delivery_mode", "priority"))


def explain_unknown_field(name: str, known: frozenset[str]) -> str:
    """Return the error text for a field name that is not one of `known`."""
    if name in (*FIELD_TYPES, HEADERS_FIELD, JSON_FIELD):
        return f"the field {name} is not available here"
    close = get_close_matches(name, sorted(known), 1)
    if close:
        return f"unknown field {name}; did you mean {close[0]}?"
    return (
        f"unknown field {name}: "
        f"write headers.{name} for a header, json.{name} for a field of a JSON body"
    )
