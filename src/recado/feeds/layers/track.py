"""What a member knows of one publisher: how far it has come, what waits behind a gap, and what is missing."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf

from ..boundary import Batch
from ..layer import Part
from ..vector import Span

Item = Batch | Part
MAX_REPORTS = 64


class Gap:
    """The first message of a publisher that is known to exist and is not here."""

    __slots__ = ("at", "is_passed", "lacking", "lost", "pull", "since", "tries")

    def __init__(self, at: int, since: float) -> None:
        self.at = at
        self.since = since
        """When the message became known, which may have been long before the gaps ahead of it were closed."""
        self.tries = 0
        self.pull = False
        """NAK has done what it can."""
        self.is_passed = False
        """Where P is one queue: what we cast ourselves since has come back, so it is not in the queue any
        more."""
        self.lacking: dict[bytes, tuple[list[Span], float]] = {}
        """What each member has said to lack of this publisher, and when."""
        self.lost: dict[bytes, list[Span]] = {}
        """Messages that each archive has said its log is past without them."""

    def succeed(self, earlier: "Gap") -> None:
        """Take over what members have said: their answers are about all messages that are missing."""
        self.lacking, self.lost = earlier.lacking, earlier.lost

    def lacks(self, member: bytes) -> tuple[int, float]:
        """Up to where this member has said to have none of it, and when; (0, -inf) if it has not."""
        spans, at = self.lacking.get(member, ((), -inf))
        last = end_of(spans, self.at)
        return (last, at) if last else (0, -inf)

    def passed_by(self, archive: bytes) -> int:
        """Up to where the log of this archive is past it; 0 if it has not said so."""
        return end_of(self.lost.get(archive, ()), self.at)


class Track:
    """One publisher."""

    __slots__ = (
        *(
            "age",
            "born",
            "heard",
            "held",
            "index",
            "known",
            "next",
            "past",
            "places",
            "reports",
            "steady",
            "tip",
            "told",
        ),
    )

    def __init__(self, next_: int, now: float) -> None:
        self.next = next_
        self.index = 0  # of the next fragment, if message `next` comes in fragments
        self.tip = (next_, 0)  # as (next, index), but counting what is held
        self.known = 0
        self.heard = now
        self.told = -inf  # when it last told its last
        self.born = -inf  # when it began, by our time, or earlier; what is not known is long ago
        self.age = -inf  # the highest that it has told,
        self.steady = inf  # and the one since which `born` has not changed
        self.past: Sequence[tuple[float, int]] = ()  # what it told before that, and when
        self.held: dict[tuple[int, int], Item] = {}
        self.places: list[tuple[int, int]] = []  # of what is held, in order
        self.reports: list[tuple[int, float]] = []
        """While messages are missing: each value of `known`, and when it was reached."""

    def received(self) -> int:
        """Up to where there is no gap, whether it has passed or is held."""
        return self.tip[0] - 1

    def date(self, age: float, now: float, slack: float) -> None:
        """It tells its age. A report that was delayed makes it look younger than it is, so the earliest
        estimate of its beginning counts. A first report has no delay that matters: it cannot have been sent
        before our queue or socket existed."""
        estimate = now - age
        if self.told == -inf or estimate < self.born - slack:
            self.steady = -inf if age <= slack else age
        self.born = estimate if self.told == -inf else min(self.born, estimate)
        self.age = max(self.age, age)

    def is_dated(self, beat: float) -> bool:
        """Whether `born` can be compared with other instants: the first report of the publisher was heard, or
        two that arrived as far apart as they were sent. Reports that waited on a stopped broker, or in our
        socket while we were stopped, arrive together, and the last of them may be long out of date."""
        return self.age - self.steady >= beat / 2

    def is_idle(self, since: float) -> bool:
        """Nothing is known to have been published, and it is silent since then."""
        return self.known == 0 and self.next == 1 and self.heard < since

    def known_since(self, sequence: int, now: float) -> float:
        """When this message, the first that is missing, became known. Reports that are no longer needed are
        dropped; if there are many, every second one is, so the instant may be later than it was."""
        reports = self.reports
        if not reports or reports[-1][0] < self.known:
            reports.append((self.known, now))
        del reports[: bisect_left(reports, sequence, key=lambda report: report[0])]
        if len(reports) > MAX_REPORTS:
            del reports[:-1:2]
        return reports[0][1]

    def grow(self, item: Item) -> None:
        """Something is held: see how far it is without a gap now."""
        self.tip = _behind(self.tip, item)
        i = bisect_left(self.places, self.tip)
        while i < len(self.places) and self.places[i] <= self.tip:
            self.tip = _behind(self.tip, self.held[self.places[i]])
            i += 1

    def measure(self) -> None:
        """The same from the beginning, where something was dropped or skipped."""
        self.tip = (self.next, self.index)
        for place in self.places:
            if place > self.tip:
                break
            self.tip = _behind(self.tip, self.held[place])

    def missing(self) -> Iterator[tuple[int, int]]:
        """Ranges of sequences that are known to exist and are not here."""
        first = self.received() + 1
        for sequence, _ in self.places:
            item = self.held[sequence, _]
            if sequence > first:
                yield first, sequence - 1
            if isinstance(item, Batch):
                first = max(first, item.last + 1)
            elif item.index + 1 == item.total and sequence >= first:
                # It counts as here if the pieces before it are; if not it is missing from the first on.
                whole = all((sequence, i) in self.held for i in range(item.total))
                first = max(first, sequence + whole)
        if self.known >= first:
            yield first, self.known


def end_of(spans: Sequence[Span], sequence: int) -> int:
    """The last message of the range that contains this one; 0 if none does."""
    return next((last for first, last in spans if first <= sequence <= last), 0)


def _behind(tip: tuple[int, int], item: Item) -> tuple[int, int]:
    """Where one is behind this item, if it goes on where `tip` is."""
    if isinstance(item, Batch):
        return max(tip, (item.last + 1, 0)) if item.first <= tip[0] else tip
    if (item.sequence, item.index) != tip:
        return tip
    return (tip[0] + 1, 0) if item.index + 1 == item.total else (tip[0], tip[1] + 1)


def size_of(item: Item) -> int:
    return 200 + (len(item.block.data) if isinstance(item, Batch) else len(item.piece))
