"""The complete history of a simulated feed, which the judge reads.

A *incarnation* of a member or publisher lasts from a start to the crash or departure that ends it. Subscribers and
archives have the same name in all their incarnations; a publisher has a new one in each. Times are seconds of the
simulated world. A message is identified by its publisher and its sequence, its content by a checksum.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

Incarnation: TypeAlias = tuple[str, int]
"""A name, and the number of its incarnation."""
Message: TypeAlias = tuple[str, int]
"""A publisher, and a sequence."""


def named(incarnation: Incarnation) -> str:
    return f"{incarnation[0]}#{incarnation[1]}"


def titled(message: Message) -> str:
    return f"{message[0]}:{message[1]}"


class Policy(Enum):
    """How a subscriber recovers."""

    NONE = "none"
    VECTOR = "vector"
    PESSIMISTIC = "pessimistic"
    ARCHIVE = "archive"


class Mark(Enum):
    """The mark of a message: on a delivery, or by an archive with respect to a subscriber."""

    LIVE = "live"
    DELIVERED = "delivered"
    UNCERTAIN = "uncertain"
    MISSED = "missed"


class Event(msgspec.Struct, frozen=True, tag=True):
    at: float


class Published(Event, frozen=True):
    """Messages first, first + 1, … of a publisher, with their checksums."""

    publisher: str
    first: int
    checks: tuple[int, ...]


class Confirmed(Event, frozen=True):
    """The publisher was notified that all of its messages up to this one are safe."""

    publisher: str
    upto: int


class CastAgain(Event, frozen=True):
    """The publisher sends unconfirmed messages again, after the connection to the broker was lost."""

    publisher: str


class PublisherEnded(Event, frozen=True):
    publisher: str


class Began(Event, frozen=True):
    """A subscriber. `vector` is the one that it passed, of publisher to sequence, and its holes; empty for
    other policies."""

    incarnation: Incarnation
    policy: Policy
    vector: dict[str, int]
    holes: dict[str, tuple[tuple[int, int], ...]] = {}
    total: bool = False
    uniform: bool = False
    copies: int = 0
    """Uniform delivery: how many archives must have a message; 0: a majority of those in the view."""


class Ended(Event, frozen=True):
    incarnation: Incarnation


class Delivered(Event, frozen=True):
    """To the application of a subscriber. `view` is that of the messages, not that of the subscriber."""

    incarnation: Incarnation
    publisher: str
    first: int
    checks: tuple[int, ...]
    view: str
    mark: Mark


class ToldLost(Event, frozen=True):
    """A subscriber was notified that these messages are lost."""

    incarnation: Incarnation
    publisher: str
    first: int
    last: int


class Agreed(Event, frozen=True):
    """A subscriber or an archive has agreed to a view; it installs it when it has got all before it."""

    incarnation: Incarnation
    view: str
    archives: int


class Installed(Event, frozen=True):
    """By a subscriber or an archive. `cut` is the last sequence of each publisher before the view."""

    incarnation: Incarnation
    view: str
    members: tuple[Incarnation, ...]
    archives: int
    cut: dict[str, int]


class Kept(Event, frozen=True):
    """An archive has these on its disk, safe from crashes."""

    archive: str
    publisher: str
    first: int
    count: int


class RecordedLost(Event, frozen=True):
    """An archive, in this incarnation, has recorded these as lost."""

    incarnation: Incarnation
    publisher: str
    first: int
    last: int


class Stopped(Event, frozen=True):
    """The program does not run until then, or until the faults end."""

    incarnation: Incarnation
    until: float


class Classified(Event, frozen=True):
    """How an archive classifies messages with respect to a subscriber that is down."""

    archive: str
    subscriber: str
    publisher: str
    first: int
    count: int
    mark: Mark


class GaveUp(Event, frozen=True):
    """A member reported a failure."""

    incarnation: Incarnation
    reason: str


class Settled(Event, frozen=True):
    """No faults happen any more, and all programs that are to run do."""


class ArchiveRead(Event, frozen=True):
    """At the end: all that an archive has, in its order, with the view of each."""

    archive: str
    messages: tuple[tuple[str, int, int, str], ...]
    """Publisher, sequence, checksum, view."""
    lost: tuple[tuple[str, int, int], ...] = ()
    """Of a publisher, the first and the last of some messages that are nowhere."""


class Recorded(Event, frozen=True):
    """At the end: the views that an archive has recorded, the limits of failed members before them, and the
    acknowledgements."""

    archive: str
    facts: dict[str, str]
    """Subject and value."""


AnyEvent: TypeAlias = (
    Published
    | Confirmed
    | CastAgain
    | PublisherEnded
    | Began
    | Ended
    | Delivered
    | ToldLost
    | Agreed
    | Installed
    | Kept
    | RecordedLost
    | Stopped
    | Classified
    | GaveUp
    | Settled
    | ArchiveRead
    | Recorded
)
