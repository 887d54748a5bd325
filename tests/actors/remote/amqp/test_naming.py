"""The names are a contract between all nodes on a broker, so they are written out."""

from __future__ import annotations

import pytest

from recado.actors.remote.amqp import naming
from recado.actors.remote.amqp.settings import EXCHANGE_PARAMETERS, QUEUE_PARAMETERS, Storage
from recado.actors.remote.amqp.topology import (
    BindingSpec,
    ExchangeSpec,
    QueueSpec,
    client_topology,
    server_topology,
)


def test_the_server_bridge() -> None:
    plan = server_topology("node1", Storage.DURABLE)
    exchange = ExchangeSpec("actor.exchange.in.node1", EXCHANGE_PARAMETERS[Storage.DURABLE])
    assert plan.exchange == "actor.exchange.in.node1"
    assert plan.read_objects == (
        exchange,
        QueueSpec("actor.queue.in.node1", QUEUE_PARAMETERS[Storage.DURABLE]),
        BindingSpec("actor.queue.in.node1", "actor.exchange.in.node1", "to.server.node1"),
    )
    assert plan.write_objects == (exchange,)


def test_the_client_bridge() -> None:
    plan = client_topology("node1", "7", Storage.TRANSIENT)
    assert plan.exchange == "actor.exchange.in.node1"
    assert plan.read_objects == (
        QueueSpec("actor.queue.out.node1.7", QUEUE_PARAMETERS[Storage.TRANSIENT]),
        BindingSpec("actor.queue.out.node1.7", "actor.exchange.in.node1", "client.node1.7"),
    )
    assert plan.probe_key == "to.server.node1"


def test_what_each_policy_keeps() -> None:
    flags = {
        policy: (queue.durable, queue.exclusive, queue.auto_delete)
        for policy, queue in QUEUE_PARAMETERS.items()
    }
    assert flags == {
        Storage.DURABLE: (True, False, False),
        Storage.TRANSIENT: (False, False, False),
        Storage.EXCLUSIVE_AUTODELETE: (False, True, True),
    }


def test_names_that_no_broker_takes() -> None:
    naming.check_names("ñ" * 100, "c" * 38)
    with pytest.raises(ValueError, match="1 bytes too long"):
        naming.check_names("ñ" * 100, "c" * 39)
    with pytest.raises(ValueError, match="1 bytes too long"):
        naming.check_names("n" * 238)
    with pytest.raises(ValueError, match="needs a name"):
        naming.check_names("")
