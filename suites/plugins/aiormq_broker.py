"""A pytest plugin for aiormq's tests: the fixtures that lead them to our broker.

aiormq's own, which start RabbitMQ in a container, are not part of its distribution. Two tests of
closing a connection with an error of their own are repeated when they fail: on every broker, the
answer to the close sometimes ends the connection before aiormq has passed that error on.
"""

import os
from types import SimpleNamespace

import pytest
from yarl import URL

HOST = os.environ["SUITE_AMQP_HOST"]
PORTS = {
    "5672/tcp": int(os.environ["SUITE_AMQP_PORT"]),
    "5671/tcp": int(os.environ["SUITE_AMQPS_PORT"]),
}
RACING_TESTS = (
    "test_closing_waiter_cancellation",
    "test_connection_close_during_publish_drain",
)
RERUNS = 10  # on RabbitMQ up to four in ten fail while the machine is busy


@pytest.fixture(scope="session")
def rabbitmq_container() -> SimpleNamespace:
    return SimpleNamespace(host=HOST, ports=PORTS)


@pytest.fixture(scope="session")
def amqp_direct_url() -> URL:
    return URL.build(
        scheme="amqp",
        user="guest",
        password="guest",
        path="//",
        host=HOST,
        port=PORTS["5672/tcp"],
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.startswith(RACING_TESTS):
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))
