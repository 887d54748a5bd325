"""The store of an archive, without a feed: `python -m bench.feeds.clients.store TASK FOLDER MESSAGES`.

    fill      appends batches, each with an fsync, and seals all of them at the end
    arrow     reads everything as Arrow batches
    objects   reads everything as messages

The bodies are 200 B of quotes in JSON, two in each and all different: filler that compresses well would be
unrealistic.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from itertools import islice, pairwise

from bench.feeds.clients.work import Stopwatch, WrongResultError
from recado.apps.quotes.market import Market
from recado.apps.quotes.tick import encode_json, tick_key
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch

FEED = "bench"
PUBLISHER = bytes(16)
SIZE = 200

# As in the batches of a busy publisher: so many fit into one of the usual size.
AT_ONCE = 500

# Of real ticks; then they are repeated.
DIFFERENT = 20 * AT_ONCE


def blocks() -> list[Block]:
    ticks = list(islice(Market(1).ticks(), DIFFERENT + 1))
    pairs = list(pairwise(ticks))
    pieces = [pairs[first : first + AT_ONCE] for first in range(0, DIFFERENT, AT_ONCE)]
    return [
        Block.build(
            [(encode_json(one) + encode_json(other))[:SIZE].ljust(SIZE) for one, other in piece],
            timestamps=[one.at for one, _ in piece],
            keys=[tick_key(one).encode() for one, _ in piece],
        )
        for piece in pieces
    ]


def fill(folder: str, messages: int) -> dict[str, float]:
    ready = blocks()
    batches = [
        MessageBatch(PUBLISHER, first + 1, ready[first // AT_ONCE % len(ready)])
        for first in range(0, messages, AT_ONCE)
    ]
    with closing(ArchiveStore(folder, FEED)) as store:
        stopwatch = Stopwatch()
        stopwatch.start()
        for batch in batches:
            store.append([batch])
            store.sync()
        store.seal()
        stopwatch.stop()
    return figures(messages, messages, stopwatch)


def arrow(folder: str, messages: int) -> dict[str, float]:
    stopwatch = Stopwatch()
    stopwatch.start()
    with Archive.open(folder) as archive:
        rows = sum(batch.num_rows for batch in archive.batches())
    stopwatch.stop()
    return figures(rows, messages, stopwatch)


def objects(folder: str, messages: int) -> dict[str, float]:
    stopwatch = Stopwatch()
    stopwatch.start()
    rows = 0
    with Archive.open(folder) as archive:
        for message in archive.messages():
            rows += 1
            last = message.sequence
    stopwatch.stop()
    if last != messages:
        raise WrongResultError(f"the last message is {last}, not {messages}")
    return figures(rows, messages, stopwatch)


def figures(rows: int, messages: int, stopwatch: Stopwatch) -> dict[str, float]:
    if rows != messages:
        raise WrongResultError(f"there are {rows} messages, not {messages}")
    return {
        "rate": rows / stopwatch.seconds,
        "seconds": stopwatch.seconds,
        "cpu_us": stopwatch.own_cpu / rows * 1e6,
    }


TASKS = {"fill": fill, "arrow": arrow, "objects": objects}


def main() -> None:
    task, folder, messages = sys.argv[1:]
    print(json.dumps(TASKS[task](folder, int(messages))))


if __name__ == "__main__":
    main()
