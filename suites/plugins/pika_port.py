"""A pytest plugin for pika's tests, which have RabbitMQ's ports fixed in their code.

Whatever asks pika for the port of a connection is told where our broker listens instead.
"""

import os
import sys

import pytest
from pika.connection import Parameters

OURS = {5672: int(os.environ["SUITE_AMQP_PORT"]), 5671: int(os.environ["SUITE_AMQPS_PORT"])}

original = Parameters.port


def port(parameters: Parameters) -> int:
    chosen: int = original.fget(parameters)
    return OURS.get(chosen, chosen)


Parameters.port = property(port, original.fset)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run without TLS what was asked for with TLS.

    pika's tests look for the option in `sys.argv`, which the workers of pytest-xdist do not have.
    """
    if config.getoption("--use-tls") and "--use-tls" not in sys.argv:
        raise pytest.UsageError("--use-tls has no effect here: pika's tests look into sys.argv")
