"""Delayed messages, and dead letters that no queue has accepted yet, over a restart."""

from collections.abc import Callable
from itertools import count

import pytest

from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable
from recado.broker.broker import Broker
from recado.journal.disk import MemoryDisk
from recado.journal.journal import Journal
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker
from tests.broker import at_least_once_queues as letters
from tests.broker import delayed_exchanges as delays
from tests.broker.stage import GUEST, run_of

Restart = Callable[[int], Broker]


@pytest.fixture
def restart() -> Restart:
    """A broker that begins where the one before was cut off."""
    disk = MemoryDisk()
    stores: list[JournalStore] = []

    def begin(now: int) -> Broker:
        for store in stores:
            store.flush()
            store.write()
        stores.clear()
        store = JournalStore(Journal(disk, segment_bytes=1 << 20))
        broker = Broker(map(str, count(1)).__next__, store=store)
        broker.add_user(GUEST)
        restore_broker(store, broker, now)
        stores.append(store)
        return broker

    return begin


def test_delayed_messages_are_delivered_when_due_after_a_restart(restart: Restart) -> None:
    broker = restart(0)
    delays.delayed(broker, durable=True)
    delays.bound(broker)
    for i, delay in enumerate((300, 100, 200, 100, 0)):
        delays.publish(broker, b"%d" % i, delay, delivery_mode=2)
    delays.publish(broker, b"gone", 100)
    broker.tick(99)
    for now in (99, 150):
        broker = restart(now)
        broker.tick(now)
    queue = broker.vhosts["/"].queues["q"]
    assert delays.bodies(queue, 150) == [b"4", b"1", b"3"]
    delays.publish(broker, b"new", 100, now=150, delivery_mode=2)
    broker = restart(160)
    queue = broker.vhosts["/"].queues["q"]
    for now in (199, 200, 250, 300):
        broker.tick(now)
    assert delays.messages(queue, 300) == [
        (b"2", {"x-delay": -200}),
        (b"new", {"x-delay": -100}),
        (b"0", {"x-delay": -300}),
    ]
    broker = restart(400)
    exchange = broker.vhosts["/"].exchanges["later"]
    assert (delays.held(exchange), broker.vhosts["/"].queues["q"].ready) == (0, 0)


def test_many_are_held(restart: Restart) -> None:
    broker = restart(0)
    delays.delayed(broker, durable=True)
    delays.bound(broker)
    wanted = [b"%d" % i for i in range(3000)]
    for i, body in enumerate(wanted):
        delays.publish(broker, body, 1 + i % 7, delivery_mode=2)
    broker = restart(10)
    assert delays.held(broker.vhosts["/"].exchanges["later"]) == 3000
    now = 10
    while broker.deadline() is not None:
        broker.tick(now)
        now += 1
    arrived = delays.bodies(broker.vhosts["/"].queues["q"], now)
    assert arrived == sorted(wanted, key=lambda body: (int(body) % 7, int(body)))


def test_an_exchange_that_is_gone_takes_it_along(restart: Restart) -> None:
    broker = restart(0)
    delays.delayed(broker, durable=True)
    delays.publish(broker, b"x", 10, delivery_mode=2)
    broker.vhosts["/"].delete_exchange("later")
    broker = restart(5)
    exchange = delays.delayed(broker, durable=True)
    assert delays.held(exchange) == 0
    delays.publish(broker, b"y", 10, now=5, delivery_mode=2)
    assert delays.held(restart(6).vhosts["/"].exchanges["later"]) == 1


AT_LEAST_ONCE: FieldTable = {
    "x-queue-type": "quorum",
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dead",
    "x-dead-letter-strategy": "at-least-once",
}


def test_a_dead_letter_that_no_queue_accepted_is_retried_after_a_restart(restart: Restart) -> None:
    """Its message is back in its queue; its time is up, so it dies again."""
    broker = restart(0)
    vhost = broker.vhosts["/"]
    settings = letters.parsed("source", AT_LEAST_ONCE | {"x-message-ttl": 5})
    queue = broker.create_queue(vhost, "source", settings, None, 0)
    queue.publish(run_of([b"1", b"2"], Properties(delivery_mode=2)), 0)
    letters.let_pass(broker, 0)
    assert (queue.ready, queue.held_dead_letters) == (0, 2)
    broker = restart(1_000)
    letters.let_pass(broker, 1_000)
    queue = broker.vhosts["/"].queues["source"]
    assert (queue.ready, queue.held_dead_letters) == (0, 2)
    dead = letters.target(broker)
    letters.let_pass(broker, 2_000)
    assert letters.take_all(dead, 2_000) == [b"1", b"2"]
    broker = restart(3_000)
    letters.let_pass(broker, 3_000)
    queues = broker.vhosts["/"].queues.values()
    assert [(queue.ready, queue.held_dead_letters) for queue in queues] == [(0, 0), (0, 0)]
