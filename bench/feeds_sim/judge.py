"""Checks a history: each delivery is compared with everything that was published, delivered and stored before.

The judge is simple on purpose: sets of messages, without knowledge of the protocol. For the name of a
subscriber it has everything that was ever delivered to it, and its *position*: how far its last incarnation is known
to have come, for each publisher. A name is *complete* if that holds also for publishers that it has never heard
of, whose position is 0: not after an incarnation that started in the middle, with the policy none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from . import history as h
from .archive_contents import ArchiveContents, Uniform
from .company import ARCHIVES
from .history import Incarnation, Mark, Message, Policy, named, titled
from .orders import TotalOrder, Views
from .patience import Patience
from .verdict import Rule, Verdict, Violation

AS_KNOWN = (Policy.PESSIMISTIC, Policy.ARCHIVE)
LONG_S = 6.0
"""A message published so long ago is not in flight any more."""


def judge(events: Iterable[h.AnyEvent]) -> Verdict:
    found = Judge()
    for event in events:
        found.feed(event)
    return found.finish()


class Name:
    """A subscriber, over its incarnations."""

    def __init__(self) -> None:
        self.given: dict[str, set[int]] = defaultdict(set)  # in any incarnation
        self.lost: dict[str, set[int]] = defaultdict(
            set
        )  # it was notified of that, and never got it
        self.denied: set[Message] = set()  # it was notified of that, wrongly if an archive has it
        self.excluded: dict[Incarnation, set[Message]] = defaultdict(set)
        """Delivered since the last view of an incarnation, while it was a member of no archive's view."""
        self.position: dict[str, int] = {}
        self.complete = True


class Course:
    """One incarnation of a subscriber."""

    def __init__(self, began: h.Began, name: Name) -> None:
        self.incarnation = began.incarnation
        self.began = began.at
        self.policy = began.policy
        self.uniform = began.uniform
        self.copies = began.copies
        self.total = began.total
        self.name = name
        self.before = {publisher: frozenset(given) for publisher, given in name.given.items()}
        self.started: set[str] = set()
        """Publishers of which this incarnation got a message that was not in a hole."""
        self.holes: dict[str, set[int]] = {
            publisher: {each for low, high in spans for each in range(low, high + 1)}
            for publisher, spans in began.holes.items()
        }
        if began.policy in AS_KNOWN:
            self.holes = {publisher: set(lost) for publisher, lost in name.lost.items()}
        self.owed: set[Message] = set()
        """Of the holes, the messages that all archives had when it started."""
        self.was_without_archives = False
        """In one of its views."""
        self.was_with_archive = False
        """In a view that an archive has installed."""

    def fills_hole(self, message: Message) -> bool:
        """Whether earlier incarnations skipped it, and it comes before all later messages."""
        publisher, sequence = message
        is_behind = sequence > self.name.position.get(publisher, 0)
        if is_behind or publisher in self.started:
            return False
        return sequence in self.holes.get(publisher, ())

    def is_accounted_for(self, message: Message) -> bool:
        """It was delivered to an earlier incarnation, or reported as lost to one."""
        publisher, sequence = message
        return self.was_given(message) or sequence in self.name.lost[publisher]

    def was_given(self, message: Message) -> bool:
        """In an earlier incarnation."""
        publisher, sequence = message
        return sequence in self.before.get(publisher, ())


class Judge:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._published: dict[str, list[int]] = {}
        self._confirmed: dict[str, int] = {}
        self._cast_again: dict[Message, float] = {}
        """When each message was last sent again because the broker had not confirmed it."""
        self._archive_views: dict[str, tuple[Incarnation, ...]] = {}
        """The members of each archive's view."""
        self._ended: dict[str, float] = {}
        self._names: dict[str, Name] = defaultdict(Name)
        self._courses: dict[Incarnation, Course] = {}
        self._alive: dict[Incarnation, None] = {}
        self._settled = 0.0
        self._late: dict[str, int] = {}
        """The first message of each publisher after all had settled."""
        self._now = 0.0
        self._views = Views(self._violated)
        self._total = TotalOrder(self._violated)
        self._archives = ArchiveContents(self._violated)
        self._patience = Patience(self._violated)
        self._uniform = Uniform(self._violated, self._archives.holders)

    def _violated(self, rule: Rule, what: str) -> None:
        self.verdict.violations.append(Violation(rule, self._now, what))

    def feed(self, event: h.AnyEvent) -> None:
        self._now = event.at
        match event:
            case h.Published(_, publisher, first, checks):
                self._publish(publisher, first, checks)
                self._patience.publish(event)
            case h.Confirmed(_, publisher, upto):
                self._confirmed[publisher] = max(upto, self._confirmed.get(publisher, 0))
            case h.CastAgain(_, publisher):
                first = self._confirmed.get(publisher, 0) + 1
                for sequence in range(first, len(self._published.get(publisher, ())) + 1):
                    self._cast_again[publisher, sequence] = event.at
            case h.PublisherEnded(_, publisher):
                self._ended[publisher] = event.at
            case h.Began():
                self._begin(event)
            case h.Ended(_, incarnation):
                self._alive.pop(incarnation, None)
                self._total.died(incarnation)
            case h.Delivered():
                self._deliver(event)
            case h.ToldLost():
                self._tell_lost(event)
            case h.Agreed():
                self._uniform.agree(event)
                if event.incarnation in self._courses and not event.archives:
                    self._courses[event.incarnation].was_without_archives = True
            case h.Installed():
                course = self._courses.get(event.incarnation)
                if course:
                    course.name.excluded.pop(event.incarnation, None)
                elif event.incarnation[0] in ARCHIVES:
                    self._install_archive_view(event)
                self._views.install(event, course.name.position if course else None)
                self._total.install(event)
                self._uniform.install(event)
            case h.Stopped():
                self._patience.stop(event)
            case h.RecordedLost():
                self._patience.lose(event)
            case h.Kept(_, archive, publisher, first, count):
                self._archives.keep(archive, publisher, first, count)
            case h.Classified():
                self._classify(event)
            case h.GaveUp(_, incarnation):
                self.verdict.counts["gave up"] += 1
                course = self._courses.get(incarnation)
                if course is not None:
                    self._patience.give_up(event, course.began)
                if course is not None and self._settled and course.began >= self._settled:
                    self._violated(
                        Rule.BEHIND, f"{named(incarnation)} gave up, and nothing was wrong"
                    )
            case h.Settled(at):
                self._settled = at
                self._patience.settle(at)
            case h.ArchiveRead():
                self._archives.read(event, self._published)
            case h.Recorded(_, archive, facts):
                self._archives.record(archive, facts)

    def _install_archive_view(self, event: h.Installed) -> None:
        self._archive_views[event.incarnation[0]] = event.members
        for member in event.members:
            if member in self._courses:
                self._courses[member].was_with_archive = True

    def finish(self) -> Verdict:
        self._total.compare()
        self._archives.compare()
        for publisher, checks in self._published.items():
            owed = self._confirmed.get(publisher, 0)
            if publisher not in self._ended:
                owed = len(checks)
            self._archives.owe(publisher, owed)
        for name, known in self._names.items():
            self._check_lost(name, known)
        for incarnation in self._alive:
            self._compare_with_archives(self._courses[incarnation])
        return self.verdict

    # ── publishers and incarnations ──────────────────────────────────────────────────────────────────────

    def _publish(self, publisher: str, first: int, checks: tuple[int, ...]) -> None:
        known = self._published.setdefault(publisher, [])
        if first != len(known) + 1:
            raise ValueError(f"{publisher} published {first} after {len(known)}")
        known += checks
        self.verdict.counts["published"] += len(checks)
        if self._settled:
            self._late.setdefault(publisher, first)

    def _begin(self, event: h.Began) -> None:
        name = self._names[event.incarnation[0]]
        if event.policy is Policy.VECTOR:
            name.position = dict(event.vector)
            name.complete = True
        elif event.policy is Policy.NONE:
            name.position = {}
            name.complete = False
        course = self._courses[event.incarnation] = Course(event, name)
        course.owed = {
            (publisher, sequence)
            for publisher, sequences in course.holes.items()
            for sequence in sequences
            if len(self._archives.holders((publisher, sequence))) == len(ARCHIVES)
        }
        self._alive[event.incarnation] = None

    # ── deliveries ────────────────────────────────────────────────────────────────────────────────

    def _deliver(self, event: h.Delivered) -> None:
        course = self._courses[event.incarnation]
        self.verdict.counts["delivered"] += len(event.checks)
        self.verdict.counts[event.mark.value] += len(event.checks)
        self._check_age(course, event.publisher)
        for sequence, check in enumerate(event.checks, event.first):
            message = (event.publisher, sequence)
            fills = course.fills_hole(message)
            in_place = fills or self._is_in_place(course, message)
            if self._is_intact(course, message, check) and in_place:
                self._check_mark(course, message, event.mark)
            if fills:
                self.verdict.counts["out of holes"] += 1
                course.holes[event.publisher].discard(sequence)
            else:
                course.started.add(event.publisher)
                course.name.position[event.publisher] = sequence
            course.name.lost[event.publisher].discard(sequence)
            course.name.given[event.publisher].add(sequence)
            if self._is_excluded(course):
                course.name.excluded[course.incarnation].add(message)
            if course.uniform:
                self._uniform.delivered(course.incarnation, course.copies, message)
            if course.total and event.mark is Mark.LIVE:
                self._total.delivered(course.incarnation, message)
        self._views.delivered(event)

    def _check_age(self, course: Course, publisher: str) -> None:
        ended = self._ended.get(publisher)
        if course.policy is Policy.NONE and ended is not None and ended + LONG_S < course.began:
            told = f"got messages of {publisher}, which ended {course.began - ended:.1f} s before it began"
            self._violated(Rule.HISTORY, f"{named(course.incarnation)} {told}")

    def _is_intact(self, course: Course, message: Message, check: int) -> bool:
        publisher, sequence = message
        published = self._published.get(publisher, [])
        if 1 <= sequence <= len(published) and published[sequence - 1] == check:
            return True
        was = "never published" if sequence > len(published) else "published otherwise"
        self._violated(
            Rule.INTACT, f"{named(course.incarnation)} got {titled(message)}, which was {was}"
        )
        return False

    def _is_in_place(self, course: Course, message: Message) -> bool:
        """Whether it is the next one; after an unknown position any is."""
        publisher, sequence = message
        position = course.name.position.get(publisher)
        started = publisher in course.started
        if position is None:
            if not course.name.complete:
                return True
            position = 0
        if sequence == position + 1:
            return True
        who, what = named(course.incarnation), titled(message)
        if sequence > position:
            return self._is_covered(course, publisher, position + 1, sequence, f"got {what}")
        if started:
            rule = Rule.REPEAT if sequence == position else Rule.FIFO
            self._violated(rule, f"{who} got {what} behind {position}")
            return False
        if course.policy is Policy.VECTOR:
            self._violated(Rule.REPEAT, f"{who} got {what}, its vector has {position}")
            return False
        return True

    def _is_covered(self, course: Course, publisher: str, start: int, stop: int, how: str) -> bool:
        """Whether the messages left out were delivered to an earlier incarnation, where that counts."""
        skipped = [(publisher, each) for each in range(start, stop)]
        missing = [each for _, each in skipped if not course.is_accounted_for((publisher, each))]
        if publisher in course.started or course.policy is Policy.VECTOR:
            missing = list(range(start, stop))
        if missing:
            lacks = f"never {missing[0]}…{missing[-1]} of {publisher} ({course.policy.value})"
            self._violated(Rule.GAP, f"{named(course.incarnation)} {how}, but {lacks}")
        return not missing

    def _tell_lost(self, event: h.ToldLost) -> None:
        course = self._courses[event.incarnation]
        self.verdict.counts["told lost"] += event.last - event.first + 1
        first = (event.publisher, event.first)
        if self._is_in_place(course, first):
            course.started.add(event.publisher)
        course.name.position[event.publisher] = event.last
        sequences = range(event.first, event.last + 1)
        course.name.lost[event.publisher].update(sequences)
        if course.policy is not Policy.NONE or not course.was_without_archives:
            course.name.denied.update((event.publisher, sequence) for sequence in sequences)

    def _check_mark(self, course: Course, message: Message, mark: Mark) -> None:
        if mark is Mark.UNCERTAIN or not course.was_given(message):
            return
        if mark is Mark.MISSED and any(message in each for each in course.name.excluded.values()):
            return
        who, what = named(course.incarnation), titled(message)
        if course.policy in AS_KNOWN:
            self._violated(Rule.MARK, f"{who} got {what} again, marked as {mark.value}")
        elif mark is Mark.MISSED:
            told = f"{who} got {what} as missed, and an earlier incarnation was given it"
            self._violated(Rule.CERTAINTY, told)
        elif course.policy is Policy.NONE and not self._was_cast_again(message, course.began):
            self._violated(Rule.REPEAT, f"{who} got {what} live, and so did an earlier incarnation")

    def _was_cast_again(self, message: Message, since: float) -> bool:
        """A subscriber without recovery that knows no member with this message cannot know that it is old."""
        return self._cast_again.get(message, -inf) >= since

    def _is_excluded(self, course: Course) -> bool:
        """Whether it was cut off from all archives, which cannot know its deliveries until it is in a view
        again. One that was never in a view with an archive was not cut off."""
        if course.uniform or not course.was_with_archive:
            return False
        return all(course.incarnation not in each for each in self._archive_views.values())

    def _classify(self, event: h.Classified) -> None:
        excluded = set().union(*self._names[event.subscriber].excluded.values())
        given = self._names[event.subscriber].given[event.publisher]
        said = range(event.first, event.first + event.count)
        self.verdict.counts[f"classified {event.mark.value}"] += len(said)
        match event.mark:
            case Mark.DELIVERED:
                wrong = [sequence for sequence in said if sequence not in given]
            case Mark.MISSED:
                wrong = [
                    sequence
                    for sequence in said
                    if sequence in given and (event.publisher, sequence) not in excluded
                ]
            case _:
                wrong = []
        if wrong:
            what = titled((event.publisher, wrong[0]))
            told = f"{event.archive} says {event.mark.value} of {what} for {event.subscriber}"
            self._violated(Rule.CERTAINTY, f"{told}, which is not so")

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def _check_lost(self, name: str, known: Name) -> None:
        for message in sorted(known.denied):
            publisher, sequence = message
            if self._archives.has(message) or sequence <= self._confirmed.get(publisher, 0):
                told = f"{name} was told that {titled(message)} is lost, and it is not"
                self._violated(Rule.LOST, told)
                break

    def _compare_with_archives(self, course: Course) -> None:
        for publisher, sequence in sorted(course.owed):
            if sequence in course.holes[publisher]:
                told = f"never got {publisher}:{sequence}, which an earlier incarnation had passed over"
                self._violated(Rule.BEHIND, f"{named(course.incarnation)} {told}")
                break
        for publisher, last in self._archives.last.items():
            position = course.name.position.get(publisher)
            if position is None:
                position = 0 if course.name.complete else self._late.get(publisher, last + 1) - 1
            owed = range(position + 1, last + 1)
            if publisher not in course.started and course.policy in AS_KNOWN:
                owed_still = [
                    each for each in owed if not course.is_accounted_for((publisher, each))
                ]
            else:
                owed_still = list(owed)
            if owed_still:
                told = f"never got {titled((publisher, owed_still[0]))} ({course.policy.value})"
                self._violated(Rule.BEHIND, f"{named(course.incarnation)} {told}")
