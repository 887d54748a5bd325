"""Read one field of a message, named as in selectors, to group or recognise messages by it.

json.order.id      a field of the body
headers.customer   a header
correlation_id     a property
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, TypeAlias

from recado.selector.values import get_nested_field

from ..errors import CompositionError, RejectMessageError
from ..message import Message
from .message_selector import body_object

MessageField: TypeAlias = str | Callable[[Message[Any]], object]

_PROPERTIES: Final = frozenset(
    ("app_id", "correlation_id", "key", "message_id", "reply_to", "type", "user_id")
)
_KEY_CHARACTERS_MAX: Final = 128


def to_reader(field: MessageField) -> Callable[[Message[Any]], object]:
    """Return a function that reads a field of a message. Raises `CompositionError`."""
    if not isinstance(field, str):
        return field
    if field in _PROPERTIES:
        return lambda message: getattr(message, field)
    first, *path = field.split(".")
    if first not in ("json", "headers") or not all(path) or not path:
        raise CompositionError(
            f"unknown field '{field}': write json.<field>, headers.<header>, one of"
            f" {', '.join(sorted(_PROPERTIES))}, or a function of the message"
        )
    if first == "headers":
        return lambda message: get_nested_field(dict(message.headers), path)
    return lambda message: get_nested_field(body_object(message), path)


def to_key(value: object, field: MessageField) -> str:
    """Return the value of a field as the key of an entry; a long text is replaced by a digest.

    Raises `RejectMessageError` if the message does not have the field, or it is not a plain value.
    """
    if not isinstance(value, str | int | float) or value == "":
        raise RejectMessageError(
            f"the message cannot be correlated: {_name(field)} is {type(value).__name__}, not a text or number"
        )
    text = str(value)
    if len(text) > _KEY_CHARACTERS_MAX or "\0" in text:
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{text[:32]}#{digest}".replace("\0", " ")
    return text


def _name(field: MessageField) -> str:
    return field if isinstance(field, str) else "the result of its function"
