"""pika: dead letters of a quorum queue that are to be taken at least once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .traffic import bodies, get, put, take

# RabbitMQ tries again after three minutes, which is longer than a test should take.
pytestmark = pytest.mark.parametrize("server", ["recado"], indirect=True)


@pytest.fixture
def at_least_once(
    channel: BlockingChannel, name: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """A queue, and that of its dead letters, which is not declared yet."""
    queue, graveyard = name("at-least-once"), name("graveyard")
    channel.queue_declare(
        queue,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-overflow": "reject-publish",
            "x-dead-letter-strategy": "at-least-once",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": graveyard,
        },
    )
    yield queue, graveyard
    for each in (queue, graveyard):
        channel.queue_delete(each)


def test_letters_wait_for_a_queue_and_for_room_in_it(
    channel: BlockingChannel, at_least_once: tuple[str, str]
) -> None:
    queue, graveyard = at_least_once
    put(channel, queue, b"1", b"2", b"3", delivery_mode=2)
    for delivery in take(channel, queue, 3, auto_ack=False):
        channel.basic_reject(delivery.tag, requeue=False)
    assert get(channel, queue) is None
    channel.queue_declare(
        graveyard,
        durable=True,
        arguments={"x-max-length": 1, "x-overflow": "reject-publish"},
    )
    assert bodies(take(channel, graveyard, 3)) == [b"1", b"2", b"3"]
