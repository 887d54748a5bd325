"""The history of a world: everything that users and the network observe, with times."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TypeVar

import msgspec

from recado.overlay.command import Answer, Operation, SubscriptionId
from recado.overlay.configuration import Configuration


class Submitted(msgspec.Struct, frozen=True):
    at: float
    request: int
    node: str
    """With its incarnation: `n3.1`."""
    topic: str
    operation: Operation
    roles: tuple[str, ...]


class Answered(msgspec.Struct, frozen=True):
    at: float
    request: int
    answer: Answer


class Acknowledged(msgspec.Struct, frozen=True):
    """The owner sends an answer, or would if the origin were another node."""

    at: float
    node: str
    origin: str
    number: int
    configuration: Configuration


class DeliveryRecord(msgspec.Struct, frozen=True):
    at: float
    node: str
    subscription: SubscriptionId
    topic: str
    position: int
    body: bytes


class Started(msgspec.Struct, frozen=True):
    at: float
    node: str


class Stopped(msgspec.Struct, frozen=True):
    at: float
    node: str
    how: str
    """`crashed` or `left`."""


class Judged(msgspec.Struct, frozen=True):
    """The state of the world at the end."""

    at: float
    problems: tuple[str, ...]


class Disturbed(msgspec.Struct, frozen=True):
    """How much of the key space has a new epoch after a crash."""

    at: float
    node: str
    share: float
    """In (K + 1) / N of the key space, which is the part of which the node was a member, on average."""


class Evicted(msgspec.Struct, frozen=True):
    """A node was taken for dead although it runs, in a world in which all can hear each other."""

    at: float
    by: str
    node: str


Event = (
    Evicted
    | Submitted
    | Answered
    | Acknowledged
    | DeliveryRecord
    | Started
    | Stopped
    | Judged
    | Disturbed
)
E = TypeVar("E")


class History:
    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        self._events.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self._events if isinstance(event, kind)]

    def trace(self) -> str:
        """Return a hash of all events."""
        digest = blake2b(digest_size=16)
        for event in self._events:
            digest.update(repr(event).encode())
        return digest.hexdigest()
