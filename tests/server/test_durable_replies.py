"""A session whose replies wait for the store (SE6)."""

from __future__ import annotations

import pytest

from recado.amqp.events import ContentReceived, HeartbeatReceived, MethodReceived
from recado.amqp.methods import (
    BasicConsume,
    BasicGet,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from recado.amqp.properties import Properties
from recado.broker.broker import Broker
from recado.server.output_buffer import CONGESTED_BYTES, HELD_OPERATIONS_MAX, STALLED_BYTES

from ..broker.stores import PagingStore
from .client import Client, new_broker, publishing

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
def store() -> PagingStore:
    return PagingStore(1 << 30)


@pytest.fixture
def broker(store: PagingStore) -> Broker:
    return new_broker(store=store)


def methods(client: Client) -> list[Method]:
    return [
        event.method
        for event in client.received()
        if isinstance(event, MethodReceived | ContentReceived)
    ]


def go_on(client: Client) -> None:
    client.session.process_input(0)


def test_a_durable_declaration_is_answered_once_it_is_safe(
    broker: Broker, store: PagingStore
) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)), (1, ExchangeDeclare("e", "fanout")))
    assert methods(client) == []
    store.sync()
    assert methods(client) == [QueueDeclareOk("q", 0, 0), ExchangeDeclareOk()]


@pytest.mark.parametrize("no_wait", [False, True])
def test_declarations_that_arrive_together_share_a_sync(
    broker: Broker, store: PagingStore, no_wait: bool
) -> None:
    client = Client(broker)
    names = [f"q{i}" for i in range(HELD_OPERATIONS_MAX - 1)]
    declared = [(1, QueueDeclare(name, durable=True, no_wait=no_wait)) for name in names]
    client.send(*declared, (1, BasicQos(0, 1)))
    assert methods(client) == []
    store.sync()
    replies = [] if no_wait else [QueueDeclareOk(name, 0, 0) for name in names]
    assert methods(client) == [*replies, BasicQosOk()]


def test_operations_during_a_sync_wait_for_the_next(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("early", durable=True)))
    end_sync = store.begin_sync()
    client.send((1, QueueDeclare("late", durable=True)), (1, QueueDelete("early")))
    assert methods(client) == []
    end_sync()
    assert methods(client) == [QueueDeclareOk("early", 0, 0)]
    assert client.session.has_held_output
    store.sync()
    assert methods(client) == [QueueDeclareOk("late", 0, 0), QueueDeleteOk(0)]
    assert not client.session.has_held_output


def test_operations_that_wait_for_a_sync_are_limited(broker: Broker, store: PagingStore) -> None:
    """While the disk is full no sync comes, and the peer must not fill the memory meanwhile."""
    client = Client(broker)
    count = HELD_OPERATIONS_MAX + 1
    client.send(*((1, QueueDeclare(f"q{i}", durable=True, no_wait=True)) for i in range(count)))
    queues = broker.vhosts["/"].queues
    assert len(queues) == HELD_OPERATIONS_MAX
    assert client.session.is_stalled
    end_sync = store.begin_sync()
    go_on(client)
    assert len(queues) == HELD_OPERATIONS_MAX
    end_sync()
    go_on(client)
    assert len(queues) == count
    assert not client.session.is_stalled


def test_output_that_waits_for_a_sync_is_limited(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.call(QueueDeclare("q"))
    client.feed(publishing(1, "q", bytes(STALLED_BYTES // 4)) * 10)
    client.send((1, QueueDeclare("lasting", durable=True)), *[(1, BasicGet("q", True))] * 10)
    assert broker.vhosts["/"].queues["q"].ready == 6
    store.sync()
    assert len(methods(client)) == 5
    client.feed(b"")
    assert len(methods(client)) == 6


def test_a_connection_closed_behind_a_durable_operation(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)), (0, ConnectionClose(200, "", 0, 0)))
    assert not client.session.is_finished
    store.sync()
    assert methods(client) == [QueueDeclareOk("q", 0, 0), ConnectionCloseOk()]
    assert client.session.is_finished


def test_existing_entities_need_no_sync(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)))
    store.sync()
    client.received()
    assert [type(event) for event in client.call(QueueDeclare("q", durable=True))] == [
        MethodReceived
    ]


def test_a_declaration_waits_for_the_equal_one_of_another_client(
    broker: Broker, store: PagingStore
) -> None:
    first, second = Client(broker), Client(broker)
    for client in (first, second):
        client.send((1, QueueDeclare("q", durable=True)))
    assert methods(second) == [], "both are told of the same thing, which is not safe"
    store.sync()
    assert methods(first) == methods(second) == [QueueDeclareOk("q", 0, 0)]
    first.send((1, QueueDelete("q")))
    second.send((1, QueueDelete("q")))
    assert methods(second) == [], "that it is gone is not safe either"
    store.sync()
    assert methods(first) == methods(second) == [QueueDeleteOk(0)]


def test_a_heartbeat_waits_for_nothing(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)))
    client.session.send_heartbeat()
    assert client.received() == [HeartbeatReceived()]
    assert client.session.has_held_output
    store.sync()
    assert methods(client) == [QueueDeclareOk("q", 0, 0)]


def test_one_that_wants_no_answer_goes_on_too(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True, no_wait=True)), (1, ConfirmSelect()))
    assert methods(client) == []
    store.sync()
    assert len(methods(client)) == 1


def test_a_commit_is_answered_once_it_is_safe(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)))
    store.sync()
    client.call(TxSelect())
    client.feed(publishing(1, "q", b"1", PERSISTENT))
    client.send((1, TxCommit()))
    assert methods(client) == []
    store.sync()
    assert methods(client) == [TxCommitOk()]


def test_deliveries_stay_behind_an_answer_that_waits(broker: Broker, store: PagingStore) -> None:
    consumer, publisher = Client(broker), Client(broker)
    consumer.call(QueueDeclare("q"), BasicConsume("q", "tag", False, no_ack=True))
    consumer.send((1, QueueDeclare("lasting", durable=True)))
    publisher.feed(publishing(1, "q", bytes(CONGESTED_BYTES // 2)) * 3)
    assert methods(consumer) == []
    assert consumer.session.congested, "what waits is not without bounds"
    store.sync()
    first, *others = methods(consumer)
    assert first == QueueDeclareOk("lasting", 0, 0)
    assert len(others) == 2


def test_confirms_do_not_wait_for_the_session(broker: Broker, store: PagingStore) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)))
    store.sync()
    client.call(ConfirmSelect())
    client.feed(publishing(1, "q", b"1", PERSISTENT))
    assert methods(client) == []
    assert not client.session.has_held_output
    client.feed(publishing(1, "q", b"2", PERSISTENT))
    store.sync()
    assert len(client.received()) == 1
