"""A pytest plugin for amqpstorm's functional tests, which have RabbitMQ's ports fixed in their code.

Connections to those ports are led to our broker. The tests delete their queues and exchanges by
RabbitMQ's HTTP API; here they do so by AMQP, on either broker.
"""

import os
from collections.abc import Iterable
from contextlib import suppress

from amqpstorm import AMQPChannelError, Connection
from amqpstorm.io import IO
from amqpstorm.tests import HOST, PASSWORD, USERNAME
from amqpstorm.tests.functional import utility

OURS = {5672: int(os.environ["SUITE_AMQP_PORT"]), 5671: int(os.environ["SUITE_AMQPS_PORT"])}

original = IO._get_socket_addresses


def get_socket_addresses(connecting: IO) -> list[object]:
    asked = connecting._parameters
    connecting._parameters = {**asked, "port": OURS.get(asked["port"], asked["port"])}
    try:
        addresses: list[object] = original(connecting)
    finally:
        connecting._parameters = asked
    return addresses


def clean(names: Iterable[str], queue: bool = False, exchange: bool = False) -> None:
    """Delete the queues and exchanges of a test; one that does not exist is no error."""
    if not (queue or exchange):
        return
    with Connection(HOST, USERNAME, PASSWORD) as connection:
        for name in names:
            for deletes, kind in ((queue, "queue"), (exchange, "exchange")):
                if deletes:
                    delete(connection, kind, name)


def delete(connection: Connection, kind: str, name: str) -> None:
    """On a channel of its own, which the broker closes when it refuses."""
    with suppress(AMQPChannelError), connection.channel() as channel:
        getattr(channel, kind).delete(name)


IO._get_socket_addresses = get_socket_addresses
utility.clean = clean
