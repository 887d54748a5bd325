"""What the judge found: violations, each of a rule with a name."""

from __future__ import annotations

from collections import Counter
from enum import Enum

import msgspec


class Rule(Enum):
    INTACT = "intact"
    """What is delivered or archived was published, and is unchanged."""
    FIFO = "fifo"
    """A subscriber gets the messages of a publisher in their order."""
    GAP = "gap"
    """None is left out: behind the vector given, behind the last known position, or between two."""
    REPEAT = "repeat"
    """None comes twice to one life, nor what the vector given covers. None comes live to a life without
    recovery that an earlier life was given, unless the publisher had to send it again to the broker since."""
    HISTORY = "history"
    """Without recovery nothing comes of a publisher that had ended long before the subscriber began."""
    MARK = "mark"
    """Under the pessimistic policy whatever comes again is marked as uncertain."""
    CERTAINTY = "certainty"
    """Who is said to have got a message for sure has got it; who is said to have missed it has not."""
    UNIFORM = "uniform"
    """Uniform delivery: enough archives have it on disk before anybody gets it."""
    TOTAL = "total"
    """Total order: two that go from one view to the same next one got its messages in the same order."""
    VIEWS = "views"
    """Views are ordered with messages, and those who install one agree on it."""
    ARCHIVE = "archive"
    """An archive has the messages of a publisher once each, in order and without gaps."""
    CONVERGE = "converge"
    """In the end all archives have the same messages, and the same records of views."""
    LOST = "lost"
    """In the end what was confirmed, or its publisher still had, is in the archives. What a subscriber is told
    to be lost is in none, unless it is without recovery and was in a view without archives."""
    EARLY = "early"
    """An archive records a message as lost, and a subscriber gives up, only when it has run for as long as the
    timeout says: time in which it was stopped does not count."""
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
