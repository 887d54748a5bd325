"""Programs on a feed: links over each of the carriers, with times short enough for tests."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import recado
from recado.feeds.archiver import Archiver
from recado.feeds.connection import FeedConnection
from recado.feeds.feed import Feed
from recado.feeds.message import Message
from recado.feeds.options import FeedOptions
from recado.feeds.subscription import Subscription
from recado.feeds.transport.memory import MemoryFeedTransport, MemoryHub

from .loop import until

FAST = FeedOptions(
    heartbeat_interval=0.03,
    failure_timeout=0.3,
    view_change_timeout=0.15,
    retry_interval=0.03,
    loss_timeout=2.0,
    recovery_timeout=3.0,
)
CARRIERS = ("memory", "udp", "amqp")

Linking = Callable[[], FeedConnection]


def free_group() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    return f"udp://239.255.42.1:{port}?interface=127.0.0.1"


@asynccontextmanager
async def linking(kind: str, options: FeedOptions = FAST) -> AsyncIterator[Linking]:
    """Makes a connection for each program that asks."""
    match kind:
        case "memory":
            hub = MemoryHub()
            yield lambda: FeedConnection.over_transport(MemoryFeedTransport(hub), options=options)
        case "udp":
            url = free_group()
            yield lambda: FeedConnection(url, options=options)
        case _:
            async with recado.Broker() as broker:
                yield lambda: FeedConnection(broker.url, options=options)


async def take(messages: Subscription, count: int) -> list[Message]:
    """The next so many."""
    found: list[Message] = []
    async for message in messages:
        found.append(message)
        if len(found) == count:
            break
    return found


async def stored(archive: Archiver, feed: Feed) -> None:
    """Until the archive has all that was published."""
    await until(lambda: archive.vector.last_of(feed.publisher) == feed.last_sequence)


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]
