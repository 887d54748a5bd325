"""Types of `recado.feeds`."""

from typing import assert_type

import recado.feeds
from recado.feeds import (
    BlockingFeedConnection,
    Feed,
    FeedConnection,
    FeedOptions,
    Message,
    Subscription,
)


async def program() -> None:
    connection = recado.feeds.connect("amqp://localhost", options=FeedOptions(failure_timeout=5.0))
    assert_type(connection, FeedConnection)
    async with connection:
        feed = connection.feed("quotes")
        assert_type(feed, Feed)
        await feed.publish(b"38.20", key="PETR4")
        async with feed.subscribe("desk-1", recovery="pessimistic") as messages:
            assert_type(messages, Subscription)
            async for message in messages:
                assert_type(message, Message)
                assert_type(message.body, bytes)
                assert_type(message.key, str)

        await feed.publish("38.20")  # type: ignore[arg-type]
        feed.subscribe("desk-1", recovery="sometimes")  # type: ignore[arg-type]
        await connection.feed("quotes")  # type: ignore[misc]


def blocking() -> None:
    with recado.feeds.connect_blocking("amqp://localhost") as connection:
        assert_type(connection, BlockingFeedConnection)
        feed = connection.feed("quotes")
        feed.publish(b"38.20", key="PETR4")
