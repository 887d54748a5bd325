"""What all tests have in common: the brokers; and only the tests of a room count for its coverage.

To count lines takes three times as long where most of the work is in the rooms that are counted, as for
whole brokers that lose their power five hundred times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import (
    authority,
    certificates,
    name,
    rabbitmq_server,
    recado_server,
    server,
    start,
)

__all__ = [
    "authority",
    "certificates",
    "name",
    "rabbitmq_server",
    "recado_server",
    "server",
    "start",
]

COUNTING = {"amqp", "broker", "journal", "node", "selector", "server", "simulator"}
TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] not in COUNTING:
            item.add_marker("no_cover")
