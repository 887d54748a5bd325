"""A pytest plugin for pika's tests, which have RabbitMQ's port fixed in their code.

Whatever asks pika for the port of a connection is told where our broker listens instead.
"""

import os

from pika.connection import Parameters

THEIRS = 5672
OURS = int(os.environ["SUITE_AMQP_PORT"])

original = Parameters.port


def port(parameters: Parameters) -> int:
    chosen: int = original.fget(parameters)
    return OURS if chosen == THEIRS else chosen


Parameters.port = property(port, original.fset)
