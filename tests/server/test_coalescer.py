"""Coalesced publishes, as connections see them."""

from recado.amqp import methods as m
from recado.broker.broker import Broker

from .client import Client, new_broker, publishing


def in_turns() -> Broker:
    broker = new_broker()
    broker.coalescer.is_enabled = True
    return broker


def test_a_closing_consumer_does_not_get_coalesced_messages() -> None:
    """A closing consumer must not get the coalesced message."""
    broker = in_turns()
    publisher, taker = Client(broker), Client(broker)
    taker.call(m.QueueDeclare("q"), m.BasicConsume("q", no_ack=True))
    publisher.feed(publishing(1, "q", b"x"))
    taker.session.terminate(0)
    assert broker.vhosts["/"].queues["q"].ready == 1


def test_a_command_sees_earlier_publishes() -> None:
    broker = in_turns()
    publisher, asker = Client(broker), Client(broker)
    asker.call(m.QueueDeclare("q"))
    publisher.feed(publishing(1, "q", b"x"))
    assert [getattr(event, "method", None) for event in asker.call(m.QueuePurge("q"))] == [
        m.QueuePurgeOk(1)
    ]


def test_coalesced_messages_are_dropped_with_their_queue() -> None:
    broker = in_turns()
    publisher, owner = Client(broker), Client(broker)
    owner.call(m.QueueDeclare("q", exclusive=True))
    publisher.feed(publishing(1, "q", b"x"))
    owner.session.terminate(0)
    assert not broker.has_pending_work
    assert not broker.vhosts["/"].queues
