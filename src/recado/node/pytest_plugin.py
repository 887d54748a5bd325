"""The pytest fixture `recado_broker`: a fresh broker for each test that asks for one.

    def test_hello(recado_broker):
        connection = pika.BlockingConnection(pika.URLParameters(recado_broker.url))

pytest loads this module in every run where recado is installed, so it imports nothing heavy until a test uses
the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from recado.node.broker import Broker


@pytest.fixture
def recado_broker() -> Iterator[Broker]:
    """A fresh broker on a free loopback port, with the user guest and without a data folder."""
    from recado.node.broker import Broker

    with Broker() as broker:
        yield broker
