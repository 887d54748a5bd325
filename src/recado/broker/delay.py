"""The exchange type `x-delayed-message` and the header `x-delay`, as in RabbitMQ's delayed-message plugin.

The exchange routes like one of the type in its argument `x-delayed-type`, but a message with a delay is
first held in the exchange's `delayed_queue`, and routed when it is due. It is delivered with the delay made
negative: so it is not held again, and its receiver can see that it was delayed.
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
    """Raise `PreconditionFailedError` unless the argument names one of the other exchange types."""
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
    """Return the requested delay in milliseconds; 0 if it is negative or not a number."""
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
    """Return the headers of a message that has been delayed."""
    return {**headers, _DELAY_HEADER: -read_delay_ms(headers)}
