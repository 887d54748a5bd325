"""The publisher: ticks due together are published together, and a night is short."""

from __future__ import annotations

import asyncio
from itertools import islice

from recado.apps.quotes.market import Market
from recado.apps.quotes.publisher import BATCH_TICK_COUNT_MAX, NIGHT_US, Pace, publish
from recado.apps.quotes.tick import Bell, MarketPhase, Quote, Tick, decode, encode_compact, tick_key
from recado.apps.quotes.trading_day import SECOND_US

from .stage import Remembering

AT = 1_772_445_600_000_000


def quote(after: float) -> Quote:
    return Quote("PETR4", AT + int(after * SECOND_US), 38.0, 38.01, 100, 100)


def test_everything_is_published_in_order_and_confirmed() -> None:
    ticks = list(islice(Market(1).ticks(), 2 * BATCH_TICK_COUNT_MAX + 500))
    feed = Remembering()
    told: list[tuple[int, Tick]] = []
    published = asyncio.run(
        publish(
            feed, iter(ticks), encode=encode_compact, on_batch=lambda *after: told.append(after)
        )
    )
    assert published == len(ticks)
    sent = [decode(key, body) for batch in feed.batches for key, body in batch]
    assert sent == ticks
    assert [key for batch in feed.batches for key, _ in batch] == [tick_key(tick) for tick in ticks]
    assert [len(batch) for batch in feed.batches] == [
        BATCH_TICK_COUNT_MAX,
        BATCH_TICK_COUNT_MAX,
        500,
    ]
    assert told[-1] == (len(ticks), ticks[-1])
    assert feed.flushed


def test_no_ticks_are_no_batches() -> None:
    feed = Remembering()
    assert asyncio.run(publish(feed, iter([]))) == 0
    assert feed.batches == []


def test_a_tick_is_due_when_the_market_has_come_to_it() -> None:
    pace = Pace(60.0, now=100.0)
    assert [pace.due(quote(after)) for after in (0, 30, 30, 90)] == [100.0, 100.5, 100.5, 101.5]


def test_without_a_pace_everything_is_due_at_once() -> None:
    pace = Pace(0.0, now=100.0)
    assert [pace.due(quote(after)) for after in (0, 3600)] == [100.0, 100.0]


def test_a_night_takes_a_moment() -> None:
    pace = Pace(1.0, now=0.0)
    evening, morning = AT, AT + 17 * 3600 * SECOND_US
    assert pace.due(Bell(evening, MarketPhase.CLOSED)) == 0.0
    assert pace.due(Bell(morning, MarketPhase.OPENING)) == NIGHT_US / SECOND_US
    assert (
        pace.due(Quote("PETR4", morning + SECOND_US, 1.0, 1.01, 100, 100))
        == NIGHT_US / SECOND_US + 1
    )


class Clock:
    """Stands still, unless it is waited for: then it is exactly on time."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_what_is_due_together_is_one_batch() -> None:
    clock, feed = Clock(), Remembering()

    def later(published: int, last: Tick) -> None:
        clock.now += 1.0

    ticks = [quote(after) for after in (0, 0.0, 0.4, 0.9, 1.5)]
    asyncio.run(publish(feed, iter(ticks), speed=1.0, clock=clock, on_batch=later))
    assert [len(batch) for batch in feed.batches] == [2, 2, 1]
