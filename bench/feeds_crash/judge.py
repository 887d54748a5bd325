"""Whether what people wrote down may be: pure.

LOST      every confirmed message reaches every subscriber that comes back
PHANTOM   no message is got that was not tried, or with other bytes
DISORDER  in a life the messages of a publisher come in order
TWICE     whoever commits its output with its vector has each message once
REPEATED  whoever saves its vector now and then gets nothing again that a saved vector had
UNMARKED  whoever leaves it to the archive may get messages again, but they are marked as uncertain; this is not
          promised to one that was cut off from the archives and died before they met again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from bench.feeds_crash.diary import Got, Life, Name, Published


class Kind(Enum):
    LOST = "lost"
    PHANTOM = "phantom"
    DISORDER = "disorder"
    TWICE = "twice"
    REPEATED = "repeated"
    UNMARKED = "unmarked"


@dataclass(frozen=True)
class Violation:
    kind: Kind
    who: str
    name: Name

    def __str__(self) -> str:
        publisher, sequence = self.name
        return f"{self.kind.value}: message {sequence} of {publisher.hex()[:8]}, by {self.who}"


@dataclass
class Verdict:
    violations: list[Violation] = field(default_factory=list)

    def of(self, kind: Kind) -> list[Violation]:
        return [each for each in self.violations if each.kind is kind]


def missing(published: Published, got: set[Name]) -> Iterator[Name]:
    """What was confirmed and not got."""
    for publisher, last in published.confirmed.items():
        for sequence in range(1, last + 1):
            if (publisher, sequence) not in got:
                yield publisher, sequence


def judge_lives(who: str, lives: Sequence[Life], published: Published, *, marks: bool) -> Verdict:
    """One that notes what it gets: with `marks` by the archive's word, else by the vectors it saved."""
    verdict = Verdict()
    before: set[Name] = set()
    for life in lives:
        verdict.violations += faults_of(who, life.got, published)
        for got in life.got:
            publisher, sequence = got.name
            if marks:
                if got.name in before and got.certainty != "uncertain":
                    verdict.violations.append(Violation(Kind.UNMARKED, who, got.name))
            elif sequence <= life.began.get(publisher, 0):
                verdict.violations.append(Violation(Kind.REPEATED, who, got.name))
        before |= {got.name for got in life.got}
    verdict.violations += [Violation(Kind.LOST, who, name) for name in missing(published, before)]
    return verdict


def judge_output(who: str, output: Sequence[Got], published: Published) -> Verdict:
    """One that commits its output with its vector: its lives do not show."""
    verdict = Verdict(list(faults_of(who, output, published)))
    counts = Counter(got.name for got in output)
    twice = [name for name, count in counts.items() if count > 1]
    verdict.violations += [Violation(Kind.TWICE, who, name) for name in twice]
    found = missing(published, set(counts))
    verdict.violations += [Violation(Kind.LOST, who, name) for name in found]
    return verdict


def faults_of(who: str, some: Sequence[Got], published: Published) -> Iterator[Violation]:
    last: dict[bytes, int] = {}
    for got in some:
        publisher, sequence = got.name
        if not got.whole or sequence > published.tried.get(publisher, 0):
            yield Violation(Kind.PHANTOM, who, got.name)
        if sequence <= last.get(publisher, 0):
            yield Violation(Kind.DISORDER, who, got.name)
        last[publisher] = sequence
