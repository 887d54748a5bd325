"""Live publishers and subscribers of a feed, for rate and latency.

    python -m bench.feeds.clients.live publish URL FEED MESSAGES SIZE RATE      RATE 0: full speed
    python -m bench.feeds.clients.live subscribe URL FEED NAME

A subscriber prints "ready" when it is a member, and figures after each last message. A body begins with the
time of publishing, by the monotonic clock that all processes share; no two bodies are equal:

    | monotonic ns, i64 | how many follow, i64 | filler |
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from statistics import median

import recado.feeds

HEAD = struct.Struct("<qq")

# A publisher with a rate checks its clock this often, and publishes the messages that are due.
STEP_S = 0.001
AT_ONCE = 500


async def publish(url: str, name: str, messages: int, size: int, rate: float) -> None:
    filler = b"." * (size - HEAD.size)
    async with recado.feeds.connect(url) as link:
        feed = link.feed(name)
        begun, left = time.monotonic(), messages
        while left:
            due = left
            if rate:
                due = int((time.monotonic() - begun) * rate) - (messages - left)
            count = min(AT_ONCE, left, due)
            if count > 0:
                now = time.monotonic_ns()
                follow = range(left - 1, left - 1 - count, -1)
                await feed.publish_many([HEAD.pack(now, each) + filler for each in follow])
                left -= count
            # Sleep even if messages are due again: publishing a few at a time would keep all processes busy.
            if rate and count < AT_ONCE:
                await asyncio.sleep(STEP_S)
        await feed.flush()
    print(json.dumps({"seconds": time.monotonic() - begun}))


async def subscribe(url: str, name: str, who: str) -> None:
    late: list[int] = []
    begun = 0.0
    before = 0
    async with recado.feeds.connect(url) as link:
        feed = link.feed(name)
        async with feed.subscribe(who) as coming:
            print("ready", flush=True)
            async for batch in coming.batches():
                now = time.monotonic_ns()
                heads = [HEAD.unpack_from(message.body) for message in batch]
                late += [now - moment for moment, _ in heads]
                if not begun:
                    begun, before = time.monotonic(), len(late)
                if heads[-1][1] == 0:
                    print(json.dumps(figures(late, before, begun)), flush=True)
                    late, begun = [], 0.0


def figures(late: list[int], before: int, begun: float) -> dict[str, float]:
    """The rate is measured from the end of the first batch: before that there was nothing to deliver."""
    rate = (len(late) - before) / (time.monotonic() - begun)
    late.sort()
    p50, p99 = median(late) / 1e3, late[len(late) * 99 // 100] / 1e3
    return {"messages": len(late), "rate": rate, "p50_us": p50, "p99_us": p99}


def main() -> None:
    match sys.argv[1:]:
        case ["publish", url, name, messages, size, rate]:
            asyncio.run(publish(url, name, int(messages), int(size), float(rate)))
        case ["subscribe", url, name, who]:
            asyncio.run(subscribe(url, name, who))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
