"""A broker with the management API, embedded in the test's process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import recado

from .http import Api


@pytest.fixture
def broker() -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0, "metrics_port": 0}}) as running:
        yield running


@pytest.fixture
def api(broker: recado.Broker) -> Api:
    assert broker.management_port is not None
    return Api(broker.management_port)
