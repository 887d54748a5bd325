"""Delayed messages: what an exchange of type `x-delayed-message` and the header `x-delay` say.

Both are those of RabbitMQ's delayed-message plugin. The exchange routes like one of another type, which its
argument `x-delayed-type` names, but a message that asks for a delay is held first (see `delayed_queue`), and routed
when it is due. It leaves with the delay made negative: it is not held again, and its receiver can tell.
"""

from collections.abc import Collection
from typing import Final

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable, Timestamp

from .checks import MAX_EXPIRY_MS

DELAYED_EXCHANGE_TYPE: Final = "x-delayed-message"
DELAYED_TYPE_ARGUMENT: Final = "x-delayed-type"
_DELAY_HEADER: Final = "x-delay"
_DELAY_DIGITS_MAX: Final = 18


def check_delayed_type(arguments: FieldTable, exchange_types: Collection[str]) -> None:
    """An exchange that delays must say which of the other kinds it is otherwise."""
    exchange_type = arguments.get(DELAYED_TYPE_ARGUMENT)
    if exchange_type == DELAYED_EXCHANGE_TYPE:
        raise PreconditionFailedError(
            f"Invalid argument, '{DELAYED_EXCHANGE_TYPE}' can't be used for '{DELAYED_TYPE_ARGUMENT}'"
        )
    if not isinstance(exchange_type, str) or exchange_type not in exchange_types:
        raise PreconditionFailedError(
            f"Invalid argument, '{DELAYED_TYPE_ARGUMENT}' must be an existing exchange type:"
            f" {', '.join(sorted(exchange_types))}"
        )


def read_delay_ms(headers: FieldTable) -> int:
    """The milliseconds that a message asks to be held for; 0 where it is no number, or a negative one."""
    match headers.get(_DELAY_HEADER):
        case bool() | Timestamp():
            return 0
        case int() | float() as number:
            return int(min(max(0, number), MAX_EXPIRY_MS))
        case str() as text if text.isascii() and text.isdigit() and len(text) <= _DELAY_DIGITS_MAX:
            return min(int(text), MAX_EXPIRY_MS)
        case _:
            return 0


def mark_delayed(headers: FieldTable) -> FieldTable:
    """The headers of a message that was held."""
    return {**headers, _DELAY_HEADER: -read_delay_ms(headers)}
