"""A program that receives a feed by two endpoints, and kills itself with SIGKILL between handling and acknowledging.

    python -m tests.patterns.feed_victim URL FEED FOLDER KILL_AT

`plain` in the folder has a line for each call of an ordinary handler; the table `exact` of `state.db` is written by an
idempotent handler in its transaction. When both have handled the message KILL_AT, and neither has acknowledged it, the
program ends.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from recado.feeds import FeedOptions
from recado.patterns import FeedSource, Interceptor, Message, Messaging, StoreTransaction
from recado.patterns.interceptor import Proceed

FAST = FeedOptions(
    heartbeat_interval=0.1, failure_timeout=1.0, view_change_timeout=0.3, retry_interval=0.05
)


class Killer(Interceptor):
    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at
        self._handled_count = 0

    async def handle(self, message: Message[Any], tag: str, proceed: Proceed) -> Any:
        result = await proceed()
        if message.body == self._kill_at:
            self._handled_count += 1
            if self._handled_count == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.Event().wait()
        return result


async def receive(url: str, feed: str, folder: Path, kill_at: int) -> None:
    app = Messaging(url, store=folder / "state.db")
    app.intercept(Killer(kill_at))

    @app.subscribe(FeedSource(feed, "plain", recovery="pessimistic", options=FAST))
    async def plain(number: int) -> None:
        with (folder / "plain").open("a") as file:
            file.write(f"{number}\n")

    @app.subscribe(
        FeedSource(feed, "exact", recovery="pessimistic", options=FAST), deduplicate=True
    )
    def exact(number: int, transaction: StoreTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS exact (number INTEGER)")
        transaction.execute("INSERT INTO exact VALUES (?)", [number])

    await app.run()


if __name__ == "__main__":
    url, feed, folder, kill_at = sys.argv[1:]
    asyncio.run(receive(url, feed, Path(folder), int(kill_at)))
