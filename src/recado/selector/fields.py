"""The fields that a selector may name, and of what kind they are."""

from difflib import get_close_matches
from typing import Final

from .tree import Kind

HEADERS: Final = "headers"
JSON: Final = "json"
BODY: Final = "body"

FIELDS: Final[dict[str, Kind]] = {
    # AMQP's properties
    "content_type": Kind.TEXT,
    "content_encoding": Kind.TEXT,
    "delivery_mode": Kind.NUMBER,
    "priority": Kind.NUMBER,
    "correlation_id": Kind.TEXT,
    "reply_to": Kind.TEXT,
    "expiration": Kind.TEXT,
    "message_id": Kind.TEXT,
    "timestamp": Kind.NUMBER,
    "type": Kind.TEXT,
    "user_id": Kind.TEXT,
    "app_id": Kind.TEXT,
    "cluster_id": Kind.TEXT,
    # where it came from
    "exchange": Kind.TEXT,
    "routing_key": Kind.TEXT,
    "publisher": Kind.TEXT,
    "sequence": Kind.NUMBER,
    "offset": Kind.NUMBER,
    BODY: Kind.TEXT,
}

ALIASES: Final = {"key": "routing_key"}

# Octets: they are the same number as an int and as a double, whatever they are compared with.
OCTETS: Final = frozenset(("delivery_mode", "priority"))


def unknown(name: str, known: frozenset[str]) -> str:
    """What to say of a name that is none of those known."""
    if name in (*FIELDS, HEADERS, JSON):
        return f"{name} is not known here"
    close = get_close_matches(name, sorted(known), 1)
    if close:
        return f"there is no field {name}; did you mean {close[0]}?"
    return (
        f"there is no field {name}: "
        f"a header is headers.{name}, a field of a JSON body is json.{name}"
    )
