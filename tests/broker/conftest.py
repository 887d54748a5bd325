"""Fixtures of the broker's tests, and the Hypothesis profile: no deadlines, for busy machines."""

import pytest
from hypothesis import HealthCheck, settings

from recado.broker.broker import Broker
from recado.broker.channel import Channel

from .stage import Peer, new_broker, open_channel

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture
def broker() -> Broker:
    return new_broker()


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def channel(broker: Broker, peer: Peer) -> Channel:
    return open_channel(broker, peer)
