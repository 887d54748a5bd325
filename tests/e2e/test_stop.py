"""The end of a broker: on SIGTERM it tells every client so, with 320, and listens no more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pika
import pytest
from pika import BlockingConnection
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker

from workshop.peers import Server

from .traffic import Inbox, await_that, put


@pytest.fixture(params=["recado", "rabbitmq"])
def doomed(
    request: pytest.FixtureRequest, start: Callable[[str], AbstractContextManager[Server]]
) -> Iterator[Server]:
    """A broker of its own, since the test ends it."""
    with start(request.param) as running:
        yield running


def test_sigterm_closes_every_client_with_320(doomed: Server) -> None:
    parameters = pika.URLParameters(doomed.url)
    idle, consuming, publishing = (BlockingConnection(parameters) for _ in range(3))
    queue = consuming.channel().queue_declare("", exclusive=True).method.queue
    inbox = Inbox(consuming.channel(), queue)
    put(publishing.channel(), queue, b"before the end")
    inbox.wait(1)

    os.kill(doomed.pid, signal.SIGTERM)
    for connection in (idle, consuming, publishing):
        with pytest.raises(ConnectionClosedByBroker) as closed:
            await_that(connection, lambda: False)
        assert closed.value.reply_code == 320
        assert closed.value.reply_text.startswith("CONNECTION_FORCED - broker forced connection")
    with pytest.raises(AMQPConnectionError):
        BlockingConnection(parameters)
