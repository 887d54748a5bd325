"""When something happens, and to which symbol.

What happens by itself comes at random at the pulse of the day. Whatever happens makes more happen to the same
symbol shortly after, and that again more (a Hawkes process, by its branches): so activity comes in clusters.
Now and then there is news, which sets off hundreds of events within seconds: a burst.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from typing import NamedTuple

from recado.apps.quotes.day import PEAK, SECOND, Day
from recado.apps.quotes.listing import Instrument

FOLLOWERS = 0.6  # of each event, on average
FOLLOWS_WITHIN = 0.5 * SECOND  # on average
CONTINUES = FOLLOWERS / (
    1 + FOLLOWERS
)  # the chance of one more, so that their number has that mean

NEWS_PER_DAY = 2.0  # of each symbol
BURST = (80, 300)  # events that news sets off by itself
BURST_WITHIN = 3 * SECOND


class Beat(NamedTuple):
    """Something happens to a symbol. `news`: it is the first to react to news."""

    at: int
    place: int  # of the symbol in the listing
    news: bool


class Rhythm:
    def __init__(
        self, instruments: Sequence[Instrument], per_second: float, chance: Random
    ) -> None:
        """`per_second` is the average of the day, of all symbols, without bursts."""
        self._chance = chance
        self._edges = list(accumulate(each.share for each in instruments))
        self._spontaneous = per_second * (1 - FOLLOWERS) / SECOND

    def of(self, day: Day) -> Iterator[Beat]:
        """All beats of a day, in order."""
        chance = self._chance
        later: list[tuple[int, int, int, bool]] = []
        number = count()  # keeps equal moments in the order in which they arose
        for at, index in self._news(day):
            heappush(later, (at, next(number), index, True))
        fresh = self._by_themselves(day)
        upcoming = next(fresh, day.ends)
        while later or upcoming < day.ends:
            if later and later[0][0] <= upcoming:
                at, _, index, news = heappop(later)
            else:
                at, index, news = upcoming, self._symbol(), False
                upcoming = next(fresh, day.ends)
            if at >= day.ends:
                continue
            yield Beat(at, index, news)
            if news:
                for _ in range(chance.randint(*BURST)):
                    then = at + int(chance.expovariate(1 / BURST_WITHIN))
                    heappush(later, (then, next(number), index, False))
            while chance.random() < CONTINUES:
                then = at + int(chance.expovariate(1 / FOLLOWS_WITHIN))
                heappush(later, (then, next(number), index, False))

    def _by_themselves(self, day: Day) -> Iterator[int]:
        """As if it were always the busiest moment, and then only the share that the pulse leaves."""
        chance, fastest = self._chance, self._spontaneous * PEAK
        at = float(day.begins)
        while (at := at + chance.expovariate(fastest)) < day.ends:
            if chance.random() * PEAK < day.pulse(int(at)):
                yield int(at)

    def _news(self, day: Day) -> Iterator[tuple[int, int]]:
        for index in range(len(self._edges)):
            at = float(day.opens)
            mean = (day.closes - day.opens) / NEWS_PER_DAY
            while (at := at + self._chance.expovariate(1 / mean)) < day.closes:
                yield int(at), index

    def _symbol(self) -> int:
        return min(bisect(self._edges, self._chance.random()), len(self._edges) - 1)
