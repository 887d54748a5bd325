"""The verdict of the judge: violations, each of a rule."""

from __future__ import annotations

from collections import Counter
from enum import Enum

import msgspec


class Rule(Enum):
    OWNER = "owner"
    """In each epoch of a topic, one node acknowledges commands: its owner. A command that is submitted after another
    was answered in a later epoch is not answered in an earlier one."""
    FIELD = "field"
    """Fields are linearizable: a read gives the last written value, and no acknowledged write is lost."""
    LOST = "lost"
    """No acknowledged command of an upper layer, topic or subscription is missing."""
    TWICE = "twice"
    """No command is executed twice, and none that was refused is executed."""
    ORDER = "order"
    """Commands and notifications of one origin on one topic are in the order of submission; commands that did not
    overlap in time are in that order."""
    MISSED = "missed"
    """A subscription gets each matching publish that was submitted after the subscription had been answered."""
    REPEATED = "repeated"
    """No subscription gets a publish twice."""
    PHANTOM = "phantom"
    """A notification was published, matches the selector, and the subscription is to its topic."""
    REPORT = "report"
    """A publish reports as many matches as there were subscriptions."""
    PERMISSION = "permission"
    """A command succeeds only with a permission, and no longer once its revocation was answered."""
    PROGRESS = "progress"
    """When all faults are over, every command is executed."""
    PLACED = "placed"
    """In the end each key belongs to the nearest node and is stored at K neighbours, and nodes hold nothing else."""
    EVICTED = "evicted"
    """No healthy node is taken for dead because of another one's problems."""


class Violation(msgspec.Struct, frozen=True):
    rule: Rule
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.rule.value}: at {self.at:.3f} s {self.what}"


class Verdict(msgspec.Struct):
    violations: list[Violation] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
