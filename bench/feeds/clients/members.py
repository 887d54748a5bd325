"""Many subscribers of a feed in one process, for the cost of membership.

    python -m bench.feeds.clients.members URL FEED NAME COUNT TOTAL MOMENT

Prints "ready" when it is connected. At MOMENT, by the monotonic clock that all processes share, COUNT
subscribers join; it prints after how many seconds all of them were in a view of TOTAL members, and runs until
it is stopped.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from functools import partial

import recado.feeds
from recado.feeds.views import View

LONGEST_S = 120.0


async def main(url: str, name: str, who: str, count: int, total: int, moment: float) -> None:
    async with recado.feeds.connect(url) as link, AsyncExitStack() as stack:
        feed = link.feed(name)
        print("ready", flush=True)
        await asyncio.sleep(moment - time.monotonic())
        views: dict[int, View] = {}
        complete = asyncio.Event()

        def installed(number: int, view: View) -> None:
            views[number] = view
            if sum(len(each.entries) == total for each in views.values()) == count:
                complete.set()

        members = [
            feed.subscribe(f"{who}-{number}", on_view=partial(installed, number))
            for number in range(count)
        ]
        await asyncio.gather(*map(stack.enter_async_context, members))
        async with asyncio.timeout(LONGEST_S):
            await complete.wait()
        print(json.dumps({"seconds": time.monotonic() - moment}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    place, feed_name, own_name, many, all_, start = sys.argv[1:]
    asyncio.run(main(place, feed_name, own_name, int(many), int(all_), float(start)))
