"""The state that a member keeps of one publisher: its released, held and missing messages, and its age."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf

from ..boundary import MessageBatch
from ..layer import FragmentReleased
from ..vector import Span

ReceivedItem = MessageBatch | FragmentReleased
MAX_REPORTS = 64


class MessageGap:
    """The first message of a publisher that is known to exist and has not been received."""

    __slots__ = (
        "attempts",
        "first_missing",
        "is_queue_past",
        "known_at",
        "lacked_by",
        "lost_in_archives",
        "needs_pull",
    )

    def __init__(self, first_missing: int, known_at: float) -> None:
        self.first_missing = first_missing
        self.known_at = known_at
        """When the message became known; that may be long before earlier gaps were closed."""
        self.attempts = 0
        self.needs_pull = False
        """NAK has exhausted its attempts."""
        self.is_queue_past = False
        """On a broker: a broadcast of our own has come back since, so the message is not in our queue."""
        self.lacked_by: dict[bytes, tuple[list[Span], float]] = {}
        """By incarnation of a member: the ranges that it has reported to be missing, and when."""
        self.lost_in_archives: dict[bytes, list[Span]] = {}
        """By incarnation of an archive: the ranges that its log has passed without having them."""

    def inherit(self, earlier: "MessageGap") -> None:
        """Take over the reports of members from the previous gap: they are about all missing messages."""
        self.lacked_by, self.lost_in_archives = earlier.lacked_by, earlier.lost_in_archives

    def lacked_up_to(self, member: bytes) -> tuple[int, float]:
        """Return the last sequence up to which this member has reported that it lacks the messages, and when;
        (0, -inf) if it has not."""
        spans, reported_at = self.lacked_by.get(member, ((), -inf))
        last = last_in_span(spans, self.first_missing)
        return (last, reported_at) if last else (0, -inf)

    def lost_up_to(self, archive: bytes) -> int:
        """Return up to where the log of this archive has passed the gap; 0 if it has not reported so."""
        return last_in_span(self.lost_in_archives.get(archive, ()), self.first_missing)


class PublisherState:
    """The state of one publisher."""

    __slots__ = (
        *(
            "max_age",
            "started_at",
            "heard_at",
            "held",
            "next_fragment",
            "highest_known",
            "next",
            "earlier_reports",
            "positions",
            "reports",
            "stable_age",
            "contiguous_end",
            "status_at",
        ),
    )

    def __init__(self, next_: int, now: float) -> None:
        self.next = next_
        self.next_fragment = 0  # next fragment, if message `next` is fragmented
        # (sequence, fragment) after the last contiguous item, including held ones
        self.contiguous_end = (next_, 0)
        self.highest_known = 0
        self.heard_at = now
        self.status_at = -inf  # last status report
        self.started_at = -inf  # its start by our clock, estimated from its reports; -inf: unknown
        self.max_age = -inf  # highest reported age
        self.stable_age = inf  # reported age since which `started_at` has not changed
        # reports before the last one: (time, last sequence)
        self.earlier_reports: Sequence[tuple[float, int]] = ()
        self.held: dict[tuple[int, int], ReceivedItem] = {}
        self.positions: list[tuple[int, int]] = []  # sorted keys of `held`
        self.reports: list[tuple[int, float]] = []
        """While messages are missing: each value of `highest_known`, and when it was reached."""

    def last_contiguous(self) -> int:
        """Return the last sequence before the first gap, whether it was released or is held."""
        return self.contiguous_end[0] - 1

    def note_age(self, age: float, now: float, max_transit: float) -> None:
        """Note a reported age. A delayed report makes the publisher look younger than it is, so the earliest
        estimate of its start counts. A first report has no relevant delay: it cannot have been sent before our
        queue or socket existed."""
        estimate = now - age
        if self.status_at == -inf or estimate < self.started_at - max_transit:
            # A report this early is the publisher's first one, so its age is reliable at once.
            self.stable_age = -inf if age <= max_transit else age
        self.started_at = estimate if self.status_at == -inf else min(self.started_at, estimate)
        self.max_age = max(self.max_age, age)

    def is_age_reliable(self, heartbeat_interval: float) -> bool:
        """Return whether `started_at` can be compared with other instants: the first report of the publisher
        was heard, or two that arrived as far apart as they were sent. Reports that waited on a stopped broker,
        or in our socket during a stall, arrive together, and the last of them may be long out of date."""
        return self.max_age - self.stable_age >= heartbeat_interval / 2

    def is_idle(self, silent_since: float) -> bool:
        """Return whether it has published nothing, as far as is known, and is silent."""
        return self.highest_known == 0 and self.next == 1 and self.heard_at < silent_since

    def known_since(self, sequence: int, now: float) -> float:
        """Return when this message, the first missing one, became known. Reports that are no longer needed are
        dropped; if there are many, every second one is, so the result may be later than the actual time."""
        reports = self.reports
        if not reports or reports[-1][0] < self.highest_known:
            reports.append((self.highest_known, now))
        del reports[: bisect_left(reports, sequence, key=lambda report: report[0])]
        if len(reports) > MAX_REPORTS:
            del reports[:-1:2]
        return reports[0][1]

    def extend_contiguous(self, item: ReceivedItem) -> None:
        """Advance `contiguous_end` after an item was added."""
        self.contiguous_end = _end_after(self.contiguous_end, item)
        i = bisect_left(self.positions, self.contiguous_end)
        while i < len(self.positions) and self.positions[i] <= self.contiguous_end:
            self.contiguous_end = _end_after(self.contiguous_end, self.held[self.positions[i]])
            i += 1

    def recompute_contiguous(self) -> None:
        """Recompute `contiguous_end` after items were dropped or skipped."""
        self.contiguous_end = (self.next, self.next_fragment)
        for position in self.positions:
            if position > self.contiguous_end:
                break
            self.contiguous_end = _end_after(self.contiguous_end, self.held[position])

    def missing_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of sequences that are known to exist and have not been received."""
        first = self.last_contiguous() + 1
        for sequence, _ in self.positions:
            item = self.held[sequence, _]
            if sequence > first:
                yield first, sequence - 1
            if isinstance(item, MessageBatch):
                first = max(first, item.last + 1)
            elif item.index + 1 == item.count and sequence >= first:
                # Complete only with all earlier fragments; otherwise missing from the first one on.
                is_complete = all((sequence, i) in self.held for i in range(item.count))
                first = max(first, sequence + is_complete)
        if self.highest_known >= first:
            yield first, self.highest_known


def last_in_span(spans: Sequence[Span], sequence: int) -> int:
    """Return the last sequence of the span that contains this one; 0 if none does."""
    return next((last for first, last in spans if first <= sequence <= last), 0)


def _end_after(tip: tuple[int, int], item: ReceivedItem) -> tuple[int, int]:
    """Return the position after this item, if it continues at `tip`."""
    if isinstance(item, MessageBatch):
        return max(tip, (item.last + 1, 0)) if item.first <= tip[0] else tip
    if (item.sequence, item.index) != tip:
        return tip
    return (tip[0] + 1, 0) if item.index + 1 == item.count else (tip[0], tip[1] + 1)


def buffered_size(item: ReceivedItem) -> int:
    # 200: estimated memory of an item beyond its data
    return 200 + (len(item.block.data) if isinstance(item, MessageBatch) else len(item.data))
