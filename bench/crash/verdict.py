"""The verdict of the checker: the kinds of violation, and counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    LOST = "lost"
    PHANTOM = "phantom"
    DAMAGED = "damaged"
    DISORDER = "disorder"
    DUPLICATE = "duplicate"
    FLAG = "flag"
    TORN = "torn"
    TOPOLOGY = "topology"


class Violation(NamedTuple):
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


@dataclass
class Verdict:
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """sent, confirmed, committed, refused, returned, delivered, redelivered, acked, again, incarnations"""

    def of(self, kind: Kind) -> list[Violation]:
        return [each for each in self.violations if each.kind is kind]
