"""The history of a run, as in `bench.crash.history`, with events that only clients in the process of the broker
can know.

There is no socket: input is processed at once, and output is read even when the power fails. So there is one
order of all events, and it is known what each fsync covered.
"""

from __future__ import annotations

from typing import TypeAlias

from bench.crash import history as h
from bench.crash.history import Event, Message


class Synced(Event, frozen=True):
    """The effects of the first `count` events are on disk."""

    count: int


class Trait(Event, frozen=True):
    """Of a queue. In an *unordered* one messages come at individual times. *At-least-once*: a rejected message stays
    until its dead letter was accepted. *Trimmed*: a stream drops its oldest messages."""

    queue: str
    unordered: bool = False
    at_least_once: bool = False
    trimmed: bool = False


class Resent(Event, frozen=True):
    """The same message again, to where duplicates are found."""

    incarnation: int
    message: Message


class PurgeAsked(Event, frozen=True):
    queue: str


class Purged(Event, frozen=True):
    queue: str


class Unmarked(Event, frozen=True):
    """The last delivery of this was to a consumer without acks."""

    queue: str
    message: Message


class Receipted(Event, frozen=True):
    """These were acked in the same transaction in which the receipt was published."""

    queue: str
    messages: tuple[Message, ...]
    receipt: Message


class Shown(Event, frozen=True):
    """A message of a stream; it stays there."""

    incarnation: int
    stream: str
    offset: int
    message: Message


class Noted(Event, frozen=True):
    """The broker was requested to store a value, larger than those before."""

    name: str
    value: int


class NoteKept(Event, frozen=True):
    name: str
    value: int


class NoteFound(Event, frozen=True):
    """After a restart."""

    name: str
    value: int


AnyEvent: TypeAlias = (
    h.AnyEvent
    | Synced
    | Trait
    | Resent
    | PurgeAsked
    | Purged
    | Unmarked
    | Receipted
    | Shown
    | Noted
    | NoteKept
    | NoteFound
)


class History:
    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.faults: list[str] = []
        """Faults of the broker besides those with messages."""

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)
