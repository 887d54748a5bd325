"""An archive of a feed: `python -m bench.feeds.clients.archive URL FEED FOLDER [MESSAGES]`.

Without a number it prints "ready" and runs until it is stopped. With a number it ends when so many messages are
stored durably, and prints how long that took since it became a member of the feed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

import recado.feeds
from recado.feeds.archiver import Archiver

LOOK_S = 0.005


async def keep(url: str, feed: str, folder: str, messages: str = "0") -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with recado.feeds.connect(url) as link, link.archive(feed, folder) as archive:
        if int(messages):
            print(json.dumps(await taken_in(archive, int(messages))), flush=True)
            return
        print("ready", flush=True)
        await stopped.wait()


async def taken_in(archive: Archiver, messages: int) -> dict[str, float]:
    """Poll: an archive reports durable messages to other archives only."""
    before = sum(archive.vector.values())
    begun, used = time.perf_counter(), time.process_time()
    while sum(archive.vector.values()) < messages:  # noqa: ASYNC110 (see above)
        await asyncio.sleep(LOOK_S)
    seconds = time.perf_counter() - begun
    used = time.process_time() - used
    return {"rate": (messages - before) / seconds, "cpu_us": used / (messages - before) * 1e6}


if __name__ == "__main__":
    asyncio.run(keep(*sys.argv[1:]))
