"""The fields that a selector may name, and of what kind they are."""

from difflib import get_close_matches
from typing import Final

from .tree import ValueType

HEADERS_FIELD: Final = "headers"
JSON_FIELD: Final = "json"
BODY_FIELD: Final = "body"

FIELD_TYPES: Final[dict[str, ValueType]] = {
    # AMQP's properties
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
    # where it came from
    "exchange": ValueType.TEXT,
    "routing_key": ValueType.TEXT,
    "publisher": ValueType.TEXT,
    "sequence": ValueType.NUMBER,
    "offset": ValueType.NUMBER,
    BODY_FIELD: ValueType.TEXT,
}

ALIASES: Final = {"key": "routing_key"}

# Octets: they are the same number as an int and as a double, whatever they are compared with.
OCTET_FIELDS: Final = frozenset(("delivery_mode", "priority"))


def explain_unknown_field(name: str, known: frozenset[str]) -> str:
    """What to say of a name that is none of those known."""
    if name in (*FIELD_TYPES, HEADERS_FIELD, JSON_FIELD):
        return f"{name} is not known here"
    close = get_close_matches(name, sorted(known), 1)
    if close:
        return f"there is no field {name}; did you mean {close[0]}?"
    return (
        f"there is no field {name}: "
        f"a header is headers.{name}, a field of a JSON body is json.{name}"
    )
