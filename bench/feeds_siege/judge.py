"""Whether the evidence of a siege is consistent with the guarantees of feeds (docs/feeds.md). Pure.

LOST      a recovering subscriber has every message it is owed: on a broker every confirmed one, on UDP, where
          "confirmed" means sent, every one that an archive has in the end (F5)
PHANTOM   a message that was received was published, with the same bytes
DISORDER  within an incarnation the messages of a publisher come in order, and none twice (F1)
GAP       within an incarnation none is left out, unless it was reported to the subscriber as lost, or an earlier
          incarnation of a subscriber that relies on the archives had it (F1)
TWICE     a subscriber that commits its output with its vector has each message once (F5)
REPEATED  a subscriber that saves its vector is not given again what the saved vector covers (F5)
UNMARKED  a message that an earlier incarnation was given comes again only if marked as uncertain (F5, F6)
STALE     a subscriber without recovery is given no message that was confirmed before it started (F1)
FALSE     a recovering subscriber is not told that a message is lost which it is owed (F2); one without recovery
          may be, if no archive is there for too long
HOLE      in the end each archive has every message that is owed or that another archive has (F7)
CLASS     an archive calls a message delivered only if the subscriber got it, and missed only if not (F6)
VIEWS     all who know a view agree on its members and its cut, and no live message from before the cut comes
          behind the view (F3)

F6 has a limit that UNMARKED and CLASS observe: a subscriber that was silent for too long, because it was
stopped or cut off or the machine did not run it, and that died before the archives heard it again, may have got
messages of which no archive can know. Messages received from the beginning of an interruption to a death within
REUNION_S of its end are exempt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

from bench.feeds_siege.diary import (
    FOREVER,
    Got,
    Incarnation,
    Interval,
    Lost,
    Published,
    Sequences,
    ViewSeen,
    sequences_of,
)

REUNION_S: Final = 10.0
"""A subscriber that runs and is connected again for this long has been heard by the archives."""


class Kind(Enum):
    LOST = "lost"
    PHANTOM = "phantom"
    DISORDER = "disorder"
    GAP = "gap"
    TWICE = "twice"
    REPEATED = "repeated"
    UNMARKED = "unmarked"
    STALE = "stale"
    FALSE = "false-loss"
    HOLE = "hole"
    CLASS = "class"
    VIEWS = "views"


class Recovery(Enum):
    """What a subscriber relies on when it returns."""

    NONE = "none"
    ARCHIVES = "archives"
    SAVED = "saved vector"
    COMMITTED = "committed vector"


@dataclass(frozen=True)
class Violation:
    kind: Kind
    who: str
    what: str
    count: int = 1
    """Messages, or views."""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.who}: {self.what}"


@dataclass(frozen=True)
class Finding:
    """Messages of a publisher, possibly none, that violate a rule."""

    kind: Kind
    who: str
    publisher: bytes
    sequences: set[int]
    note: str = ""


@dataclass
class Verdict:
    violations: list[Violation] = field(default_factory=list)

    def count(self, kind: Kind) -> int:
        return sum(each.count for each in self.violations if each.kind is kind)


@dataclass
class Subscriber:
    """The records of one subscriber over its incarnations."""

    name: str
    recovery: Recovery
    incarnations: Sequence[Incarnation]

    @property
    def got(self) -> list[Got]:
        return [got for incarnation in self.incarnations for got in incarnation.got]


@dataclass
class Classes:
    """How an archive classifies ranges of messages for one subscriber: first, last, class."""

    ranges: Mapping[bytes, Sequence[tuple[int, int, str]]]


@dataclass
class Archived:
    """The content of an archive at the end of the siege."""

    name: str
    stored: Sequences
    views: Sequence[ViewSeen] = ()
    classes: Mapping[str, Classes] = field(default_factory=dict)


@dataclass
class Evidence:
    published: Published
    owed: Sequences
    subscribers: Sequence[Subscriber]
    archives: Sequence[Archived] = ()
    interruptions: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    """By subscriber: when it was stopped or cut off, by itself or with the broker."""
    confirmed_is_stored: bool = True
    """Whether a confirmation means that the message is safe: not on UDP."""


def judge(evidence: Evidence) -> Verdict:
    findings: list[Finding] = []
    for subscriber in evidence.subscribers:
        findings += judge_subscriber(subscriber, evidence)
    findings += judge_archives(evidence)
    findings += find_behind_cuts(evidence)
    return Verdict([*merged(findings), *judge_views(evidence)])


# --- subscribers


def judge_subscriber(subscriber: Subscriber, evidence: Evidence) -> Iterator[Finding]:
    who, published, owed = subscriber.name, evidence.published, evidence.owed
    before: Sequences = defaultdict(set)
    sure: Sequences = defaultdict(set)
    told: Sequences = defaultdict(set)
    for incarnation in subscriber.incarnations:
        yield from find_phantoms(who, incarnation.got, published)
        yield from find_disorder(who, incarnation.got)
        yield from find_gaps(subscriber, incarnation, before, told, owed)
        yield from find_repeats(subscriber, incarnation, sure, evidence)
        if subscriber.recovery is not Recovery.NONE:
            yield from find_false_losses(who, incarnation, owed)
        for got in incarnation.got:
            sequences = range(got.first, got.last + 1)
            before[got.publisher].update(sequences)
            is_known = subscriber.recovery is Recovery.COMMITTED  # by itself, not by archives
            if is_known or not is_exempt(who, incarnation, got, evidence):
                sure[got.publisher].update(sequences)
    if subscriber.recovery is not Recovery.NONE:
        everything = sequences_of(subscriber.got)
        for publisher, wanted in owed.items():
            yield Finding(Kind.LOST, who, publisher, wanted - everything[publisher])


def find_phantoms(who: str, some: Iterable[Got], published: Published) -> Iterator[Finding]:
    for got in some:
        tried = published.tried.get(got.publisher, 0)
        if not got.whole or got.last > tried:
            first = got.first if not got.whole else max(got.first, tried + 1)
            wrong = set(range(first, got.last + 1))
            yield Finding(Kind.PHANTOM, who, got.publisher, wrong)


def find_disorder(who: str, some: Iterable[Got]) -> Iterator[Finding]:
    last: dict[bytes, int] = {}
    for got in some:
        position = last.get(got.publisher, 0)
        if got.first <= position:
            early = set(range(got.first, min(got.last, position) + 1))
            yield Finding(Kind.DISORDER, who, got.publisher, early)
        last[got.publisher] = max(position, got.last)


def find_gaps(
    subscriber: Subscriber,
    incarnation: Incarnation,
    before: Sequences,
    told: Sequences,
    owed: Sequences,
) -> Iterator[Finding]:
    """`told` are the messages that were reported as lost to this or an earlier incarnation; it is extended."""
    who, recovery = subscriber.name, subscriber.recovery
    position = dict(incarnation.vector.upto)
    for event in incarnation.events:
        if isinstance(event, ViewSeen):
            continue
        publisher = event.publisher
        if isinstance(event, Lost):
            told[publisher].update(range(event.first, event.last + 1))
        begins = publisher not in position and recovery is Recovery.NONE
        expected = event.first if begins else position.get(publisher, 0) + 1
        skipped = set(range(expected, event.first)) - told[publisher]
        if recovery is Recovery.ARCHIVES:
            skipped -= before[publisher]
        yield Finding(Kind.GAP, who, publisher, skipped)
        position[publisher] = max(position.get(publisher, 0), event.last)
    if recovery is Recovery.NONE and incarnation.ended == FOREVER:  # it runs to the end
        for publisher, last in position.items():
            missing = {each for each in owed.get(publisher, ()) if each > last}
            yield Finding(Kind.GAP, who, publisher, missing - told[publisher])


def find_repeats(
    subscriber: Subscriber, incarnation: Incarnation, sure: Sequences, evidence: Evidence
) -> Iterator[Finding]:
    """`sure` has the messages of earlier incarnations, except exempt ones."""
    who = subscriber.name
    for got in incarnation.got:
        sequences = set(range(got.first, got.last + 1))
        again = sequences & sure[got.publisher]
        confirmed = evidence.published.confirmed_before(got.publisher, incarnation.born)
        match subscriber.recovery:
            case Recovery.ARCHIVES:
                if got.certainty != "uncertain":
                    yield Finding(Kind.UNMARKED, who, got.publisher, again, got.certainty)
            case Recovery.NONE:
                old = {each for each in sequences if each <= confirmed}
                if evidence.confirmed_is_stored:  # a publisher repeats unconfirmed messages
                    again &= old
                if got.certainty != "uncertain":
                    yield Finding(Kind.UNMARKED, who, got.publisher, again, got.certainty)
                yield Finding(Kind.STALE, who, got.publisher, old - again, got.certainty)
            case Recovery.COMMITTED:
                yield Finding(Kind.TWICE, who, got.publisher, again)
            case Recovery.SAVED:
                covered = {
                    each for each in sequences if incarnation.vector.covers(got.publisher, each)
                }
                yield Finding(Kind.REPEATED, who, got.publisher, covered)
                if got.certainty == "missed":
                    yield Finding(Kind.CLASS, who, got.publisher, again, "came as missed")


def find_false_losses(who: str, incarnation: Incarnation, owed: Sequences) -> Iterator[Finding]:
    for event in incarnation.events:
        if isinstance(event, Lost):
            wrong = set(range(event.first, event.last + 1)) & owed.get(event.publisher, set())
            yield Finding(Kind.FALSE, who, event.publisher, wrong)


def is_exempt(who: str, incarnation: Incarnation, got: Got, evidence: Evidence) -> bool:
    """Whether no archive can be expected to know that this incarnation got it."""
    spans = [(each.start, each.end) for each in evidence.interruptions.get(who, ())]
    return any(
        start <= got.at and incarnation.ended <= end + REUNION_S
        for start, end in [*spans, *incarnation.stalls]
    )


# --- archives


def judge_archives(evidence: Evidence) -> Iterator[Finding]:
    wanted: Sequences = defaultdict(set)
    for source in (evidence.owed, *(each.stored for each in evidence.archives)):
        for publisher, sequences in source.items():
            wanted[publisher] |= sequences
    for archive in evidence.archives:
        for publisher, sequences in wanted.items():
            missing = sequences - archive.stored.get(publisher, set())
            yield Finding(Kind.HOLE, archive.name, publisher, missing)
        for subscriber in evidence.subscribers:
            classes = archive.classes.get(subscriber.name)
            if classes is not None:
                yield from judge_classes(archive.name, classes, subscriber, evidence)


def judge_classes(
    archive: str, classes: Classes, subscriber: Subscriber, evidence: Evidence
) -> Iterator[Finding]:
    who = f"{archive} about {subscriber.name}"
    got = sequences_of(subscriber.got)
    known = sequences_of(
        each
        for incarnation in subscriber.incarnations
        for each in incarnation.got
        if not is_exempt(subscriber.name, incarnation, each, evidence)
    )
    for publisher, ranges in classes.ranges.items():
        for first, last, name in ranges:
            sequences = set(range(first, last + 1))
            match name:
                case "delivered":
                    wrong = sequences - got[publisher]
                case "missed":
                    wrong = sequences & known[publisher]
                case _:
                    wrong = set()
            yield Finding(Kind.CLASS, who, publisher, wrong, f"called {name}")


# --- views


def judge_views(evidence: Evidence) -> Iterator[Violation]:
    members: dict[tuple[int, str], tuple[str, frozenset[str]]] = {}
    cuts: dict[tuple[int, str], tuple[str, frozenset[tuple[bytes, int]]]] = {}
    for who, view in views_of(evidence):
        other, theirs = members.setdefault(view.id, (who, view.members))
        if theirs != view.members:
            differ = ", ".join(sorted(theirs ^ view.members))
            what = f"view {view.id[0]}: other members than {other} has: {differ}"
            yield Violation(Kind.VIEWS, who, what)
        if view.cut is not None:
            other, cut = cuts.setdefault(view.id, (who, view.cut))
            if cut != view.cut:
                yield Violation(Kind.VIEWS, who, f"view {view.id[0]}: another cut than {other} has")


def find_behind_cuts(evidence: Evidence) -> Iterator[Finding]:
    """Find live messages that were received after a view although they are before its cut."""
    cuts = {view.id: view.cut for _, view in views_of(evidence) if view.cut is not None}
    note = "received after a view although before its cut"
    for subscriber in evidence.subscribers:
        for incarnation in subscriber.incarnations:
            floor: dict[bytes, int] = {}
            for event in incarnation.events:
                if isinstance(event, ViewSeen):
                    for publisher, sequence in cuts.get(event.id, ()):
                        floor[publisher] = max(sequence, floor.get(publisher, 0))
                elif isinstance(event, Got) and event.certainty == "live":
                    upto = min(event.last, floor.get(event.publisher, 0))
                    wrong = set(range(event.first, upto + 1))
                    yield Finding(Kind.VIEWS, subscriber.name, event.publisher, wrong, note)


def views_of(evidence: Evidence) -> Iterator[tuple[str, ViewSeen]]:
    for subscriber in evidence.subscribers:
        for incarnation in subscriber.incarnations:
            for view in incarnation.views:
                yield subscriber.name, view
    for archive in evidence.archives:
        for view in archive.views:
            yield archive.name, view


def merged(findings: Iterable[Finding]) -> Iterator[Violation]:
    """Merge findings into one violation for each run of consecutive messages."""
    found: dict[tuple[Kind, str, bytes, str], set[int]] = defaultdict(set)
    for each in findings:
        if each.sequences:
            found[each.kind, each.who, each.publisher, each.note] |= each.sequences
    for (kind, who, publisher, note), sequences in found.items():
        for first, last in runs_of(sequences):
            what = f"messages {first}–{last} of {publisher.hex()[:8]}"
            yield Violation(kind, who, f"{what}, {note}" if note else what, last - first + 1)


def runs_of(sequences: set[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    ordered = sorted(sequences)
    breaks = [place for place, (one, two) in enumerate(pairwise(ordered), 1) if two != one + 1]
    for start, stop in pairwise([0, *breaks, len(ordered)]):
        yield ordered[start], ordered[stop - 1]
