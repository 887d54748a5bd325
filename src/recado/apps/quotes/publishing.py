"""The market at a pace: an hour of trading in a minute, or as fast as it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Protocol

from recado.apps.quotes.day import SECOND
from recado.apps.quotes.tick import Bell, Phase, Tick, encode_compact, encode_json, key_of

# As many at most are published at a time, so that a fast market does not keep the loop from its other work.
AT_ONCE = 1_000

# A night is as long as this in the market's time: nothing happens in it.
NIGHT = 5 * SECOND

Encode = Callable[[Tick], bytes]
FORMS: dict[str, Encode] = {"json": encode_json, "compact": encode_compact}


class Feed(Protocol):
    """What is needed of a feed of recado."""

    async def publish_many(self, bodies: list[bytes], *, keys: list[str]) -> object: ...

    async def flush(self) -> object: ...


class Pace:
    """When a tick is due. `speed` is how many seconds of the market pass in one of ours; 0 is no pace at all.

    Time stands still while nobody trades: a night takes a moment.
    """

    def __init__(self, speed: float, now: float) -> None:
        self._speed = speed
        self._begun = now
        self._passed = 0
        self._last: int | None = None

    def due(self, tick: Tick) -> float:
        if not self._speed:
            return self._begun
        step = 0 if self._last is None else tick.at - self._last
        if isinstance(tick, Bell) and tick.phase is Phase.OPENING:
            step = min(step, NIGHT)
        self._passed += step
        self._last = tick.at
        return self._begun + self._passed / SECOND / self._speed


async def publish(
    feed: Feed,
    ticks: Iterator[Tick],
    *,
    encode: Encode = encode_json,
    speed: float = 0.0,
    clock: Callable[[], float] = monotonic,
    told: Callable[[int, Tick], None] = lambda published, last: None,
) -> int:
    """Publishes all ticks when they are due, in batches of what is due together; gives how many there were.

    Returns when all of them are confirmed; `told` is called after each batch.
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
        while upcoming is not None and len(batch) < AT_ONCE and (upcoming[0] <= now or not batch):
            batch.append(upcoming[1])
            upcoming = next(due, None)
        await feed.publish_many([*map(encode, batch)], keys=[*map(key_of, batch)])
        published += len(batch)
        told(published, batch[-1])
    await feed.flush()
    return published
