"""What clients saw, in the order in which they saw it; the checker knows nothing else of a run.

An event is written down *before* the bytes that it speaks of are handed to the socket, and right after
the bytes were read: so whatever a broker does is behind its cause in the history. All clients share one
thread, hence there is one order. But two sockets may be read in another order than the broker wrote to
them, so nobody may compare what two consumers got at about the same time.

A *life* is the time from one start of the broker to its death. Everything of a life is written down
before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

Message: TypeAlias = tuple[str, int]
"""Its publisher, and its number: each publisher counts for itself, over all lives."""


class Event(msgspec.Struct, frozen=True, tag=True):
    """Something that a client did or saw."""


# ── the broker ────────────────────────────────────────────────────────────────────────────────────


class Began(Event, frozen=True):
    life: int


class Died(Event, frozen=True):
    life: int


class Lettered(Event, frozen=True):
    """Messages that die in `queue` go to `target`; `expires` tells that they may die by age as well."""

    queue: str
    target: str
    expires: bool = False


class Asked(Event, frozen=True):
    """To declare or to delete something: until that is answered nobody knows whether it is there."""

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

    life: int
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
    """By basic.return: it went nowhere."""

    message: Message


class CommitAsked(Event, frozen=True):
    publisher: str
    transaction: int


class Committed(Event, frozen=True):
    publisher: str
    transaction: int


class RolledBack(Event, frozen=True):
    """The client asked for it, or was told of it: in either case no commit was ever asked for."""

    publisher: str
    transaction: int


# ── consumers ─────────────────────────────────────────────────────────────────────────────────────


class Delivered(Event, frozen=True):
    """`consumer` is the name of one connection, which never comes again."""

    life: int
    consumer: str
    queue: str
    message: Message
    redelivered: bool


class Damaged(Event, frozen=True):
    """Something was delivered that nobody can have sent."""

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
    """The acks and rejects of these certainly are on disk: something later on the same channel, which is
    only told of when it is durable, has been answered."""

    queue: str
    messages: tuple[Message, ...]


class Gone(Event, frozen=True):
    """A consumer of the queue left without a word while the broker lived: what it had not acked returns,
    also what it had not yet read; whether the last acks arrived nobody knows."""

    life: int
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
    """One event a line, for a later look or another check."""
    encoder = msgspec.json.Encoder()
    with file.open("wb") as lines:
        lines.writelines(encoder.encode(event) + b"\n" for event in events)


def read(file: Path) -> Iterator[AnyEvent]:
    decoder = msgspec.json.Decoder(AnyEvent)
    with file.open("rb") as lines:
        yield from map(decoder.decode, lines)
