"""Bindings between an exchange and a destination, and the interface of matchers.

A destination is a queue or another exchange. `Destination` declares what routing needs from a queue; this
module is generic over the queue class.
"""

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable, encode_table

from .arguments import QueueSettings
from .steps import STEP_UNITS_MAX, Steps, chunks

# A binding with this argument set to true is a fallback, used only if no binding without it matches.
DEAD_LETTER_BINDING_ARGUMENT: Final = "x-dead-letter-binding"

BINDINGS_PER_UNIT: Final = 16  # to find, sort and follow them: 0.3 µs each
_BINDINGS_PER_STEP: Final = STEP_UNITS_MAX * BINDINGS_PER_UNIT


class Destination(Protocol):
    """A queue as routing sees it. Hashed by identity."""

    @property
    def name(self) -> str: ...

    @property
    def declared_settings(self) -> QueueSettings:
        """The settings of the declaration, without policies."""

    @property
    def stores_bindings(self) -> bool:
        """Whether new bindings to the queue are stored, if their source is durable."""

    @property
    def has_stored_bindings(self) -> bool:
        """Whether existing bindings may be stored."""

    @property
    def owner(self) -> object | None:
        """The connection that owns an exclusive queue."""

    @property
    def deleted(self) -> bool:
        """Whether the queue was deleted; bindings to it may still exist for a while."""


T = TypeVar("T")


class Binding(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """A binding, compared by identity: an exchange has no two bindings with equal fields."""

    source: str
    destination: T
    routing_key: str
    arguments: FieldTable
    serial: int
    """Creation order among the bindings of its exchange."""


class Matcher(Protocol[T]):
    """The bindings of one exchange, indexed so that the bindings that match a message are found quickly."""

    @property
    def uses_key(self) -> bool:
        """Whether the routing key matters. If so, a message with several keys is looked up by each of them."""

    @property
    def add_cost(self) -> int:
        """The maximum cost of adding a binding, in addition to the base cost of an AMQP method."""

    def add(self, binding: Binding[T]) -> None:
        """Add a binding. Raises `PreconditionFailedError` and changes nothing if it is invalid."""

    def remove(self, binding: Binding[T]) -> None:
        """Remove a binding."""

    def search(self, key: str, headers: FieldTable, found: dict[Binding[T], None]) -> Steps[None]:
        """Add the bindings that match a message to `found`, in any order, in bounded steps.

        A binding that exists during the whole search is found if it matches. A binding that is added or
        removed between two steps may be found or not.
        """


def collect(bindings: Mapping[Binding[T], None], found: dict[Binding[T], None]) -> Steps[None]:
    """Add all bindings to `found`."""
    if len(bindings) <= _BINDINGS_PER_STEP:
        found.update(bindings)
        if units := len(bindings) // BINDINGS_PER_UNIT:
            yield units
    else:
        for chunk in chunks(list(bindings), _BINDINGS_PER_STEP):
            found.update(dict.fromkeys(chunk))
            yield len(chunk) // BINDINGS_PER_UNIT


def canonical_arguments(arguments: FieldTable) -> bytes:
    """Return the encoded arguments in sorted order; equal arguments have equal results."""
    return encode_table(dict(sorted(arguments.items()))) if arguments else b""


def is_fallback_binding(arguments: FieldTable) -> bool:
    is_fallback = arguments.get(DEAD_LETTER_BINDING_ARGUMENT, False)
    if not isinstance(is_fallback, bool):
        raise PreconditionFailedError(
            f"the binding argument '{DEAD_LETTER_BINDING_ARGUMENT}' must be a boolean"
        )
    return is_fallback
