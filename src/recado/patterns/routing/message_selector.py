"""Selectors and predicates over messages of this package.

A selector has the syntax of `recado.selector`. Its fields are read from the message as a handler sees it:

    json.price, json."unit price"    a field of the body object, whatever format it was sent in: a dict of plain
                                     values, a struct, a dataclass, an attrs class or a pydantic model
    body                             the text of a str or bytes body, and the JSON encoding of any other
    headers.colour                   a header
    priority, key, type, exchange …  the properties of AMQP
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from recado.selector import SelectorError, compile_predicate, parse
from recado.selector.values import MAX_BODY_BYTES, decode_body_json

from ..errors import CompositionError
from ..message import Message

MessagePredicate: TypeAlias = Callable[[Message[Any]], bool]

_TEXT_TYPES: Final = ("text/", "application/text")
_KNOWN_FIELDS: Final = frozenset(
    {
        "content_type",
        "content_encoding",
        "headers",
        "delivery_mode",
        "priority",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "timestamp",
        "type",
        "user_id",
        "app_id",
        "exchange",
        "routing_key",
        "body",
        "json",
    }
)


class MessageSelector:
    """A selector, parsed and compiled once. Calling it tells whether it is true for a message.

    Raises `CompositionError` with the position of the error if the text is not a valid selector.
    """

    __slots__ = ("matches", "text")

    def __init__(self, text: str) -> None:
        self.text: Final = text
        try:
            self.matches: Final = compile_predicate(parse(text, _KNOWN_FIELDS), _PATHS)
        except SelectorError as error:
            raise CompositionError(f"invalid selector: {error}") from error

    def __call__(self, message: Message[Any]) -> bool:
        """Return whether the selector is true for the message."""
        return self.matches(message)

    def __repr__(self) -> str:
        return f"MessageSelector({self.text!r})"


SelectorLike: TypeAlias = str | MessageSelector | MessagePredicate


def to_predicate(condition: SelectorLike) -> MessagePredicate:
    """Return a function of a message for a selector, its text, or a function that is returned as it is."""
    if isinstance(condition, str):
        return MessageSelector(condition).matches
    if isinstance(condition, MessageSelector):
        return condition.matches
    if not callable(condition):
        raise CompositionError(
            f"a condition is a selector or a function of the message, not {condition!r:.100}"
        )
    return condition


def _exchange(message: Message[Any]) -> str | None:
    return None if message.delivery is None else message.delivery.exchange


def _delivery_mode(message: Message[Any]) -> int:
    return 2 if message.persistent else 1


def _expiration(message: Message[Any]) -> str | None:
    return None if message.expiration is None else str(round(message.expiration * 1000))


def _timestamp(message: Message[Any]) -> float | None:
    return None if message.timestamp is None else message.timestamp.timestamp()


def _body_text(message: Message[Any]) -> bytes | None:
    body = message.body
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str) and _is_text(message):
        return body.encode(errors="surrogatepass")
    try:
        return msgspec.json.encode(body, enc_hook=_to_plain)
    except (TypeError, ValueError, RecursionError):
        return None


def body_object(message: Message[Any]) -> Any:
    """Return the body as plain values, from which `json.…` is read; None if it has no such form."""
    body = message.body
    if type(body) is dict:
        return body
    if isinstance(body, bytes | bytearray | memoryview):
        return decode_body_json(bytes(body))
    if isinstance(body, str):
        is_json = len(body) <= MAX_BODY_BYTES and _is_text(message)
        return decode_body_json(body.encode(errors="surrogatepass")) if is_json else body
    try:
        return msgspec.to_builtins(body, str_keys=True, enc_hook=_to_plain)
    except (TypeError, ValueError, RecursionError):
        return None


def _is_text(message: Message[Any]) -> bool:
    """Whether a str body is the text that was sent, not a value that is encoded as JSON."""
    return message.content_type is not None and message.content_type.startswith(_TEXT_TYPES)


def _to_plain(value: Any) -> Any:
    """Return the fields of an object that msgspec does not know, such as a pydantic model."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError
    return dump(mode="json")


_PATHS: Final[dict[str, str | Callable[[Any], Any]]] = {
    "routing_key": "key",
    "exchange": _exchange,
    "delivery_mode": _delivery_mode,
    "expiration": _expiration,
    "timestamp": _timestamp,
    "body": _body_text,
    "json": body_object,
}
