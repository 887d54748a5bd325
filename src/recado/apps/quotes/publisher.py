"""Publish the market at a pace, such as an hour of trading in a minute, or at full speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Protocol

from recado.apps.quotes.tick import Bell, MarketPhase, Tick, encode_compact, encode_json, tick_key
from recado.apps.quotes.trading_day import SECOND_US

# Limits a batch, so that a fast market does not block the event loop.
BATCH_TICK_COUNT_MAX = 1_000

# A night, in which nothing happens, is shortened to this much market time.
NIGHT_US = 5 * SECOND_US

TickEncoder = Callable[[Tick], bytes]
ENCODERS: dict[str, TickEncoder] = {"json": encode_json, "compact": encode_compact}


class TickFeed(Protocol):
    """The methods of a feed that the publisher uses."""

    async def publish_many(self, bodies: list[bytes], *, keys: list[str]) -> object: ...

    async def flush(self) -> object: ...


class Pace:
    """Computes when ticks are due. `speed` is market seconds per real second; 0 means no pacing.

    The time between two trading days is shortened to `NIGHT_US`.
    """

    def __init__(self, speed: float, now: float) -> None:
        self._speed = speed
        self._started_at = now
        self._elapsed_us = 0
        self._last_at: int | None = None

    def due(self, tick: Tick) -> float:
        """Return when the next tick is due, by the clock of `now`; call it for each tick in order."""
        if not self._speed:
            return self._started_at
        step = 0 if self._last_at is None else tick.at - self._last_at
        if isinstance(tick, Bell) and tick.phase is MarketPhase.OPENING:
            step = min(step, NIGHT_US)
        self._elapsed_us += step
        self._last_at = tick.at
        return self._started_at + self._elapsed_us / SECOND_US / self._speed


async def publish(
    feed: TickFeed,
    ticks: Iterator[Tick],
    *,
    encode: TickEncoder = encode_json,
    speed: float = 0.0,
    clock: Callable[[], float] = monotonic,
    on_batch: Callable[[int, Tick], None] = lambda published, last: None,
) -> int:
    """Publish all ticks when they are due, in batches of those due together.

    Args:
        speed: market seconds per real second; 0 for full speed.
        on_batch: called after each batch with the number of ticks so far and the last tick.

    Returns:
        The number of ticks, when all of them are confirmed.
    """
    pace = Pace(speed, clock())
    published = 0
    due = ((pace.due(tick), tick) for tick in ticks)
    upcoming = next(due, None)
    while upcoming is not None:
        if (wait := upcoming[0] - clock()) > 0:
            await asyncio.sleep(wait)
        now = clock()
        batch: list[Tick] = []
        while (
            upcoming is not None
            and len(batch) < BATCH_TICK_COUNT_MAX
            and (upcoming[0] <= now or not batch)
        ):
            batch.append(upcoming[1])
            upcoming = next(due, None)
        await feed.publish_many([*map(encode, batch)], keys=[*map(tick_key, batch)])
        published += len(batch)
        on_batch(published, batch[-1])
    await feed.flush()
    return published
