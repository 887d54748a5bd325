"""Feeds on recado and on RabbitMQ: subscribers that are killed and return, latecomers, archives that repair."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

import recado.feeds
from recado.feeds.archiver import Archiver
from recado.feeds.connection import FeedConnection
from recado.feeds.options import FeedOptions
from tests.feeds.io.loop import until
from tests.feeds.io.town import stored, take
from workshop.peers import Server
from workshop.time_limit import scale

RECADO = Path(sys.executable).with_name("recado")
FAST = FeedOptions(
    heartbeat_interval=0.1, failure_timeout=1.0, view_change_timeout=0.3, retry_interval=0.05
)
PATIENCE = 60.0


def run(work: Coroutine[Any, Any, None]) -> None:
    async def within_patience() -> None:
        async with asyncio.timeout(scale(PATIENCE)):
            await work

    asyncio.run(within_patience())


def linked(server: Server) -> FeedConnection:
    return recado.feeds.connect(server.url, options=FAST)


def seats(archive: Archiver) -> int:
    """How many take part, as the archive sees it."""
    return 0 if archive.view is None else len(archive.view.entries)


@contextmanager
def subscriber(server: Server, feed: str, *options: str) -> Iterator[IO[str]]:
    """A process that prints what it gets, to be read; it is killed with kill -9."""
    command = [str(RECADO), "feed", "subscribe", feed, "desk", "--json", "--url", server.url]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


async def read(lines: IO[str], count: int) -> list[dict[str, Any]]:
    """So many messages of a process."""
    texts = [await asyncio.to_thread(lines.readline) for _ in range(count)]
    return [json.loads(text) for text in texts]


def test_publish_and_subscribe(server: Server, name: Callable[[str], str]) -> None:
    async def work() -> None:
        async with linked(server) as one, linked(server) as two:
            feed = one.feed(name("quotes"))
            async with (two.feed(feed.name)).subscribe("desk") as messages:
                sent = [b"%d" % number for number in range(10_000)]
                await feed.publish_many(sent, keys="PETR4")
                await feed.flush()
                found = await take(messages, len(sent))
        assert [message.body for message in found] == sent
        assert {message.key for message in found} == {"PETR4"}

    run(work())


def test_a_latecomer_and_what_is_live(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    async def work() -> None:
        async with linked(server) as connection:
            feed = connection.feed(name("quotes"))
            async with connection.archive(feed.name, tmp_path) as archive:
                await feed.publish_many([b"%d" % number for number in range(1_000)])
                await stored(archive, feed)

                async def go_on() -> None:
                    for number in range(1_000, 1_500):
                        await feed.publish(b"%d" % number)
                        await asyncio.sleep(0)

                going = asyncio.create_task(go_on())
                async with feed.subscribe("late", recovery=recado.feeds.Vector()) as messages:
                    found = await take(messages, 1_500)
                await going
        assert [message.body for message in found] == [b"%d" % number for number in range(1_500)]

    run(work())


@pytest.mark.parametrize("policy", ["pessimistic", "archive", "vector", "optimistic"])
def test_a_subscriber_that_is_killed_returns(
    policy: str, server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    feed_name = name("quotes")
    options = ["--recovery", policy]
    if policy == "vector":
        options = ["--vector", str(tmp_path / "saved")]

    async def work() -> None:
        async with linked(server) as connection:
            feed = connection.feed(feed_name)
            async with connection.archive(feed_name, tmp_path / "archive") as archive:
                with subscriber(server, feed_name, *options) as lines:
                    await until(lambda: seats(archive) == 2)
                    await feed.publish_many([b"1", b"2"])
                    assert [each["body"] for each in await read(lines, 2)] == ["1", "2"]
                await feed.publish_many([b"3", b"4"])
                await stored(archive, feed)
                await until(lambda: seats(archive) == 1)
                with subscriber(server, feed_name, *options) as lines:
                    await until(lambda: seats(archive) == 2)
                    await feed.publish(b"5")
                    found = await read(lines, 1)
                    while found[-1]["body"] != "5":
                        found += await read(lines, 1)
        bodies = [each["body"] for each in found]
        certainties = {each["body"]: each["certainty"] for each in found}
        match policy:
            case "optimistic":
                assert bodies == ["5"]
            case "vector":  # it was killed before it saved, or after
                assert bodies in (["1", "2", "3", "4", "5"], ["3", "4", "5"])
            case _:  # what it had before it was killed it never acknowledged
                assert bodies == ["1", "2", "3", "4", "5"]
                assert certainties["1"] == certainties["2"] == "uncertain"

    run(work())


def test_archives_repair_each_other(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    async def work() -> None:
        async with linked(server) as connection:
            feed = connection.feed(name("quotes"))
            async with connection.archive(feed.name, tmp_path / "1", name="archive-1") as first:
                await feed.publish_many([b"%d" % number for number in range(2_000)])
                await stored(first, feed)
                async with connection.archive(
                    feed.name, tmp_path / "2", name="archive-2"
                ) as second:
                    await stored(second, feed)

    run(work())
