"""Steps: the unit from which flows are composed (pipes and filters).

A step turns one message into any number of outputs. A `Message` continues to the next step of the flow, a `Send`
leaves it to a destination of its own. So a filter yields the message or nothing, a splitter many messages, a
router a `Send`, an aggregator nothing until a group is complete. At the end of the flow, remaining messages go to
the flow's `to`, or to the handler of a subscription.

    app.flow("orders", Filter("priority > 3"), Splitter(lambda order: order.items), to="items")

A stateless step is a function of the message; it may be async, and runs again if the worker is killed. A
`StatefulStep` also reads and writes a `StateTransaction`. The transaction that changes its state also stores the
id of the message and all outputs, so a message that is redelivered after a kill changes nothing twice and loses
no output. Stateful steps and all steps behind them in one flow are synchronous, because they run inside the
transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import msgspec

from .destination import DestinationLike
from .message import Message


class Send(msgspec.Struct, frozen=True):
    """An output that leaves the flow: a message and the destination to which it is published."""

    to: DestinationLike
    message: Message[Any]


Output: TypeAlias = Message[Any] | Send
Outputs: TypeAlias = Iterable[Output]
AsyncOutputs: TypeAlias = Awaitable[Outputs] | AsyncIterable[Output]


class StateTransaction(Protocol):
    """The state that a stateful step reads and writes; all changes of a transaction are stored together.

    State is a table of values by key, one table per step; an entry may have a deadline.
    """

    @property
    def now(self) -> float:
        """The time of the transaction, in seconds since the epoch."""

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""

    def put(self, table: str, key: str, value: bytes, *, deadline: float | None = None) -> None:
        """Store a value, and when it becomes due, in seconds since the epoch."""

    def delete(self, table: str, key: str) -> None:
        """Remove a key, if it is there."""

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Iterate over the entries whose keys begin with `prefix`, ordered by key."""

    def due(self, table: str, limit: int) -> list[tuple[str, bytes]]:
        """Return at most `limit` entries whose deadline has passed, earliest first."""


class FlowStep(ABC):
    """A stateless step."""

    @abstractmethod
    def process(self, message: Message[Any]) -> Outputs | AsyncOutputs:
        """Return the outputs for one message. An exception fails the message: it is retried or dead-lettered."""

    def destinations(self) -> Iterable[DestinationLike]:
        """Return the destinations that the step is known to send to, which are declared at start."""
        return ()


class StatefulStep(ABC):
    """A step with state, stored in the table `table`, whose name is unique within the store."""

    table: str

    @abstractmethod
    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        """Return the outputs for one message, and change the state."""

    def expire(self, state: StateTransaction) -> Outputs:
        """Return the outputs for entries whose deadlines have passed; called when one has."""
        return ()

    def destinations(self) -> Iterable[DestinationLike]:
        """Return the destinations that the step is known to send to, which are declared at start."""
        return ()


AnyFlowStep: TypeAlias = FlowStep | StatefulStep
