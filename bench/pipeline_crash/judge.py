"""Checks whether the arrived messages are consistent with the guarantees. Pure.

LOST     every sent message is there PHANTOM  no message is there that was not sent TWICE    with an
exactly-once guarantee, each message is there once STRANGE  duplicates of a message have the same id, and no
other message has it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    LOST = "lost"
    PHANTOM = "phantom"
    TWICE = "twice"
    STRANGE = "strange"


@dataclass(frozen=True)
class Violation:
    kind: Kind
    route: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value} on {self.route}: {self.what}"


@dataclass(frozen=True)
class Arrived:
    """The numbers at the end of a route, with their duplicates."""

    route: str
    numbers: Sequence[int]
    ids: Sequence[str] = ()
    """Of each, where messages have them."""

    @property
    def repeats(self) -> int:
        return len(self.numbers) - len(set(self.numbers))


def judge(arrived: Arrived, sent: int, *, once: bool) -> list[Violation]:
    """Against the numbers 0, 1, … of which `sent` were sent."""
    counts = Counter(arrived.numbers)
    found = list(_each(Kind.LOST, arrived, set(range(sent)) - counts.keys()))
    found += _each(Kind.PHANTOM, arrived, counts.keys() - set(range(sent)))
    if once:
        found += _each(Kind.TWICE, arrived, (each for each, count in counts.items() if count > 1))
    if arrived.ids:
        pairs = set(zip(arrived.numbers, arrived.ids, strict=True))
        by_number = Counter(number for number, _ in pairs)
        by_id = Counter(each for _, each in pairs)
        found += _each(
            Kind.STRANGE, arrived, (each for each, count in by_number.items() if count > 1)
        )
        found += [
            Violation(Kind.STRANGE, arrived.route, f"the id {each!r} of {count} messages")
            for each, count in by_id.items()
            if count > 1
        ]
    return found


def _each(kind: Kind, arrived: Arrived, numbers: Iterable[int]) -> list[Violation]:
    return [Violation(kind, arrived.route, f"message {number}") for number in sorted(numbers)]
