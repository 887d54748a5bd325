"""The market: a morning that is over when Spark begins, and then, at a pace, what it can watch happen.

One publisher in a thread of its own, so that both are one sequence of ticks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from threading import Event, Thread

import recado
from recado.apps.quotes import market as quotes
from recado.apps.quotes.publisher import publish
from recado.apps.quotes.tick import Tick

FEED = "quotes"


class MarketPublisher:
    def __init__(self, url: str, *, seed: int, morning: int, live: int, speed: float) -> None:
        """So many ticks as fast as it goes, and so many at a pace once `open` was called."""
        self.published = 0
        self.confirmed = 0
        self.failure: BaseException | None = None
        self._url = url
        self._ticks = quotes.Market(seed).ticks()
        self._phases = (morning, 0.0), (live, speed)
        self._opened = Event()
        self._stopped = False
        self._thread = Thread(target=self._run, name="story-market", daemon=True)
        self._thread.start()

    def open(self) -> None:
        self._opened.set()

    def stop(self) -> None:
        self._stopped = True
        self._opened.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._publish())
        except BaseException as error:  # noqa: BLE001 - for the thread that tells the story
            self.failure = error

    async def _publish(self) -> None:
        async with recado.connect(self._url) as link:
            feed = await link.feed(FEED)
            for count, speed in self._phases:
                if speed:
                    await asyncio.to_thread(self._opened.wait)
                before = self.published

                def told(published: int, _: Tick, before: int = before) -> None:
                    self.published = before + published
                    if self._stopped:
                        raise asyncio.CancelledError

                with suppress(asyncio.CancelledError):
                    ticks = islice(self._ticks, count)
                    self.confirmed += await publish(feed, ticks, speed=speed, on_batch=told)
