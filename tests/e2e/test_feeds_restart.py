"""Feeds whose broker, archive or publisher is killed with kill -9, on recado and on RabbitMQ."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from random import Random

import pytest

import recado.feeds
from bench.feeds_siege.diary import Published, read_publisher
from bench.feeds_siege.processes import Program
from bench.feeds_siege.programs import body
from recado.feeds.archive.archive import Archive
from recado.feeds.options import FeedOptions
from tests.brokers import BROKERS
from tests.feeds.io.loop import until
from tests.feeds.io.town import stored, take
from workshop import peers
from workshop.peers import Server

from .test_feeds import run

OPTIONS = FeedOptions(
    heartbeat_interval=0.1,
    failure_timeout=1.0,
    view_change_timeout=0.3,
    retry_interval=0.05,
    recovery_timeout=60.0,
)


def started(broker: str, folder: Path, port: int) -> AbstractContextManager[Server]:
    if broker == "recado":
        return peers.recado(port=port, data=folder, stop=signal.SIGKILL)
    return peers.rabbitmq(port=port, data=folder)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_broker_that_is_killed_is_no_loss(broker: str, tmp_path: Path) -> None:
    """Publisher, subscriber and archive live on; what was confirmed before and published after arrives."""

    async def work() -> None:
        (port,) = peers.free_ports(1)
        with ExitStack() as lives:
            server = await asyncio.to_thread(
                lives.enter_context, started(broker, tmp_path / "broker", port)
            )
            async with recado.feeds.connect(server.url, options=OPTIONS) as connection:
                feed = connection.feed("quotes")
                archiving = connection.archive("quotes", tmp_path / "archive")
                async with archiving as archive, feed.subscribe("desk") as messages:
                    await feed.publish_many([b"%d" % number for number in range(500)])
                    await feed.flush()
                    first = await take(messages, 500)
                    await asyncio.to_thread(lives.close)
                    await feed.publish_many([b"%d" % number for number in range(500, 1_000)])
                    await asyncio.to_thread(
                        lives.enter_context, started(broker, tmp_path / "broker", port)
                    )
                    await feed.flush()
                    rest = await take(messages, 500)
                    await stored(archive, feed)
        expected = [b"%d" % number for number in range(1_000)]
        assert [message.body for message in first + rest] == expected
        with Archive.open(tmp_path / "archive") as kept:
            assert [message.body for message in kept.messages()] == expected

    (tmp_path / "broker").mkdir()
    run(work())


def test_a_publisher_that_is_killed_is_no_loss_either(server: Server, tmp_path: Path) -> None:
    """What it had confirmed is there once, what not at most once, and its next life is another publisher."""

    async def work() -> None:
        async with recado.feeds.connect(server.url, options=OPTIONS) as connection:
            feed = connection.feed("quotes")
            async with connection.archive("quotes", tmp_path / "archive") as archive:
                published = Published()
                for life in (1, 2):
                    program = Program("publisher-1", "publish", server.url, tmp_path, Random(1))
                    program.start()
                    await until(partial(enough, tmp_path, life))
                    program.kill()
                    assert program.faults == []
                read_publisher(tmp_path / "publisher-1.diary", published)
                await until(lambda: archive.vector.covers(published.confirmed))
                assert len(published.tried) == 2
                async with feed.subscribe("late", recovery=recado.feeds.Vector()) as messages:
                    found = await take(messages, sum(archive.vector.values()))
        names = [(message.publisher, message.sequence) for message in found]
        assert len(set(names)) == len(names)
        assert all(message.body == body(message.publisher, message.sequence) for message in found)
        for publisher, last in published.confirmed.items():
            assert {(publisher, number) for number in range(1, last + 1)} <= set(names)

    run(work())


def enough(folder: Path, life: int) -> bool:
    """Whether the publisher of this life had a hundred confirmed."""
    published = Published()
    read_publisher(folder / "publisher-1.diary", published)
    return [0, *published.confirmed.values(), 0][life] > 100
