"""When events happen, and to which instrument.

Spontaneous events are a Poisson process with the activity of the day. Each event triggers further events of
the same instrument shortly after, and those again (a Hawkes process, simulated as a branching process), so
activity comes in clusters. Now and then there is news, which triggers hundreds of events within seconds: a
burst.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from typing import NamedTuple

from recado.apps.quotes.instrument import Instrument
from recado.apps.quotes.trading_day import ACTIVITY_MAX_FACTOR, SECOND_US, TradingDay

FOLLOW_UP_RATIO = 0.6  # average number of events that an event triggers
FOLLOW_UP_DELAY_US = 0.5 * SECOND_US  # average
# The chance of one more follow-up; the mean number of them is then FOLLOW_UP_RATIO.
FOLLOW_UP_CHANCE_RATIO = FOLLOW_UP_RATIO / (1 + FOLLOW_UP_RATIO)

NEWS_PER_DAY = 2.0  # of each instrument
BURST_EVENT_RANGE = (80, 300)  # events that news triggers directly
BURST_DURATION_US = 3 * SECOND_US


class Arrival(NamedTuple):
    """An event of an instrument at `at`, in µs. `is_news`: it is the first reaction to news."""

    at: int
    instrument_index: int  # among the instruments of the market
    is_news: bool


class ArrivalProcess:
    """Generates the events of a day."""

    def __init__(self, instruments: Sequence[Instrument], per_second: float, rng: Random) -> None:
        """`per_second` is the average rate of the day, of all instruments, without bursts."""
        self._rng = rng
        self._cumulative_shares = list(accumulate(each.share for each in instruments))
        self._base_rate = per_second * (1 - FOLLOW_UP_RATIO) / SECOND_US

    def generate(self, day: TradingDay) -> Iterator[Arrival]:
        """Yield all events of a day in order."""
        rng = self._rng
        pending: list[tuple[int, int, int, bool]] = []
        number = count()  # keeps events of the same time in the order of their creation
        for at, index in self._news_times(day):
            heappush(pending, (at, next(number), index, True))
        spontaneous = self._spontaneous_times(day)
        upcoming = next(spontaneous, day.ends)
        while pending or upcoming < day.ends:
            if pending and pending[0][0] <= upcoming:
                at, _, index, is_news = heappop(pending)
            else:
                at, index, is_news = upcoming, self._draw_instrument(), False
                upcoming = next(spontaneous, day.ends)
            if at >= day.ends:
                continue
            yield Arrival(at, index, is_news)
            if is_news:
                for _ in range(rng.randint(*BURST_EVENT_RANGE)):
                    then = at + int(rng.expovariate(1 / BURST_DURATION_US))
                    heappush(pending, (then, next(number), index, False))
            while rng.random() < FOLLOW_UP_CHANCE_RATIO:
                then = at + int(rng.expovariate(1 / FOLLOW_UP_DELAY_US))
                heappush(pending, (then, next(number), index, False))

    def _spontaneous_times(self, day: TradingDay) -> Iterator[int]:
        """Yield times by thinning: draw at the peak rate, and accept each with the current activity."""
        rng, peak_rate = self._rng, self._base_rate * ACTIVITY_MAX_FACTOR
        at = float(day.begins)
        while (at := at + rng.expovariate(peak_rate)) < day.ends:
            if rng.random() * ACTIVITY_MAX_FACTOR < day.activity(int(at)):
                yield int(at)

    def _news_times(self, day: TradingDay) -> Iterator[tuple[int, int]]:
        for index in range(len(self._cumulative_shares)):
            at = float(day.opens)
            mean = (day.closes - day.opens) / NEWS_PER_DAY
            while (at := at + self._rng.expovariate(1 / mean)) < day.closes:
                yield int(at), index

    def _draw_instrument(self) -> int:
        return min(
            bisect(self._cumulative_shares, self._rng.random()), len(self._cumulative_shares) - 1
        )
