"""What clients saw, as in `bench.crash.history`, and what only those know who share a process with the broker.

No socket lies between: what was fed was handled, and what was written is read even when the power goes. So
there is one order of everything, and it is known what each sync covered.
"""

from __future__ import annotations

from typing import TypeAlias

from bench.crash import history as h
from bench.crash.history import Event, Message


class Synced(Event, frozen=True):
    """All that was said and seen in the first `count` events is on disk."""

    count: int


class Trait(Event, frozen=True):
    """Of a queue. In an *unordered* one messages come at times of their own. *Assured*: what is rejected there
    stays until its letter was taken. *Trimmed*: a stream lets go of what is oldest."""

    queue: str
    unordered: bool = False
    assured: bool = False
    trimmed: bool = False


class Resent(Event, frozen=True):
    """The same message again, to where duplicates are found."""

    life: int
    message: Message


class PurgeAsked(Event, frozen=True):
    queue: str


class Purged(Event, frozen=True):
    queue: str


class Unmarked(Event, frozen=True):
    """The last delivery of this was to one who need not ack it."""

    queue: str
    message: Message


class Receipted(Event, frozen=True):
    """These were acked in the same transaction in which the receipt was published."""

    queue: str
    messages: tuple[Message, ...]
    receipt: Message


class Shown(Event, frozen=True):
    """A message of a stream; it stays there."""

    life: int
    stream: str
    offset: int
    message: Message


class Noted(Event, frozen=True):
    """The broker was asked to remember a value, larger than those before."""

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
        """What went wrong with the broker, other than what it did to messages."""

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)
