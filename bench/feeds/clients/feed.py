"""A feed of recado: batches published until confirmed, and a subscriber that recovers everything from the
start."""

from __future__ import annotations

import asyncio

import recado.feeds
from bench.feeds.clients.work import Reading, Stopwatch, Work, main

# As a program publishes that reads its messages from somewhere: some, and then some more.
AT_ONCE = 500


def publish(work: Work, stopwatch: Stopwatch) -> None:
    asyncio.run(publishing(work, stopwatch))


async def publishing(work: Work, stopwatch: Stopwatch) -> None:
    bodies = work.bodies()
    async with recado.feeds.connect(work.url) as link:
        feed = link.feed(work.name)
        stopwatch.start()
        for first in range(0, len(bodies), AT_ONCE):
            await feed.publish_many(bodies[first : first + AT_ONCE])
        await feed.flush()
        stopwatch.stop()


def replay(work: Work, stopwatch: Stopwatch) -> None:
    asyncio.run(replaying(work, stopwatch))


async def replaying(work: Work, stopwatch: Stopwatch) -> None:
    reading = Reading(work)
    async with recado.feeds.connect(work.url) as link:
        feed = link.feed(work.name)
        stopwatch.start()
        async with feed.subscribe("reader", recovery=recado.feeds.Vector()) as messages:
            async for message in messages:
                if reading.take(message.body):
                    break
            stopwatch.stop()


if __name__ == "__main__":
    main(publish, replay)
