"""Those who are killed: `python -m bench.feeds_crash.people ROLE NAME URL FOLDER SEED`. The public API only."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path
from random import Random
from typing import Final

import recado
from bench.feeds_crash.diary import SCHEMA, Diary
from recado.feeds.boundary import Options
from recado.feeds.link import Link
from recado.feeds.message import Message
from recado.feeds.subscription import Recovery

FEED: Final = "quotes"
OPTIONS: Final = Options(
    beat=0.1, suspect=0.8, flush=0.3, again=0.1, patience=60.0, recovery_timeout=120.0
)
"""Faster than the defaults, so that many views fit into a minute; but a gap, and an archive, are waited for as
long as anybody is away."""


def linked(url: str) -> Link:
    return recado.connect(url, options=OPTIONS, give_up=None, patient=True)


def ready(name: str, folder: Path) -> None:
    """Whoever started us may wait for it."""
    (folder / f"{name}.ready").touch()


def body(publisher: bytes, sequence: int) -> bytes:
    """It tells whose it is, so that one who gets it knows whether it is whole."""
    return b"%s:%d:%s" % (publisher.hex().encode(), sequence, b"x" * (sequence % 200))


async def publish(name: str, url: str, folder: Path, rng: Random) -> None:
    with Diary(folder / f"{name}.diary") as diary:
        async with linked(url) as link:
            feed = await link.feed(FEED)
            diary.note(f"born {feed.publisher.hex()}")
            while True:
                for _ in range(rng.randint(1, 10)):
                    first, count = feed.published + 1, rng.randint(1, 20)
                    diary.note(f"tried {feed.published + count}")
                    bodies = [body(feed.publisher, first + each) for each in range(count)]
                    if count == 1:
                        await feed.publish(bodies[0], key="one")
                    else:
                        await feed.publish_many(bodies, keys="many")
                    await asyncio.sleep(rng.random() * 0.01)  # the pace of a publisher
                await feed.flush()
                diary.note(f"confirmed {feed.confirmed}")


def line_of(message: Message) -> str:
    whole = message.body == body(message.publisher, message.sequence)
    name = f"{message.publisher.hex()} {message.sequence} {message.certainty.name.lower()}"
    return f"got {name} {'whole' if whole else 'broken'}"


async def commit(name: str, url: str, folder: Path, _: Random) -> None:
    """Output and vector in one transaction: exactly once."""
    base = sqlite3.connect(folder / f"{name}.sqlite", isolation_level=None)
    base.executescript(f"pragma journal_mode = wal; pragma synchronous = off; {SCHEMA}")
    found = base.execute("select vector from progress").fetchone()
    recovery = recado.Vector.from_text(found[0] if found else "")
    async with (
        linked(url) as link,
        (await link.feed(FEED)).subscribe(name, recovery=recovery) as messages,
    ):
        ready(name, folder)
        async for batch in messages.batches():
            rows = [
                (message.publisher, message.sequence, line_of(message).endswith("whole"))
                for message in batch
            ]
            base.execute("begin")
            base.executemany("insert into output values (?, ?, ?)", rows)
            base.execute(
                "insert or replace into progress values (1, ?)", [messages.vector.to_text()]
            )
            base.execute("commit")


async def save(name: str, url: str, folder: Path, rng: Random) -> None:
    """The vector now and then: what followed the last one saved is repeated."""
    file = folder / f"{name}.vector"
    saved = file.read_text() if file.exists() else ""
    with Diary(folder / f"{name}.diary") as diary:
        diary.note(f"born {saved}")
        async with (
            linked(url) as link,
            (await link.feed(FEED)).subscribe(
                name, recovery=recado.Vector.from_text(saved)
            ) as messages,
        ):
            ready(name, folder)
            async for batch in messages.batches():
                diary.note(*map(line_of, batch))
                if rng.random() < 0.1:
                    part = file.with_suffix(".part")
                    part.write_text(messages.vector.to_text())
                    part.rename(file)


async def trust(name: str, url: str, folder: Path, _: Random) -> None:
    """Leaves it to the archive to know what was missed."""
    await watch(name, url, folder, "pessimistic")


async def await_archive(name: str, url: str, folder: Path, _: Random) -> None:
    """The archive begins by itself when it sees the name return."""
    await watch(name, url, folder, "archive")


async def watch(name: str, url: str, folder: Path, recovery: Recovery) -> None:
    with Diary(folder / f"{name}.diary") as diary:
        diary.note("born")
        async with (
            linked(url) as link,
            (await link.feed(FEED)).subscribe(name, recovery=recovery) as messages,
        ):
            ready(name, folder)
            async for batch in messages.batches():
                diary.note(*map(line_of, batch))


async def archive(name: str, url: str, folder: Path, _: Random) -> None:
    async with linked(url) as link, link.archive(FEED, folder / name, name=name) as running:
        ready(name, folder)
        await running.run()


ROLES: Final = {
    "publish": publish,
    "commit": commit,
    "save": save,
    "trust": trust,
    "await": await_archive,
    "archive": archive,
}


def main() -> None:
    role, name, url, folder, seed = sys.argv[1:]
    asyncio.run(ROLES[role](name, url, Path(folder), Random(int(seed))))


if __name__ == "__main__":
    main()
