"""The tie between an exchange and a destination, and how an exchange keeps its ties.

A destination is a queue or another exchange. What routing needs to know of a queue is in
`Destination`; the queue itself is written elsewhere, and everything here is generic over it.
"""

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable, encode_table

from .arguments import QueueSettings
from .steps import STEP_UNITS_MAX, Steps, chunks

# A binding with this argument set to true is taken only when no binding without it matches.
DEAD_LETTER_BINDING_ARGUMENT: Final = "x-dead-letter-binding"

BINDINGS_PER_UNIT: Final = 16  # that are found, put in order and followed: 0.3 µs each
_BINDINGS_PER_STEP: Final = STEP_UNITS_MAX * BINDINGS_PER_UNIT


class Destination(Protocol):
    """A queue, as far as routing is concerned. It is hashed by identity."""

    @property
    def name(self) -> str: ...

    @property
    def declared_settings(self) -> QueueSettings:
        """What it was declared with, whatever policies make of it."""

    @property
    def survives_restart(self) -> bool:
        """Whether it outlasts a restart."""

    @property
    def owner(self) -> object | None:
        """The connection that an exclusive queue belongs to."""

    @property
    def deleted(self) -> bool:
        """Whether it is gone, though bindings to it may still be there for a while."""


T = TypeVar("T")


class Binding(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """One binding. It is itself, not its values: its exchange keeps no two alike."""

    source: str
    destination: T
    routing_key: str
    arguments: FieldTable
    serial: int
    """The place among the bindings of its exchange, oldest first."""


class Matcher(Protocol[T]):
    """The bindings of one exchange, arranged so that those of a message are found quickly."""

    @property
    def uses_key(self) -> bool:
        """Whether the routing key matters, so that a message with several keys is looked up by each."""

    @property
    def add_cost(self) -> int:
        """What it costs at most to take a binding in, beyond what any method costs."""

    def add(self, binding: Binding[T]) -> None:
        """Takes the binding in, or refuses it with `PreconditionFailedError` and stays as it was."""

    def remove(self, binding: Binding[T]) -> None:
        """Lets go of a binding that was added."""

    def search(self, key: str, headers: FieldTable, found: dict[Binding[T], None]) -> Steps[None]:
        """Add the bindings that a message takes to `found`, in any order, in bounded steps.

        A binding that exists during the whole search is found if it matches. One that is added or removed
        between two steps may be found or not.
        """


def collect(bindings: Mapping[Binding[T], None], found: dict[Binding[T], None]) -> Steps[None]:
    """Add all bindings to `found`."""
    if len(bindings) <= _BINDINGS_PER_STEP:
        found.update(bindings)
        if units := len(bindings) // BINDINGS_PER_UNIT:
            yield units
    else:
        for some in chunks(list(bindings), _BINDINGS_PER_STEP):
            found.update(dict.fromkeys(some))
            yield len(some) // BINDINGS_PER_UNIT


def canonical_arguments(arguments: FieldTable) -> bytes:
    """What tells the arguments of two bindings apart: their wire form, but for the order."""
    return encode_table(dict(sorted(arguments.items()))) if arguments else b""


def is_fallback_binding(arguments: FieldTable) -> bool:
    wanted = arguments.get(DEAD_LETTER_BINDING_ARGUMENT, False)
    if not isinstance(wanted, bool):
        raise PreconditionFailedError(
            f"the binding argument '{DEAD_LETTER_BINDING_ARGUMENT}' must be a boolean"
        )
    return wanted
