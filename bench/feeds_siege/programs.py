"""The programs under siege: `python -m bench.feeds_siege.programs ROLE NAME URL FOLDER SEED`.

They use the public API only, and write to their diary before they continue. A subscription that fails for an
expected reason (no archive or no broker for too long) is recorded and restarted, as an application would do.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Final

import recado.feeds
from bench.feeds_siege.diary import SCHEMA, Diary, stamped
from bench.feeds_siege.partition import LossyCarrier, cut_file
from recado.feeds.connection import FeedConnection
from recado.feeds.errors import JoinError, RecoveryError, TransportLostError
from recado.feeds.message import Message
from recado.feeds.options import FeedOptions
from recado.feeds.subscription import DeliveredBatch, Recovery, Subscription
from recado.feeds.transport.udp import UdpFeedTransport, parse_group
from recado.feeds.views import Certainty, View

FEED: Final = "quotes"
OPTIONS: Final = FeedOptions(recovery_timeout=60.0)
"""The defaults, except that recovery waits as long as an archive may be down."""
FORESEEN: Final = (JoinError, TransportLostError, RecoveryError)
PUBLISH_PAUSE_S: Final = 0.1
SAVE_SHARE: Final = 0.1
"""A subscriber that saves its vector now and then does so after this share of its batches."""
STALL_LOOK_S: Final = 0.25
STALL_S: Final = 1.0
"""A turn of the loop that is late by this much is noted: the machine was too busy, or the process stopped."""


def linked(url: str, folder: Path, name: str) -> FeedConnection:
    if url.startswith("udp:"):
        carrier = LossyCarrier(UdpFeedTransport(parse_group(url)), cut_file(folder, name))
        return FeedConnection.over_transport(carrier, options=OPTIONS)
    return recado.feeds.connect(url, options=OPTIONS, reconnect_timeout=None, wait_for_broker=True)


def mark_ready(name: str, folder: Path) -> None:
    """The siege waits for this file."""
    (folder / f"{name}.ready").touch()


def body(publisher: bytes, sequence: int) -> bytes:
    """Contains the id of the message, so that a receiver can check whether it is intact."""
    return b"%s:%d:%s" % (publisher.hex().encode(), sequence, b"x" * (sequence % 200))


def is_whole(message: Message) -> bool:
    return message.body == body(message.publisher, message.sequence)


async def note_stalls(diary: Diary) -> None:
    """A process that does not run for longer than `failure_timeout` is considered failed: record it for the
    judge."""
    while True:
        begun = time.monotonic()
        await asyncio.sleep(STALL_LOOK_S)
        late = time.monotonic() - begun - STALL_LOOK_S
        if late > STALL_S:
            diary.note(stamped(f"stalled {late:.3f}"))


# --- publishers


async def publish(name: str, url: str, folder: Path, rng: Random) -> None:
    with Diary(folder / f"{name}.diary") as diary:
        async with linked(url, folder, name) as link:
            feed = link.feed(FEED)
            diary.note(stamped(f"born {feed.publisher.hex()}"))
            while True:
                for _ in range(rng.randint(1, 10)):
                    first, count = feed.last_sequence + 1, rng.randint(1, 20)
                    diary.note(stamped(f"tried {feed.last_sequence + count}"))
                    bodies = [body(feed.publisher, first + each) for each in range(count)]
                    if count == 1:
                        await feed.publish(bodies[0], key="one")
                    else:
                        await feed.publish_many(bodies, keys="many")
                    await asyncio.sleep(rng.random() * PUBLISH_PAUSE_S)
                await feed.flush()
                diary.note(stamped(f"confirmed {feed.confirmed_sequence}"))
                mark_ready(name, folder)


# --- subscribers


Receive = Callable[[Subscription, DeliveredBatch], None]


async def subscribe(
    name: str,
    url: str,
    folder: Path,
    diary: Diary,
    load_recovery: Callable[[], Recovery],
    receive: Receive,
) -> None:
    """Subscribe, again after each expected failure; the diary has each attempt as an incarnation."""
    async with linked(url, folder, name) as link:
        feed = link.feed(FEED)
        while True:
            recovery = load_recovery()
            vector = recovery.to_text() if isinstance(recovery, recado.feeds.Vector) else ""
            diary.note(stamped(f"born {vector}"))
            try:
                async with feed.subscribe(
                    name, recovery=recovery, on_view=lambda view: note_view(diary, view)
                ) as messages:
                    diary.note(stamped("joined"))
                    mark_ready(name, folder)
                    async for batch in noting_losses(messages, diary):
                        receive(messages, batch)
            except FORESEEN as error:
                diary.note(stamped(f"failed {type(error).__name__}: {error}"))


async def noting_losses(messages: Subscription, diary: Diary) -> AsyncIterator[DeliveredBatch]:
    """Yield the batches; lost messages reported before a batch are recorded before it."""
    noted = 0
    async for batch in messages.batches():
        losses, noted = messages.lost[noted:], len(messages.lost)
        if losses:
            texts = (f"lost {each.publisher.hex()} {each.first} {each.last}" for each in losses)
            diary.note(*map(stamped, texts))
        yield batch


def note_view(diary: Diary, view: View) -> None:
    members = ",".join(sorted(map(str, view.members())))
    diary.note(stamped(f"view {view.id.number} {view.id.coordinator.hex()} {members}"))


def note_batch(diary: Diary, batch: DeliveredBatch) -> None:
    diary.note(*(stamped(f"got {words}") for words in ranges_of(batch)))


def ranges_of(batch: DeliveredBatch) -> Iterator[str]:
    """Return the words for a batch: it is of one publisher and consecutive, and nearly always intact."""
    first = batch[0]
    certainty = first.certainty.name.lower()
    for whole, group in groupby(batch, is_whole):
        some = list(group)
        bounds = f"{some[0].sequence} {some[-1].sequence}"
        yield f"{first.publisher.hex()} {bounds} {certainty} {'whole' if whole else 'broken'}"


async def commit(name: str, url: str, folder: Path, _: Random) -> None:
    """The output and the vector in one transaction: each message is in the output exactly once."""
    database = sqlite3.connect(folder / f"{name}.sqlite", isolation_level=None)
    database.executescript(f"pragma journal_mode = wal; pragma synchronous = off; {SCHEMA}")

    def load() -> Recovery:
        found = database.execute("select vector from progress").fetchone()
        return recado.feeds.Vector.from_text(found[0] if found else "")

    def receive(messages: Subscription, batch: DeliveredBatch) -> None:
        rows = [
            (time.monotonic(), batch.publisher, group[0], group[-1], whole)
            for whole, group in (
                (whole, [each.sequence for each in some])
                for whole, some in groupby(batch, is_whole)
            )
        ]
        vector = messages.vector.to_text()
        database.execute("begin")
        database.executemany("insert into output values (?, ?, ?, ?, ?)", rows)
        database.execute("insert or replace into progress values (1, ?)", [vector])
        database.execute("commit")

    with Diary(folder / f"{name}.diary") as diary:
        async with observed(diary):
            await subscribe(name, url, folder, diary, load, receive)


async def save(name: str, url: str, folder: Path, rng: Random) -> None:
    """The vector is saved from time to time: messages after the last saved one are repeated."""
    file = folder / f"{name}.vector"

    def load() -> Recovery:
        return recado.feeds.Vector.from_text(file.read_text() if file.exists() else "")

    with Diary(folder / f"{name}.diary") as diary:

        def receive(messages: Subscription, batch: DeliveredBatch) -> None:
            note_batch(diary, batch)
            if rng.random() < SAVE_SHARE:
                part = file.with_suffix(".part")
                part.write_text(messages.vector.to_text())
                part.rename(file)

        async with observed(diary):
            await subscribe(name, url, folder, diary, load, receive)


def watcher(recovery: Recovery, *, discard: bool = False) -> Role:
    """A subscriber that saves no vector. With `discard` it ignores recovered messages: a planted fault."""

    async def watch(name: str, url: str, folder: Path, _: Random) -> None:
        with Diary(folder / f"{name}.diary") as diary:

            def receive(_: Subscription, batch: DeliveredBatch) -> None:
                if not discard or batch.certainty is Certainty.LIVE:
                    note_batch(diary, batch)

            async with observed(diary):
                await subscribe(name, url, folder, diary, lambda: recovery, receive)

    return watch


@asynccontextmanager
async def observed(diary: Diary) -> AsyncIterator[None]:
    """Stalls of this process are noted."""
    observing = asyncio.create_task(note_stalls(diary))
    try:
        yield
    finally:
        observing.cancel()


# --- archives


async def archive(name: str, url: str, folder: Path, _: Random) -> None:
    async with (
        linked(url, folder, name) as link,
        link.archive(FEED, folder / name, name=name) as running,
    ):
        mark_ready(name, folder)
        await running.run()


Role = Callable[[str, str, Path, Random], Awaitable[None]]

ROLES: Final[dict[str, Role]] = {
    "publish": publish,
    "archive": archive,
    "none": watcher(None),
    "pessimistic": watcher("pessimistic"),
    "by-archive": watcher("archive"),
    "saved-vector": save,
    "committed-vector": commit,
    "discard": watcher("pessimistic", discard=True),
}


def main() -> None:
    role, name, url, folder, seed = sys.argv[1:]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")

    async def run() -> None:
        await ROLES[role](name, url, Path(folder), Random(int(seed)))

    asyncio.run(run())


if __name__ == "__main__":
    main()
