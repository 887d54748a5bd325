"""Messages of a queue are removed, all or those that match; the others keep their places."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recado.client import ChannelClosedByBrokerError
from recado.patterns import Message, Messaging, PointToPoint, purge
from tests.client.running import in_a_loop
from workshop.peers import Server


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
@in_a_loop
async def test_matching_messages_are_removed(
    server: Server, name: Callable[[str], str], queue_type: str
) -> None:
    queue = PointToPoint(name("orders"), queue_type=queue_type)  # type: ignore[arg-type]
    async with Messaging(server.url) as app:
        for number in range(10):
            await app.publish(queue, Message(body={"n": number}, headers={"test": number % 2 == 0}))
        assert await purge(app, queue.name, "headers.test AND json.n > 3") == 3
        left = []
        while True:
            async with app.consume(queue) as message:
                if message is None:
                    break
                left.append(message.body["n"])
        assert left == [0, 1, 2, 3, 5, 7, 9]
        await app.publish_many(queue, [1, 2, 3])
        assert await purge(app, queue.name, lambda message: message.body == b"2") == 1
        assert await purge(app, queue.name) == 2
        assert await purge(app, queue.name, "TRUE = TRUE") == 0


@in_a_loop
async def test_an_unknown_queue_is_an_error(server: Server, name: Callable[[str], str]) -> None:
    async with Messaging(server.url) as app:
        for condition in (None, "priority = 1"):
            with pytest.raises(ChannelClosedByBrokerError, match="404"):
                await purge(app, name("none"), condition)
        assert app.health().is_healthy
