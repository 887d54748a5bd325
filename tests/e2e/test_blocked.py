"""A broker that runs out of memory stops its publishers, and says so to those who understand it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pika
import pytest
from pika import BlockingConnection
from pika.exceptions import ConnectionBlockedTimeout

from recado.client import (
    ConnectionClosedByClientError,
    PublishingBlocked,
    PublishingUnblocked,
    RobustChannel,
    connect,
)
from tests.brokers import BROKERS
from tests.client.notebook import Notebook
from tests.client.running import in_a_loop, soon
from workshop import peers
from workshop.peers import Server

from .traffic import Inbox, await_that, put


@pytest.fixture(scope="module", params=BROKERS)
def scarce(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker whose memory is beyond its limit from the first moment."""
    if request.param == "recado":
        starting = peers.recado(config="[broker]\nmemory_watermark = 0.000001\n")
    else:
        starting = peers.rabbitmq(settings={"vm_memory_high_watermark.absolute": "1MB"})
    with starting as running:
        yield running


def test_publishers_are_blocked_and_consumers_are_not(scarce: Server) -> None:
    consuming = BlockingConnection(pika.URLParameters(scarce.url))
    channel = consuming.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    inbox = Inbox(channel, queue, auto_ack=True)

    parameters = pika.URLParameters(scarce.url)
    parameters.blocked_connection_timeout = 0.5
    publishing = BlockingConnection(parameters)
    reasons: list[str] = []
    publishing.add_on_connection_blocked_callback(
        lambda _, frame: reasons.append(frame.method.reason)
    )
    publisher = publishing.channel()

    def blocked() -> bool:
        put(publisher, queue, b"one too many")
        return bool(reasons)

    await_that(publishing, blocked)
    assert reasons == ["low on memory"]
    with pytest.raises(ConnectionBlockedTimeout):
        await_that(publishing, lambda: False)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    channel.basic_cancel(inbox.tag)
    consuming.close()


@in_a_loop
async def test_our_client_is_told_and_waits(
    scarce: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recado.client.protocol.CLOSE_TIMEOUT_S", 0.2
    )  # it hears no good-bye either
    notebook = Notebook()
    async with connect(scarce.url, on_event=notebook) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        publishing = asyncio.create_task(publish_on(channel, queue.name))
        blocked = await notebook.wait_for(PublishingBlocked)
        publishing.cancel()
        assert "memory" in blocked.reason
        assert connection.blocked_reason == blocked.reason
        draining = asyncio.ensure_future(channel.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        await soon(connection.close())
        with pytest.raises(ConnectionClosedByClientError):
            await soon(draining)
        assert not [each for each in notebook.notices if isinstance(each, PublishingUnblocked)]


async def publish_on(channel: RobustChannel, queue: str) -> None:
    """A broker looks at its memory from time to time, and blocks those who publish then."""
    while True:
        channel.publish("", queue, b"one too many")
        await asyncio.sleep(0.01)
