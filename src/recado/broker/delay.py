"""Delayed messages: what an exchange of type `x-delayed-message` and the header `x-delay` say.

Both are those of RabbitMQ's delayed-message plugin. The exchange routes like one of another type, which its
argument `x-delayed-type` names, but a message that asks for a delay is held first (see `holding`), and routed
when it is due. It leaves with the delay made negative: it is not held again, and its receiver can tell.
"""

from collections.abc import Collection
from typing import Final

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table, Timestamp

from .checks import MAX_EXPIRY_MS

DELAYED: Final = "x-delayed-message"
TYPE_ARGUMENT: Final = "x-delayed-type"
_HEADER: Final = "x-delay"
_MOST_DIGITS: Final = 18


def check_delayed_type(arguments: Table, kinds: Collection[str]) -> None:
    """An exchange that delays must say which of the other kinds it is otherwise."""
    kind = arguments.get(TYPE_ARGUMENT)
    if kind == DELAYED:
        raise PreconditionFailed(
            f"Invalid argument, '{DELAYED}' can't be used for '{TYPE_ARGUMENT}'"
        )
    if not isinstance(kind, str) or kind not in kinds:
        raise PreconditionFailed(
            f"Invalid argument, '{TYPE_ARGUMENT}' must be an existing exchange type:"
            f" {', '.join(sorted(kinds))}"
        )


def delay_of(headers: Table) -> int:
    """The milliseconds that a message asks to be held for; 0 where it is no number, or a negative one."""
    match headers.get(_HEADER):
        case bool() | Timestamp():
            return 0
        case int() | float() as number:
            return int(min(max(0, number), MAX_EXPIRY_MS))
        case str() as text if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
            return min(int(text), MAX_EXPIRY_MS)
        case _:
            return 0


def served(headers: Table) -> Table:
    """The headers of a message that was held."""
    return {**headers, _HEADER: -delay_of(headers)}
