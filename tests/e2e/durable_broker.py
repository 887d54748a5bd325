"""A broker that ends and comes back on the same folder, with a client on it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from workshop import peers


@contextmanager
def durable_broker(
    folder: Path, stop: signal.Signals = signal.SIGKILL
) -> Iterator[BlockingChannel]:
    """A broker for as long as the block lasts, and a channel with confirms that does not see its end."""
    with peers.recado(data=folder, stop=stop) as server:
        connection = BlockingConnection(pika.URLParameters(server.url))
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    with suppress(AMQPError):  # the broker is gone; what is left of the connection goes too
        connection.close()
