"""The verdict of the judge: violations, each of a rule."""

from __future__ import annotations

from collections import Counter
from enum import Enum

import msgspec


class Rule(Enum):
    INTACT = "intact"
    """A delivered or archived message was published, and is unchanged."""
    FIFO = "fifo"
    """A subscriber gets the messages of a publisher in their order."""
    GAP = "gap"
    """No message is left out: after the passed vector, after the last known position, or between two."""
    REPEAT = "repeat"
    """No message is delivered twice to one incarnation, nor one that the passed vector covers. None is delivered live
    to an incarnation without recovery if an earlier incarnation got it, unless the publisher had to send it again to
    the broker since."""
    HISTORY = "history"
    """Without recovery no message is delivered of a publisher that had ended long before the subscriber
    started."""
    MARK = "mark"
    """With the pessimistic policy every repeated message is marked as uncertain."""
    CERTAINTY = "certainty"
    """A message classified as delivered was delivered; one classified as missed was not."""
    UNIFORM = "uniform"
    """Uniform delivery: enough archives have it on disk before any member delivers it."""
    TOTAL = "total"
    """Total order: two that go from one view to the same next one got its messages in the same order."""
    VIEWS = "views"
    """Views are ordered with messages, and all that install one agree on it."""
    ARCHIVE = "archive"
    """An archive has the messages of a publisher once each, in order and without gaps."""
    CONVERGE = "converge"
    """In the end all archives have the same messages, and the same records of views."""
    LOST = "lost"
    """At the end all messages that were confirmed, or that a running publisher has, are in the archives. A
    message reported as lost is in none, unless the subscriber is without recovery and was in a view without
    archives."""
    EARLY = "early"
    """An archive records a message as lost, and a subscriber gives up, only after it has run for the timeout:
    time in which it was stopped does not count."""
    BEHIND = "behind"
    """In the end every subscriber has got all that is archived and owed to it."""


class Violation(msgspec.Struct, frozen=True):
    rule: Rule
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.rule.value}: at {self.at:.3f} s {self.what}"


class Verdict(msgspec.Struct):
    violations: list[Violation] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
