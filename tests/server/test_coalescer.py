"""Coalesced publishes, as connections see them."""

from recado.amqp import methods as m
from recado.broker.broker import Broker

from .client import Client, new_broker, publishing


def in_turns() -> Broker:
    broker = new_broker()
    broker.coalescer.is_enabled = True
    return broker


def test_who_leaves_is_not_given_what_waits() -> None:
    """A closing consumer must not get the coalesced message."""
    broker = in_turns()
    publisher, taker = Client(broker), Client(broker)
    taker.call(m.QueueDeclare("q"), m.BasicConsume("q", no_ack=True))
    publisher.feed(publishing(1, "q", b"x"))
    taker.session.terminate(0)
    assert broker.vhosts["/"].queues["q"].ready == 1


def test_a_command_finds_what_was_published_before_it() -> None:
    broker = in_turns()
    publisher, asker = Client(broker), Client(broker)
    asker.call(m.QueueDeclare("q"))
    publisher.feed(publishing(1, "q", b"x"))
    assert [getattr(event, "method", None) for event in asker.call(m.QueuePurge("q"))] == [
        m.QueuePurgeOk(1)
    ]


def test_what_waits_goes_with_a_queue_that_is_deleted() -> None:
    broker = in_turns()
    publisher, owner = Client(broker), Client(broker)
    owner.call(m.QueueDeclare("q", exclusive=True))
    publisher.feed(publishing(1, "q", b"x"))
    owner.session.terminate(0)
    assert not broker.has_pending_work
    assert not broker.vhosts["/"].queues
