"""One queue's account: where its messages are stored, which are settled, and how often they were delivered.

A1  Every place below `stored` is in `settled`, or its message is live: in a stretch, and to be had.
A2  A stretch is in one segment; within it positions grow with places. Stretches are in order of place and do
    not overlap.
A3  `live` of a stretch counts its places that are not settled; that of a page, those of all stretches in it.

Nothing here is kept for each message. What is stored side by side is one extent: 10 M messages of 100 bytes
that came one by one are 29 of them, and 0.1 MB.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from recado.broker.queue import Queue

from .gathered import Shelf
from .pages import Page
from .ranges import RangeSet

# A record joins the extent before it if what lies between is no more than this: to read over others' records
# takes time, an extent 12 bytes.
_SLACK = 1024
_SLACK_FACTOR = 4
_MOST_SLACK = 64 << 10

_MANY_RANGES = 1000  # before those of settled messages are sorted out
_MOST_DELIVERIES = 256  # that are told apart


class Stretch:
    """Messages of one queue in one segment, by place: an extent begins at starts[i] with the place firsts[i].

    Starts and ends are offsets in the segment, firsts count from `origin`.
    """

    __slots__ = ("end", "ends", "first", "firsts", "live", "origin", "page", "starts")

    def __init__(self, first: int, page: Page) -> None:
        self.page = page
        self.first = first
        self.end = first
        self.live = 0
        self.origin = first
        self.starts = array("I")
        self.ends = array("I")
        self.firsts = array("I")

    def extend(self, first: int, end: int, at: int, size: int) -> None:
        ends = self.ends
        slack = min(_SLACK + _SLACK_FACTOR * size, _MOST_SLACK)
        if ends and at - ends[-1] <= slack:
            ends[-1] = at + size
        else:
            self.starts.append(at)
            ends.append(at + size)
            self.firsts.append(first - self.origin)
        self.end = end

    def extents(self, place: int) -> Iterator[tuple[int, int]]:
        """From the one that has this place on, as positions [start, end) in the journal."""
        base = self.page.base
        for at in range(self._extent_of(place), len(self.starts)):
            yield base + self.starts[at], base + self.ends[at]

    def _extent_of(self, place: int) -> int:
        return max(bisect_right(self.firsts, place - self.origin) - 1, 0)

    def split(self, place: int) -> "Stretch":
        """What is from a place on, apart from the rest, which stays here."""
        behind = Stretch(self.origin, self.page)
        at = self._extent_of(place)
        behind.first, behind.end = place, self.end
        behind.starts, behind.ends = self.starts[at:], self.ends[at:]
        behind.firsts = self.firsts[at:]
        self.end = place
        del self.starts[at + 1 :], self.ends[at + 1 :], self.firsts[at + 1 :]
        return behind

    def trim(self, first: int) -> None:
        """What is before that place is not here any more."""
        self.first = first
        at = self._extent_of(first)
        if at > 64 and at * 2 > len(self.starts):  # now and then: it moves all the others
            del self.starts[:at], self.ends[:at], self.firsts[:at]


class Account:
    __slots__ = (
        "_newest",
        "deleted",
        "delivered",
        "entered",
        "going",
        "lasting",
        "mortal",
        "number",
        "out",
        "queue",
        "settled",
        "shelves",
        "stored",
        "stretches",
    )

    def __init__(self, number: int, queue: Queue | None, *, lasting: bool) -> None:
        self.number = number
        self.queue = queue
        self.lasting = lasting
        self.deleted = False
        self.mortal = False
        """Some messages may expire; known only after a restart."""
        self.entered = 0
        """The place behind the last that was entered, stored or not."""
        self.stored = 0
        """The place behind the last that was ever stored."""
        self.settled = RangeSet()
        self.delivered: list[RangeSet] = []
        """Places that were delivered once or more, twice or more, …"""
        self.stretches: list[Stretch] = []
        self._newest: Stretch | None = None  # that fresh messages are added to
        self.shelves: dict[int, Shelf] = {}
        self.going: list[tuple[int, int, int]] = []
        """Spans that were settled in this turn."""
        self.out: list[tuple[int, int, int]] = []
        """Spans that were delivered in this turn."""

    @property
    def highest_lane(self) -> int:
        assert self.queue is not None
        return self.queue.declared.max_priority or 0

    @property
    def counts(self) -> bool:
        """Whether it matters how often a message was delivered, and not only if."""
        return self.queue is None or self.queue.declared.queue_type == "quorum"

    # ── where messages are ────────────────────────────────────────────────────────────────────────────

    def store(self, first: int, count: int, at: int, size: int, page: Page) -> None:
        """New messages were stored at an offset of a segment."""
        end = first + count
        if first != self.stored:
            self.settled.add(self.stored, first)  # these were never stored (A1)
        self.stored = end
        stretch = self._newest
        if stretch is None or stretch.page is not page or not (stretch.live or self._is_short):
            stretch = self._begin_stretch(first, page)
        stretch.live += count
        page.live += count
        page.stored += count
        stretch.extend(first, end, at, size)

    @property
    def _is_found(self) -> bool:
        """Whether it is just being found in the journal, after a restart."""
        return self.queue is None

    @property
    def _is_short(self) -> bool:
        return self._newest is not None and len(self._newest.starts) < 2

    def _begin_stretch(self, first: int, page: Page) -> Stretch:
        if self.stretches and not self.stretches[-1].live and not self._is_found:
            self.stretches.pop()
        self._newest = Stretch(first, page)
        self.stretches.append(self._newest)
        return self._newest

    def stretch_of(self, place: int) -> int:
        """The index of the last stretch that begins no later than this place; 0 if there is none."""
        if len(self.stretches) == 1:
            return 0
        return max(bisect_right(self.stretches, place, key=_first) - 1, 0)

    def move(self, first: int, end: int, at: int, size: int, page: Page) -> None:
        """Messages, all of them live, are stored again, elsewhere."""
        stretches, count = self.stretches, end - first
        index = bisect_right(stretches, first, key=_first)
        if index and first < stretches[index - 1].end:
            index = self._cut_out(index - 1, first, end)
        before = stretches[index - 1] if index else None
        if before is None or before.page is not page or before is self._newest:
            before = Stretch(first, page)
            stretches.insert(index, before)
        before.live += count
        page.live += count
        page.stored += count
        before.extend(first, end, at, size)

    def _cut_out(self, index: int, first: int, end: int) -> int:
        """Messages leave a stretch; gives the index of what is behind them.

        They leave in order of place, so what is before them in the stretch has left too, or is settled. Only
        after a restart it may not: then a stretch may reach over what was in segments that are no more.
        While the journal is read, such messages leave a stretch though they were never counted in it: what
        is live there is not known before all is read.
        """
        stretches = self.stretches
        old = stretches[index]
        old.live -= end - first
        old.page.live -= end - first
        from_front = old.first == first or self.settled.covers(old.first, first)
        if end < old.end and (old.live or self._is_found):
            if from_front:
                old.trim(end)
                return index
            behind = old.split(end)
            behind.live = behind.end - end - self.settled.count(end, behind.end)
            old.live -= behind.live
            stretches.insert(index + 1, behind)
            if old is self._newest:
                self._newest = behind
        elif old is self._newest:
            self._newest = None
        if from_front:
            del stretches[index]
            return index
        old.end = first
        return index + 1

    # ── what happens to them ──────────────────────────────────────────────────────────────────────────

    def settle(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Messages are gone; some may be already."""
        for start, end in ranges:
            for low, high in self.settled.missing(start, end):
                self.settled.add(low, high)
                self._release(low, high)

    def _release(self, start: int, end: int) -> None:
        """Places that were live are not any more."""
        stretches = self.stretches
        at = self.stretch_of(start)
        while start < end:
            stretch = stretches[at]
            count = min(end, stretch.end) - start
            start += count
            stretch.live -= count
            stretch.page.live -= count
            if not stretch.live and stretch is not self._newest:
                del stretches[at]
            else:
                at += 1

    def deliver(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Messages are out with somebody, perhaps not for the first time."""
        again = list(ranges)
        for level in range(_MOST_DELIVERIES if self.counts else 1):
            if not again:
                break
            if level == len(self.delivered):
                self.delivered.append(RangeSet())
            known, told, again = self.delivered[level], again, []
            for start, end in told:  # one after the other: the same may come twice
                again += [(low, high) for low, high, inside in known.split(start, end) if inside]
                known.add(start, end)
            if len(known) > _MANY_RANGES:
                self.forget_delivered()

    def forget_delivered(self) -> None:
        """Nobody asks for it once all before a place is settled."""
        for known in self.delivered:
            known.forget_below(self.settled.floor)

    def deliveries(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """[start, end) in parts that were delivered equally often, and how often."""
        parts = [(start, end, 0)]
        for known in self.delivered:
            parts = [
                (low, high, times + inside)
                for start, end, times in parts
                for low, high, inside in known.split(start, end)
            ]
        return parts

    def alike_until(self, place: int) -> int:
        """Up to where neither settled messages come nor such that were delivered more often or less."""
        sets = (self.settled, *self.delivered)
        return min(each.change_after(place) for each in sets)

    def forget(self) -> None:
        """The queue is gone, and so is all that it had."""
        self.deleted = True
        for stretch in self.stretches:
            stretch.page.live -= stretch.live
        self.stretches.clear()
        self.shelves.clear()

    def complete(self) -> None:
        """After a restart: what is not in a stretch was lost or let go, and what is not settled is live."""
        end = 0
        for stretch in self.stretches:
            if end < stretch.first:
                self.settled.add(end, stretch.first)
            end = stretch.end
        if end < self.stored:
            self.settled.add(end, self.stored)
        for stretch in self.stretches:
            dead = self.settled.count(stretch.first, stretch.end)
            stretch.live = stretch.end - stretch.first - dead
            stretch.page.live += stretch.live
        self.stretches = [stretch for stretch in self.stretches if stretch.live]
        self._newest = None
        self.entered = self.stored
        if not self.counts:
            del self.delivered[1:]

    def check(self) -> None:
        end = 0
        for stretch in self.stretches:
            assert end <= stretch.first <= stretch.end <= self.stored, "A2"
            assert end == stretch.first or self.settled.covers(end, stretch.first), "A1"
            dead = self.settled.count(stretch.first, stretch.end)
            assert stretch.live == stretch.end - stretch.first - dead, "A3"
            end = stretch.end
        assert end == self.stored or self.settled.covers(end, self.stored), "A1"


def _first(stretch: Stretch) -> int:
    return stretch.first
