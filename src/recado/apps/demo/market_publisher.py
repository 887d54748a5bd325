"""Publish the market: a morning at full speed before Spark starts, then live ticks at a pace.

The same feed publisher sends both parts, from one thread, so the ticks have one sequence of numbers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from threading import Event, Thread

import recado.feeds
from recado.apps.quotes import market as quotes
from recado.apps.quotes.publisher import publish
from recado.apps.quotes.tick import Tick

FEED = "quotes"


class MarketPublisher:
    """Publishes ticks in a thread of its own."""

    def __init__(self, url: str, *, seed: int, morning: int, live: int, speed: float) -> None:
        """Publish `morning` ticks at once, and `live` ticks at `speed` after `open` is called."""
        self.published = 0
        self.confirmed = 0
        self.failure: BaseException | None = None
        self._url = url
        self._ticks = quotes.Market(seed).ticks()
        self._phases = (morning, 0.0), (live, speed)
        self._opened = Event()
        self._stopped = False
        self._thread = Thread(target=self._run, name="demo-market", daemon=True)
        self._thread.start()

    def open(self) -> None:
        """Start publishing the live ticks."""
        self._opened.set()

    def stop(self) -> None:
        self._stopped = True
        self._opened.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._publish())
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.failure = error

    async def _publish(self) -> None:
        async with recado.feeds.connect(self._url) as connection:
            feed = connection.feed(FEED)
            for count, speed in self._phases:
                if speed:
                    await asyncio.to_thread(self._opened.wait)
                before = self.published

                def update_count(published: int, _: Tick, before: int = before) -> None:
                    self.published = before + published
                    if self._stopped:
                        raise asyncio.CancelledError

                with suppress(asyncio.CancelledError):
                    ticks = islice(self._ticks, count)
                    self.confirmed += await publish(feed, ticks, speed=speed, on_batch=update_count)
