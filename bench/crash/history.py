"""The history of a run: what clients observed, in their order; the checker knows nothing else.

An event is recorded *before* its bytes are written to the socket, and directly after they were read, so an
effect in the broker is always recorded after its cause. All clients share one thread, hence there is one order.
But two sockets may be read in another order than the broker wrote to them, so deliveries to two consumers at
about the same time must not be compared.

An *incarnation* is the time from one start of the broker to its kill. All events of an incarnation are recorded
before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

Message: TypeAlias = tuple[str, int]
"""The publisher, and the number of the message, which each publisher counts over all incarnations."""


class Event(msgspec.Struct, frozen=True, tag=True):
    """Something that a client did or saw."""


# ── the broker ────────────────────────────────────────────────────────────────────────────────────


class Began(Event, frozen=True):
    incarnation: int


class Died(Event, frozen=True):
    incarnation: int


class Lettered(Event, frozen=True):
    """Dead letters of `queue` go to `target`; `expires` if messages may also expire."""

    queue: str
    target: str
    expires: bool = False


class Asked(Event, frozen=True):
    """A declaration or deletion was sent: until its answer it is unknown whether the object exists."""

    thing: str


class Declared(Event, frozen=True):
    thing: str


class Deleted(Event, frozen=True):
    thing: str


class Found(Event, frozen=True):
    thing: str


class Missed(Event, frozen=True):
    thing: str


# ── publishers ────────────────────────────────────────────────────────────────────────────────────


class Sent(Event, frozen=True):
    """Towards these queues; in a transaction of its publisher, if it has a number."""

    incarnation: int
    message: Message
    queues: tuple[str, ...]
    priority: int = 0
    persistent: bool = True
    transaction: int | None = None


class Confirmed(Event, frozen=True):
    message: Message


class Refused(Event, frozen=True):
    """By basic.nack."""

    message: Message


class Returned(Event, frozen=True):
    """By basic.return: no queue was bound."""

    message: Message


class CommitAsked(Event, frozen=True):
    publisher: str
    transaction: int


class Committed(Event, frozen=True):
    publisher: str
    transaction: int


class RolledBack(Event, frozen=True):
    """Requested by the client, or reported to it: in either case no commit was requested."""

    publisher: str
    transaction: int


# ── consumers ─────────────────────────────────────────────────────────────────────────────────────


class Delivered(Event, frozen=True):
    """`consumer` is the name of one connection, which is never reused."""

    incarnation: int
    consumer: str
    queue: str
    message: Message
    redelivered: bool


class Damaged(Event, frozen=True):
    """A delivery that no client can have sent."""

    queue: str
    body: str


class Acked(Event, frozen=True):
    queue: str
    message: Message


class Rejected(Event, frozen=True):
    """Without requeue."""

    queue: str
    message: Message


class Requeued(Event, frozen=True):
    queue: str
    message: Message


class Kept(Event, frozen=True):
    """The acks and rejects of these are on disk for sure: a later method on the same channel, whose answer
    implies durability, was answered."""

    queue: str
    messages: tuple[Message, ...]


class Gone(Event, frozen=True):
    """A consumer of the queue disconnected without closing while the broker ran: its unacked deliveries return,
    also those that it had not read; whether its last acks arrived is unknown."""

    incarnation: int
    consumer: str
    queue: str


AnyEvent: TypeAlias = (
    Began
    | Died
    | Lettered
    | Asked
    | Declared
    | Deleted
    | Found
    | Missed
    | Sent
    | Confirmed
    | Refused
    | Returned
    | CommitAsked
    | Committed
    | RolledBack
    | Delivered
    | Damaged
    | Acked
    | Rejected
    | Requeued
    | Kept
    | Gone
)


class History:
    """The events so far; `watch` is shown each of them at once."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.watch: Callable[[AnyEvent], None] | None = None

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)
        if self.watch is not None:
            self.watch(event)


def write(events: Iterable[AnyEvent], file: Path) -> None:
    """Write one event per line, for later inspection."""
    encoder = msgspec.json.Encoder()
    with file.open("wb") as lines:
        lines.writelines(encoder.encode(event) + b"\n" for event in events)


def read(file: Path) -> Iterator[AnyEvent]:
    decoder = msgspec.json.Decoder(AnyEvent)
    with file.open("rb") as lines:
        yield from map(decoder.decode, lines)
